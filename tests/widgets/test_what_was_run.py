"""What was measured is told as what ran, and only of the network and the job that are shown."""

from __future__ import annotations

from dataclasses import replace

import pytest

import dtfm_lab as lab
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import cut_subplan
from dtfm_lab.domain.trace import SMALL_MODEL, Subplan, part_words
from dtfm_lab.runtime.client.launch import what_would_run
from dtfm_lab.widgets.comparing.findings import tiles_of
from dtfm_lab.widgets.lab_state import LabState, is_another, shown_s
from dtfm_lab.widgets.shell.bar import bar_numbers, next_action
from dtfm_lab.widgets.shell.headline import headline
from dtfm_lab.widgets.workbench import measured_words

ONE = Subplan((0, 1), (0,), 2, 4)


@pytest.fixture
def state() -> LabState:
    topology = lab.load_topology("lecture-hall")
    job = lab.load_job("tiny").with_fields(n_stages=2, n_replicas=4)
    plan = lab.plan(topology, job, steps=1)
    return LabState(
        topology=topology, job=job, plan=plan, predicted=lab.simulate(plan), schedule=plan.job.schedule_name
    )


def run_a_part(state: LabState, stand_in: str = SMALL_MODEL) -> None:
    """Set what a run of one pipeline of four would set; simulated, with a longer iteration."""
    trace = lab.simulate(cut_subplan(state.plan, ONE), state.schedule)
    context = replace(trace.context, rehearsed=ONE, stand_in=stand_in)
    predicted = replace(trace, context=context)
    state.measured = replace(predicted, context=replace(context, source="measured", clock="virtual"))
    state.ran, state.comparison = state.plan, lab.compare(predicted, state.measured)


@pytest.mark.parametrize(
    ("part", "stand_in", "words"),
    [
        (None, "", ""),
        (ONE, "", "one pipeline of 4"),
        (ONE, SMALL_MODEL, "one pipeline of 4, with a small model"),
        (Subplan((0, 1), (0, 1, 2), 2, 4), "gpt2", "3 pipelines of 4, with gpt2"),
        (Subplan((0, 1), (0, 1), 8, 8), "", "2 of 8 stages, 2 of 8 pipelines"),
        (None, SMALL_MODEL, "the whole plan, with a small model"),
    ],
)
def test_what_ran_is_named_where_it_is_less_than_the_plan(part, stand_in, words) -> None:
    assert part_words(part, stand_in) == words


def test_the_run_of_a_part_is_announced_before_and_after(state) -> None:
    state.run_part = "one pipeline of 4, with a small model"
    assert next_action(state).label == "Train one pipeline of 4, with a small model"
    before = bar_numbers(state, None)[0]
    run_a_part(state)
    iteration, *_, measured = bar_numbers(state, None)
    assert (iteration["value"], iteration["note"]) == (before["value"], before["note"]), "the plan's own prediction"
    assert measured["label"] == "Measured, one pipeline of 4, with a small model"
    assert measured["note"].endswith(" predicted for it")
    assert headline(state, None, None, "").lead == "One pipeline of 4, with a small model:"
    assert tiles_of(state.comparison)[0].name == "Error, one pipeline of 4, with a small model"
    assert measured_words(state.measured).endswith(", one pipeline of 4, with a small model")


def test_a_plan_too_large_for_this_machine_says_what_would_run_instead() -> None:
    plan = lab.plan("worldwide", lab.load_job("gpt3-xl").with_fields(n_stages=8, n_replicas=8), steps=1)
    assert what_would_run(plan) == "one pipeline of 8, with a small model"
    assert what_would_run(lab.plan("lecture-hall", "tiny", steps=1)) == ""


@pytest.mark.parametrize(
    "change",
    [
        lambda state: setattr(state, "topology", lab.load_topology("mixed-gpus")),
        lambda state: setattr(state, "topology", Topology.from_matrices([[0, 1], [1, 0]], [[1, 1], [1, 1]], name="x")),
        lambda state: setattr(state, "job", lab.load_job("small")),
    ],
)
def test_a_measurement_leaves_with_its_network_and_its_job(state, change) -> None:
    run_a_part(state, stand_in="")
    change(state)
    assert (state.measured, state.comparison, state.ran, state.predicted) == (None, None, None, None)
    assert all(number["value"] == "–" for number in bar_numbers(state, None) if number["label"].startswith("Measured"))


def test_a_measurement_leaves_though_nothing_was_drawn_in_between(state) -> None:
    run_a_part(state)
    state.topology = None
    state.topology = lab.load_topology("mixed-gpus")
    assert state.measured is None


def test_an_edit_keeps_what_was_measured_and_says_that_it_is_of_before(state) -> None:
    run_a_part(state)
    state.topology = state.topology.with_link(0, 1, bandwidth_gbps=0.01)
    assert bar_numbers(state, None)[-1]["note"] == "before the last edit"
    state.job = state.job.with_fields(global_batch=2 * state.job.global_batch)
    assert state.measured is not None
    assert shown_s(state) == state.plan.iteration_s
    assert not is_another(state.topology, state.topology.subset([0, 1, 2]))
