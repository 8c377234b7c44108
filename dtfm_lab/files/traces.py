"""Traces as versioned JSON, a list a column."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np

from dtfm_lab.domain.errors import FileError, LabError
from dtfm_lab.domain.schedule import Action
from dtfm_lab.domain.trace import RunContext, Trace
from dtfm_lab.files.reading import Section, dump, parse, read_mapping, require_version, write_text


class TraceFile(Section):
    dtfm_trace: int
    iteration_s: float = 0.0
    """for people; not read back"""
    context: RunContext
    actions: tuple[Action, ...]
    iteration: list[int]
    replica: list[int]
    action: list[int]
    start_s: list[float]
    end_s: list[float]
    after: list[int] | None = None


def save_trace(trace: Trace, path: str | os.PathLike[str]) -> Path:
    columns = ("iteration", "replica", "action", "start_s", "end_s")
    data = {
        "dtfm_trace": 1,
        "iteration_s": trace.iteration_s,
        "context": dump(trace.context),
        "actions": [list(action) for action in trace.actions],
        **{column: getattr(trace, column).tolist() for column in columns},
        "after": None if trace.after is None else trace.after.tolist(),
    }
    return write_text(path, json.dumps(data) + "\n")


def load_trace(path: str | os.PathLike[str]) -> Trace:
    path = Path(path)
    data = read_mapping(path)
    require_version(data, "dtfm_trace", path.name)
    file = parse(TraceFile, data, path.name)
    try:
        return Trace(
            file.context,
            file.actions,
            np.array(file.iteration, dtype=np.int64),
            np.array(file.replica, dtype=np.int64),
            np.array(file.action, dtype=np.int64),
            np.array(file.start_s, dtype=float),
            np.array(file.end_s, dtype=float),
            None if file.after is None else np.array(file.after, dtype=np.int64),
        )
    except (LabError, OverflowError) as error:
        raise FileError(f"{path.name}: {error}") from None
