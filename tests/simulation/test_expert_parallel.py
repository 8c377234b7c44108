"""Laws of context and expert parallelism: GPUs of a host that compute different tokens with the same parameters."""

import numpy as np
import pytest

from dtfm_lab.costs.efficiency import EFFICIENCY, products_of
from dtfm_lab.costs.memory import activation_memory, static_memory
from dtfm_lab.costs.seconds import analytic, ring_all_reduce_s, ring_gather_s, step_traffic_bytes
from dtfm_lab.domain.errors import JobError, LabError, PlanError
from dtfm_lab.domain.job import Job, gpt, llama, moe
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Kind
from dtfm_lab.planning.evaluate import evaluate
from dtfm_lab.planning.iteration.bounds import iteration_bound_steps
from dtfm_lab.planning.iteration.problem import IterationProblem
from dtfm_lab.planning.iteration.structured.layouts import choices_of
from dtfm_lab.planning.search import plan
from dtfm_lab.simulation.engine import programs_of
from dtfm_lab.simulation.memory import memory
from dtfm_lab.simulation.schedules import build
from dtfm_lab.simulation.simulate import simulate

INSIDE, FREE = 300e9, 1e29
MOE = moe(
    **{"n_layers": 4, "n_dense": 1, "d_ff": 4096, "d_model": 1024, "n_heads": 8, "n_kv_heads": 2, "seq_len": 1024},
    **{"vocab_size": 1000, "d_expert": 512, "n_experts": 16, "experts_per_token": 2, "d_shared": 512},
)
LLAMA = llama(
    **{"n_layers": 4, "d_model": 1024, "n_heads": 8, "n_kv_heads": 2, "d_ff": 4096, "seq_len": 1024, "vocab_size": 1000}
)
TIED = moe(
    **{"n_layers": 4, "d_model": 1024, "n_heads": 8, "seq_len": 1024, "vocab_size": 8000, "tied": True},
    **{"d_expert": 512, "n_experts": 16, "experts_per_token": 2},
)


def hosts(inside: float = INSIDE, memory_gib: float = 40.0) -> Topology:
    host = np.arange(16) // 8
    same = host[:, None] == host[None, :]
    return Topology.from_matrices(
        latency_s=np.where(same, 0.0, 1e-5),
        bandwidth_bytes_per_s=np.where(same, inside, 25e9),
        hosts=[f"host-{i}" for i in host],
        gpu="A100",
        memory_gib=memory_gib,
        price_per_hour=1.0,
    )


def job_of(**fields: object) -> Job:
    given = {"n_stages": 2, "n_replicas": 1, "global_batch": 32, "microbatch": 8, "dtype": "bf16", "schedule": "1f1b"}
    return Job(**{"model": MOE} | given | fields)


def placed(network: Topology | None = None, **fields: object) -> Plan:
    job = job_of(**fields)
    grid = np.arange(job.n_tasklets).reshape(job.n_stages, -1)
    return evaluate(network or hosts(), job, stages=grid.tolist())


def seconds(plan: Plan) -> dict[tuple[int, Kind], float]:
    rows = analytic(plan, programs_of(plan, build(plan, "1f1b")), EFFICIENCY)
    return {(row.stage, row.kind): row.seconds for row in rows}


@pytest.mark.parametrize(
    "fields", [{"expert_parallel": 8}, {"context_parallel": 8}, {"context_parallel": 2, "expert_parallel": 4}]
)
def test_with_free_inner_links_a_pass_takes_a_share_of_one_gpu_s(fields):
    alone, together = seconds(placed()), seconds(placed(hosts(inside=FREE), **fields))
    for kind in (Kind.FORWARD, Kind.BACKWARD):
        assert together[1, kind] == pytest.approx(alone[1, kind] / 8)


def test_tokens_go_to_their_experts_and_back_in_each_block_that_has_some():
    free, real = (seconds(placed(hosts(inside=inside), expert_parallel=8)) for inside in (FREE, INSIDE))
    sent_bytes = 1024 * 1024 * 2 * 2  # a GPU's one sequence, to two experts, in half precision
    there_s = ring_gather_s(sent_bytes, 8, INSIDE, 0.0)
    assert there_s == pytest.approx(7 / 8 * sent_bytes / INSIDE)
    for kind in (Kind.FORWARD, Kind.BACKWARD):
        assert real[1, kind] - free[1, kind] == pytest.approx(2 * 2 * there_s)  # two blocks
        assert real[0, kind] - free[0, kind] == pytest.approx(2 * there_s)  # one of two has no experts


@pytest.mark.parametrize("inside", [INSIDE, 1e8])
def test_keys_and_values_go_round_beside_the_attention_of_the_part_before(inside):
    parallel = {"context_parallel": 8, "model": LLAMA}
    free, real = (seconds(placed(hosts(inside=one), **parallel)) for one in (FREE, inside))
    step_s = 8 * 128 * 2 * 256 * 2 / inside  # 8 sequences, 128 tokens each, keys and values of 256, in half precision
    device = hosts().grouped(8).devices[0]
    beside_s = 8 * LLAMA.attention_flop / (EFFICIENCY * 312e12 * device.gpus) / 8
    waits_s = [7 * max(way * step_s - way * beside_s, 0.0) for way in (1, 2)]
    assert (waits_s[0] > 0) == (inside == 1e8)
    for kind, waited_s in zip((Kind.FORWARD, Kind.BACKWARD), waits_s, strict=True):
        assert real[1, kind] - free[1, kind] == pytest.approx(2 * waited_s, abs=1e-12)


@pytest.mark.parametrize("model", [LLAMA, MOE])
@pytest.mark.parametrize("sharding", ["none", "zero-1"])
def test_before_a_step_gpus_average_what_they_hold_alike(model, sharding):
    degrees = (2, 4) if model is MOE else (8, 1)
    fields = dict(zip(("context_parallel", "expert_parallel"), degrees, strict=True))
    plan = placed(model=model, gradient_dtype="fp32", sharding=sharding, **fields)
    layers = plan.job.stage_layers[1]
    experts = sum(layer.expert_elements for layer in layers)
    beside = sum(layer.parameters for layer in layers) - experts
    means = 2 * 4 if sharding == "none" else 4 + 2  # gradients, and then their average or parameters of 2 bytes
    once_s = ring_gather_s(means * beside, 8, INSIDE, 0.0) + ring_gather_s(means * experts / 4, 2, INSIDE, 0.0)
    assert seconds(plan)[1, Kind.STEP] == pytest.approx(once_s)


def test_tensor_parallel_gpus_sum_a_part_of_the_tokens():
    fields = {"tensor_parallel": 2, "context_parallel": 4, "model": LLAMA}
    free, real = (seconds(placed(hosts(inside=one), **fields)) for one in (FREE, INSIDE))
    sum_s = ring_all_reduce_s(8 * 1024 * 1024 * 2 / 4, 2, INSIDE, 0.0)
    received_s = ring_gather_s(8 * 1024 * 1024 * 2 / 4, 2, INSIDE, 0.0)
    assert real[1, Kind.FORWARD] - free[1, Kind.FORWARD] == pytest.approx(2 * 2 * sum_s + received_s)


@pytest.mark.parametrize(("sharding", "copied"), [("none", 2 + 4 + 12), ("zero-1", 2 + 4)])
def test_a_group_holds_what_every_gpu_needs_once_each_and_experts_once_for_each_part_of_a_sequence(sharding, copied):
    once = job_of(gradient_dtype="fp32", sharding=sharding, n_stages=1)
    group = once.with_fields(context_parallel=2, expert_parallel=4)
    experts = sum(layer.expert_elements for layer in MOE.layers)
    # gradients of one block are made in half precision and added in fp32
    block = max(x.parameters + 7 * (x.parameters - x.expert_elements) + x.expert_elements for x in MOE.layers[1:-1])
    alone = max(x.parameters for x in MOE.layers[1:-1])
    more = copied * (7 * (MOE.parameters - experts) + experts) + 2 * (block - alone)
    assert static_memory(group, 1).total[0] - static_memory(once, 1).total[0] == more
    assert activation_memory(group, 1) == activation_memory(once, 1)


def test_an_expert_s_products_have_the_tokens_that_are_sent_to_it():
    job, block = job_of(expert_parallel=4), MOE.layers[-2]
    *_, inward, outward, _ = products_of(job, block, 8, 4)
    tokens = 2 * 1024 * 2 * 4 / 16  # of 2 sequences a GPU, to 2 experts each, of 4 GPUs, over 16 experts
    assert inward[:4] == (tokens, 2 * 512, 1024, 4)
    assert outward[:4] == (tokens, 1024, 512, 4)


@pytest.mark.parametrize("objective", ["iteration", "price"])
@pytest.mark.parametrize(
    "fields",
    [
        {"expert_parallel": 8},
        {"context_parallel": 4, "expert_parallel": 2, "sharding": "zero-1"},
        {"expert_parallel": 2, "tensor_parallel": None, "sharding": None},
    ],
)
def test_plans_are_simulated_as_they_are_planned_and_no_bound_is_above_them(objective, fields):
    job = Job(model=MOE, global_batch=32, microbatch=8, dtype="bf16", **fields)
    found = plan(hosts(memory_gib=4.0), job, objective=objective, steps=1)
    assert found.iteration_s == simulate(found).iteration_s
    assert found.iteration_lower_bound_s <= found.iteration_s
    assert memory(found).fits
    gpus = {device.gpus for device in found.topology.devices}
    assert gpus == {found.job.group_gpus}


@pytest.mark.parametrize(
    "fields", [{"expert_parallel": 8}, {"context_parallel": 2, "expert_parallel": 4}, {"context_parallel": 8}]
)
@pytest.mark.parametrize("sharding", ["none", "zero-1"])
@pytest.mark.parametrize("tied", [False, True])
def test_a_planner_counts_the_memory_that_the_simulator_counts(fields, sharding, tied):
    """At the memory that a plan takes while its messages wait it is found, and with a little less it is not."""
    model = TIED if tied else MOE
    job = job_of(model=model, sharding=sharding, checkpointing="none", **fields)
    placed = evaluate(hosts(), job, stages=[[0], [1]])
    most = int(memory(placed, trace=simulate(placed)).peak_bytes.max()) / 8

    def fits(n_bytes: float) -> bool:
        network = hosts(memory_gib=n_bytes / 2**30)
        try:
            return memory(plan(network, job.with_fields(blocks_per_stage=(2, 2)), objective="iteration", steps=1)).fits
        except PlanError:
            return False

    assert fits(1.001 * most)
    assert not fits(0.98 * most)


def test_micro_batches_left_open_are_whole_for_every_gpu():
    job = Job(model=MOE, global_batch=48, expert_parallel=8, dtype="bf16")
    assert IterationProblem.of(hosts().grouped(8), job).microbatches == (8, 16, 24, 48)


def test_degrees_of_tensor_parallelism_leave_room_for_the_others():
    found = {one.tensor_parallel for _, one in choices_of(hosts(), job_of(expert_parallel=2, tensor_parallel=None))}
    assert found == {1, 2, 4}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"expert_parallel": 3}, "expert_parallel is 3; wanted a divisor of the 16 experts of a block"),
        (
            {"expert_parallel": 8, "microbatch": 4},
            "expert_parallel is 8 with micro-batches of 4; wanted a multiple of 8",
        ),
        ({"context_parallel": 3}, "context_parallel is 3; wanted a divisor of the 1024 tokens"),
        ({"expert_parallel": 2, "model": LLAMA}, "expert_parallel is 2; wanted a divisor of the 0 experts"),
        ({"context_parallel": 2, "sharding": "zero-3"}, "sharding is zero-3 with context_parallel 2"),
        ({"context_parallel": 0}, "context_parallel is 0"),
    ],
)
def test_what_cannot_be_divided_is_refused(fields, words):
    with pytest.raises(JobError, match=words):
        job_of(**fields)


def test_a_network_without_such_hosts_is_refused_in_one_line():
    alone = Topology.from_matrices(np.zeros((4, 4)), np.ones((4, 4)), gpu="A100")
    for tensor in (1, None):
        with pytest.raises(LabError):
            plan(alone, job_of(expert_parallel=8, tensor_parallel=tensor), objective="iteration", steps=1)


def test_a_bound_is_below_plans_of_every_cut():
    network, job = hosts().grouped(4), job_of(expert_parallel=4, n_stages=None, n_replicas=None)
    bound_s = max(iteration_bound_steps(IterationProblem.of(network, job), 1e9))
    for n_stages in (1, 2, 4):
        grid = np.arange(4).reshape(n_stages, -1)
        assert bound_s <= simulate(evaluate(network, job, stages=grid.tolist())).iteration_s


def test_a_gpt_goes_round_in_a_ring_too():
    model = gpt(n_layers=2, d_model=512, n_heads=8, seq_len=512, vocab_size=100)
    assert simulate(placed(model=model, context_parallel=8)).iteration_s > 0


def test_with_zero_1_every_gpu_of_a_group_zeroes_a_whole_gradient_and_steps_its_own_shard():
    alone, pair = (
        job_of(model=LLAMA, n_replicas=4, sharding="zero-1", context_parallel=n, memory_traffic=True) for n in (1, 2)
    )
    more = np.subtract(step_traffic_bytes(pair, 2), step_traffic_bytes(alone, 2))
    assert more == pytest.approx(static_memory(alone, 2).gradients)
