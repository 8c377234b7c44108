"""Runs of systems beside their predictions: order, losses and the time to a loss, from traces without workers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from fixed_systems import fixed

import dtfm_lab as lab
from dtfm_lab.domain.errors import LabError, UnknownName
from dtfm_lab.domain.trace import Subplan, Trace
from dtfm_lab.figures.theme import alt_text
from dtfm_lab.systems import outcome_of
from dtfm_lab.systems.strategy_run import SMOOTHED, StrategyRun
from dtfm_lab.systems.strategy_runs import COLUMNS, StrategyRuns

TOPOLOGY, JOB = lab.load_topology("lecture-hall"), lab.load_job("tiny")
COLUMNS_OF_A_TRACE = ("iteration", "replica", "action", "start_s", "end_s")
DESCENT = 5.0 - 0.1 * np.arange(20)


def ran(name: str, times: float, losses: np.ndarray, *, predicted: float = 1.0, mathematics: str = "") -> StrategyRun:
    """A system that took so many times the prediction of data parallelism, and was predicted to take others."""
    outcome = outcome_of(fixed(name, 1, 8, mathematics=mathematics), TOPOLOGY, JOB)
    trace = outcome.trace
    context = replace(trace.context, source="measured", losses=tuple(losses))
    columns = (trace.iteration, trace.replica, trace.action)
    as_long = [Trace(context, trace.actions, *columns, trace.start_s * k, trace.end_s * k) for k in (predicted, times)]
    return StrategyRun(outcome=outcome, predicted=as_long[0], measured=as_long[1])


def side_by_side(*runs: StrategyRun) -> StrategyRuns:
    return StrategyRuns(topology=TOPOLOGY, clock="paced", runs=runs, wanted=len(runs))


@pytest.fixture(scope="module")
def runs() -> StrategyRuns:
    idle = StrategyRun(outcome=outcome_of(fixed("idle<b>", 1, 8), TOPOLOGY, JOB), reason="cannot run")
    slow = ran("slow", 2.0, DESCENT, predicted=1.9)
    rare = ran("rare", 1.0, DESCENT + 0.25, mathematics="averages seldom")
    return side_by_side(slow, rare, idle)


def test_a_loss_is_reached_after_its_iterations_times_the_seconds_of_one(runs: StrategyRuns) -> None:
    slow, rare = runs["slow"], runs["rare"]
    below = 4.0
    for one in (slow, rare):
        n_iterations = int(np.flatnonzero(one.losses < below)[0]) + 1
        assert one.time_to_loss(below) == pytest.approx(n_iterations * one.measured_s)
    assert runs.time_to_loss(below)["slow"] == slow.time_to_loss(below)
    assert rare.time_to_loss(0.1) is None
    assert np.isnan(runs.time_to_loss(0.1)["rare"])
    assert np.isnan(runs.time_to_loss(below)["idle<b>"])


def test_losses_are_means_of_the_last_iterations(runs: StrategyRuns) -> None:
    losses = runs["slow"].losses
    assert losses[0] == DESCENT[0]
    assert losses[-1] == pytest.approx(DESCENT[-SMOOTHED:].mean())


def test_all_reach_the_common_loss(runs: StrategyRuns) -> None:
    assert runs.common_loss == pytest.approx(runs["rare"].losses[-1])
    reached = runs.time_to_loss().dropna()
    assert list(reached.index) == ["slow", "rare"]
    assert reached["rare"] == pytest.approx(len(DESCENT) * runs["rare"].measured_s)


def test_a_training_that_diverged_reaches_nothing_and_leaves_the_others_their_common_loss(runs: StrategyRuns) -> None:
    both = side_by_side(runs["slow"], ran("wild", 1.0, np.full(20, np.nan)))
    assert both.common_loss == pytest.approx(runs["slow"].losses.min())
    assert np.isnan(both.time_to_loss()["wild"])
    assert "wild" in lab.figures.strategy_runs(both).layout.yaxis.ticktext


def test_seconds_of_a_part_are_not_compared_with_the_whole_plans(runs: StrategyRuns) -> None:
    slow = runs["slow"]
    part = replace(slow.measured.context, rehearsed=Subplan((0,), (0, 1), 1, 8))
    measured = Trace(part, slow.measured.actions, *(getattr(slow.measured, column) for column in COLUMNS_OF_A_TRACE))
    both = side_by_side(StrategyRun(outcome=slow.outcome, predicted=slow.predicted, measured=measured), runs["rare"])
    assert both.out_of_order(clear=-1.0, by="model") == []
    assert "of slow a part ran" in both.sentence
    assert both.to_frame()["ran"].tolist() == ["its one stage, pipelines 0 and 1 of 8", "all of it"]


def test_an_error_is_measured_minus_predicted_in_shares_of_the_prediction(runs: StrategyRuns) -> None:
    assert runs["slow"].error == pytest.approx(2.0 / 1.9 - 1)


def test_the_table_ranks_what_ran_and_keeps_what_did_not(runs: StrategyRuns) -> None:
    table = runs.to_frame()
    assert list(table.columns) == list(COLUMNS)
    assert table["measured_rank"].tolist() == [2, 1, pd.NA]
    assert table["predicted_rank"].tolist() == [2, 1, pd.NA]
    assert table["reason"].tolist() == ["", "", "cannot run"]
    assert runs.to_dict()["systems"][2]["measured_s"] is None


@pytest.mark.parametrize(("predicted", "swapped"), [(1.04, []), (1.06, [("second", "first")])])
def test_an_order_counts_where_predictions_differ_clearly(predicted: float, swapped: list[tuple[str, str]]) -> None:
    runs = side_by_side(ran("first", 0.9, DESCENT, predicted=predicted), ran("second", 1.0, DESCENT, predicted=1.0))
    assert runs.out_of_order() == swapped
    assert ("changed places" in runs.sentence) == bool(swapped)


def test_the_sentence_says_what_ran_and_what_trains_otherwise(runs: StrategyRuns) -> None:
    assert runs.sentence.startswith("rare was fastest and changes the training, ")
    assert "slow took 2.00 times as long; the order is the predicted one" in runs.sentence
    assert "rare changes the training: compare the time to a loss; not run: idle<b>" in runs.sentence
    assert "no system was run" in repr(side_by_side(runs["idle<b>"]))


def test_a_notebook_shows_the_table_and_the_reasons_with_no_name_as_markup(runs: StrategyRuns) -> None:
    shown = runs._repr_html_()
    assert shown.index("rare †") < shown.index(">slow<"), "the fastest first"
    assert "+5.26%" in shown
    assert "<b>idle&lt;b&gt;</b>: cannot run" in shown
    assert side_by_side(runs["idle<b>"]).rows == []


def test_mistakes_are_one_line(runs: StrategyRuns) -> None:
    with pytest.raises(UnknownName, match="no system named 'slw'; did you mean 'slow'"):
        runs["slw"]
    with pytest.raises(LabError, match="loss is 'low'; wanted a number"):
        runs.time_to_loss("low")  # type: ignore[arg-type]


def test_the_figure_has_a_pair_of_bars_and_a_line_for_each_and_a_reason_for_the_rest(runs: StrategyRuns) -> None:
    figure = lab.figures.strategy_runs(runs)
    bars = [float(trace.x[0]) for trace in figure.data if trace.type == "bar"]
    pairs = [(one.measured_s, one.predicted_s) for one in runs.measured]
    assert bars == [pytest.approx(seconds) for pair in pairs for seconds in pair]
    lines = {trace.name: trace for trace in figure.data if trace.type == "scatter" and trace.mode == "lines"}
    assert set(lines) == {"slow", "rare (changes the training)"}
    assert list(lines["slow"].y) == pytest.approx(list(runs["slow"].losses))
    assert "cannot run" in [note.text for note in figure.layout.annotations]
    assert "idle&lt;b&gt;" in figure.layout.yaxis.ticktext
    assert "idle<b> not run (cannot run)" in alt_text(figure)
    none = side_by_side(runs["idle<b>"])
    assert lab.figures.strategy_runs(none).layout.title.text == "no system was run"
