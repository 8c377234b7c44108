"""A run follows another plan when devices leave or come: same batches, same losses, no process started for nothing."""

from __future__ import annotations

import numpy as np
import pytest
from run_helpers import left_behind, small_model

import dtfm_lab as lab
from dtfm_lab.domain.errors import JobError, LabError, RunError

pytest.importorskip("torch", reason="a run trains with torch")

NETWORK = lab.load_topology("lecture-hall")
JOB = lab.load_job("tiny").with_fields(
    dtype="fp64", global_batch=24, microbatch=1, n_stages=None, n_replicas=None, model=small_model()
)
SEED = 3
ITERATIONS = 12


def planned(n_stages: int, n_replicas: int, without: tuple[str, ...] = (), **fields: object) -> lab.Plan:
    left = NETWORK.subset([i for i, name in enumerate(NETWORK.names) if name not in without])
    job = JOB.with_fields(n_stages=n_stages, n_replicas=n_replicas, **fields)
    return lab.plan(left, job, seed=0, steps=1)


@pytest.fixture(scope="module")
def undisturbed() -> np.ndarray:
    """Losses of a run that nothing happens to; no plan changes them but in the order of sums."""
    return np.array(lab.run(planned(2, 1), iterations=ITERATIONS, seed=SEED).context.losses)


def test_a_device_that_leaves_for_good_is_planned_around(undisturbed: np.ndarray) -> None:
    plan = planned(3, 2)
    run = lab.start(plan, iterations=ITERATIONS, seed=SEED)
    run.wait_for(3)
    gone = plan.stages[1][0]
    run.leave(gone)
    smaller = planned(2, 2, without=(gone,), schedule="1f1b")
    run.follow(smaller)
    trace = run.wait()
    np.testing.assert_allclose(run.losses, undisturbed, rtol=1e-12)
    (told,) = run.replans
    assert told["iteration"] >= 3
    assert told["undone"] == 0
    stay = {name for group in smaller.stages for name in group} & {name for group in plan.stages for name in group}
    assert (told["kept"], told["started"]) == (len(stay), 4 - len(stay))
    assert [part.n_iterations for part in (*run.earlier, trace)] == [told["iteration"], ITERATIONS - told["iteration"]]
    assert trace.context.losses == tuple(run.losses[told["iteration"] :])
    assert lab.compare(lab.simulate(smaller, "1f1b"), trace).measured is trace
    assert left_behind(run.pid) == []


def test_devices_that_come_are_taken_in_between_two_iterations(undisturbed: np.ndarray) -> None:
    run = lab.start(planned(2, 1), iterations=ITERATIONS, seed=SEED)
    run.wait_for(2)
    run.follow(planned(2, 3))
    run.wait_for(run.losses and len(run.losses) + 2)
    run.follow(planned(4, 1))
    run.wait()
    np.testing.assert_allclose(run.losses, undisturbed, rtol=1e-12)
    assert len(run.replans) == 2
    assert run.replans[0]["kept"] >= 1


def test_a_stage_that_nobody_holds_any_more_is_read_from_the_newest_checkpoint(
    undisturbed: np.ndarray, tmp_path
) -> None:
    plan = planned(3, 1)
    run = lab.start(plan, iterations=ITERATIONS, seed=SEED, checkpoint_folder=tmp_path, checkpoint_every=4)
    run.wait_for(6)
    gone = plan.stages[2][0]
    run.leave(gone)
    run.follow(planned(2, 2, without=(gone,)))
    run.wait()
    np.testing.assert_allclose(run.losses, undisturbed, rtol=1e-12)
    (told,) = run.replans
    assert told["iteration"] % 4 == 0
    assert 0 <= told["undone"] < 4
    assert not list(tmp_path.glob("handed-*"))


def test_a_restart_reads_the_checkpoint_though_everybody_lives(undisturbed: np.ndarray) -> None:
    run = lab.start(planned(2, 1), iterations=ITERATIONS, seed=SEED)
    run.wait_for(2)
    run.follow(planned(2, 2), from_checkpoint=True)
    run.wait()
    np.testing.assert_allclose(run.losses, undisturbed, rtol=1e-12)
    (told,) = run.replans
    assert told["iteration"] == 0, "no checkpoint was written"
    assert told["undone"] >= 2


@pytest.mark.parametrize("sharding", ["none", "zero-1"])
def test_two_that_leave_at_once_and_a_plan_that_is_void_before_it_is_followed(
    undisturbed: np.ndarray, sharding: str
) -> None:
    plan = planned(2, 3, sharding=sharding)
    run = lab.start(plan, iterations=ITERATIONS, seed=SEED)
    run.wait_for(2)
    if sharding == "none":
        first, second = plan.stages[0][0], plan.stages[1][1]
        run.leave(first)
        run.follow(planned(2, 3, without=(first,)))  # and the second of it leaves
        run.leave(second)
        run.follow(planned(3, 2, without=(first, second)))
        run.wait()
        assert {*run.ranks}.isdisjoint({first, second})
    else:  # every replica has a shard: all hand over
        run.follow(planned(3, 2, sharding=sharding))
        run.wait()
    np.testing.assert_allclose(run.losses, undisturbed, rtol=1e-12)


def on_grid(n_stages: int, n_replicas: int, **fields: object) -> lab.Plan:
    """Stage by stage in the network's order."""
    job = JOB.with_fields(n_stages=n_stages, n_replicas=n_replicas, **fields)
    grid = np.arange(n_stages * n_replicas).reshape(n_stages, n_replicas)
    return lab.evaluate(NETWORK, job, stages=grid.tolist())


def test_peers_share_the_work_of_those_who_leave_until_there_is_a_new_plan(undisturbed: np.ndarray) -> None:
    plan = on_grid(3, 2, schedule="1f1b")
    first, third = plan.stages[0][0], plan.stages[1][1]
    run = lab.start(plan, iterations=ITERATIONS, seed=SEED)
    run.wait_for(2)
    for absent in ((third,), (first, third)):  # of one pipeline in the middle, then of the other at its beginning
        run.leave(absent[0])
        run.follow(plan.changed(absent=absent))
        run.wait_for(len(run.losses) + 3)
        assert absent[0] not in run.ranks
    shared = run.spec.plan
    run.follow(planned(2, 2, without=(first, third), schedule="gpipe"))
    run.wait()
    np.testing.assert_allclose(run.losses, undisturbed, rtol=1e-12)
    assert [(told["kept"], told["started"], told["undone"]) for told in run.replans[:2]] == [(5, 0, 0), (4, 0, 0)]
    part = run.earlier[2]
    assert part.context.absent == shared.absent == (first, third)
    assert lab.compare(lab.simulate(plan, like=part), part).measured is part
    assert left_behind(run.pid) == []


def test_two_that_leave_different_stages_at_once_and_come_back(undisturbed: np.ndarray, tmp_path) -> None:
    plan = on_grid(2, 3, schedule="zb-h1", synchronisation="ring")
    run = lab.start(plan, iterations=ITERATIONS, seed=SEED, checkpoint_folder=tmp_path, checkpoint_every=2)
    run.wait_for(2)
    gone = plan.stages[0][0], plan.stages[1][2]
    for name in gone:
        run.leave(name)
    run.follow(plan.changed(absent=gone))
    run.wait_for(len(run.losses) + 3)  # a checkpoint is written by others than the first replica
    run.follow(plan, from_checkpoint=True)
    run.wait()
    np.testing.assert_allclose(run.losses, undisturbed, rtol=1e-12)
    assert (run.replans[0]["kept"], run.replans[1]["started"]) == (4, 2)
    assert run.replans[1]["iteration"] >= 4
    assert left_behind(run.pid) == []


def test_what_a_run_cannot_follow_is_refused_in_one_line() -> None:
    run = lab.start(planned(2, 1), iterations=2, seed=SEED)
    with pytest.raises(LabError, match="no device of this run named 'adda'; did you mean 'ada'"):
        run.leave("adda")
    with pytest.raises(LabError, match=r"^dtype of the plan to follow is fp32; wanted fp64, that of the run$"):
        run.follow(planned(2, 1, dtype="fp32"))
    with pytest.raises(LabError, match=r"^the plan to follow is 'plan\.json'; wanted a Plan$"):
        run.follow("plan.json")
    with pytest.raises(LabError, match=r"^pause_s is -1; wanted seconds, 0 or more$"):
        run.follow(planned(2, 1), pause_s=-1)
    alone = on_grid(2, 2, sharding="zero-1")
    with pytest.raises(JobError, match=r"sharding is zero-1 where peers share a lost device's work; wanted none$"):
        run.follow(alone.changed(absent=(alone.stages[0][0],)))
    run.wait()
    with pytest.raises(RunError, match="the run is over"):
        run.follow(planned(2, 2))
    with pytest.raises(RunError, match="the run is over"):
        run.leave("ada")


def test_a_stage_that_is_lost_without_a_checkpoint_is_trained_again(undisturbed: np.ndarray) -> None:
    plan = planned(3, 1)
    run = lab.start(plan, iterations=ITERATIONS, seed=SEED)
    run.wait_for(2)
    gone = plan.stages[2][0]
    run.leave(gone)
    run.follow(planned(2, 1, without=(gone,)))
    run.wait()
    np.testing.assert_allclose(run.losses, undisturbed, rtol=1e-12)
    (told,) = run.replans
    assert told["iteration"] == 0
    assert told["undone"] >= 2
    assert left_behind(run.pid) == []
