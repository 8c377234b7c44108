"""Laws of the search for seconds and dollars, on networks small enough to know the answer."""

from __future__ import annotations

from itertools import islice, pairwise

import numpy as np
import pytest

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.job import JOBS, Job
from dtfm_lab.domain.network import HARDWARE, Device, Topology
from dtfm_lab.planning.iteration import Aim, Candidate, IterationProblem, search_iteration
from dtfm_lab.planning.iteration.judging import plan_of
from dtfm_lab.simulation import memory, simulate

GPT2 = JOBS["gpt2-small"].with_fields(n_stages=None, n_replicas=None, global_batch=64, microbatch=1, dtype="fp16")


def network(gpus: list[str], latency_ms: float = 1.0, gbps: float = 10.0, regions: list[str] | None = None) -> Topology:
    n = len(gpus)
    devices = tuple(
        Device(
            name=f"{gpu} {i}",
            gpu=gpu,
            region=regions[i] if regions else "",
            peak_flop_per_s=HARDWARE[gpu].peak_flop_per_s,
            memory_bytes=HARDWARE[gpu].memory_bytes,
            price_per_hour=HARDWARE[gpu].price_per_hour,
        )
        for i, gpu in enumerate(gpus)
    )
    latency_s = np.full((n, n), latency_ms / 1e3)
    bandwidth = np.full((n, n), gbps * 1e9 / 8)
    if regions:
        apart = np.array(regions)[:, None] != np.array(regions)
        latency_s[apart], bandwidth[apart] = 0.1, 1e9 / 80
    return Topology(devices, latency_s, bandwidth)


def found(topology: Topology, job: Job, steps: int = 40, seed: int = 0, **aim: float) -> Candidate:
    """The last candidate of so many steps."""
    stream = search_iteration(IterationProblem.of(topology, job), np.random.default_rng(seed), aim=Aim(**aim))
    complete = (candidate for candidate in stream if candidate.complete)
    return list(islice(complete, steps))[-1]


def test_the_value_is_the_simulators_and_fits_memory():
    topology = network(["A100", "V100", "T4", "T4"])
    candidate = found(topology, GPT2)
    plan = plan_of(IterationProblem.of(topology, GPT2), candidate)
    assert candidate.iteration_s == pytest.approx(simulate(plan).iteration_s, rel=1e-12)
    assert memory(plan).fits


def test_equal_steps_give_equal_plans():
    topology = network(["A100", "V100", "RTX 4090", "T4", "T4"])
    one, other = (found(topology, GPT2, steps=8, seed=3) for _ in range(2))
    assert one.value == other.value
    assert one.grid.tolist() == other.grid.tolist()
    assert one.shares.tolist() == other.shares.tolist()


def test_values_never_rise():
    problem = IterationProblem.of(network(["A100", "V100", "T4"]), GPT2)
    values = [candidate.value for candidate in islice(search_iteration(problem, np.random.default_rng(0)), 30)]
    assert all(later <= earlier for earlier, later in pairwise(values[1:]))


def test_the_terrible_device_is_left_out_untold():
    topology = network(["A100", "A100", "Raspberry Pi"], gbps=100.0, latency_ms=0.01)
    assert 2 not in found(topology, GPT2).grid


def test_a_model_that_fits_one_device_stays_on_one_where_the_network_is_slow():
    assert found(network(["V100"] * 4, latency_ms=200, gbps=0.001), GPT2).grid.shape == (1, 1)


def test_between_two_regions_the_cut_crosses_the_thin_line_and_not_the_average():
    topology = network(["V100"] * 4, regions=["west", "west", "east", "east"], latency_ms=0.05, gbps=100.0)
    job = GPT2.with_fields(n_stages=2, n_replicas=2, global_batch=16)
    grid = found(topology, job).grid
    assert {frozenset(row.tolist()) for row in grid} == {frozenset({0, 1}), frozenset({2, 3})}


def test_unequal_shares_beat_the_fastest_device_alone():
    topology = network(["A100", "V100", "RTX 4090", "T4", "T4"], latency_ms=0.01, gbps=200.0)
    alone = found(topology, GPT2.with_fields(n_stages=1, n_replicas=1))
    assert found(topology, GPT2).value < 0.8 * alone.value


def test_what_the_job_names_is_kept():
    topology = network(["A100", "V100", "T4", "T4"])
    job = GPT2.with_fields(n_stages=2, n_replicas=2, schedule="1f1b", microbatch=2, checkpointing="none")
    job = job.with_fields(blocks_per_stage=(5, 7), microbatches_per_replica=(20, 12))
    candidate = found(topology, job, steps=6)
    assert candidate.job(job) == job


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zb-h1"])
def test_a_named_schedule_is_simulated(schedule):
    topology = network(["A100", "V100", "T4", "T4"])
    candidate = found(topology, GPT2.with_fields(schedule=schedule, n_stages=2), steps=4)
    plan = plan_of(IterationProblem.of(topology, GPT2), candidate)
    assert plan.job.schedule == schedule
    assert candidate.value == pytest.approx(simulate(plan).iteration_s, rel=1e-12)


def test_cards_are_judged_by_the_simulator():
    topology = network(["A100", "V100", "T4", "T4"], gbps=1.0)
    problem = IterationProblem.of(topology, GPT2, "cards")
    *_, candidate = islice(search_iteration(problem, np.random.default_rng(0)), 20)
    seconds = simulate(plan_of(problem, candidate), queueing="cards").iteration_s
    assert candidate.value == pytest.approx(seconds, rel=1e-12)


def test_the_micro_batch_is_chosen_where_none_is_given():
    job = GPT2.with_fields(microbatch=None)
    candidate = found(network(["A100", "V100"]), job, steps=6)
    assert job.global_batch % candidate.microbatch == 0
    assert candidate.job(job).shaped


def test_dollars_are_no_more_than_those_of_the_fastest_plan():
    topology = network(["A100", "V100", "T4", "T4"])
    prices = np.array([device.price_per_hour for device in topology.devices])
    fastest, cheapest = found(topology, GPT2), found(topology, GPT2, dollars=True)
    assert cheapest.value <= fastest.iteration_s * prices[fastest.grid].sum() / 3600 * (1 + 1e-9)
    assert cheapest.value == pytest.approx(cheapest.iteration_s * prices[cheapest.grid].sum() / 3600)


def test_a_limit_on_dollars_an_hour_is_kept():
    topology = network(["A100", "V100", "T4", "T4"])
    candidate = found(topology, GPT2, max_price_per_hour=1.2)
    assert sum(topology.devices[i].price_per_hour for i in candidate.grid.ravel()) <= 1.2


def test_activations_are_computed_again_where_nothing_fits_without():
    job = GPT2.with_fields(schedule="gpipe", global_batch=256)
    small = network(["T4", "T4"])
    assert found(small, job, steps=3).checkpointing != "none"
    assert found(small, GPT2, steps=3).checkpointing == "none"


def test_a_model_that_fits_nowhere_is_refused_in_one_line():
    problem = IterationProblem.of(
        network(["T4", "T4"]), JOBS["llama-2-70b"].with_fields(n_stages=None, n_replicas=None)
    )
    with pytest.raises(PlanError, match=r"fits no plan .* all devices have") as refusal:
        search_iteration(problem, np.random.default_rng(0))
    assert "\n" not in str(refusal.value)


def test_a_search_is_never_worse_than_its_start():
    topology = network(["A100", "V100", "RTX 4090", "T4", "T4"])
    problem = IterationProblem.of(topology, GPT2)
    best = found(topology, GPT2)
    stream = search_iteration(problem, np.random.default_rng(1), start=plan_of(problem, best))
    first = next(candidate for candidate in stream if candidate.complete)
    assert first.value <= best.value * (1 + 1e-9)
