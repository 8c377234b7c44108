"""What moves between two plans: who gets nothing, whose bytes are counted, and the seconds in closed form."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planning_networks import network

from dtfm_lab.costs.memory import static_memory
from dtfm_lab.domain.errors import JobError, PlanError
from dtfm_lab.domain.job import JOBS, Job, gpt
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.planning import Moves, evaluate, moves
from dtfm_lab.planning.moving import CHECKPOINT

MODEL = gpt(name="twelve", n_layers=12, d_model=32, n_heads=2, seq_len=8, vocab_size=100)
JOB = Job(model=MODEL, n_stages=2, n_replicas=2, global_batch=24, microbatch=1)


def job_of(n_stages: int, n_replicas: int, **fields: object) -> Job:
    """Twenty-four sequences, each of which is a micro-batch."""
    return JOB.with_fields(n_stages=n_stages, n_replicas=n_replicas, **fields)


def drawn(topology: Topology, job: Job, seed: int) -> Plan:
    """A random placement."""
    order = np.random.default_rng(seed).permutation(len(topology))[: job.n_tasklets]
    return evaluate(topology, job, stages=order.reshape(job.n_stages, job.n_replicas).tolist())


def state_bytes(plan: Plan) -> dict[str, int]:
    """Parameters and optimiser states of each device that serves, as its memory counts them."""
    static = static_memory(plan.job, plan.job.n_stages)
    return {
        name: int(whole)
        for names, whole in zip(plan.stages, static.parameters + static.optimizer, strict=True)
        for name in names
    }


def received(found: Moves) -> dict[str, int]:
    frame = found.to_frame()
    return {} if frame.empty else frame.groupby("device")["bytes"].sum().to_dict()


shapes = st.sampled_from([(1, 4), (2, 2), (2, 4), (3, 2), (4, 2), (4, 1), (6, 1)])


@given(shapes, shapes, st.integers(0, 99), st.booleans(), st.sampled_from(["pairs", "nics"]))
@settings(max_examples=20)
def test_everyone_gets_what_is_missing_from_somebody_who_held_it(was, now, seed, is_tied, queueing):
    there = network("asymmetric", 9, seed)
    model = replace(MODEL, tied=is_tied)
    before, after = drawn(there, job_of(*was, model=model), seed), drawn(there, job_of(*now, model=model), seed + 1)
    found = moves(before, after.changed(queueing=queueing))
    needed, got, has = state_bytes(after), received(found), state_bytes(before)
    assert got.keys() <= needed.keys()
    for name, whole in needed.items():
        if name not in has:
            assert got[name] == whole
        assert got.get(name, 0) <= whole
    assert (found.sender != found.receiver).all()
    assert {there.names[d] for d in found.sender} <= has.keys()
    assert (found.end_s >= found.start_s + there.latency_s[found.sender, found.receiver]).all()
    assert found.move_s == found.end_s.max(initial=0.0)


@given(shapes, st.integers(0, 99))
def test_who_serves_the_same_stage_gets_nothing(shape, seed):
    there = network("jittered", 9, seed)
    before, after = drawn(there, job_of(*shape), seed), drawn(there, job_of(*shape), seed + 1)
    stays = {name for was, now in zip(before.stages, after.stages, strict=True) for name in set(was) & set(now)}
    assert not stays & received(moves(before, after)).keys()
    assert len(moves(before, before)) == 0
    assert moves(before, before).move_s == 0.0


def test_a_stage_that_is_cut_elsewhere_moves_what_is_cut_off():
    there = network("even", 2, 0)
    before, after = (
        evaluate(there, job_of(2, 1, blocks_per_stage=blocks), stages=[[0], [1]]) for blocks in ((6, 6), (8, 4))
    )
    (block,) = {layer.parameters for layer in MODEL.layers[1:-1]}
    assert received(moves(before, after)) == {there.names[0]: 2 * block * (2 + 12)}


@given(st.sampled_from(["zero-1", "zero-2", "zero-3"]), st.sampled_from([(1, 2), (1, 3), (2, 2), (2, 3)]))
@settings(max_examples=12)
def test_shards_are_cut_anew_for_other_replicas(sharding, shape):
    there = network("even", 8, 0)
    before = drawn(there, job_of(2, 4, sharding=sharding), 0)
    after = drawn(there, job_of(*shape, sharding=sharding), 0)
    elements = sum(job_elements(after.job))
    found = moves(before, after, present=[])
    split = {"zero-1": 1, "zero-2": 1, "zero-3": 0}[sharding]
    wanted = elements * (12 + 2 * (shape[1] if split else 1))
    assert found.total_bytes == wanted
    assert found.from_checkpoint.all()
    assert not moves(before, after).from_checkpoint.any()
    assert moves(before, after).total_bytes < wanted


def job_elements(job: Job) -> tuple[int, ...]:
    return job.parameters_of(job.n_stages)


def two_devices(latency_s: float, bandwidth_bytes_per_s: float, n: int = 2) -> Topology:
    links = np.full((n, n), 1.0)
    return Topology.from_matrices(1e3 * latency_s * links, 8e-9 * bandwidth_bytes_per_s * links)


def test_one_piece_takes_its_bytes_over_the_bandwidth_and_the_latency():
    there = two_devices(0.5, 1e6)
    before, after = evaluate(there, job_of(1, 1), stages=[[0]]), evaluate(there, job_of(1, 2), stages=[[0, 1]])
    found = moves(before, after)
    whole = state_bytes(before)[there.names[0]]
    assert found.n_bytes.tolist() == [whole]
    assert found.move_s == pytest.approx(0.5 + whole / 1e6)


@pytest.mark.parametrize(("queueing", "times"), [("pairs", 1), ("nics", 3)])
def test_pieces_of_one_sender_wait_for_each_other_on_its_nic(queueing, times):
    there = two_devices(0.5, 1e6, n=4)
    before, after = evaluate(there, job_of(1, 1), stages=[[0]]), evaluate(there, job_of(1, 4), stages=[[0, 1, 2, 3]])
    whole = state_bytes(before)[there.names[0]]
    assert moves(before, after.changed(queueing=queueing)).move_s == pytest.approx(0.5 + times * whole / 1e6)


@pytest.mark.parametrize("queueing", ["pairs", "nics"])
def test_pieces_for_one_receiver_come_in_one_behind_the_other_on_its_nic(queueing):
    there = two_devices(0.5, 1e6, n=3)
    before, after = evaluate(there, job_of(2, 1), stages=[[0], [1]]), evaluate(there, job_of(1, 1), stages=[[2]])
    found = moves(before, after.changed(queueing=queueing))
    of_sender = np.bincount(found.sender, found.n_bytes)
    in_turn = of_sender.sum() if queueing == "nics" else of_sender.max()
    assert found.move_s == pytest.approx(0.5 + in_turn / 1e6), "the second leaves before the first has come in"


def test_devices_that_hold_the_same_share_the_work():
    there = two_devices(0.0, 1e6, n=4)
    before, after = evaluate(there, job_of(1, 2), stages=[[0, 1]]), evaluate(there, job_of(1, 4), stages=[[0, 1, 2, 3]])
    assert sorted(moves(before, after).sender.tolist()) == [0, 1]


def test_what_nobody_holds_any_more_comes_from_a_checkpoint():
    there, job = network("asymmetric", 6, 0), job_of(2, 2, model=replace(MODEL, tied=False))
    before = evaluate(there, job, stages=[[0, 1], [2, 3]])
    left = there.subset([0, 1, 4, 5])
    after = evaluate(left, job, stages=[[0, 1], [2, 3]])
    found = moves(before, after)
    assert (found.sender == CHECKPOINT).all()
    assert found.stage.tolist() == [1, 1]
    assert set(found.to_frame()["sender"]) == {"checkpoint"}
    fastest = left.bandwidth_bytes_per_s.copy()
    np.fill_diagonal(fastest, 0.0)
    assert found.end_s == pytest.approx(found.n_bytes / fastest.max(axis=0)[found.receiver])
    halves = moves(before, after, present=[there.names[0]])
    assert set(halves.receiver[halves.sender == 0].tolist()) == {1}  # who forgot what it held gets it again


def test_several_stages_of_a_device_are_all_its_own():
    there = network("even", 4, 0)
    job = job_of(2, 1, schedule="interleaved-1f1b", stages_per_device=2)
    before, after = evaluate(there, job, stages=[[0], [1]]), evaluate(there, job, stages=[[2], [1]])
    found = moves(before, after)
    static = static_memory(job, 4)
    assert found.total_bytes == static.parameters[0] + static.optimizer[0]
    assert set(found.receiver.tolist()) == {2}


def test_plans_of_two_models_and_of_message_sizes_are_refused():
    there = network("even", 4, 0)
    before = evaluate(there, job_of(2, 2), stages=[[0, 1], [2, 3]])
    other = evaluate(there, JOBS["tiny"].with_fields(n_stages=2, n_replicas=2), stages=[[0, 1], [2, 3]])
    with pytest.raises(PlanError, match="the old plan trains twelve in fp16, the new one"):
        moves(before, other)
    sizes = evaluate(there, Job.from_bytes(2, 2, 1e9, 1e8), stages=[[0, 1], [2, 3]])
    with pytest.raises(JobError, match="message sizes only"):
        moves(sizes, sizes)
