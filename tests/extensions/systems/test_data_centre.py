"""Laws of the systems of data centres, Megatron-LM, DeepSpeed, FSDP and DDP, and of published rows as their plans."""

from dataclasses import replace

import numpy as np
import pytest

from dtfm_lab.costs.efficiency import EFFICIENCY
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import TINY, Job, device_gradient_bytes
from dtfm_lab.domain.job.options import TRANSPORTS
from dtfm_lab.domain.network import Topology
from dtfm_lab.extensions.published.systems.megatron import measured, selene
from dtfm_lab.extensions.published.systems.zero_bubble import SCHEDULES, settings_of
from dtfm_lab.extensions.published.systems.zero_bubble import plan_of as zero_bubble
from dtfm_lab.extensions.systems.api import Budget, outcome_of
from dtfm_lab.extensions.systems.modelled.data_parallel import DDP, FSDP
from dtfm_lab.extensions.systems.modelled.deepspeed import DeepSpeedPipeline, DeepSpeedZero3
from dtfm_lab.extensions.systems.modelled.megatron import AS_SHIPPED, Megatron
from dtfm_lab.simulation import simulate

BUDGET = Budget()


def uniform(n: int, *, peak_flop_per_s: float = 1e12, latency_s: float = 0.0, hosts: int | None = None) -> Topology:
    """n alike devices, every pair with a link of its own; or so many of them a host."""
    return Topology.from_matrices(
        latency_s=np.full((n, n), latency_s) * ~np.eye(n, dtype=bool),
        bandwidth_bytes_per_s=np.full((n, n), 1e8),
        peak_flop_per_s=peak_flop_per_s,
        hosts=None if hosts is None else [f"host-{i // hosts}" for i in range(n)],
        name=f"{n} alike",
    )


def work(**fields: object) -> Job:
    return Job(**{"name": "tiny", "model": TINY, "global_batch": 16, "dtype": "fp16"} | fields)  # type: ignore[arg-type]


def test_zero_3_sends_one_and_a_half_times_what_data_parallelism_sends():
    computes_at_once = uniform(4, peak_flop_per_s=1e30)
    job = work(global_batch=4)
    zero = outcome_of(DeepSpeedZero3(microbatches="given"), computes_at_once, job.with_fields(microbatch=1))
    ddp = outcome_of(DDP(microbatches="given", overlap=False), computes_at_once, job.with_fields(microbatch=1))
    assert zero.iteration_s == pytest.approx(1.5 * ddp.iteration_s, rel=1e-9)


@pytest.mark.parametrize("latency_s", [0.0, 1e-4, 1e-2])
def test_overlapped_sends_are_never_slower_on_the_same_grid(latency_s):
    network = uniform(8, latency_s=latency_s)
    all_ways = [list(Megatron(**AS_SHIPPED, transport=how).plans(network, work(), BUDGET)) for how in TRANSPORTS]
    for overlapped, batched, blocking in zip(*all_ways, strict=True):
        assert np.array_equal(overlapped.placement.devices, blocking.placement.devices)
        seconds = [simulate(plan).iteration_s for plan in (overlapped, batched, blocking)]
        assert seconds[0] <= seconds[1] * (1 + 1e-9)
        assert seconds[1] <= seconds[2] * (1 + 1e-9)


@pytest.mark.parametrize("strategy", [DDP(), DDP(compression="int8"), DeepSpeedZero3(), FSDP(), Megatron()])
def test_on_one_device_every_system_is_one_process(strategy):
    alone = outcome_of(strategy, uniform(1), work(microbatch=16))
    computing_s = alone.job.flop / (EFFICIENCY * 1e12)
    assert alone.iteration_s == pytest.approx(computing_s, rel=1e-9)
    assert set(alone.causes) == {"compute"}


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("compression", ["fp16", "int8"])
def test_compressed_gradients_are_never_larger(dtype, compression):
    jobs = [
        next(strategy.plans(uniform(4), work(dtype=dtype), BUDGET)).job
        for strategy in (DDP(compression=compression), DDP())
    ]
    compressed, whole = (device_gradient_bytes(job, 1)[0] for job in jobs)
    assert compressed <= whole
    assert (compressed == whole) == (compression == "fp16" and dtype != "fp32")


@pytest.mark.parametrize("strategy", [Megatron(**AS_SHIPPED), DeepSpeedPipeline(devices="all")])
def test_data_parallel_ranks_are_neighbours(strategy):
    """PipeDataParallelTopology and Megatron's order alike: rank = stage x replicas + replica."""
    for plan in strategy.plans(uniform(8), work(), BUDGET):
        stages, replicas = plan.placement.devices.shape
        assert plan.placement.devices.tolist() == np.arange(stages * replicas).reshape(stages, replicas).tolist()


def test_a_drawn_order_keeps_the_devices_of_a_host_together():
    network = uniform(8, hosts=2)
    drawn = [
        next(Megatron(hosts="random").plans(network, work(), Budget(seed=seed))).placement.devices.ravel()
        for seed in (3, 3, 4)
    ]
    assert np.array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])
    for ranks in drawn:
        assert all(a // 2 == b // 2 for a, b in zip(ranks[::2], ranks[1::2], strict=True))


def test_megatron_cuts_the_blocks_evenly_and_deepspeed_need_not():
    six_blocks = work(model=replace(TINY, layers=(*TINY.layers[:7], TINY.layers[-1])), global_batch=8)
    stages = {
        system: {plan.job.n_stages for plan in system.plans(uniform(4), six_blocks, BUDGET)}
        for system in (Megatron(devices="all"), DeepSpeedPipeline(devices="all"))
    }
    assert stages == {Megatron(devices="all"): {1, 2}, DeepSpeedPipeline(devices="all"): {1, 2, 4}}


def test_interleaving_asks_for_rounds_of_as_many_micro_batches_as_stages():
    plans = list(Megatron(stages_per_device=2).plans(uniform(8), work(), BUDGET))
    assert {plan.job.schedule for plan in plans} == {"1f1b", "interleaved-1f1b"}
    for plan in plans:
        assert plan.job.n_microbatches % plan.job.n_stages == 0
        assert simulate(plan).iteration_s > 0


def test_tensor_parallelism_stays_within_a_host_and_gradients_of_bf16_are_fp32():
    for dtype, exchanged in {"bf16": "fp32", "fp16": "fp16", "fp32": "fp32"}.items():
        assert next(Megatron().plans(uniform(2), work(dtype=dtype), BUDGET)).job.gradients_in == exchanged
    degrees = {plan.job.tensor_parallel for plan in Megatron().plans(uniform(8, hosts=4), work(), BUDGET)}
    assert degrees == {1, 2, 4}


@pytest.mark.parametrize("mistake", [{"transport": "pigeons"}, {"stages_per_device": 0}, {"checkpointing": "some"}])
def test_an_assumption_out_of_its_choices_is_refused(mistake):
    with pytest.raises(LabError):
        Megatron(**mistake)


@pytest.mark.parametrize("schedule", ["1F1B", "1F1B-I"])
@pytest.mark.parametrize("model", ["1.5B", "6.2B"])
def test_zero_bubbles_baselines_are_megatrons(model, schedule):
    """Their scripts name --no-overlap-p2p-communication, and recompute nothing."""
    ledgers = zero_bubble(model, schedule, message_s=1e-3, memory_traffic=True, transport="blocking")
    sizes = settings_of(model)
    strategy = Megatron(
        **AS_SHIPPED,
        transport="blocking",
        n_stages=sizes["stages"],
        tensor_parallel=1,
        stages_per_device=sizes["interleaved_chunks"] if schedule == "1F1B-I" else 1,
        checkpointing="none",
        attention="unfused",
        memory_traffic=True,
    )
    work = ledgers.job.with_fields(n_stages=None, n_replicas=None, schedule=None, stages_per_device=2)
    (plan,) = strategy.plans(ledgers.topology, work, Budget())
    assert plan.job.schedule == SCHEDULES[schedule]
    assert simulate(plan).iteration_s == simulate(ledgers).iteration_s


@pytest.mark.parametrize("one", [one for one in measured("Megatron-LM") if one["gpus"] <= 512 and one["table"] == 1])
def test_the_best_grid_is_the_one_that_megatrons_authors_chose(one):
    """Of all tensor-parallel degrees and numbers of stages that fit, at their micro-batch.

    In bf16, of which all 18 bytes a parameter are counted: of the 20 of fp16 4 are not.
    """
    chooses = replace(one.strategy, tensor_parallel=None, n_stages=None)
    best = outcome_of(chooses, selene(one["gpus"]), one.work.with_fields(dtype="bf16"), Budget(efficiency=0.64))
    assert best.considered > 1 + (one["gpus"] > 32) * 3
    assert (best.job.tensor_parallel, best.job.n_stages) == (one["tensor_parallel"], one["stages"])
