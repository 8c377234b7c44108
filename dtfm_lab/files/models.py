"""Load models by name, from a file, or from the section of a job file."""

import os
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import cache
from inspect import Parameter, signature
from itertools import groupby
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import Field, create_model

from dtfm_lab.domain.errors import FileError, UnknownName
from dtfm_lab.domain.job import MODELS, Layer, LayerKind, ModelSpec, estimated_held, gpt, llama, moe
from dtfm_lab.domain.job.model.families import NUMBERS_OF_CHOICES
from dtfm_lab.domain.job.names import model_named, unknown_model
from dtfm_lab.domain.registry import Registry, unknown
from dtfm_lab.files.model_configs import dtype_from_config, model_from_config
from dtfm_lab.files.reading import Section, located, parse, read_mapping

CONFIG_NAME = "config.json"


class LayersSection(Section):
    """``times`` equal layers. If ``held_elements`` is missing, it is estimated from ``output_elements`` (see
    ``estimated_held``)."""

    kind: LayerKind
    times: int = Field(1, ge=1, le=10_000)
    parameters: int
    forward_flop: float
    output_elements: int
    held_elements: int | None = None
    attention_elements: float = 0.0
    selective_elements: int = 0
    selective_flop: float = 0.0
    moved_elements: int = 0
    frozen_elements: int = 0
    expert_elements: int = 0
    gated_elements: int = 0
    kv_elements: int = 0


class WholeSection(Section):
    """A model layer by layer. All models except presets are written in this form."""

    name: str
    family: str = "gpt"
    source: str = ""
    d_model: int
    n_heads: int
    head_dim: int = 0
    seq_len: int
    vocab_size: int
    tied: bool
    n_experts: int = 0
    experts_per_token: int = 0
    length_from: str = ""
    part_of: str = ""
    layers: list[LayersSection] = Field(max_length=10_000)


NUMBERS_OF_A_LAYER = ("parameters", "forward_flop", "output_elements", "held_elements")

FAMILIES: Registry[Callable[..., ModelSpec]] = Registry(
    "model family", group="dtfm_lab.models", entries={"gpt": gpt, "llama": llama, "moe": moe}
)
"""Functions that build the models of a family. The keys of a file's section are the function's keywords."""


@cache
def section_of(build: Callable[..., ModelSpec]) -> type[Section]:
    """Return the section class of a family, derived from the signature of its function."""
    hints = get_type_hints(build)
    keys: dict[str, Any] = {
        name: (hints[name], ... if parameter.default is Parameter.empty else parameter.default)
        for name, parameter in signature(build).parameters.items()
    }
    return create_model("FamilySection", __base__=Section, family=(str, ""), **keys)


def model_or_file(given: str | os.PathLike[str], known: Collection[str], folder: str | os.PathLike[str] = "") -> str:
    """Return the known name that ``given`` spells. If it is unknown or names a file, return ``given`` itself."""
    name = os.fspath(given)
    # os.path.exists is False for a name too long for a file, where Path.exists raises OSError
    return name if os.path.exists(os.path.join(folder, name)) else model_named(name, known)


def load_model(
    name_or_path: str | os.PathLike[str], *, seq_len: int | None = None, folder: str | os.PathLike[str] = ""
) -> ModelSpec:
    """Return a preset by name, or the model of a Hugging Face config.json or its folder.

    The hub's own names work, such as ``meta-llama/Llama-3.1-8B-Instruct``.

    Parameters
    ----------
    seq_len
        Tokens per sequence, instead of the preset's, or of the longest that the config.json names.
    folder
        Base folder of a relative path.

    Raises FileError, JobError or UnknownName. The error for a mistake in a config.json names the file and the key.
    """
    name = model_or_file(name_or_path, MODELS, folder)
    model = MODELS[name] if name in MODELS else _from_path(name, Path(folder, name))
    return model if seq_len is None else model.with_seq_len(seq_len)


def dtype_of_model(name_or_path: str | os.PathLike[str], *, folder: str | os.PathLike[str] = "") -> str | None:
    """Return the dtype stated in the config.json that ``load_model`` reads; None for a preset or if it states none.

    Raises FileError for a dtype that no job supports or a file that cannot be read, UnknownName for an unknown name.
    """
    name = model_or_file(name_or_path, MODELS, folder)
    if name in MODELS:
        return None
    path = _config_path(name, Path(folder, name))
    return dtype_from_config(read_mapping(path), where=str(path))


def model_from_section(data: dict[str, Any], where: str) -> ModelSpec:
    """Return a model from its fields. They are the fields of ``gpt``, of another family (``family: llama``), or layers
    one by one."""
    if "layers" in data:
        whole = parse(WholeSection, data, where)
        with located(where):
            rows = [(_layer(row), row.times) for row in whole.layers]
            layers = tuple(layer for layer, times in rows for _ in range(times))
            return ModelSpec(**whole.model_dump(exclude={"layers"}), layers=layers)
    family = data.get("family", "gpt")
    if not isinstance(family, str) or family not in FAMILIES:
        raise UnknownName(f"{where}: {unknown('model family', family, FAMILIES)}")
    build = FAMILIES[family]
    fields = parse(section_of(build), data, where).model_dump(exclude={"family"})
    with located(where):
        return build(**fields)


def model_to_section(model: ModelSpec) -> str | dict[str, Any]:
    """Return a preset's name, or all fields needed to read back an equal model."""
    if MODELS.get(model.name) == model:
        return model.name
    sometimes = ("source", "n_experts", "experts_per_token", "length_from", "part_of")
    said = {name: getattr(model, name) for name in WholeSection.model_fields if name != "layers"}
    layers = []
    for layer, alike in groupby(model.layers):
        row: dict[str, Any] = {"kind": str(layer.kind), "times": sum(1 for _ in alike)}
        row |= {name: getattr(layer, name) for name in NUMBERS_OF_A_LAYER}
        layers.append(row | {name: number for name in NUMBERS_OF_CHOICES if (number := getattr(layer, name))})
    return {name: value for name, value in said.items() if value or name not in sometimes} | {"layers": layers}


def _layer(row: LayersSection) -> Layer:
    layer = Layer(**row.model_dump(exclude={"times"}, exclude_none=True))
    if row.held_elements is not None:
        return layer
    return replace(layer, held_elements=estimated_held(layer.kind, layer.output_elements))


def _from_path(name: str, path: Path) -> ModelSpec:
    path = _config_path(name, path)
    title = path.resolve().parent.name if path.name == CONFIG_NAME else path.stem
    return model_from_config(read_mapping(path), where=str(path), name=title or path.stem)


def _config_path(name: str, path: Path) -> Path:
    """Return the config.json that a path names or its folder holds. Raises FileError or UnknownName if there is
    none."""
    if name and os.path.isdir(path):
        path /= CONFIG_NAME
    elif path.suffix != ".json" and not os.path.isfile(path):
        raise unknown_model("model", name, MODELS)
    if not os.path.isfile(path):
        raise FileError(f"{path}: no such file; wanted a preset's name, a {CONFIG_NAME} or a folder that holds one")
    return path
