"""What an edit makes stale, and what is offered."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

import dtfm_lab as lab
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.shell.panes import LabStep


@pytest.fixture(scope="module")
def plan() -> lab.Plan:
    return lab.plan("lecture-hall", lab.load_job("tiny", n_stages=4, n_replicas=2), steps=2)


@pytest.fixture
def lab_state(plan: lab.Plan) -> LabState:
    """Planned and predicted, nothing measured."""
    return LabState(
        topology=plan.topology, job=plan.job, plan=plan, schedule="gpipe", predicted=lab.simulate(plan, "gpipe")
    )


@cache
def steps() -> list[LabStep]:
    return list(lab.Lab(autosave=False).steps)


def stale(lab_state: LabState) -> dict[str, str]:
    return {step.name: words for step in steps() if (words := step.staleness(lab_state))}


def done(lab_state: LabState) -> dict[str, str]:
    return {step.name: words for step in steps() if (words := step.result(lab_state))}


def test_nothing_is_stale_as_long_as_nothing_changed(lab_state) -> None:
    assert stale(lab_state) == {}
    assert "schedule" in done(lab_state)
    assert not {"run", "compare"} & done(lab_state).keys()


@pytest.mark.parametrize(
    ("trait", "edit", "said"),
    [
        ("topology", lambda topology: topology.with_link(0, 1, latency_s=0.5), "network has changed"),
        ("topology", lambda _: None, "no longer drawn"),
        ("job", lambda job: job.with_fields(global_batch=job.global_batch * 2), "job has changed"),
    ],
)
def test_an_edit_makes_the_plan_and_all_that_rests_on_it_stale(lab_state, trait, edit, said) -> None:
    setattr(lab_state, trait, edit(getattr(lab_state, trait)))
    assert stale(lab_state).keys() == {"plan", "groups", "schedule", "what-if"}
    assert said in stale(lab_state)["plan"]


def test_moving_a_device_on_the_canvas_makes_nothing_stale(lab_state) -> None:
    first, *others = lab_state.topology.devices
    lab_state.topology = replace(lab_state.topology, devices=(replace(first, position=(1.0, 2.0)), *others))
    assert stale(lab_state) == {}


@pytest.mark.parametrize(
    ("trait", "value"),
    [
        ("schedule", "1f1b"),
        ("queueing", "nics"),
        ("choices", {"synchronisation": "ring"}),
        ("choices", {"microbatch": 1}),
    ],
)
def test_a_prediction_is_stale_once_something_else_is_chosen(lab_state, trait, value) -> None:
    setattr(lab_state, trait, value)
    assert stale(lab_state).keys() == {"schedule"}


def test_a_measurement_of_a_part_of_a_plan_is_of_that_plan(lab_state) -> None:
    from dtfm_lab.domain.plan import cut_subplan
    from dtfm_lab.domain.trace import Subplan

    kept = Subplan((0, 1), (0,), 4, 2)
    part = cut_subplan(lab_state.plan, kept)
    trace = lab.simulate(part, "gpipe")
    lab_state.measured = replace(trace, context=replace(trace.context, rehearsed=kept))
    assert "run" not in stale(lab_state)
    lab_state.schedule = "1f1b"
    assert "1f1b is chosen" in stale(lab_state)["run"]
