"""Published or measured numbers of one's own: a CSV or JSON file whose rows are planned and simulated as any other.

A row has these columns; those with a default may be left out, and so may single values.

===========  ===========================================================================================================
setting      What was measured, in words.
quantity     ``iteration``, ``throughput``, ``memory``, ``bubble``, ``utilisation`` or ``compute``.
published    The number.
unit         s or ms; tokens/s or samples/s, with "a GPU" behind where it is of one; GiB, GB or bytes; % or nothing;
             TFLOP/s a GPU. The first of its quantity by default.
network      A name or a file, from the folder of this file.
job          A name or a file, ``gpt3-xl`` by default.
(job field)  Any field of the job, such as n_stages, n_replicas, microbatch, global_batch, sharding, transport.
schedule     A schedule's name; the job's own by default.
queueing     ``pairs`` or ``cards``; ``pairs`` by default.
rank_map     Rank of each device, pipeline x n_stages + stage, a dash where idle: ``0 1 2 3``. Planned where not given.
efficiency   Share of the peak, 0.4 by default; ``fit`` for the median of the other rows of the group that say so.
band         ``3%``, ``1.3x``, ``+-0.0005`` (a difference) or ``0.9 to 1.1``; ``10%`` by default.
group        What is summed up together; ``own`` by default.
theirs, note, cite
             The system's own prediction, a remark, and where the number is from.
===========  ===========================================================================================================
"""

import csv
import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dtfm_lab.domain.errors import FileError, LabError
from dtfm_lab.domain.job import Job, JobChanges
from dtfm_lab.domain.network import QUEUEING, Topology, shortened
from dtfm_lab.domain.options import Option, options_of
from dtfm_lab.domain.registry import unknown
from dtfm_lab.files import load_job, load_topology, override
from dtfm_lab.files.reading import read_text, reason_of
from dtfm_lab.published.row import Band
from dtfm_lab.published.units import UNITS
from dtfm_lab.simulation.durations import EFFICIENCY
from dtfm_lab.simulation.schedules import schedules

FIT = "fit"
"""Efficiency of a row that takes it from the other rows of its group."""
TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
JOB_FIELDS = {option.name: option for option in options_of(JobChanges) if option.name != "schedule"}
NEEDED = "setting", "quantity", "published", "network"
COLUMNS = (
    *NEEDED,
    *("unit", "job", "schedule", "queueing", "rank_map", "efficiency", "band", "group", "theirs", "note", "cite"),
)


@dataclass(frozen=True, kw_only=True)
class OwnRow:
    """A row of a file, read and checked, not yet predicted."""

    where: str
    """File and row, for errors."""
    setting: str
    quantity: str
    unit: str
    published: float
    topology: Topology
    job: Job
    rank_map: tuple[int | None, ...] | None
    schedule: str | None
    queueing: str
    efficiency: float | None
    """None where it is fitted to other rows."""
    band: Band
    group: str
    theirs: float | None
    note: str
    cite: str
    given: tuple[str, ...]
    """Fields of the job that the row gives, as text."""


def read_rows(path: str | os.PathLike[str]) -> tuple[OwnRow, ...]:
    """The rows of a CSV or JSON file. Raises FileError, one line that names the row and the column."""
    file = Path(path)
    records = list(_records(file))
    if not records:
        raise FileError(f"{file.name} has no rows; wanted columns {', '.join(NEEDED)} and a row for each number")
    return tuple(_read(record, file, number) for number, record in records)


def document_of(path: str | os.PathLike[str]) -> Any:
    """What a JSON file holds; None for a CSV file. Raises FileError."""
    file = Path(path)
    if file.suffix.lower() != ".json":
        return None
    try:
        return json.loads(read_text(file))
    except ValueError as error:
        raise FileError(f"{file.name}: {reason_of(error)}; wanted JSON") from None


def _records(file: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Row numbers, from 1 after the headings, and the values that are given, as text."""
    document = document_of(file)
    if document is not None:
        rows = document.get("rows") if isinstance(document, dict) else document
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise FileError(f"{file.name} holds no list of rows; wanted a list of objects, or one under 'rows'")
        listed = [{str(key): "" if value is None else _text(value) for key, value in row.items()} for row in rows]
    else:
        lines = [line for line in read_text(file).splitlines() if line.strip() and not line.startswith("#")]
        listed = [{str(key or "").strip(): value for key, value in row.items()} for row in csv.DictReader(lines)]
    for number, row in enumerate(listed, 1):
        where = f"{file.name}, row {number}"
        if "" in row or any(not isinstance(value, str) for value in row.values()):
            raise FileError(f"{where} has not as many values as there are columns; wanted one each")
        for column in row:
            if column not in COLUMNS and column not in JOB_FIELDS:
                raise FileError(f"{where}: {unknown('column', column, [*COLUMNS, *JOB_FIELDS])}")
        yield number, {column: value.strip() for column, value in row.items() if value.strip()}


def _text(value: Any) -> str:
    return " ".join("-" if each is None else str(each) for each in value) if isinstance(value, list) else str(value)


def _read(record: Mapping[str, str], file: Path, number: int) -> OwnRow:
    where = f"{file.name}, row {number}"
    for column in NEEDED:
        if column not in record:
            raise FileError(f"{where}, column {column}: nothing; wanted a value")

    def checked(column: str, read: Any, default: Any = None) -> Any:
        """The value that ``read`` makes of a column's text. A refusal names the row and the column."""
        if column not in record:
            return default
        try:
            return read(record[column])
        except (LabError, ValueError) as error:
            raise FileError(f"{where}, column {column}: {error}") from None

    quantity = checked("quantity", lambda text: _named("quantity", text, UNITS))
    units = UNITS[quantity]
    changes = {name: checked(name, lambda text, o=option: _value(o, text)) for name, option in JOB_FIELDS.items()}
    changes = {name: value for name, value in changes.items() if name in record}
    job = checked("job", lambda text: load_job(_path(file, text)), None) or load_job("gpt3-xl")
    try:
        job = override(job, **changes)
    except LabError as error:
        raise FileError(f"{where}, columns {', '.join(changes) or 'of the job'}: {error}") from None
    return OwnRow(
        where=where,
        setting=record["setting"],
        quantity=quantity,
        unit=checked("unit", lambda text: _named("unit", text, units), next(iter(units))),
        published=checked("published", _positive),
        topology=checked("network", lambda text: load_topology(_path(file, text))),
        job=job,
        rank_map=checked("rank_map", _ranks),
        schedule=checked("schedule", lambda text: _named("pipeline schedule", text, schedules)),
        queueing=checked("queueing", lambda text: _named("queueing", text, QUEUEING), "pairs"),
        efficiency=checked("efficiency", _efficiency, EFFICIENCY),
        band=checked("band", band_of, Band.share(0.1)),
        group=record.get("group", "own"),
        theirs=checked("theirs", _positive),
        note=record.get("note", ""),
        cite=record.get("cite", ""),
        given=tuple(f"{name} {record[name]}" for name in changes),
    )


def band_of(text: str) -> Band:
    """A band from text: ``3%``, ``1.3x``, ``+-0.0005`` or ``0.9 to 1.1``. Raises LabError."""
    wanted = LabError(f"band is {shortened(text)}; wanted such as 3%, 1.3x, +-0.0005 or 0.9 to 1.1")
    try:
        if text.endswith("%"):
            return Band.share(float(text[:-1].removeprefix("±").removeprefix("+-")) / 100)
        if text.endswith("x"):
            return Band.factor(float(text[:-1]))
        if text.startswith(("±", "+-")):
            return Band.within(float(text.removeprefix("±").removeprefix("+-")))
        low, high = re.split(r"\s+to\s+|\s+", text)
        return Band(float(low), float(high))
    except (ValueError, ZeroDivisionError):
        raise wanted from None


def _named(noun: str, text: str, known: Any) -> str:
    if text not in known:
        raise unknown(noun, text, known)
    return text


def _positive(text: str) -> float:
    try:
        value = float(text.replace(",", "")) if re.fullmatch(r"[\d.,eE+-]+", text) else math.nan
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise LabError(f"{shortened(text)}; wanted a number above 0")
    return value


def _efficiency(text: str) -> float | None:
    if text == FIT:
        return None
    value = _positive(text)
    if value > 1:
        raise LabError(f"{shortened(text)}; wanted more than 0 and at most 1, or {FIT}")
    return value


def _ranks(text: str) -> tuple[int | None, ...]:
    ranks = re.split(r"[\s,;]+", text.strip("[] "))
    if any(not re.fullmatch(r"\d+|-", rank) for rank in ranks):
        raise LabError(f"{shortened(text)}; wanted a rank or a dash for each device, such as 0 1 2 3")
    return tuple(None if rank == "-" else int(rank) for rank in ranks)


def _value(option: Option, text: str) -> Any:
    """The value of a job's field from text. Raises LabError where the text is none."""
    if option.type is bool:
        if text.lower() not in TRUTHS:
            raise LabError(f"{shortened(text)}; wanted true or false")
        return TRUTHS[text.lower()]
    if option.type in (int, float):
        try:
            number = float(text)
        except ValueError:
            raise LabError(f"{shortened(text)}; wanted a number") from None
        return int(number) if number.is_integer() and option.type is int else number
    if option.type is str or option.name == "model":
        return text
    try:
        return tuple(int(part) for part in re.split(r"[\s,;]+", text.strip("[]() ")))
    except ValueError:
        raise LabError(f"{shortened(text)}; wanted whole numbers, such as 3 3 2") from None


def _path(file: Path, text: str) -> str:
    """A file beside the own file where there is one of that name, else the text: a name, or a path from here."""
    beside = file.parent / text
    return str(beside) if beside.is_file() else text
