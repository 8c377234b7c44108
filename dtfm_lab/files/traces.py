"""Traces as versioned JSON, one list for each column."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np

from dtfm_lab.domain.errors import FileError, LabError
from dtfm_lab.domain.schedule import Action
from dtfm_lab.domain.trace import RunContext, Trace
from dtfm_lab.files.reading import Section, dump, parse, read_mapping, require_version, write_text

COLUMNS = ("iteration", "replica", "action", "start_s", "end_s")
"""The columns that every trace has."""


class TraceFile(Section):
    """What a trace file holds; ``Trace`` says what the columns mean."""

    dtfm_trace: int
    iteration_s: float = 0.0
    """Mean seconds of an iteration, for people; it is not read back."""
    context: RunContext
    actions: tuple[Action, ...]
    iteration: list[int]
    replica: list[int]
    action: list[int]
    start_s: list[float]
    end_s: list[float]
    after: list[int] | None = None


def save_trace(trace: Trace, path: str | os.PathLike[str]) -> Path:
    """Write a trace, all or nothing; returns the path."""
    data = {
        "dtfm_trace": 1,
        "iteration_s": trace.iteration_s,
        "context": dump(trace.context),
        "actions": [list(action) for action in trace.actions],
        **{column: getattr(trace, column).tolist() for column in COLUMNS},
        "after": None if trace.after is None else trace.after.tolist(),
    }
    return write_text(path, json.dumps(data) + "\n")


def load_trace(path: str | os.PathLike[str]) -> Trace:
    """The trace of a file; raises FileError in one line for what is none."""
    path = Path(path)
    data = read_mapping(path)
    require_version(data, "dtfm_trace", path.name)
    file = parse(TraceFile, data, path.name)
    try:
        arrays = {
            name: np.array(column, dtype=float if name.endswith("_s") else np.int64)
            for name in (*COLUMNS, "after")
            if (column := getattr(file, name)) is not None
        }
        return Trace(file.context, file.actions, **arrays)
    except (LabError, OverflowError) as error:
        raise FileError(f"{path.name}: {error}") from None
