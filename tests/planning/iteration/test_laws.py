"""What must hold of plans for seconds and dollars: what they keep, what they never do, and what they must find."""

import itertools
from dataclasses import replace
from functools import lru_cache
from itertools import cycle
from typing import Any

import numpy as np
import pytest
from small_mixed import small_job, small_network

from dtfm_lab.domain.errors import LabError, PlanError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.job.model import gpt
from dtfm_lab.domain.network import QUEUEING, Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import synchronisations
from dtfm_lab.planning import evaluate, plan
from dtfm_lab.simulation import memory, simulate
from dtfm_lab.simulation.schedules import schedules

STEPS = 8
SAME = 1 + 1e-9
LEAVES_OPEN = {"schedule": None}


def planned(topology: Topology, job: Job, **options: Any) -> Plan:
    """Return a plan without a lower bound, which would take half of the time. No law here is about bounds."""
    how = {"objective": "iteration", "seed": 0, "steps": STEPS, "improve_bound": False}
    return plan(topology, job, **how | options)


@lru_cache
def mixed() -> Topology:
    return small_network(6, 2).with_typical_prices()


@lru_cache
def mixed_plan(objective: str = "iteration", schedule: str | None = None) -> Plan:
    return planned(mixed(), small_job(schedule=schedule), objective=objective)


def two_rooms(between_gbps: float, n: int = 3, memory_gib: float = 40.0) -> Topology:
    """Two rooms of n A100s each, 25 Gbit/s within a room and a thinner line between any two of different rooms."""
    room = np.arange(2 * n) // n
    same = room[:, None] == room
    names = [f"{'ab'[r]}{i % n}" for i, r in enumerate(room)]
    return Topology.from_matrices(
        np.where(same, 0.1, 20.0),
        np.where(same, 25.0, between_gbps),
        names=names,
        regions=["ab"[r] for r in room],
        gpu="A100",
        memory_gib=memory_gib,
    )


def with_a_terrible_device(gpu: str, gbps: float) -> Topology:
    """Four A100s in a room, and one device called terrible behind a slow line."""
    n = 5
    bad = np.arange(n) == 2
    touches = bad[:, None] | bad
    return Topology.from_matrices(
        np.where(touches, 300.0, 0.1),
        np.where(touches, gbps, 25.0),
        names=[f"good-{i}" if not bad[i] else "terrible" for i in range(n)],
        gpu=[gpu if bad[i] else "A100" for i in range(n)],
    )


# what plans find


@pytest.mark.parametrize(("gpu", "gbps"), [("A100", 0.02), ("Raspberry Pi", 0.02), ("Raspberry Pi", 25.0)])
def test_a_terrible_device_is_left_out_untold(gpu, gbps):
    topology = with_a_terrible_device(gpu, gbps)
    found = planned(topology, small_job(**LEAVES_OPEN))
    assert topology.index("terrible") in found.idle_devices
    assert len(found.idle_devices) < 4, "the good ones work together"


@pytest.mark.parametrize("seed", [0, 1])
def test_a_cut_where_little_crosses_is_found_however_far_it_is_from_an_even_one(seed):
    """What crosses falls and rises along the blocks, as in a ConvNet: a block at a time, every way there is dearer."""
    widths = (0.5, 0.25, 0.5, 0.12, 0.25, 0.06, 0.06, 0.015, 0.003, 0.003, 1.0)
    model = gpt(name="narrowing", n_layers=11, d_model=1024, n_heads=16, seq_len=1024, vocab_size=64)
    blocks = [
        replace(one, output_elements=int(width * one.output_elements))
        for one, width in zip(model.layers[1:-1], widths, strict=True)
    ]
    narrowing = replace(model, layers=(model.layers[0], *blocks, model.layers[-1]), source="own.py:narrowing")
    job = small_job(model=narrowing, n_stages=4, n_replicas=1)
    slow = Topology.from_matrices(np.full((4, 4), 1.0), np.full((4, 4), 0.2), gpu="A100", memory_gib=40.0)
    every_s = [
        simulate(evaluate(slow, job.with_fields(blocks_per_stage=cut), stages=[[0], [1], [2], [3]])).iteration_s
        for cut in itertools.product(range(1, 9), repeat=4)
        if sum(cut) == 11
    ]
    assert planned(slow, job, seed=seed, steps=2).iteration_s <= min(every_s) * SAME


@pytest.mark.parametrize("n", [3, 5])
def test_a_model_that_fits_one_device_on_a_slow_network_stays_on_one(n):
    gpu = ["T4", "A100", *["V100"] * (n - 2)]
    slow = Topology.from_matrices(np.full((n, n), 50.0), np.full((n, n), 0.005), gpu=gpu, memory_gib=40.0)
    found = planned(slow, small_job(**LEAVES_OPEN))
    assert found.placement.devices.tolist() == [[1]], "the A100 alone"


def test_groups_stay_in_a_room_and_each_pipeline_crosses_the_thin_line_once_at_most():
    model = gpt(name="gpt-12", n_layers=12, d_model=2048, n_heads=16, seq_len=1024, vocab_size=8192, tied=False)
    job = small_job(model=model, microbatch=1, global_batch=64, **LEAVES_OPEN)
    topology = two_rooms(0.2, n=4, memory_gib=2.6)
    found = planned(topology, job)
    rooms = np.array([device.region for device in topology.devices])[found.placement.devices]
    assert len(set(rooms.ravel())) == 2, "the model needs the memory of both rooms"
    assert all(len(set(group)) == 1 for group in rooms), "no averaging crosses the line"
    assert (np.sum(rooms[1:] != rooms[:-1], axis=0) <= 1).all()


@pytest.mark.parametrize("seed", range(2))
def test_other_numbers_of_the_same_devices_find_as_good_a_plan(seed):
    order = np.random.default_rng(seed).permutation(len(mixed())).tolist()
    here, there = mixed_plan(schedule="1f1b"), planned(mixed().subset(order), small_job())
    assert here.iteration_s is not None
    assert there.iteration_s == pytest.approx(here.iteration_s, rel=0.05)


# what plans keep


@pytest.mark.parametrize(("schedule", "queueing"), [*zip([None, *sorted(schedules)], cycle(QUEUEING), strict=False)])
def test_the_seconds_of_a_plan_are_those_of_its_simulation_whatever_the_schedule(schedule, queueing):
    found = planned(mixed(), small_job(schedule=schedule), queueing=queueing, steps=2)
    assert (found.queueing, found.iteration_s) == (queueing, simulate(found).iteration_s)
    assert schedule in (None, found.job.schedule_name)
    assert memory(found).fits


@pytest.mark.parametrize(
    ("synchronisation", "compression", "every"),
    [(name, *how) for name, how in zip(sorted(synchronisations), cycle([("none", 1), ("int8", 3)]), strict=False)],
)
def test_the_seconds_of_a_plan_are_those_of_its_simulation_however_replicas_average(
    synchronisation, compression, every
):
    job = small_job(
        synchronisation=synchronisation, compression=compression, synchronise_every=every, n_replicas=3, schedule=None
    )
    found = planned(mixed(), job, steps=2)
    assert found.iteration_s == simulate(found).iteration_s
    assert found.job.n_replicas == 3
    assert memory(found).fits


PINNED = {
    "n_stages": 3,
    "n_replicas": 2,
    "microbatch": 2,
    "blocks_per_stage": (1, 3, 2),
    "microbatches_per_replica": (17, 31),
    "schedule": "adaptive-1f1b",
    "warmups": (5, 3, 0),
    "recompute": True,
}
TOGETHER = {
    "n_stages": (),
    "n_replicas": (),
    "microbatch": (),
    "schedule": (),
    "recompute": (),
    "blocks_per_stage": ("n_stages",),
    "microbatches_per_replica": ("n_replicas", "microbatch"),
    "warmups": ("n_stages", "schedule"),
}
"""What must be given with each."""


@pytest.mark.parametrize("what", PINNED)
def test_what_the_job_names_is_kept(what):
    names = (what, *TOGETHER[what])
    job = small_job(**LEAVES_OPEN | {"microbatch": None} | {n: PINNED[n] for n in names})
    found = planned(small_network(6, 5), job, steps=2)
    assert {name: getattr(found.job, name) for name in names} == {name: PINNED[name] for name in names}
    assert memory(found).fits


def test_everything_named_leaves_only_the_devices():
    found = planned(small_network(6, 5), small_job(**PINNED), steps=2)
    assert {name: getattr(found.job, name) for name in PINNED} == PINNED


@pytest.mark.parametrize("objective", ["iteration", "price"])
def test_equal_steps_give_equal_plans(objective):
    topology, job = small_network(5, 0).with_typical_prices(), small_job(**LEAVES_OPEN)
    how = {"objective": objective, "seed": 3, "steps": 4, "improve_bound": True}
    first, again = (planned(topology, job, **how) for _ in range(2))
    assert (first.placement.devices == again.placement.devices).all()
    assert first.job == again.job
    assert (first.iteration_s, first.evaluations) == (again.iteration_s, again.evaluations)


# memory


def test_more_stages_than_blocks_or_more_tasklets_than_devices_are_refused():
    with pytest.raises(LabError):
        planned(mixed(), small_job(n_stages=7))
    with pytest.raises(LabError):
        planned(mixed(), small_job(n_stages=3, n_replicas=3))


# price and limits


@pytest.mark.parametrize("seed", range(2))
def test_the_plan_for_price_is_never_dearer_than_the_plan_for_seconds(seed):
    topology, job = small_network(5, seed).with_typical_prices(), small_job(**LEAVES_OPEN)
    fast, cheap = planned(topology, job), planned(topology, job, objective="price")
    assert cheap.price_per_billion_tokens is not None
    assert fast.price_per_billion_tokens is not None
    assert cheap.price_per_billion_tokens <= fast.price_per_billion_tokens * SAME
    assert fast.iteration_s <= cheap.iteration_s * SAME


def test_the_fastest_plan_under_a_price_keeps_it():
    free = mixed_plan()
    limit = free.price_per_hour * 0.7
    limited = planned(mixed(), small_job(**LEAVES_OPEN), max_price_per_hour=limit)
    assert limited.price_per_hour <= limit
    assert limited.iteration_s >= free.iteration_s / SAME


def test_the_cheapest_plan_under_a_time_keeps_it():
    fast, cheap = mixed_plan(), mixed_plan("price")
    limit_s = (fast.iteration_s + cheap.iteration_s) / 2
    limited = planned(mixed(), small_job(**LEAVES_OPEN), objective="price", max_iteration_s=limit_s)
    assert limited.iteration_s <= limit_s
    assert limited.price_per_billion_tokens >= cheap.price_per_billion_tokens / SAME


@pytest.mark.parametrize("limit", [{"max_price_per_hour": 0.01}, {"max_iteration_s": 1e-6}])
def test_a_limit_that_no_plan_keeps_is_refused(limit):
    with pytest.raises(PlanError):
        planned(small_network(4, 1).with_typical_prices(), small_job(**LEAVES_OPEN), **limit)


@pytest.mark.parametrize("seed", range(10))
def test_a_plan_fits_by_its_order_of_passes_and_while_it_is_played(seed):
    """On slow links messages wait in memory, which neither the estimate nor the replay counts."""
    rng = np.random.default_rng(seed)
    latency_ms, bandwidth_gbps = rng.uniform(1, 50, (4, 4)), rng.uniform(0.02, 0.3, (4, 4))
    topology = Topology.from_matrices(
        latency_ms, bandwidth_gbps, gpu="RTX 3090", memory_gib=float(rng.uniform(1.5, 2.5))
    )
    model = gpt(n_layers=12, d_model=1024, n_heads=16, seq_len=1024, vocab_size=50304)
    job = Job(model=model, n_stages=4, n_replicas=1, global_batch=128, microbatch=1, checkpointing=None)
    found = planned(topology, job, steps=2)
    assert memory(found).fits
    assert memory(found, trace=simulate(found)).fits
