"""What an edit makes stale, and what is offered."""

from __future__ import annotations

from dataclasses import replace

import pytest

import dtfm_lab as lab

pytest.importorskip("anywidget", reason="needs the lab extra")

from dtfm_lab.widgets.bench import Bench
from dtfm_lab.widgets.desk.states import states


@pytest.fixture
def bench() -> Bench:
    """Planned and predicted, nothing measured."""
    topology = lab.load_topology("lecture-hall")
    plan = lab.plan(topology, lab.load_job("tiny", n_stages=4, n_replicas=2), steps=2)
    return Bench(topology=topology, job=plan.job, plan=plan, schedule="gpipe", predicted=lab.simulate(plan, "gpipe"))


def stale(bench: Bench) -> dict[str, str]:
    return {name: state.stale for name, state in states(bench).items() if state.stale}


def test_nothing_is_stale_as_long_as_nothing_changed(bench) -> None:
    assert stale(bench) == {}
    kinds = {name: state.kind for name, state in states(bench).items()}
    assert kinds["schedule"] == "done"
    assert kinds["run"] == kinds["compare"] == "open"


def test_an_edited_network_makes_the_plan_and_all_that_rests_on_it_stale(bench) -> None:
    bench.topology = bench.topology.with_link(0, 1, latency_s=0.5)
    assert stale(bench).keys() == {"plan", "groups", "schedule", "what-if"}
    assert "network has changed" in stale(bench)["plan"]


def test_moving_a_device_on_the_canvas_makes_nothing_stale(bench) -> None:
    first, *others = bench.topology.devices
    bench.topology = replace(bench.topology, devices=(replace(first, position=(1.0, 2.0)), *others))
    assert stale(bench) == {}


def test_another_job_makes_the_plan_stale(bench) -> None:
    bench.job = replace(bench.job, global_batch=bench.job.global_batch * 2)
    assert "job has changed" in stale(bench)["plan"]


def test_a_cleared_canvas_makes_the_plan_stale(bench) -> None:
    bench.topology = None
    assert "no longer drawn" in stale(bench)["plan"]


@pytest.mark.parametrize(
    ("trait", "value"),
    [
        ("schedule", "1f1b"),
        ("queueing", "cards"),
        ("choices", {"synchronisation": "ring"}),
        ("choices", {"microbatch": 1}),
    ],
)
def test_a_prediction_is_stale_once_something_else_is_chosen(bench, trait, value) -> None:
    setattr(bench, trait, value)
    assert stale(bench).keys() == {"schedule"}


def test_a_measurement_of_a_part_of_a_plan_is_of_that_plan(bench) -> None:
    from dtfm_lab.domain.rehearsal import reduced
    from dtfm_lab.domain.trace import Rehearsed

    kept = Rehearsed((0, 1), (0,), 4, 2)
    part = reduced(bench.plan, kept)
    trace = lab.simulate(part, "gpipe")
    bench.measured = replace(trace, context=replace(trace.context, rehearsed=kept))
    assert "run" not in stale(bench)
    bench.schedule = "1f1b"
    assert "1f1b is chosen" in stale(bench)["run"]
