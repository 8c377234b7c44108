"""The state of the lab as one versioned JSON file, or packed into a link to share (a URL).

The file holds network, job, plan, traces and the settings of all controls. A link holds the same after the ``#`` of the
URL, which browsers do not send to a server. It leaves out traces, and the settings of all panels except ``LINKED``:
some of them name files of the user who made the link.
"""

from __future__ import annotations

import base64
import json
import math
import os
import re
import zlib
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import BeforeValidator, Field, PlainSerializer, PlainValidator

from dtfm_lab.domain.errors import FileError, JobError, LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import QUEUEING, Topology, shortened
from dtfm_lab.domain.options import plain
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.registry import current_name, unknown
from dtfm_lab.domain.schedule import Action
from dtfm_lab.domain.trace import Trace
from dtfm_lab.domain.units import counted
from dtfm_lab.files.plans import network_from_mapping, network_to_mapping, plan_from_mapping, plan_to_mapping
from dtfm_lab.files.reading import Section, dump, parse, read_mapping, require_version, write_text
from dtfm_lab.files.traces import COLUMNS, ContextOfFile, context_to_mapping

T = TypeVar("T")

MOST_ROWS = 1_000_000
"""Maximum number of rows of a trace that is kept. A million rows take about ten megabytes."""
COMPRESSION_LEVEL = 1
"""Level of zlib for the columns of traces: the fastest. Slower levels save little here."""
SAME = {"same": "plan"}
"""What a file holds instead of a network that equals the plan's."""


class PackedColumn(Section):
    """A compressed array: little-endian bytes, zlib, base64."""

    dtype: Literal["<i8", "<f8"]
    length: int
    zlib: str

    @classmethod
    def of(cls, values: npt.NDArray[Any]) -> PackedColumn:
        """Pack an array. Floats become doubles; everything else becomes 64-bit integers."""
        dtype: Literal["<i8", "<f8"] = "<f8" if values.dtype.kind == "f" else "<i8"
        raw = np.ascontiguousarray(values, dtype=dtype).tobytes()
        packed = base64.b64encode(zlib.compress(raw, COMPRESSION_LEVEL)).decode("ascii")
        return cls(dtype=dtype, length=len(values), zlib=packed)

    def unpacked(self, dtype: str) -> npt.NDArray[Any]:
        """Return the array in this dtype. No more is decompressed than ``length`` announces.

        Raises FileError if the column is damaged, too long, or of another dtype.
        """
        if self.dtype != dtype:
            raise FileError(f"holds {self.dtype}; wanted {dtype}")
        if not 0 <= self.length <= MOST_ROWS:
            raise FileError(f"has {counted(self.length, 'row')}; wanted 0 to {MOST_ROWS:,}")
        n_bytes = self.length * 8
        try:
            decompressor = zlib.decompressobj()
            # one byte more than announced, so that a longer column is noticed
            raw = decompressor.decompress(base64.b64decode(self.zlib, validate=True), max(n_bytes, 1) + 1)
        except (ValueError, zlib.error):
            raise FileError("is damaged; wanted bytes that zlib packed, in base64") from None
        if len(raw) != n_bytes:
            found = "more" if len(raw) > n_bytes else math.floor(len(raw) / 8)
            raise FileError(f"holds {found} rows; wanted the {self.length} that it names")
        return np.frombuffer(raw, dtype=dtype).astype(dtype.replace("<", "="))


class PackedTrace(Section):
    """A trace with packed columns."""

    context: ContextOfFile
    actions: tuple[Action, ...]
    iteration: PackedColumn
    replica: PackedColumn
    action: PackedColumn
    start_s: PackedColumn
    end_s: PackedColumn
    after: PackedColumn | None = None


def _trace_to_mapping(trace: Trace) -> dict[str, Any] | None:
    """Return the trace in plain JSON types; None if it is too long to keep (``MOST_ROWS``)."""
    if len(trace) > MOST_ROWS:
        return None
    columns = {name: getattr(trace, name) for name in (*COLUMNS, "after")}
    packed = {name: None if of is None else PackedColumn.of(of).model_dump() for name, of in columns.items()}
    return {
        "context": context_to_mapping(trace.context),
        "actions": [list(action) for action in trace.actions],
        **packed,
    }


def _trace_from_mapping(data: Any) -> Trace:
    section = parse(PackedTrace, data, "trace")
    arrays = {}
    for name in (*COLUMNS, "after"):
        if (column := getattr(section, name)) is not None:
            try:
                arrays[name] = column.unpacked("<f8" if name.endswith("_s") else "<i8")
            except FileError as error:
                raise FileError(f"{name}: {error}") from None
    return Trace(section.context, section.actions, **arrays)


def _validator(noun: type[T], name: str, read: Callable[[Any], T]) -> PlainValidator:
    """Return a validator that accepts None, the noun itself, or its form in a file. Errors become pydantic's, which add
    the place."""

    def validate(value: Any) -> T | None:
        if value is None or isinstance(value, noun):
            return value
        try:
            return read(value)
        except (LabError, ValueError, TypeError, OverflowError) as error:
            # pydantic names the place, so the message need not
            raise ValueError(str(error).removeprefix(f"{name}: ")) from None

    return PlainValidator(validate)


def _serializer(write: Callable[[Any], Any]) -> PlainSerializer:
    return PlainSerializer(lambda value: None if value is None else write(value))


KeptTopology = Annotated[
    Topology | None, _validator(Topology, "network", network_from_mapping), _serializer(network_to_mapping)
]
KeptJob = Annotated[Job | None, _serializer(dump)]
KeptPlan = Annotated[Plan | None, _validator(Plan, "plan", plan_from_mapping), _serializer(plan_to_mapping)]
KeptTrace = Annotated[Trace | None, _validator(Trace, "trace", _trace_from_mapping), _serializer(_trace_to_mapping)]


class WorkspaceState(Section):
    """What the lab holds, in memory and in a workspace file. None means "not yet"."""

    topology: KeptTopology = None
    job: KeptJob = None
    plan: KeptPlan = None
    schedule: str = "gpipe"
    queueing: Annotated[str, BeforeValidator(partial(current_name, "queueing"))] = "pairs"
    choices: dict[str, Any] = Field(default_factory=dict)
    """Field of the plan's job -> the value that predictions and runs use instead."""
    predicted: KeptTrace = None
    measured: KeptTrace = None
    pane: str = ""
    """Name of the step whose result is shown; empty if unknown."""
    settings: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Panel name -> its settings, as plain JSON values."""

    @property
    def left_out(self) -> tuple[str, ...]:
        """What a file does not keep of the state, one sentence each."""
        return tuple(
            f"the {what} trace has {len(trace):,} rows and is not kept (up to {MOST_ROWS:,} are)"
            for what, trace in (("predicted", self.predicted), ("measured", self.measured))
            if trace is not None and len(trace) > MOST_ROWS
        )


def workspace_to_mapping(state: WorkspaceState) -> dict[str, Any]:
    """Return the state in plain JSON types. A trace of more than MOST_ROWS is left out, and ``left_out`` says so."""
    data = {"dtfm_workspace": 1} | state.model_dump() | {"left_out": list(state.left_out)}
    if state.plan is not None and data["topology"] == data["plan"]["topology"]:
        data["topology"] = dict(SAME)
    return data


def workspace_from_mapping(data: dict[str, Any], *, where: str = "workspace") -> WorkspaceState:
    """Return the state in a file's mapping. Raises FileError, in one line, for another kind or version or damaged
    values."""
    require_version(data, "dtfm_workspace", where)
    # Written once if it is the plan's own network, because large ones take most of the file.
    same = data.get("topology") == SAME
    for_people = ("dtfm_workspace", "left_out", *(["topology"] if same else []))
    state = parse(WorkspaceState, {key: value for key, value in data.items() if key not in for_people}, where)
    try:
        _check_choices(state)
    except LabError as error:
        raise FileError(f"{where}: {error}") from None
    if not same:
        return state
    if state.plan is None:
        raise FileError(f"{where}: topology refers to the plan, which is missing; wanted a topology or a plan")
    return state.model_copy(update={"topology": state.plan.topology})


def save_workspace(state: WorkspaceState, path: str | os.PathLike[str]) -> Path:
    """Write the state, all or nothing: if anything fails, an older file stays as it was.

    Raises FileError, also for a setting that JSON cannot hold.
    """
    try:
        text = json.dumps(workspace_to_mapping(state)) + "\n"
    except (TypeError, ValueError) as error:
        raise FileError(f"a setting of the workspace is not a plain value: {error}") from None
    return write_text(path, text)


def load_workspace(path: str | os.PathLike[str]) -> WorkspaceState:
    """Read the state in a workspace file. Raises FileError, in one line, as ``workspace_from_mapping`` does."""
    path = Path(path)
    return workspace_from_mapping(read_mapping(path), where=path.name)


def _check_choices(state: WorkspaceState) -> None:
    """Raise LabError for an unknown queueing or an unknown job field.

    The schedule may be one that a user registers later. The values of the choices are checked when a job takes them.
    """
    plain("the chosen schedule", state.schedule)
    if state.queueing not in QUEUEING:
        raise unknown("queueing", state.queueing, QUEUEING)
    known = [each.name for each in fields(Job)]
    for choice in state.choices:
        if choice not in known:
            raise JobError(f"choices: {shortened(choice)} is not a field of a job; wanted one such as recompute")


MARK = "#dtfm-lab="
MOST_CHARACTERS = 100_000
"""Maximum length of a link in characters. A shell accepts no word above 128 KiB. 64 devices take about 10,000."""
MOST_BYTES = 4_000_000
"""Maximum number of bytes that a link may unpack to: a short link could expand to gigabytes."""
PICTURE = "."
"""Separates the state from the picture (see ``link_of``) in a link."""
LINKED = ("network", "plan")
"""Panels whose settings are saved in a link."""


def link_of(state: WorkspaceState, picture: bytes = b"") -> str:
    """Return the part of a link that holds the state, starting with ``#``. Raises FileError if it is too long.

    ``picture`` is for the page that shows a link to people without the lab. It is left out if the link would be too
    long with it.
    """
    settings = {name: state.settings[name] for name in LINKED if name in state.settings}
    kept = state.model_copy(update={"predicted": None, "measured": None, "settings": settings})
    text = json.dumps(workspace_to_mapping(kept), separators=(",", ":"))
    packed = _as_text(zlib.compress(text.encode(), 9))  # the best compression: a link has to be short
    if len(packed) > MOST_CHARACTERS or len(text) > MOST_BYTES:
        found = f"the link would have {len(packed):,} characters"
        raise FileError(f"{found}; wanted at most {MOST_CHARACTERS:,}: save the lab as a file")
    shown = f"{PICTURE}{_as_text(picture)}" if picture else ""
    return f"{MARK}{packed}{shown}" if len(packed) + len(shown) <= MOST_CHARACTERS else f"{MARK}{packed}"


def _as_text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def state_from_link(link: str) -> WorkspaceState:
    """Return the state in a link, whatever address precedes it. Raises FileError in one line."""
    _, mark, packed = link.strip().partition(MARK)
    if not mark:
        raise FileError(f"the link holds no lab; wanted an address with {MARK}… at its end")
    # Unpacked text may be far longer than the link.
    if len(packed) > MOST_CHARACTERS:
        raise FileError(f"the link has {len(packed):,} characters; wanted at most {MOST_CHARACTERS:,}")
    try:
        data = json.loads(_unpacked(packed.partition(PICTURE)[0]))
    except (ValueError, RecursionError, zlib.error):
        raise FileError("the link is damaged or cut off; wanted it whole, as it was copied") from None
    if not isinstance(data, dict):
        raise FileError("the link holds no lab; wanted one that the lab made")
    return workspace_from_mapping(data, where="the link")


def _unpacked(packed: str) -> bytes:
    """Unpack a link. Raises ValueError or zlib.error if it is damaged, and FileError if the result would be huge."""
    if not re.fullmatch(r"[A-Za-z0-9_-]+", packed):
        raise ValueError
    decompressor = zlib.decompressobj()
    # the padding that `link_of` left out follows from the length
    text = decompressor.decompress(base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4)), MOST_BYTES)
    if decompressor.unconsumed_tail:
        raise FileError(f"the link unpacks to more than {MOST_BYTES:,} bytes; wanted a smaller one")
    if not decompressor.eof:
        raise ValueError
    return text
