"""The losses of a run as a table, and as CSV for spreadsheets."""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd

from dtfm_lab.domain.errors import TraceError
from dtfm_lab.domain.trace import Trace
from dtfm_lab.files.reading import write_text


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
