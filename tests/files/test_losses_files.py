"""Losses as a table: both of a row are of the same parameters."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dtfm_lab.domain.errors import TraceError
from dtfm_lab.domain.schedule import Action, Kind
from dtfm_lab.domain.trace import RunContext, Span, Trace
from dtfm_lab.files.traces import losses, save_losses


def trained(first: int, iterations: int, **context: object) -> Trace:
    """A run of one device that begins after so many iterations."""
    measured = RunContext(
        source="measured", clock="virtual", schedule="gpipe", links="emulated", devices=(("ada",),), **context
    )
    return Trace.from_spans(
        measured, [Span(first + i, 0, Action(0, Kind.FORWARD, 0), 0.0, 1.0) for i in range(iterations)]
    )


def test_a_row_holds_both_losses_of_the_same_parameters() -> None:
    table = losses(trained(0, 3, losses=(5.5, 5.0, 4.5), held_out=((2, 4.8), (3, 4.4)), unigram_entropy=3.1))
    assert table["iteration"].tolist() == [0, 1, 2, 3]
    np.testing.assert_array_equal(table["training_loss"], [5.5, 5.0, 4.5, np.nan])
    np.testing.assert_array_equal(table["held_out_loss"], [np.nan, np.nan, 4.8, 4.4])
    assert (table["unigram_entropy"] == 3.1).all()


def test_a_resumed_run_counts_on() -> None:
    assert losses(trained(10, 2, losses=(2.0, 1.9)))["iteration"].tolist() == [10, 11]
    assert losses(trained(2, 2, losses=(5.0, 4.0, 3.0, 2.0)))["iteration"].tolist() == [0, 1, 2, 3]


def test_the_file_reads_back_to_the_last_digit(tmp_path: Path) -> None:
    trace = trained(0, 2, losses=(1 / 3, 2 / 3), held_out=((2, 0.1 + 0.2),))
    path = save_losses(trace, tmp_path / "losses.csv")
    assert path.read_text().splitlines()[0] == "iteration,training_loss,held_out_loss,unigram_entropy"
    pd.testing.assert_frame_equal(pd.read_csv(path), losses(trace))


def test_a_trace_without_losses_is_refused() -> None:
    trace = trained(0, 1, losses=(5.0,))
    with pytest.raises(TraceError, match="holds no losses"):
        losses(replace(trace, context=replace(trace.context, losses=())))
