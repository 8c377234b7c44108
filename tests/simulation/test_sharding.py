"""Laws of sharded optimiser states, gradients and parameters (ZeRO-1 to 3, FSDP): seconds, memory, refusals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtfm_lab.domain.errors import JobError
from dtfm_lab.domain.job import MODELS, Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.planning.evaluate import evaluate
from dtfm_lab.simulation.durations import analytic
from dtfm_lab.simulation.engine import programs_of
from dtfm_lab.simulation.memory_intervals import static_memory
from dtfm_lab.simulation.schedules import build
from dtfm_lab.simulation.sensitivity import gains
from dtfm_lab.simulation.sharding import streamed_s
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


def passes(plan: Plan) -> dict[tuple[object, ...], float]:
    programs = programs_of(plan, build(plan, "1f1b"))
    return {row[:3]: row.seconds for row in analytic(plan, programs)}


@given(seconds)
def test_streamed_layers_take_no_less_than_either_alone_and_no_more_than_both_in_turn(layers):
    compute_s, before_s, after_s = zip(*layers, strict=True)
    alone_s, messages_s = sum(compute_s), sum(before_s) + sum(after_s)
    assert max(alone_s, messages_s) - 1e-9 <= streamed_s(compute_s, before_s, after_s) <= alone_s + messages_s + 1e-9


@given(seconds)
def test_layers_without_messages_take_what_they_compute(layers):
    compute_s = [one[0] for one in layers]
    none = [0.0] * len(compute_s)
    assert streamed_s(compute_s, none, none) == pytest.approx(sum(compute_s))


def test_layers_that_compute_longer_than_messages_take_show_the_first_and_the_last_message_only():
    assert streamed_s([5, 5, 5], [1, 2, 1], [1, 1, 2]) == 1 + 15 + 2


@pytest.mark.parametrize("sharding", SHARDINGS)
def test_over_one_replica_nothing_is_sharded(sharding):
    alone, none = placed(sharding, n_replicas=1), placed("none", n_replicas=1)
    assert simulate(alone).iteration_s == simulate(none).iteration_s
    assert static_memory(alone.job, 2).total.tolist() == static_memory(none.job, 2).total.tolist()


@pytest.mark.parametrize("sharding", ["zero-2", "zero-3"])
def test_passes_with_messages_are_never_faster(sharding):
    alone, sharded = passes(placed("none")), passes(placed(sharding))
    assert all(sharded[work] >= alone[work] for work in alone)
    assert sum(sharded.values()) > sum(alone.values())


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


def test_zero_2_scatters_the_gradients_of_every_micro_batch():
    several = [simulate(placed(how, n_stages=1, gbytes_per_s=0.1)).iteration_s for how in ("zero-1", "zero-2")]
    assert several[0] < several[1]


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


def test_gradients_scattered_in_the_passes_are_not_synchronised_again():
    trace = simulate(placed("zero-3"))
    assert {str(action.kind) for action in trace.actions}.isdisjoint({"SEND_G", "RECV_G", "SEND_P", "RECV_P"})


def test_a_faster_link_shortens_passes_that_gather():
    plan = placed("zero-3", gbytes_per_s=0.1)
    found = max(gains(plan, what="bandwidth", factor=2.0), key=lambda gain: -gain.change_s)
    assert found.change_s <= 0
    everything = simulate(plan.changed(topology=plan.topology.scaled(bandwidth=2.0))).iteration_s
    assert everything < 0.8 * simulate(plan).iteration_s


def test_replicas_that_gather_pass_as_many_micro_batches():
    with pytest.raises(JobError, match="sharding zero-3 with 33 micro-batches over 4 replicas, which pass"):
        placed("zero-3", global_batch=66)


def test_a_group_that_spans_slow_links_gathers_at_their_speed():
    slow = placed("zero-3", n_stages=1)
    slowed = slow.topology.with_link(1, 2, bandwidth_gbps=0.8)
    assert simulate(slow.changed(topology=slowed)).iteration_s > 2 * simulate(slow).iteration_s
