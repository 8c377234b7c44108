"""The engine, the search's replay and the bound say the same of a job, whatever option of it is chosen."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from every_plan import Drawn, frozen, given, in_pairs, with_experts

from dtfm_lab.costs.seconds import WAYS, travels_beside
from dtfm_lab.domain.job import Job, gpt
from dtfm_lab.domain.job.options import COMPRESSIONS, JobOptions
from dtfm_lab.domain.network import Device, Topology
from dtfm_lab.domain.options import Option, options_of
from dtfm_lab.domain.plan import Plan
from dtfm_lab.planning.iteration.bounds import iteration_bound_steps
from dtfm_lab.planning.iteration.problem import IterationProblem
from dtfm_lab.planning.iteration.replayed_plan import ReplayedPlan
from dtfm_lab.simulation import simulate
from dtfm_lab.simulation.schedules import schedules

OPTIONS = {one.field: one for one in options_of(JobOptions)}
VALUES: dict[str, tuple[Any, ...]] = {
    "schedule": tuple(schedules),
    "warmups": ((3, 1),),
    "n_stages": (1, 2, 4),
    "n_replicas": (1, 3),
    "microbatch": (2,),
    "blocks_per_stage": ((3, 1), (4, 0), (0, 4)),
    "microbatches_per_replica": ((5, 1),),
    "stages_per_device": (2,),
    "flush_every": (2,),
    "tensor_parallel": (2,),
    "context_parallel": (2,),
    "expert_parallel": (2,),
    "bucket_bytes": (1e5,),
    "fragments": (2,),
    "fragment_delay": (2,),
    "synchronise_every": (3,),
    "codec_bytes_per_s": (1e4,),
    "block_launch_s": (9.0,),
    "reserve_bytes": (1e9,),
    "fragmentation": (0.1,),
}
"""Of options that are neither a choice nor a flag."""
WITHOUT_SECONDS = {"name"}
ALSO: dict[str, dict[str, Any]] = {
    "warmups": {"schedule": "adaptive-1f1b"},
    "flush_every": {"schedule": "gpipe"},
    "stages_per_device": {"schedule": "interleaved-1f1b"},
    "bucket_bytes": {"overlap": True},
    "prefetch": {"sharding": "zero-3"},
    "early_stop": {"checkpointing": "block"},
    "fragments": {"synchronise_every": 4},
    "fragment_delay": {"synchronise_every": 4},
    "codec_bytes_per_s": {"compression": "int8"},
    "gradient_dtype": {"gradient_compression": "fp16"},
    "n_replicas": {"global_batch": 12},
    "tree": {"sharding": "none"},
}
"""What an option, or a value of one, wants beside it."""


def values_of(option: Option) -> tuple[Any, ...]:
    """The values that are tried: all choices, both sides of a flag, or those of ``VALUES``."""
    if option.type is bool:
        return (False, True)
    return VALUES.get(option.field) or tuple(option.choices or ())


EACH = [(name, value) for name, one in OPTIONS.items() for value in values_of(one)]


def network(n: int, *, alike: bool = False) -> Topology:
    """Devices in two regions, on unlike links in either direction, or all alike."""
    rng = np.random.default_rng(0)
    speeds = np.ones(n) if alike else rng.choice([1.0, 0.5, 0.25], n)
    devices = tuple(
        Device(name=f"d{i}", gpu="T4", region=f"r{i % 2}", peak_flop_per_s=float(1e7 * speeds[i]), memory_bytes=2.0**40)
        for i in range(n)
    )
    apart = np.ones((n, n)) if alike else rng.uniform(0.2, 5, (n, n))
    return Topology(devices, 0.05 * apart.T, 3e4 * apart)


def job(**fields: Any) -> Job:
    """A job of four blocks in two stages of two replicas, with what ``fields`` change."""
    model = gpt(name="small", n_layers=4, d_model=16, n_heads=2, seq_len=32, vocab_size=64)
    shape = {"n_stages": 2, "n_replicas": 2, "microbatch": 1, "global_batch": 6, "schedule": "1f1b"}
    usual = {"tensor_parallel": 1, "sharding": "none", "synchronisation": "ring", "overlap": False, "recompute": False}
    return Job(**{"model": model, "codec_bytes_per_s": 1e5, "dtype": "fp16"} | shape | usual | fields)


def case_of(option: str, value: Any) -> tuple[Plan, Job]:
    """A plan with a value of an option."""
    fields = {option: value} | ALSO.get(option, {})
    if option in ("sharding", "prefetch"):
        fields["global_batch"] = 8  # zero-2 and zero-3 want as many micro-batches for each replica
    if option in ("context_parallel", "expert_parallel"):
        fields |= {"microbatch": 2, "global_batch": 12, "model": with_experts(job().modelled())}
    if option == "microbatch":
        fields["global_batch"] = 12
    if option == "frozen_weights" and value != "same":
        fields["model"] = frozen(job().modelled())
    chosen = job(**fields)
    topology = network(chosen.n_stages * chosen.n_replicas)
    if chosen.group_gpus > 1:
        topology = in_pairs(topology)
    return planned(topology, chosen), chosen


def planned(topology: Topology, chosen: Job) -> Plan:
    """The plan on the devices in their order, with every count spelt out."""
    shape = chosen.n_stages, chosen.n_replicas
    blocks = chosen.blocks_per_stage or chosen.modelled().even_cut(shape[0], chosen.cut_by)
    chosen = chosen.with_fields(microbatches_per_replica=chosen.microbatch_counts, warmups=chosen.warmups)
    if chosen.schedule != "interleaved-1f1b":
        chosen = chosen.with_fields(blocks_per_stage=blocks, warmups=chosen.warmups)
    grid = np.arange(shape[0] * shape[1]).reshape(shape)
    return given(Drawn(topology, chosen, "pairs"), chosen, grid)


def bound_of(plan: Plan, most_s: float) -> float:
    """Seconds that no plan of this shape, cut and order of passes takes less than."""
    problem = IterationProblem.of(plan.topology, plan.job, plan.queueing)
    *_, bound_s = iteration_bound_steps(problem, most_s)
    return bound_s


def test_every_option_of_a_job_is_tried():
    tried = {name for name, _ in EACH}
    assert tried | WITHOUT_SECONDS == OPTIONS.keys()


@pytest.mark.parametrize(("option", "value"), EACH)
def test_an_option_costs_the_engine_the_replay_and_the_bound_as_much(option: str, value: Any):
    plan, chosen = case_of(option, value)
    engine_s = simulate(plan).iteration_s
    replay = ReplayedPlan.of(plan)
    if replay is not None:
        assert replay.iteration_s == pytest.approx(engine_s, rel=1e-9, abs=0)
    else:
        assert option not in {"synchronisation", "compression", "gradient_compression", "dtype"} or value == "tree"
    assert bound_of(plan, 2 * engine_s) <= engine_s * (1 + 1e-9)
    assert not travels_beside(chosen) or option in ("fragments", "fragment_delay")


def ways_to_average() -> Iterator[dict[str, Any]]:
    """Every way, with every compression, precision, and split of states that it allows."""
    for way, how, precision, every in itertools.product(WAYS, COMPRESSIONS, (None, "fp32"), (1, 3)):
        fields = {"synchronisation": way, "gradient_compression": how, "gradient_dtype": precision}
        yield fields | {"synchronise_every": every}
        if every == 1 and way in ("sharded", "sharded-at-once", "ring"):
            yield fields | {"sharding": "zero-1"}


@pytest.mark.parametrize("shape", [(1, 3), (2, 3), (1, 5)])
def test_every_way_to_average_is_replayed_as_the_engine_plays_it(shape: tuple[int, int]):
    n_stages, n_replicas = shape
    topology = network(n_stages * n_replicas)
    for fields in ways_to_average():
        plan = planned(topology, job(n_stages=n_stages, n_replicas=n_replicas, global_batch=3 * n_replicas, **fields))
        replay = ReplayedPlan.of(plan)
        assert replay is not None
        assert replay.iteration_s == pytest.approx(simulate(plan).iteration_s, rel=1e-12, abs=0), fields


@pytest.mark.parametrize("blocks", [(0, 4), (4, 0), (0, 4, 0), (0, 1, 3), (3, 1, 0)])
@pytest.mark.parametrize("fields", [{}, {"recompute": True}, {"checkpointing": "block"}, {"compression": "int8"}])
def test_a_stage_of_the_embedding_or_the_head_alone_costs_all_the_same(blocks: tuple[int, ...], fields: dict[str, Any]):
    model = gpt(name="heavy head", n_layers=4, d_model=16, n_heads=2, seq_len=32, vocab_size=2000)
    n = len(blocks)
    for topology, more in ((network(n), {}), (in_pairs(network(2 * n)), {"tensor_parallel": 2})):
        chosen = job(model=model, n_stages=n, n_replicas=1, blocks_per_stage=blocks, **fields | more)
        plan = planned(topology, chosen)
        engine_s = simulate(plan).iteration_s
        replay = ReplayedPlan.of(plan)
        assert replay is not None
        assert replay.iteration_s == pytest.approx(engine_s, rel=1e-12, abs=0)
        assert bound_of(plan, 2 * engine_s) <= engine_s * (1 + 1e-9)
        freely = plan.changed(job=chosen.with_fields(blocks_per_stage=None))
        assert bound_of(freely, 2 * engine_s) <= engine_s * (1 + 1e-9)


@pytest.mark.parametrize("per_host", [1, 2])
def test_every_way_to_average_over_more_hosts_is_as_much_slower_in_the_replay_as_in_the_engine(per_host: int):
    topology = network(6)
    hosts = tuple(replace(one, host=f"h{i // per_host}") for i, one in enumerate(topology.devices))
    plain = replace(topology, devices=hosts if per_host > 1 else topology.devices)
    stated = replace(plain, collectives=((2, 0.7), (3, 0.3)))
    for fields in ways_to_average():
        slower = planned(stated, job(n_stages=2, n_replicas=3, global_batch=9, **fields))
        engine_s = simulate(slower).iteration_s
        assert engine_s > simulate(slower.changed(topology=plain)).iteration_s
        code = fields["gradient_compression"], fields["gradient_dtype"]
        # The next test bounds every code, in one stage. Here two stages share hosts.
        if code == ("none", None) or (per_host == 2 and code == ("int8", "fp32")):
            assert bound_of(slower, 2 * engine_s) <= engine_s * (1 + 1e-9)
        replay = ReplayedPlan.of(slower)
        assert (replay is None) == (per_host > 1)  # the simulator prices plans whose devices share NICs
        if replay is not None:
            assert replay.iteration_s == pytest.approx(engine_s, rel=1e-12, abs=0), fields


@pytest.mark.parametrize("collectives", [(), ((3, 0.2),)])
def test_the_bound_is_the_seconds_where_replicas_are_alike_and_end_together(collectives: tuple[tuple[float, ...], ...]):
    topology = replace(network(3, alike=True), collectives=collectives)
    for fields in ways_to_average():
        plan = planned(topology, job(n_stages=1, n_replicas=3, **fields))
        engine_s = simulate(plan).iteration_s
        assert bound_of(plan, 2 * engine_s) == pytest.approx(engine_s, rel=1e-8, abs=0), fields


def test_the_bound_counts_less_where_averages_travel_beside_passes():
    topology = network(3, alike=True)
    plan = planned(topology, job(n_stages=1, n_replicas=3, overlap=True, bucket_bytes=1e5))
    free = plan.changed(topology=replace(topology, bandwidth_bytes_per_s=1e12 * topology.bandwidth_bytes_per_s))
    assert bound_of(free, 1e9) <= bound_of(plan, 1e9) <= simulate(plan).iteration_s * (1 + 1e-9)
