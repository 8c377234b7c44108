"""A lost worker changes no result: survivors go back, a replacement gets the state, and the losses are the same."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import psutil
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from run_helpers import left_behind, small_plan, spec_of, until
from workers_as_threads import train

from dtfm_lab.domain.errors import LabError, RunError
from dtfm_lab.domain.plan import Plan
from dtfm_lab.runtime.client.launch import start
from dtfm_lab.runtime.client.run import Run
from dtfm_lab.runtime.coordinator.recovery import describe_stages, find_recovery, holders, why_unrecoverable
from dtfm_lab.runtime.worker.training_state import TrainingState

Event = dict[str, object]


def run_with(plan: Plan, disturb: Callable[[Run, Event], None], n_faults: int = 1, **options: object) -> Run:
    """Return a run that is over: ``disturb`` was called with every event until four iterations after so many faults.

    It does not end by itself, or it could be over before what disturbs it arrives.
    """
    run = start(plan, iterations=10_000, **options)
    told: list[str] = []

    def follow(event: Event) -> None:
        told.append(str(event["event"]))
        disturb(run, event)
        if event["event"] == "recovered":
            told[:] = ["recovered"] * told.count("recovered")
        elif told.count("recovered") == n_faults and told.count("iteration") == 4:
            run.stop()

    run.wait(follow)
    assert left_behind(run.pid) == []
    return run


def after_iteration(number: int, act: Callable[[Run], None]) -> Callable[[Run, Event], None]:
    """Once: where an iteration is redone, its event comes again."""
    left = itertools.count(-1, -1)

    def disturb(run: Run, event: Event) -> None:
        if event["event"] == "iteration" and event["iteration"] == number and next(left) == -1:
            act(run)

    return disturb


def assert_as_undisturbed(run: Run) -> None:
    """By the same training as threads, which processes equal bit for bit: ``test_real_choices``."""
    undisturbed = train(run.spec.plan, run.spec.schedule, len(run.losses))
    assert list(run.losses) == undisturbed.losses
    trace = run.trace()
    assert trace.n_iterations == len(run.losses)
    assert len(trace) == len(undisturbed.spans)


@pytest.mark.parametrize(
    "fields",
    [
        {"schedule": "interleaved-1f1b", "synchronisation": "ring", "compression": "int8"},
        {"schedule": "zb-h1", "tied": True},
    ],
    ids=lambda fields: fields["schedule"],
)
def test_killed_workers_are_replaced_and_no_loss_differs(fields: dict[str, object]) -> None:
    plan = small_plan(n_replicas=3, global_batch=12, **fields)
    run = run_with(plan, after_iteration(1, lambda run: (run.kill("device-0"), run.kill("device-4"))), n_faults=2)
    assert_as_undisturbed(run)
    faults = {fault.device: fault for fault in run.trace().context.faults}
    assert faults.keys() == {"device-0", "device-4"}
    for device, peers in (("device-0", ("device-1", "device-2")), ("device-4", ("device-3", "device-5"))):
        assert faults[device].how == "was killed by SIGKILL"
        assert faults[device].state_from in peers
        assert faults[device].iteration >= 2


def test_a_stage_whose_last_replica_is_lost_ends_the_run_in_one_line() -> None:
    plan = small_plan()

    def kill_both(run: Run) -> None:
        run.kill("device-2")
        run.kill("device-3")

    with pytest.raises(RunError, match=r"no other replica holds stage 1; wanted a data-parallel peer, or a checkpoint"):
        run_with(plan, after_iteration(2, kill_both))


def test_where_no_replica_has_the_state_all_go_back_to_the_checkpoint(tmp_path) -> None:
    plan = small_plan(synchronise_every=3)
    kill = after_iteration(6, lambda run: run.kill("device-1"))
    run = run_with(plan, kill, checkpoint_folder=tmp_path, checkpoint_every=4)
    assert_as_undisturbed(run)
    (fault,) = run.faults
    assert fault.iteration >= 4
    assert fault.iteration % 4 == 0
    assert fault.state_from == f"checkpoint of iteration {fault.iteration}"


def test_with_local_updates_and_no_checkpoint_a_loss_cannot_be_recovered() -> None:
    spec = spec_of(small_plan(synchronise_every=3))
    assert find_recovery(spec, {1}, 2, None) is None
    assert "with local updates no other replica has the same state; wanted a checkpoint" in why_unrecoverable(spec, 1)


def test_one_that_stands_still_is_replaced_and_the_one_before_is_gone() -> None:
    run = run_with(small_plan(), after_iteration(2, lambda run: run.pause("device-1")))
    (fault,) = run.faults
    assert (fault.device, fault.how, fault.state_from) == ("device-1", "stood still", "device-0")
    assert_as_undisturbed(run)


def test_one_that_nobody_can_replace_is_waited_for_until_it_goes_on() -> None:
    run = start(small_plan(n_replicas=1), iterations=10_000)
    run.wait_for(2)
    run.pause("device-1")
    until(lambda: any(worker.status() == psutil.STATUS_STOPPED for worker in psutil.Process(run.pid).children()))
    time.sleep(2.0)
    run.resume("device-1")
    run.wait_for(len(run.losses) + 3)
    run.stop()
    run.wait()
    assert run.faults == ()
    assert_as_undisturbed(run)


def test_a_device_killed_after_an_iteration_gets_its_state_from_a_peer_and_one_killed_before_begins() -> None:
    """What docs/run-for-real.md says of ``run.wait_for``."""
    run = start(small_plan(), iterations=10_000)
    run.kill("device-1")
    run.wait_for(3)
    assert len(run.losses) >= 3
    run.kill("device-2")
    until(lambda: len(run.faults) == 2 or not run.running)
    run.wait_for(run.faults[1].iteration + 3)
    run.stop()
    run.wait()
    assert [(fault.device, fault.state_from) for fault in run.faults] == [
        ("device-1", "the beginning"),
        ("device-2", "device-3"),
    ]
    assert_as_undisturbed(run)
    run.wait_for(3)
    with pytest.raises(LabError, match="10001 iterations to wait for; wanted 1 to 10000"):
        run.wait_for(10_001)


def test_a_slowed_device_computes_as_much_slower_and_trains_the_same() -> None:
    run = start(small_plan(global_batch=32), iterations=10_000)
    run.wait_for(3)
    run.slow("device-2", 8.0)
    run.wait_for(len(run.losses) + 20)
    run.stop()
    frame = run.wait().to_frame()
    forwards = frame[(frame.device == "device-2") & (frame.kind == "F")].assign(s=lambda f: f.end_s - f.start_s)
    early, late = forwards.iteration < 3, forwards.iteration > len(run.losses) - 5
    assert 2.5 < forwards[late].s.median() / forwards[early].s.median() < 30, "eight times, by the processor's clock"
    assert_as_undisturbed(run)


def test_a_worker_of_several_stages_is_named_with_all_of_them() -> None:
    plan = small_plan(n_stages=2, n_replicas=1)
    spec = spec_of(plan, "interleaved-1f1b")
    assert [describe_stages(spec, rank) for rank in range(2)] == ["stages 0, 2", "stages 1, 3"]
    assert [describe_stages(spec_of(plan), rank) for rank in range(2)] == ["stage 0", "stage 1"]


@given(n_replicas=st.integers(1, 4), done=st.integers(1, 9), data=st.data())
@settings(max_examples=25)
def test_state_comes_from_a_living_replica_of_the_same_stage_or_from_nowhere(n_replicas, done, data) -> None:
    spec = spec_of(small_plan(2, n_replicas, global_batch=2 * n_replicas), "gpipe", iterations=9)
    lost = data.draw(st.sets(st.integers(0, 2 * n_replicas - 1), min_size=1))
    found = find_recovery(spec, lost, done, None)
    stages = [{rank for rank, (stage, _) in enumerate(spec.workers) if stage == s} for s in range(2)]
    if any(stage <= lost for stage in stages):
        assert found is None
        assert find_recovery(spec, lost, done, (done - 1, "there")).version == done - 1
    else:
        assert found.version == done
        assert found.donors.keys() == lost
        for rank, donor in found.donors.items():
            assert donor not in lost
            assert spec.workers[rank][0] == spec.workers[donor][0]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"synchronise_every": 2}, "with local updates no other replica has the same state"),
        ({"sharding": "zero-1"}, "with zero-1 no other replica holds its shard of the optimizer states"),
    ],
)
def test_where_replicas_differ_only_a_checkpoint_or_all_of_them_have_the_state(fields, says) -> None:
    spec = spec_of(small_plan(2, 2, **fields), "gpipe", iterations=9)
    assert find_recovery(spec, {1}, 3, None) is None
    assert find_recovery(spec, {1}, 3, (2, "there")).checkpoint == "there"
    assert why_unrecoverable(spec, 1).startswith(says)
    assert holders(spec, range(4)) == {0, 1, 2, 3}
    assert holders(spec, range(3)) is None


@given(seed=st.integers(0, 2**31), local_updates=st.booleans(), dtype=st.sampled_from([torch.float32, torch.float64]))
@settings(max_examples=25)
def test_what_an_iteration_changed_is_taken_back_and_handed_over_to_the_bit(seed, local_updates, dtype) -> None:
    generator = torch.Generator().manual_seed(seed)
    states = []
    for _ in range(2):
        layer = torch.nn.Linear(3, 5).to(dtype)
        with torch.no_grad():
            layer.weight.copy_(torch.randn(5, 3, generator=generator))
        states.append(TrainingState([layer], local_updates=local_updates))
    state, other = states

    def step() -> None:
        state.gradients.copy_(torch.randn(len(state.gradients), generator=generator))
        state.step(1e-2)

    step()
    state.version = 1
    before = state.to_bytes().clone()
    step()
    state.roll_back_to(1)
    assert torch.equal(state.to_bytes(), before)
    assert (state.version, state.steps) == (1, 1)
    other.load_bytes(before, 1)
    assert torch.equal(other.to_bytes(), before)
    assert other.steps == 1
