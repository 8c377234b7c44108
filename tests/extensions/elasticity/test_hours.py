"""Hours of a fleet that changes, for real: every second and every step is booked, and losses stay what they are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from run_helpers import small_model
from training_alone import train_alone

import dtfm_lab as lab
from dtfm_lab.domain.errors import LabError, RunError
from dtfm_lab.domain.network import Topology
from dtfm_lab.extensions.elasticity.history import History, Operation, TimeUse
from dtfm_lab.extensions.elasticity.measured_history import Booked, Departure, measured_history
from dtfm_lab.extensions.elasticity.played import refuse_unplayable
from dtfm_lab.runtime.protocol.run_options import RunSpec

N = 6
NETWORK = Topology.from_matrices(
    np.full((N, N), 30.0), np.full((N, N), 0.005), name="even", gpu="laptop", peak_flop_per_s=2e7
)
JOB = lab.load_job("tiny").with_fields(
    n_stages=None, n_replicas=None, model=small_model(), dtype="fp64", global_batch=12, microbatch=1
)
END_S, PLAYED_S = 120.0, 85.0


def there(**absent: tuple[float, float]) -> lab.Availability:
    """Everybody is there, but for these devices in these seconds."""
    intervals = {name: [(0.0, END_S)] for name in NETWORK.names}
    for name, (leaves, comes) in absent.items():
        after = [(comes, END_S)] if comes < END_S else []
        intervals[name.replace("_", "-")] = [(0.0, leaves), *after]
    return lab.Availability.from_intervals(intervals, END_S)


def a_plan() -> lab.Plan:
    return lab.plan(NETWORK, JOB, seed=0, steps=1)


@pytest.mark.filterwarnings("ignore:.*computations took longer")  # as on a busy machine
@pytest.mark.parametrize(
    ("policy", "options"),
    [
        (lab.policies["oobleck"](joins="step"), {"restart_s": 4.0}),
        (lab.policies["restart"](every_s=12.0), {"restart_s": 4.0}),
        (lab.policies["swarm"](keeps_step=False), {"restart_s": 4.0}),
    ],
)
def test_played_hours_are_those_of_the_replay_but_for_their_seconds(policy: Any, options: dict[str, float]) -> None:
    pytest.importorskip("torch", reason="a run trains with torch")
    losses: dict[int, float] = {}
    n_followed = 0
    checkpoints: list[list[int]] = [[]]  # iterations at each, by plan

    def note(event: dict[str, Any]) -> None:
        nonlocal n_followed
        n_followed += event["event"] == "resumed"
        if event["event"] == "replanned":
            checkpoints.append([])
        elif event["event"] == "checkpoint":
            checkpoints[-1].append(event["iteration"])
        if event["event"] == "iteration":
            assert losses.setdefault(event["iteration"], event["loss"]) == pytest.approx(event["loss"], rel=1e-12)

    given = {"start_s": 0.0, "regroup_s": 1.0} | options
    availability = there(device_1=(25, 55), device_4=(40, END_S)).until(PLAYED_S)
    predicted = lab.replay(NETWORK, JOB, availability, policy, checkpoint_s=0, bound=False, **given)
    measured = lab.run(a_plan(), availability=availability, policy=policy, time_scale=0.15, progress=note, **given)
    assert sum(measured.seconds[state.name.lower()] for state in TimeUse) == pytest.approx(PLAYED_S)
    assert measured.to_frame().steps.sum() <= len(losses)
    assert [loss[:3] for loss in measured.losses] == [loss[:3] for loss in predicted.losses]
    assert n_followed >= 1
    for operation, written in zip(measured.operations, checkpoints, strict=True):
        assert set(np.diff(written)) <= {round(policy.every_s / operation.step_s)}
    followed = [(one.plan.stages, one.left) for one in measured.operations]
    assert followed == [(one.plan.stages, one.left) for one in predicted.operations][: len(followed)]
    alone = JOB.with_fields(n_stages=1, n_replicas=1)
    np.testing.assert_allclose([losses[i] for i in sorted(losses)], train_alone(alone, len(losses))[0], rtol=1e-9)


def test_a_policy_whose_answer_is_no_plan_is_refused() -> None:
    doubled = Operation(devices=frozenset({0}), step_s=1.0, samples=1.0, plan=a_plan(), doubled=frozenset({0}))
    history: Any = SimpleNamespace(policy="bamboo", local_steps=1, operations=(doubled,))
    with pytest.raises(LabError, match="policy bamboo makes a device do two stages"):
        refuse_unplayable(history)
    with pytest.raises(LabError, match="clock is virtual with an availability, which sets it"):
        lab.run(a_plan(), availability=there(), clock="virtual")
    with pytest.raises(RunError, match="never has enough devices for a plan"):
        lab.run(a_plan(), availability=there(**{f"device_{i}": (1.0, END_S) for i in range(N)}), start_s=10.0)
    with pytest.raises(LabError, match="schedule is gpipe with an availability"):
        lab.run(a_plan(), "gpipe", availability=there())


def history_of(events: list[tuple[float, dict[str, Any]]], **fields: Any) -> History:
    plans = [lab.plan(NETWORK, JOB.with_fields(n_stages=s, n_replicas=r), seed=0, steps=1) for s, r in ((2, 3), (2, 2))]
    followed = [
        Operation(devices=frozenset(range(plan.job.n_tasklets)), step_s=4.0, samples=12.0, plan=plan) for plan in plans
    ]
    specs = [RunSpec(plan=plan, schedule="gpipe", orders=("",), iterations=1).to_line() for plan in plans]
    told = [(at, event | ({"spec": specs[1]} if event["event"] == "replanned" else {})) for at, event in events]
    booked = Booked(availability=there(), name="oobleck", followed=followed, started_s=1.0, first_step_s=3.0, **fields)
    return measured_history(booked, told)


STEPS = [(7.0, {"event": "iteration"}), (11.0, {"event": "iteration"}), (15.0, {"event": "iteration"})]


def test_a_loss_makes_its_step_void_and_a_checkpoint_those_since() -> None:
    events = [
        *STEPS,
        (18.0, {"event": "lost"}),
        (18.5, {"event": "replanned", "undone": 1}),
        (20.0, {"event": "resumed"}),
        (24.0, {"event": "iteration"}),
        (500.0, {"event": "iteration"}),
    ]
    history = history_of(events, departures=[Departure(17.0, ("device-1",), 1)])
    assert history.samples == 3 * 12
    wanted = {"stopped": 1, "redone": 2 + 4, "reconfiguring": 2 + 3, "training": 8 + 4 + 96, "idle": 0, "checkpoint": 0}
    assert {name: history.seconds[name] for name in wanted} == pytest.approx(wanted)
    assert history.losses == ((17.0, ("device-1",), 1, 6.0, 12.0, 3.0),)
    assert set(history.operation[history.start_s >= 18.5]) == {1}


def test_who_comes_is_taken_in_after_a_step_and_waiting_for_a_plan_is_idleness() -> None:
    joined = history_of([*STEPS, (15.5, {"event": "replanned", "undone": 0}), (16.0, {"event": "resumed"})])
    assert joined.seconds["reconfiguring"] == pytest.approx(2 + 1)
    assert joined.seconds["redone"] == 0
    events = [
        *STEPS,
        (17.1, {"event": "lost"}),
        (60.0, {"event": "replanned", "undone": 0}),
        (62.0, {"event": "resumed"}),
    ]
    waited = history_of(events, departures=[Departure(17.0, ("device-1",), 1)], waits=[(17.0, 59.0)])
    assert waited.seconds["idle"] == pytest.approx(42.0)
    assert waited.seconds["reconfiguring"] == pytest.approx(2 + 3)
