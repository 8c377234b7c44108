"""Laws of sharded optimiser states, gradients and parameters (ZeRO-1 to 3, FSDP): seconds, memory, refusals."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dtfm_lab as lab
from dtfm_lab.costs.memory import static_memory
from dtfm_lab.costs.seconds import GroupRings, pass_times
from dtfm_lab.costs.sharded_passes import streamed_s
from dtfm_lab.domain.errors import JobError, TraceError
from dtfm_lab.domain.job import MODELS, Job, gpt
from dtfm_lab.domain.network import Links, Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import BY_SHARDS, synchronisations
from dtfm_lab.planning.evaluate import evaluate
from dtfm_lab.simulation.simulate import simulate

SHARDINGS = ("none", "zero-1", "zero-2", "zero-3")
seconds = st.lists(st.tuples(*[st.floats(0, 10)] * 3), min_size=1, max_size=8)


def placed(sharding: str, n_stages: int = 2, n_replicas: int = 4, gbytes_per_s: float = 10.0, **fields: object) -> Plan:
    """GPT-2 small on A100s with all links alike."""
    n = n_stages * n_replicas
    links = {"latency_s": np.full((n, n), 1e-5), "bandwidth_bytes_per_s": np.full((n, n), gbytes_per_s * 1e9)}
    counts = {"n_stages": n_stages, "n_replicas": n_replicas, "global_batch": 64, "microbatch": 2}
    job = Job(model=MODELS["gpt2-small"], dtype="bf16", schedule="1f1b", sharding=sharding, **counts | fields)
    return evaluate(
        Topology.from_matrices(gpu="A100", **links), job, stages=np.arange(n).reshape(n_stages, -1).tolist()
    )


@given(seconds)
@settings(max_examples=25)
def test_streamed_layers_take_no_less_than_either_alone_and_no_more_than_both_in_turn(layers):
    compute_s, before_s, after_s = zip(*layers, strict=True)
    alone_s, messages_s = sum(compute_s), sum(before_s) + sum(after_s)
    assert max(alone_s, messages_s) - 1e-9 <= streamed_s(compute_s, before_s, after_s) <= alone_s + messages_s + 1e-9


def test_layers_that_compute_longer_than_messages_take_show_the_first_and_the_last_message_only():
    assert streamed_s([5, 5, 5], [1, 2, 1], [1, 1, 2]) == 1 + 15 + 2


@pytest.mark.parametrize("sharding", ["zero-2", "zero-3"])
@pytest.mark.parametrize("gbytes_per_s", [0.1, 1.0, 10.0])
def test_without_prefetch_an_iteration_is_no_shorter_and_at_most_twice_as_long(sharding, gbytes_per_s):
    how = {"n_stages": 1, "gbytes_per_s": gbytes_per_s}
    ahead, waits = (simulate(placed(sharding, prefetch=prefetch, **how)).iteration_s for prefetch in (True, False))
    assert ahead < waits <= 2 * ahead


def test_without_prefetch_a_pass_is_its_computing_and_its_messages():
    plan = placed("zero-3", 1, 4, 1.0, prefetch=False)
    alone, passes = pass_times(placed("none", 1, 4, 1.0), 1), pass_times(plan, 1)
    three_quarters_s = 2 * plan.job.modelled().parameters * 3 / 4 / 1e9
    for row, times in ((0, 1), (1, 2)):  # gathered in the forward; gathered and scattered in the backward
        assert passes[row].seconds - alone[row].seconds == pytest.approx(times * three_quarters_s, rel=0.01)


def test_a_ring_enters_and_leaves_each_host_once_however_its_devices_are_numbered():
    host = np.array([0, 1, 0, 1])
    links = {"latency_s": np.zeros((4, 4)), "bandwidth_bytes_per_s": np.where(host[:, None] == host, 100e9, 1e9)}
    network = Topology.from_matrices(hosts=[f"host-{i}" for i in host], **links)
    rings = GroupRings(network, Links.of(network), np.arange(4)[None])
    assert rings.gather_s(0, 4e9) == pytest.approx(3 * 1.0), "three rounds of 1 GB over a NIC that serves one link"


@pytest.mark.parametrize("sharding", SHARDINGS)
def test_over_one_replica_nothing_is_sharded(sharding):
    alone, none = placed(sharding, n_replicas=1), placed("none", n_replicas=1)
    assert simulate(alone).iteration_s == simulate(none).iteration_s
    assert static_memory(alone.job, 2).total.tolist() == static_memory(none.job, 2).total.tolist()


@pytest.mark.parametrize("sharding", SHARDINGS)
def test_on_free_links_every_sharding_takes_the_same(sharding):
    free = placed(sharding, gbytes_per_s=1e18), placed("none", gbytes_per_s=1e18)
    with_latency, plain = (
        simulate(plan.changed(topology=plan.topology.scaled(latency=0.0))).iteration_s for plan in free
    )
    assert with_latency == pytest.approx(plain, rel=1e-6)


def test_zero_3_moves_half_as_much_again_as_plain_data_parallelism():
    # Rajbhandari et al. 2020, section 7.2.2: 3 parameters' worth a micro-batch, where an all-reduce moves 2
    slow = [placed(how, 1, 4, 1e-5, synchronisation="ring", global_batch=8) for how in ("none", "zero-3")]
    plain_s, sharded_s = (
        simulate(plan.changed(topology=plan.topology.scaled(latency=0.0))).iteration_s for plan in slow
    )
    assert sharded_s / plain_s == pytest.approx(1.5, rel=0.01)


def test_zero_2_with_one_micro_batch_takes_what_zero_1_takes():
    one = [simulate(placed(how, n_stages=1, global_batch=8)).iteration_s for how in ("zero-1", "zero-2")]
    assert one[0] == pytest.approx(one[1])


@pytest.mark.parametrize(("sharding", "bytes_of"), [
    ("none", lambda psi, r: 16 * psi),
    ("zero-1", lambda psi, r: 4 * psi + 12 * psi / r),
    ("zero-2", lambda psi, r: 2 * psi + 14 * psi / r),
    ("zero-3", lambda psi, r: 16 * psi / r),
])  # fmt: skip
def test_states_take_the_bytes_of_the_paper_and_what_is_whole_at_a_time(sharding, bytes_of):
    job = placed(sharding, n_stages=1, n_replicas=8).job
    embedding, *blocks, head = (layer.parameters for layer in job.model.layers)
    in_use = 2 * (embedding + head + 2 * max(blocks)) if sharding == "zero-3" else 0
    scattered = 2 * embedding if sharding in ("zero-2", "zero-3") else 0
    found = static_memory(job, 1).total[0]
    assert found == pytest.approx(bytes_of(job.model.parameters, 8) + in_use + scattered, abs=64)


def test_replicas_that_gather_pass_as_many_micro_batches():
    with pytest.raises(JobError, match="sharding zero-3 with 33 micro-batches over 4 replicas, which pass"):
        placed("zero-3", global_batch=66)


# replicas that split the optimiser's states (ZeRO-1, Rajbhandari et al. 2020), as the model predicts them


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
def test_uncompressed_an_iteration_takes_as_long_as_with_all_states_on_all_replicas(plan):
    """Every message is as long, and leaves when it did: parameters take the place of averages."""
    assert lab.simulate(sharded(plan)).iteration_s == lab.simulate(plan).iteration_s


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
    assert trace.context.plan.sharding == "zero-1"
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
