"""Traces as versioned JSON, one list for each column, and their losses as CSV."""

import json
import os
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import FailFast

from dtfm_lab.domain.errors import FileError, LabError, TraceError
from dtfm_lab.domain.schedule import Action
from dtfm_lab.domain.trace import RunContext, Trace
from dtfm_lab.files.reading import Section, dump, parse, read_mapping, require_version, write_text

COLUMNS = ("iteration", "replica", "action", "start_s", "end_s")
"""The columns that every trace has."""


class TraceFile(Section):
    """The keys of a trace file; ``Trace`` describes the columns."""

    dtfm_trace: int
    iteration_s: float = 0.0
    """Mean seconds of an iteration, for people; it is not read back."""
    context: RunContext
    actions: tuple[Action, ...]
    iteration: Annotated[list[int], FailFast()]
    replica: Annotated[list[int], FailFast()]
    action: Annotated[list[int], FailFast()]
    start_s: Annotated[list[float], FailFast()]
    end_s: Annotated[list[float], FailFast()]
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
    """The trace of a file. Raises FileError, in one line, if the file holds none."""
    path = Path(path)
    return trace_from_mapping(read_mapping(path), where=path.name)


def trace_from_mapping(data: dict[str, Any], *, where: str) -> Trace:
    """The trace in what a file holds; ``where`` names it in errors. Raises FileError, in one line, if it holds none."""
    require_version(data, "dtfm_trace", where)
    file = parse(TraceFile, data, where)
    try:
        arrays = {
            name: np.array(column, dtype=float if name.endswith("_s") else np.int64)
            for name in (*COLUMNS, "after")
            if (column := getattr(file, name)) is not None
        }
        return Trace(file.context, file.actions, **arrays)
    except (LabError, OverflowError) as error:
        raise FileError(f"{where}: {error}") from None


def losses(trace: Trace) -> pd.DataFrame:
    """One row for every number of iterations done: iteration, training_loss, held_out_loss, unigram_entropy.

    All three are in nats a byte. Both losses of a row are those of the same parameters: iteration i begins with the
    parameters after i iterations, so the first row precedes any step and the last has no training loss. Values that
    were not measured are NaN. Raises TraceError where nothing was trained.
    """
    context = trace.context
    if not context.losses:
        raise TraceError("the trace holds no losses; wanted one of a real run")
    first = max(0, int(trace.iteration.max()) + 1 - len(context.losses))
    training = dict(enumerate(context.losses, start=first))
    held_out = dict(context.held_out)
    done = sorted(training.keys() | held_out.keys())
    columns = {
        "training_loss": pd.Series(training, dtype=float),
        "held_out_loss": pd.Series(held_out, dtype=float),
        "unigram_entropy": pd.Series(context.unigram_entropy, index=done, dtype=float),
    }
    return pd.DataFrame(columns, index=pd.Index(done, name="iteration")).reset_index()


def save_losses(trace: Trace, path: str | os.PathLike[str]) -> Path:
    """Write ``losses`` as CSV with a header; returns the path."""
    return write_text(path, losses(trace).to_csv(index=False, lineterminator="\n"))
