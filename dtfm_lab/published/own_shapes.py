"""Columns of one's own rows in place of names: GPUs and their links for a network, sizes for a model."""

import math
import re
from collections.abc import Mapping
from typing import Any

from dtfm_lab.domain.errors import FileError, LabError
from dtfm_lab.domain.job import ModelSpec, gpt, llama
from dtfm_lab.domain.network import Topology, shortened
from dtfm_lab.domain.units import from_gbps
from dtfm_lab.published.hosts import PER_HOST, hosts_of

GPUS = ("gpu", "gpus", "gpus_a_host", "inside_gbps", "between_gbps")
"""Columns in place of a network."""
SHAPE = ("n_layers", "d_model", "n_heads", "vocab_size", "d_ff", "n_kv_heads")
"""Columns in place of a model's name."""
MOST_GPUS = 16_384
"""In a row; links between all pairs of them take some gigabytes."""


def hosts_in(record: Mapping[str, str], where: str) -> Topology:
    """The network of a row that gives GPUs, links inside hosts and between them."""
    try:
        gpus, a_host = (_whole(name, record.get(name, str(PER_HOST))) for name in ("gpus", "gpus_a_host"))
        if gpus > MOST_GPUS:
            raise LabError(f"gpus is {gpus}; wanted at most {MOST_GPUS}")
        inside, between = (from_gbps(positive(record[name])) for name in ("inside_gbps", "between_gbps"))
        return hosts_of(gpus, record["gpu"], inside_bytes_per_s=inside, between_bytes_per_s=between, per_host=a_host)
    except KeyError as error:
        raise FileError(f"{where}, column {error.args[0]}: nothing; wanted a value, as gpus are given") from None
    except LabError as error:
        raise FileError(f"{where}, columns {', '.join(GPUS)}: {error}") from None


def shape_in(record: Mapping[str, str], where: str) -> ModelSpec:
    """The model of a row that gives its shape."""
    try:
        sizes: dict[str, Any] = {name: _whole(name, record[name]) for name in SHAPE if name in record}
        sizes["seq_len"] = _whole("seq_len", record.get("seq_len", "2048"))
        make = llama if {"d_ff", "n_kv_heads"} & set(sizes) else gpt
        return make(name=record.get("model", "shaped"), **sizes)
    except TypeError:
        lacking = [name for name in SHAPE[:4] if name not in record]
        raise FileError(
            f"{where}, columns {', '.join(lacking)}: nothing; wanted values, as n_layers is given"
        ) from None
    except LabError as error:
        raise FileError(f"{where}, columns {', '.join(SHAPE)}: {error}") from None


def _whole(name: str, text: str) -> int:
    """A whole number above 0 from the text of a column. Raises LabError."""
    if not (value := positive(text)).is_integer():
        raise LabError(f"{name} is {shortened(text)}; wanted a whole number")
    return int(value)


def positive(text: str) -> float:
    """A number above 0 from text. Raises LabError."""
    try:
        value = float(text.replace(",", "")) if re.fullmatch(r"[\d.,eE+-]+", text) else math.nan
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise LabError(f"{shortened(text)}; wanted a number above 0")
    return value
