"""A run follows another plan when devices leave or come: same batches, same losses, no process started for nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from run_helpers import left_behind, small_model, until
from workers_as_threads import train

import dtfm_lab as lab
from dtfm_lab.domain.errors import JobError, LabError, RunError
from dtfm_lab.runtime.client.run import Run

pytest.importorskip("torch", reason="a run trains with torch")

NETWORK = lab.load_topology("lecture-hall")
JOB = lab.load_job("tiny").with_fields(
    dtype="fp64", global_batch=24, microbatch=1, n_stages=None, n_replicas=None, model=small_model()
)


def planned(n_stages: int, n_replicas: int, without: tuple[str, ...] = (), **fields: object) -> lab.Plan:
    """Of the devices that are left, the last first."""
    left = NETWORK.subset([i for i, name in enumerate(NETWORK.names) if name not in without])
    grid = np.arange(len(left))[::-1][: n_stages * n_replicas].reshape(n_stages, n_replicas)
    return lab.evaluate(left, JOB.with_fields(n_stages=n_stages, n_replicas=n_replicas, **fields), stages=grid.tolist())


def on_grid(n_stages: int, n_replicas: int, **fields: object) -> lab.Plan:
    """Stage by stage in the network's order."""
    job = JOB.with_fields(n_stages=n_stages, n_replicas=n_replicas, **fields)
    grid = np.arange(n_stages * n_replicas).reshape(n_stages, n_replicas)
    return lab.evaluate(NETWORK, job, stages=grid.tolist())


def under_way(plan: lab.Plan, **options: Any) -> Run:
    """Two iterations of this plan are done. It is stopped by hand: it shall not end before it is told something."""
    run = lab.start(plan, iterations=10_000, **options)
    run.wait_for(2)
    return run


def followed(run: Run, n_plans: int) -> None:
    """Three iterations of the plan told last are done."""
    until(lambda: len(run.replans) == n_plans or not run.running)
    run.wait_for(run.replans[n_plans - 1]["iteration"] + 3)


SameLosses = Callable[[Run], lab.Trace]


@pytest.fixture(scope="module")
def assert_as_undisturbed() -> SameLosses:
    """Stop a run and return its trace; its losses are those of an undisturbed one, but for the order of sums."""
    known = np.empty(0)

    def stop(run: Run) -> lab.Trace:
        nonlocal known
        run.stop()
        trace, n = run.wait(), len(run.losses)
        assert left_behind(run.pid) == []
        if n > len(known):
            known = np.array(train(planned(2, 1), "gpipe", n + 20).losses)
        np.testing.assert_allclose(run.losses, known[:n], rtol=1e-12)
        return trace

    return stop


def test_a_device_that_leaves_for_good_is_planned_around(assert_as_undisturbed: SameLosses) -> None:
    plan = on_grid(3, 2)
    run = under_way(plan)
    gone = plan.stages[1][0]
    run.leave(gone)
    smaller = planned(2, 2, without=(gone,), schedule="1f1b")
    run.follow(smaller)
    followed(run, 1)
    trace = assert_as_undisturbed(run)
    (told,) = run.replans
    assert told["iteration"] >= 2
    assert told["undone"] == 0
    stay = {name for group in smaller.stages for name in group} & {name for group in plan.stages for name in group}
    assert (told["kept"], told["started"]) == (len(stay), 4 - len(stay)) == (2, 2)
    parts = [part.n_iterations for part in (*run.earlier, trace)]
    assert parts == [told["iteration"], len(run.losses) - told["iteration"]]
    assert trace.context.losses == tuple(run.losses[told["iteration"] :])
    assert lab.compare(lab.simulate(smaller, "1f1b"), trace).measured is trace


def test_devices_that_come_are_taken_in_between_two_iterations_and_a_restart_goes_back(
    assert_as_undisturbed: SameLosses,
) -> None:
    run = under_way(planned(2, 1))
    assert_refuses_what_it_cannot_follow(run)
    run.follow(planned(2, 2), from_checkpoint=True)  # though everybody lives
    followed(run, 1)
    for number, plan in enumerate((planned(2, 3), on_grid(4, 1)), start=2):
        run.follow(plan)
        followed(run, number)
    assert_as_undisturbed(run)
    back, *taken_in = run.replans
    assert (back["iteration"], back["kept"]) == (0, 2), "no checkpoint was written"
    assert back["undone"] >= 2
    assert [told["undone"] for told in taken_in] == [0, 0]
    with pytest.raises(RunError, match="the run is over"):
        run.follow(planned(2, 2))
    with pytest.raises(RunError, match="the run is over"):
        run.leave("ada")


@pytest.mark.parametrize("checkpoints", [True, False], ids=["to a checkpoint", "to the beginning"])
def test_for_a_stage_that_nobody_holds_any_more_all_go_back(
    assert_as_undisturbed: SameLosses, tmp_path, checkpoints: bool
) -> None:
    plan = on_grid(3, 1)
    kept = {"checkpoint_folder": tmp_path, "checkpoint_every": 4}
    run = under_way(plan, **kept if checkpoints else {})
    if checkpoints:
        run.wait_for(6)
    gone = plan.stages[2][0]
    run.leave(gone)
    run.follow(planned(2, 2, without=(gone,)))
    followed(run, 1)
    assert_as_undisturbed(run)
    (told,) = run.replans
    if checkpoints:
        assert told["iteration"] % 4 == 0 < told["iteration"]
        assert 0 <= told["undone"] <= 4, "all four where the next was still being written"
    else:
        assert told["iteration"] == 0
        assert told["undone"] >= 2
    assert not list(tmp_path.glob("handed-*"))


def test_where_every_replica_has_a_shard_all_hand_over(assert_as_undisturbed: SameLosses) -> None:
    run = under_way(on_grid(2, 3, sharding="zero-1"))
    run.follow(planned(3, 2, sharding="zero-1"))
    followed(run, 1)
    assert_as_undisturbed(run)
    assert run.replans[0]["undone"] == 0


def test_two_that_leave_at_once_and_a_plan_that_is_void_before_it_is_followed(
    assert_as_undisturbed: SameLosses,
) -> None:
    plan = on_grid(2, 3)
    run = under_way(plan)
    first, second = plan.stages[0][0], plan.stages[1][1]
    run.leave(first)
    run.follow(planned(2, 3, without=(first,)))  # and the second of it leaves
    run.leave(second)
    run.follow(planned(3, 2, without=(first, second)))
    until(lambda: run.spec.plan.job.n_stages == 3 or not run.running)
    followed(run, len(run.replans))
    assert {*run.ranks}.isdisjoint({first, second})
    assert_as_undisturbed(run)


def test_peers_share_the_work_of_those_who_leave_until_there_is_a_new_plan(assert_as_undisturbed: SameLosses) -> None:
    plan = on_grid(3, 2, schedule="1f1b")
    first, third = plan.stages[0][0], plan.stages[1][1]
    run = under_way(plan)
    # of one pipeline in the middle, then of the other at its beginning
    for number, absent in enumerate(((third,), (first, third)), start=1):
        run.leave(absent[0])
        run.follow(plan.changed(absent=absent))
        followed(run, number)
        assert absent[0] not in run.ranks
    shared = run.spec.plan
    run.follow(planned(2, 2, without=(first, third), schedule="gpipe"))
    followed(run, 3)
    assert_as_undisturbed(run)
    assert [(told["kept"], told["started"], told["undone"]) for told in run.replans[:2]] == [(5, 0, 0), (4, 0, 0)]
    part = run.earlier[2]
    assert part.context.plan.absent == shared.absent == (first, third)
    assert lab.compare(lab.simulate(plan, like=part), part).measured is part


def test_two_that_leave_different_stages_at_once_and_come_back(assert_as_undisturbed: SameLosses, tmp_path) -> None:
    plan = on_grid(2, 3, schedule="zb-h1", synchronisation="ring")
    run = under_way(plan, checkpoint_folder=tmp_path, checkpoint_every=2)
    gone = plan.stages[0][0], plan.stages[1][2]
    for name in gone:
        run.leave(name)
    run.follow(plan.changed(absent=gone))
    followed(run, 1)  # a checkpoint is written by others than the first replica
    run.follow(plan, from_checkpoint=True)
    followed(run, 2)
    assert_as_undisturbed(run)
    assert (run.replans[0]["kept"], run.replans[1]["started"]) == (4, 2)
    assert run.replans[1]["iteration"] >= 4


def assert_refuses_what_it_cannot_follow(run: Run) -> None:
    with pytest.raises(LabError, match="no device of this run named 'adda'; did you mean 'ada'"):
        run.leave("adda")
    with pytest.raises(LabError, match=r"^dtype of the plan to follow is fp32; wanted fp64, as in the run$"):
        run.follow(planned(2, 1, dtype="fp32"))
    with pytest.raises(LabError, match=r"^the plan to follow is 'plan\.json'; wanted a Plan$"):
        run.follow("plan.json")
    with pytest.raises(LabError, match=r"^pause_s is -1; wanted seconds, 0 or more$"):
        run.follow(planned(2, 1), pause_s=-1)
    alone = on_grid(2, 2, sharding="zero-1")
    with pytest.raises(JobError, match=r"sharding is zero-1 where peers share a lost device's work; wanted none$"):
        run.follow(alone.changed(absent=(alone.stages[0][0],)))
