"""Replicas that split the optimiser's states (ZeRO-1, Rajbhandari et al. 2020), as the model predicts them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dtfm_lab as lab
from dtfm_lab.domain.errors import JobError, TraceError
from dtfm_lab.domain.job import gpt
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import BY_SHARDS, Kind, synchronisations

OTHERS = sorted(set(synchronisations) - set(BY_SHARDS))


def plan_of(n_stages: int = 2, n_replicas: int = 3, *, tied: bool = False, seed: int = 0, **fields: object) -> Plan:
    """A small model on links that all differ."""
    n, rng = n_stages * n_replicas, np.random.default_rng(seed)
    topology = Topology.from_matrices(
        rng.uniform(1, 50, (n, n)), rng.uniform(0.01, 1, (n, n)), name="unlike", gpu="T4", peak_flop_per_s=1e12
    )
    model = gpt(name="small", n_layers=4, d_model=64, n_heads=2, seq_len=32, vocab_size=512, tied=tied)
    sizes = {"global_batch": 2 * n_replicas + 1, "microbatch": 1, "dtype": "fp16", "model": model}
    job = lab.load_job("tiny", n_stages=n_stages, n_replicas=n_replicas, **(sizes | fields))
    return lab.evaluate(topology, job, stages=rng.permutation(n).reshape(n_stages, n_replicas).tolist())


def sharded(plan: Plan) -> Plan:
    return replace(plan, job=plan.job.with_fields(sharding="zero-1"))


plans = st.builds(
    plan_of,
    st.integers(1, 3),
    st.integers(1, 4),
    seed=st.integers(0, 99),
    synchronisation=st.sampled_from(BY_SHARDS),
    schedule=st.sampled_from(["gpipe", "1f1b", "zb-h1"]),
)


@given(plans)
@settings(max_examples=30, deadline=None)
def test_uncompressed_an_iteration_takes_as_long_as_with_all_states_on_all_replicas(plan):
    """Every message is as long, and leaves when it did: parameters take the place of averages."""
    assert lab.simulate(sharded(plan)).iteration_s == lab.simulate(plan).iteration_s


@pytest.mark.parametrize("tied", [True, False])
def test_over_one_replica_nothing_is_split(tied):
    plan = plan_of(3, 1, tied=tied, compression="int8")
    assert lab.simulate(sharded(plan)).to_frame().equals(lab.simulate(plan).to_frame())


@pytest.mark.parametrize("synchronisation", BY_SHARDS)
def test_gradients_are_compressed_and_parameters_are_not(synchronisation):
    plan = plan_of(1, 3, synchronisation=synchronisation, gradient_compression="int8", codec_bytes_per_s=1e15)
    plain = plan_of(1, 3, synchronisation=synchronisation)
    coded, whole = (lab.simulate(sharded(p)).to_frame().query("lane == 'send'") for p in (plan, plain))
    coded_s, whole_s = ((rows["end_s"] - rows["start_s"]).groupby(rows["kind"]).sum() for rows in (coded, whole))
    assert coded_s["SEND_P"] == pytest.approx(whole_s["SEND_P"])
    assert coded_s["SEND_G"] < 0.6 * whole_s["SEND_G"]


def test_a_tied_embedding_is_exchanged_before_its_gradient_is_averaged():
    trace = lab.simulate(sharded(plan_of(tied=True)))
    rows = trace.to_frame()
    for _, own in rows.groupby(["stage", "replica"]):
        exchanged = own.loc[own["kind"] == "RECV_E", "end_s"].max()
        assert own.loc[own["kind"] == "SEND_G", "start_s"].min() >= exchanged


@pytest.mark.parametrize("synchronisation", OTHERS)
def test_what_averages_no_shards_is_refused(synchronisation):
    with pytest.raises(JobError, match=rf"synchronisation is {synchronisation} with sharding zero-1.*wanted sharded"):
        plan_of(synchronisation=synchronisation, sharding="zero-1")


def test_local_updates_are_refused():
    with pytest.raises(JobError, match=r"synchronise_every is 4 with sharding zero-1.*wanted 1, or sharding none"):
        plan_of(synchronise_every=4, sharding="zero-1")


def test_a_trace_says_what_is_split_and_is_compared_as_it_ran():
    plan = sharded(plan_of(tied=True, gradient_compression="int8"))
    trace = lab.simulate(plan)
    assert trace.context.sharding == "zero-1"
    comparison = lab.compare(trace, trace)
    assert len(comparison.rows) == len(trace)
    assert comparison.iteration_error == 0
    with pytest.raises(TraceError, match="the trace ran with sharding zero-1, this plan's job has none"):
        lab.simulate(replace(plan, job=plan.job.with_fields(sharding="none")), like=trace)


@pytest.mark.parametrize(("dtype", "held", "zeroed"), [("fp16", 16, 2), ("fp32", 16, 4)])
def test_a_step_moves_a_shard_through_memory_and_zeroes_the_whole_gradient(dtype, held, zeroed):
    plan = plan_of(1, 4, dtype=dtype, memory_traffic=True)
    split, whole = (
        rows.loc[rows["kind"] == "STEP"].eval("end_s - start_s").to_numpy()
        for rows in (lab.simulate(p).to_frame() for p in (sharded(plan), plan))
    )
    assert split / whole == pytest.approx((2 * held - zeroed) / 4 / (2 * held) + zeroed / (2 * held))


def test_every_device_steps_once_and_writes_what_the_others_stepped():
    trace = lab.simulate(sharded(plan_of()))
    kinds = [trace.actions[action].kind for action in trace.action]
    assert kinds.count(Kind.STEP) == 6
    assert kinds.count(Kind.REDUCE) == 2 * 6
