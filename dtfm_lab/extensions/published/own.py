"""Your own published or measured numbers: a CSV or JSON file whose rows are planned and simulated like any other.

A row has these columns. Columns with a default may be left out, and so may single values.

===========  ===========================================================================================================
setting      What was measured, in words.
quantity     ``iteration``, ``throughput``, ``memory``, ``bubble``, ``utilisation`` or ``compute``.
published    The number. Not allowed if rows are predicted blind.
unit         s or ms; tokens/s or samples/s, followed by "a GPU" if per GPU; GiB, GB or bytes; % or nothing;
             TFLOP/s a GPU. The default is the first unit of the quantity.
network      A name, or a file relative to this file's folder. Or use these columns instead:
gpu, gpus    The kind and number of GPUs, with ``gpus_a_host`` per host (8 by default), ``inside_gbps`` between two
             GPUs of a host, and ``between_gbps`` for a whole host's network.
job          A name or a file, ``gpt3-xl`` by default.
n_layers, d_model, n_heads, vocab_size
             A GPT of this shape instead of a model's name. With ``d_ff`` or ``n_kv_heads`` it is a Llama.
(job field)  Any field of the job, such as n_stages, n_replicas, microbatch, global_batch, sharding, transport.
schedule     A schedule's name. The default is the job's.
queueing     ``pairs`` or ``nics``; ``pairs`` by default.
rank_map     Rank of each device, pipeline x n_stages + stage, or a dash if idle: ``0 1 2 3``. ``listed`` is
             Megatron-LM's order: GPUs of a layer are neighbours, then replicas, then stages. By default it is planned.
efficiency   Share of the peak. ``fit`` takes the median of the group's other rows that say ``fit``. By default the lab
             uses its own value for the GPU and the job.
band         ``3%``, ``1.3x``, ``+-0.0005`` (a difference) or ``0.9 to 1.1``; ``10%`` by default.
group        Rows with the same group are summarised together; ``own`` by default.
theirs, note, cite
             The system's own prediction, a remark, and the source of the number.
===========  ===========================================================================================================
"""

import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dtfm_lab.domain.errors import FileError, LabError
from dtfm_lab.domain.job import Job, JobChanges, ModelSpec, gpt, llama
from dtfm_lab.domain.network import QUEUEING, Topology, shortened
from dtfm_lab.domain.options import Option, options_of
from dtfm_lab.domain.registry import current_name, unknown
from dtfm_lab.domain.units import from_gbps
from dtfm_lab.extensions.published.row import Band, band_of
from dtfm_lab.extensions.published.units import PER_HOST, UNITS, hosts_of
from dtfm_lab.files import load_job, load_topology, override
from dtfm_lab.files.reading import cells_of, read_text, reason_of
from dtfm_lab.simulation.schedules import schedules

LISTED = "listed"
"""Value of ``rank_map`` that gives ranks in the order in which devices are listed, replicas before stages."""
FIT = "fit"
"""Value of ``efficiency`` that fits it to the other rows of the group."""
GPUS = ("gpu", "gpus", "gpus_a_host", "inside_gbps", "between_gbps")
"""Columns that a row can have instead of ``network``."""
SHAPE = ("n_layers", "d_model", "n_heads", "vocab_size", "d_ff", "n_kv_heads")
"""Columns that a row can have instead of the name of a model."""
MOST_GPUS = 16_384
"""Maximum GPUs per row. Links between all pairs of them take some gigabytes."""
MOST_ROWS = 2_000
"""Maximum rows per file. Each has its own network."""
TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
JOB_FIELDS = {option.name: option for option in options_of(JobChanges) if option.name != "schedule"}
NEEDED = "setting", "quantity", "published", "network"
COLUMNS = (
    *NEEDED,
    *GPUS,
    *SHAPE,
    *("unit", "job", "schedule", "queueing", "rank_map", "efficiency", "band", "group", "theirs", "note", "cite"),
)


@dataclass(frozen=True, kw_only=True)
class OwnRow:
    """A row of a file, read and checked but not yet predicted."""

    where: str
    """File and row, for error messages."""
    setting: str
    quantity: str
    unit: str
    published: float
    """The published or measured number; NaN if the row is predicted blind."""
    topology: Topology
    job: Job
    rank_map: tuple[int | None, ...] | None
    listed: bool
    """True if devices take their ranks in the listed order, replicas before stages."""
    schedule: str | None
    queueing: str
    efficiency: float | None
    """The share of the peak that the row states. None if it is fitted, or if the lab's own value applies."""
    fitted: bool
    """True if the efficiency is fitted to other rows of the group."""
    band: Band
    group: str
    theirs: float | None
    note: str
    cite: str
    given: tuple[str, ...]
    """Fields of the job that the row sets, each as text: ``microbatch 2``."""


def read_rows(path: str | os.PathLike[str], *, blind: bool = False) -> tuple[OwnRow, ...]:
    """Return the rows of a CSV or JSON file. With ``blind``, rows must not have published numbers.

    Raises FileError, in one line that names the row and the column.
    """
    file = Path(path)
    given = list(records(file))
    if not given:
        raise FileError(f"{file.name} has no rows; wanted columns {', '.join(NEEDED)} and a row for each number")
    if len(given) > MOST_ROWS:
        raise FileError(f"{file.name} has {len(given):,} rows; wanted at most {MOST_ROWS:,}, as each is planned")
    return tuple(_read(record, file, number, blind) for number, record in given)


def document_of(path: str | os.PathLike[str]) -> Any:
    """Return what a JSON file holds; None for a file with another ending. Raises FileError if it is not JSON."""
    file = Path(path)
    if file.suffix.lower() != ".json":
        return None
    try:
        return json.loads(read_text(file))
    except (ValueError, RecursionError) as error:
        raise FileError(f"{file.name}: {reason_of(error)}; wanted JSON") from None


def records(file: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the row number, counted from 1 after the headings, and the given values as text."""
    document = document_of(file)
    if document is not None:
        rows = document.get("rows") if isinstance(document, dict) else document
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise FileError(f"{file.name} holds no list of rows; wanted a list of objects, or one under 'rows'")
        listed = [{str(key): "" if value is None else _text(value) for key, value in row.items()} for row in rows]
    else:
        lines = [line for line in read_text(file).splitlines() if line.strip() and not line.startswith("#")]
        (_, columns), *rows = [*cells_of("\n".join(lines), file)] or [(0, [])]
        for number, (_, cells) in enumerate(rows, 1):
            # A column too many or few moves all values after it.
            if len(cells) != len(columns) or "" in columns:
                raise FileError(
                    f"{file.name}, row {number} has not as many values as there are columns, each with a name: "
                    f"{len(cells)} for {len(columns)}; wanted one each"
                )
        listed = [dict(zip(columns, cells, strict=True)) for _, cells in rows]
    for number, row in enumerate(listed, 1):
        where = f"{file.name}, row {number}"
        for column in row:
            if column not in COLUMNS and column not in JOB_FIELDS:
                raise FileError(f"{where}: {unknown('column', column, [*COLUMNS, *JOB_FIELDS])}")
        # An empty cell means that the value is not given.
        yield number, {column: value.strip() for column, value in row.items() if value.strip()}


def _text(value: Any) -> str:
    return " ".join("-" if each is None else str(each) for each in value) if isinstance(value, list) else str(value)


def _read(record: Mapping[str, str], file: Path, number: int, blind: bool) -> OwnRow:
    where = f"{file.name}, row {number}"
    if blind and "published" in record:
        # Seen numbers would not be blind.
        raise FileError(f"{where}, column published: {record['published']}; wanted none, to predict the row blind")
    for column in NEEDED:
        given = column in record or (column == "network" and "gpus" in record) or (column == "published" and blind)
        if not given:
            raise FileError(f"{where}, column {column}: nothing; wanted a value")

    def checked(column: str, read: Any, default: Any = None) -> Any:
        """Return what ``read`` makes of a column's text; ``default`` if the column is empty. An error names the row and
        the column."""
        if column not in record:
            return default
        try:
            return read(record[column])
        except (LabError, ValueError) as error:
            raise FileError(f"{where}, column {column}: {error}") from None

    quantity = checked("quantity", lambda text: _named("quantity", text, UNITS))
    units = UNITS[quantity]
    # Bound as a default, because a function in a loop sees only the last option.
    changes = {name: checked(name, lambda text, o=option: _value(o, text)) for name, option in JOB_FIELDS.items()}
    changes = {name: value for name, value in changes.items() if name in record}
    job = checked("job", lambda text: load_job(_path(file, text)), None) or load_job("gpt3-xl")
    if "n_layers" in record:
        changes["model"] = shape_in(record, where)
    try:
        job = override(job, **changes)
    except LabError as error:
        raise FileError(f"{where}, columns {', '.join(changes) or 'of the job'}: {error}") from None
    return OwnRow(
        where=where,
        setting=record["setting"],
        quantity=quantity,
        unit=checked("unit", lambda text: _named("unit", text, units), next(iter(units))),
        published=checked("published", positive, math.nan),
        topology=checked("network", lambda text: load_topology(_path(file, text))) or hosts_in(record, where),
        job=job,
        rank_map=None if record.get("rank_map") == LISTED else checked("rank_map", _ranks),
        listed=record.get("rank_map") == LISTED,
        schedule=checked("schedule", lambda text: _named("pipeline schedule", text, schedules)),
        queueing=checked("queueing", lambda text: _named("queueing", text, QUEUEING), "pairs"),
        efficiency=None if record.get("efficiency") == FIT else checked("efficiency", _efficiency),
        fitted=record.get("efficiency") == FIT,
        band=checked("band", band_of, Band.share(0.1)),
        group=record.get("group", "own"),
        theirs=checked("theirs", positive),
        note=record.get("note", ""),
        cite=record.get("cite", ""),
        given=tuple(f"{name} {record[name]}" for name in (*changes, *SHAPE) if name in record),
    )


def _named(noun: str, text: str, known: Any) -> str:
    text = current_name(noun, text)
    if text not in known:
        raise unknown(noun, text, known)
    return text


def _efficiency(text: str) -> float:
    value = positive(text)
    if value > 1:
        raise LabError(f"{shortened(text)}; wanted more than 0 and at most 1, or {FIT}")
    return value


def _ranks(text: str) -> tuple[int | None, ...]:
    ranks = re.split(r"[\s,;]+", text.strip("[] "))
    if any(not re.fullmatch(r"\d+|-", rank) for rank in ranks):
        raise LabError(f"{shortened(text)}; wanted a rank or a dash for each device, such as 0 1 2 3, or {LISTED}")
    return tuple(None if rank == "-" else int(rank) for rank in ranks)


def _value(option: Option, text: str) -> Any:
    """Parse the value of a job's field. Raises LabError for invalid text."""
    if option.type is bool:
        if text.lower() not in TRUTHS:
            raise LabError(f"{shortened(text)}; wanted true or false")
        return TRUTHS[text.lower()]
    if option.type in (int, float):
        try:
            number = float(text)
        except ValueError:
            raise LabError(f"{shortened(text)}; wanted a number") from None
        # Spreadsheets write whole numbers as 8.0 or 1e3.
        return int(number) if number.is_integer() and option.type is int else number
    if option.type is str or option.name == "model":
        return text
    try:
        return tuple(int(part) for part in re.split(r"[\s,;]+", text.strip("[]() ")))
    except ValueError:
        raise LabError(f"{shortened(text)}; wanted whole numbers, such as 3 3 2") from None


def _path(file: Path, text: str) -> str:
    """Return the path of a file in the folder of your own file, if there is one with this name. Otherwise return the
    text: it is a name, or a path relative to the current folder."""
    beside = file.parent / text
    return str(beside) if os.path.isfile(beside) else text  # Path.is_file raises OSError for a name too long


def hosts_in(record: Mapping[str, str], where: str) -> Topology:
    """Return the network of a row that gives GPUs, links inside hosts and links between them. Raises FileError if one
    of these is missing or invalid."""
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
    """Return the model of a row that gives its shape. Raises FileError if a size is missing or invalid."""
    try:
        sizes: dict[str, Any] = {name: _whole(name, record[name]) for name in SHAPE if name in record}
        sizes["seq_len"] = _whole("seq_len", record.get("seq_len", "2048"))
        # Only Llamas have these sizes.
        make = llama if {"d_ff", "n_kv_heads"} & set(sizes) else gpt
        return make(name=record.get("model", "shaped"), **sizes)
    except TypeError:
        # A call without a needed size fails, but its error does not name the column.
        lacking = [name for name in SHAPE[:4] if name not in record]
        raise FileError(
            f"{where}, columns {', '.join(lacking)}: nothing; wanted values, as n_layers is given"
        ) from None
    except LabError as error:
        raise FileError(f"{where}, columns {', '.join(SHAPE)}: {error}") from None


def _whole(name: str, text: str) -> int:
    """Parse a whole number above 0 from a column's text. Raises LabError."""
    if not (value := positive(text)).is_integer():
        raise LabError(f"{name} is {shortened(text)}; wanted a whole number")
    return int(value)


def positive(text: str) -> float:
    """Parse a number above 0. Raises LabError."""
    try:
        # Python would also accept nan, infinity and 1_000.
        value = float(text.replace(",", "")) if re.fullmatch(r"[\d.,eE+-]+", text) else math.nan
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise LabError(f"{shortened(text)}; wanted a number above 0")
    return value
