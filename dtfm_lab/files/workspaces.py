"""All that is on the screen of the lab as one versioned JSON file: its nouns, and what its controls were set to."""

from __future__ import annotations

import base64
import json
import math
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from dtfm_lab.domain.checks import plain
from dtfm_lab.domain.errors import FileError, JobError, LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import QUEUEING, Topology, shortened
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.registry import unknown
from dtfm_lab.domain.schedule import Action
from dtfm_lab.domain.trace import RunContext, Trace
from dtfm_lab.files.plans import network_from_mapping, network_to_mapping, plan_from_mapping, plan_to_mapping
from dtfm_lab.files.reading import Section, dump, parse, read_mapping, require_version, write_text

MOST_ROWS = 1_000_000
"""of a trace that is kept; some ten megabytes"""
COLUMNS = ("iteration", "replica", "action", "start_s", "end_s")
QUICK = 1
"""of zlib's levels; slower ones save little here"""


@dataclass(frozen=True, eq=False, kw_only=True)
class WorkspaceState:
    """What the lab holds; None is "not yet"."""

    topology: Topology | None = None
    job: Job | None = None
    plan: Plan | None = None
    schedule: str = "gpipe"
    queueing: str = "pairs"
    choices: Mapping[str, Any] = field(default_factory=dict)
    """fields of the plan's job that are tried out"""
    predicted: Trace | None = None
    measured: Trace | None = None
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """by panel, plain JSON values"""

    @property
    def left_out(self) -> tuple[str, ...]:
        """What a file of it does not keep, a sentence each."""
        return tuple(
            f"the {what} trace has {len(trace):,} rows and is not kept (up to {MOST_ROWS:,} are)"
            for what, trace in (("predicted", self.predicted), ("measured", self.measured))
            if trace is not None and len(trace) > MOST_ROWS
        )


class PackedColumn(Section):
    """An array, compressed: little-endian bytes by zlib, in base64."""

    dtype: Literal["<i8", "<f8"]
    length: int
    zlib: str


class PackedTrace(Section):
    context: RunContext
    actions: tuple[Action, ...]
    iteration: PackedColumn
    replica: PackedColumn
    action: PackedColumn
    start_s: PackedColumn
    end_s: PackedColumn
    after: PackedColumn | None = None


class WorkspaceFile(Section):
    dtfm_workspace: int
    topology: dict[str, Any] | None = None
    """a network in SI; ``same`` as the plan's where that is its only key"""
    job: Job | None = None
    plan: dict[str, Any] | None = None
    schedule: str = "gpipe"
    queueing: str = "pairs"
    choices: dict[str, Any] = Field(default_factory=dict)
    predicted: PackedTrace | None = None
    measured: PackedTrace | None = None
    left_out: list[str] = Field(default_factory=list)
    """for people; not read back"""
    settings: dict[str, dict[str, Any]] = Field(default_factory=dict)


SAME = {"same": "plan"}


def workspace_to_mapping(state: WorkspaceState) -> dict[str, Any]:
    """Plain JSON types; a trace of more than MOST_ROWS is left out, and said to be."""
    topology, plan = state.topology, state.plan
    network = None if topology is None else network_to_mapping(topology)
    planned = None if plan is None else plan_to_mapping(plan)
    return {
        "dtfm_workspace": 1,
        "topology": dict(SAME) if network and planned and network == planned["topology"] else network,
        "job": None if state.job is None else dump(state.job),
        "plan": planned,
        "schedule": state.schedule,
        "queueing": state.queueing,
        "choices": dict(state.choices),
        "predicted": _packed(state.predicted),
        "measured": _packed(state.measured),
        "left_out": list(state.left_out),
        "settings": {panel: dict(settings) for panel, settings in state.settings.items()},
    }


def workspace_from_mapping(data: dict[str, Any], *, where: str = "workspace") -> WorkspaceState:
    """Raises FileError in one line for another kind of file, another version, and anything damaged."""
    require_version(data, "dtfm_workspace", where)
    try:
        file = parse(WorkspaceFile, data, where)
        _check_choices(file)
    except FileError:
        raise
    except LabError as error:  # a job or a context that checks itself
        raise FileError(f"{where}: {error}") from None
    plan = None if file.plan is None else plan_from_mapping(file.plan, where=f"{where}: plan")
    if file.topology == SAME:
        if plan is None:
            raise FileError(f"{where}: topology is that of the plan, which is missing; wanted one of both")
        topology: Topology | None = plan.topology
    else:
        topology = None if file.topology is None else _network(file.topology, where)
    return WorkspaceState(
        topology=topology,
        job=file.job,
        plan=plan,
        schedule=file.schedule,
        queueing=file.queueing,
        choices=file.choices,
        predicted=_unpacked(file.predicted, f"{where}: predicted"),
        measured=_unpacked(file.measured, f"{where}: measured"),
        settings=file.settings,
    )


def workspace_text(state: WorkspaceState) -> str:
    """What a file of it holds. Raises FileError for a setting that no JSON can hold."""
    try:
        return json.dumps(workspace_to_mapping(state)) + "\n"
    except (TypeError, ValueError) as error:
        raise FileError(f"a setting of the workspace is no plain value: {error}") from None


def save_workspace(state: WorkspaceState, path: str | os.PathLike[str]) -> Path:
    """All or nothing; an older file stays as it was if anything goes wrong."""
    return write_text(path, workspace_text(state))


def load_workspace(path: str | os.PathLike[str]) -> WorkspaceState:
    """Raises FileError in one line for what is no workspace, of a newer version, or damaged."""
    path = Path(path)
    return workspace_from_mapping(read_mapping(path), where=path.name)


def _check_choices(file: WorkspaceFile) -> None:
    """Names that there are; whether the plan's job allows their values is for the job to say. A schedule may be one
    of a person's own."""
    plain("the chosen schedule", file.schedule)
    if file.queueing not in QUEUEING:
        raise unknown("queueing", file.queueing, QUEUEING)
    known = [each.name for each in fields(Job)]
    for choice in file.choices:
        if choice not in known:
            raise JobError(f"choices: {shortened(choice)} is no field of a job; wanted one such as recompute")


def _network(section: dict[str, Any], where: str) -> Topology:
    try:
        return network_from_mapping(section)
    except FileError as error:
        raise FileError(f"{where}: {error}") from None
    except (LabError, ValueError, OverflowError) as error:
        raise FileError(f"{where}: network: {error}") from None


def _packed(trace: Trace | None) -> dict[str, Any] | None:
    if trace is None or len(trace) > MOST_ROWS:
        return None
    return {
        "context": dump(trace.context),
        "actions": [list(action) for action in trace.actions],
        **{column: _column(getattr(trace, column)) for column in COLUMNS},
        "after": None if trace.after is None else _column(trace.after),
    }


def _column(values: npt.NDArray[Any]) -> dict[str, Any]:
    dtype = "<f8" if values.dtype.kind == "f" else "<i8"
    raw = np.ascontiguousarray(values, dtype=dtype).tobytes()
    return {"dtype": dtype, "length": len(values), "zlib": base64.b64encode(zlib.compress(raw, QUICK)).decode("ascii")}


def _unpacked(file: PackedTrace | None, where: str) -> Trace | None:
    if file is None:
        return None
    arrays = {
        name: _array(column, "<f8" if name.endswith("_s") else "<i8", f"{where}: {name}")
        for name in (*COLUMNS, "after")
        if (column := getattr(file, name)) is not None
    }
    try:
        return Trace(file.context, file.actions, **arrays)
    except (LabError, OverflowError) as error:
        raise FileError(f"{where}: {error}") from None


def _array(column: PackedColumn, dtype: str, where: str) -> npt.NDArray[Any]:
    """No more is unpacked than the column says it is long."""
    wanted = column.length * 8
    if column.dtype != dtype:
        raise FileError(f"{where}: holds {column.dtype}; wanted {dtype}")
    if not 0 <= column.length <= MOST_ROWS:
        raise FileError(f"{where}: has {column.length} rows; wanted 0 to {MOST_ROWS}")
    try:
        opener = zlib.decompressobj()
        raw = opener.decompress(base64.b64decode(column.zlib, validate=True), max(wanted, 1) + 1)
    except (ValueError, zlib.error):
        raise FileError(f"{where}: is damaged; wanted bytes that zlib packed, in base64") from None
    if len(raw) != wanted:
        found = "more" if len(raw) > wanted else math.floor(len(raw) / 8)
        raise FileError(f"{where}: holds {found} rows; wanted the {column.length} that it names")
    return np.frombuffer(raw, dtype=dtype).astype(dtype.replace("<", "="))
