"""Laws of the systems of data centres: Megatron-LM, DeepSpeed, FSDP and plain data parallelism."""

from dataclasses import replace

import numpy as np
import pytest

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import TINY, Job, device_gradient_bytes
from dtfm_lab.domain.job.system import TRANSPORTS
from dtfm_lab.domain.network import Topology
from dtfm_lab.simulation import simulate
from dtfm_lab.simulation.efficiency import EFFICIENCY
from dtfm_lab.systems import Budget, outcome_of
from dtfm_lab.systems.modelled.data_parallel import DDP, CompressedDDP
from dtfm_lab.systems.modelled.deepspeed_pipeline import DeepSpeedPipeline
from dtfm_lab.systems.modelled.deepspeed_zero_3 import DeepSpeedZero3
from dtfm_lab.systems.modelled.fsdp import FSDP
from dtfm_lab.systems.modelled.megatron import AS_SHIPPED, Megatron

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


@pytest.mark.parametrize("strategy", [DDP(), CompressedDDP(), DeepSpeedZero3(), FSDP(), Megatron()])
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
        for strategy in (CompressedDDP(compression=compression), DDP())
    ]
    compressed, whole = (device_gradient_bytes(job, 1)[0] for job in jobs)
    assert compressed <= whole
    assert (compressed == whole) == (compression == "fp16" and dtype != "fp32")


def test_gradients_in_fp32_take_no_less_time():
    network = uniform(8)
    assert outcome_of(FSDP(checkpointing="none"), network, work()).iteration_s >= (
        outcome_of(DeepSpeedZero3(checkpointing="none"), network, work()).iteration_s
    )


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


def test_tensor_parallelism_stays_within_a_host():
    degrees = {plan.job.tensor_parallel for plan in Megatron().plans(uniform(8, hosts=4), work(), BUDGET)}
    assert degrees == {1, 2, 4}


@pytest.mark.parametrize(("dtype", "exchanged"), [("bf16", "fp32"), ("fp16", "fp16"), ("fp32", "fp32")])
def test_megatron_exchanges_gradients_in_fp32_where_numbers_are_bf16(dtype, exchanged):
    assert next(Megatron().plans(uniform(2), work(dtype=dtype), BUDGET)).job.gradients_in == exchanged


@pytest.mark.parametrize("strategy", [FSDP(), Megatron()])
def test_what_does_not_fit_says_which_device_lacks_what(strategy):
    network = uniform(4)
    small = replace(network, devices=tuple(replace(device, memory_bytes=1e6) for device in network.devices))
    outcome = outcome_of(strategy, small, work())
    assert outcome.found is None
    assert outcome.reason.startswith("none of its plans fits the devices: ")
    assert " needs at least " in outcome.reason
    assert "1 MB" in outcome.reason or "MiB" in outcome.reason


def test_only_rounded_gradients_change_the_mathematics():
    assert CompressedDDP().mathematics
    assert not any(one().mathematics for one in (DDP, DeepSpeedZero3, FSDP, Megatron, DeepSpeedPipeline))


@pytest.mark.parametrize("system", [DDP, CompressedDDP, DeepSpeedZero3, FSDP, Megatron, DeepSpeedPipeline])
def test_every_assumption_has_a_sentence_and_a_source(system):
    assert system().assumptions
    for one in system().assumptions:
        assert one.help.endswith(".")
        assert len(one.source) > 10


@pytest.mark.parametrize("mistake", [{"transport": "pigeons"}, {"stages_per_device": 0}, {"checkpointing": "some"}])
def test_an_assumption_out_of_its_choices_is_refused(mistake):
    with pytest.raises(LabError):
        Megatron(**mistake)
