"""Plans on random draws of their network: closed forms, a draw against its own network, who is ahead how often."""

from __future__ import annotations

import re
from dataclasses import replace
from math import exp, log, sqrt
from statistics import NormalDist

import numpy as np
import pytest

import dtfm_lab as lab
from dtfm_lab.domain.errors import LabError, PlanError, UnknownName
from dtfm_lab.domain.job import Job, gpt
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.planning import drawn, evaluate
from dtfm_lab.planning.draws import (
    FIRST_DRAWS,
    OF_THE_CHOICE,
    THEN_DRAWS,
    _factors,
    _seconds,
    binomial_interval,
    checked_spread,
)
from dtfm_lab.planning.iteration.replayed_plan import ReplayedPlan
from dtfm_lab.simulation.simulate import simulated_iterations

MODEL = gpt(name="four", n_layers=4, d_model=64, n_heads=2, seq_len=16, vocab_size=100)


def laptops(n: int, *, regions: bool = False, gbps: float = 1e-5) -> Topology:
    """Devices on which computing and messages take about as long."""
    rng = np.random.default_rng(n)
    ms, gbps_of = (rng.uniform(0.5, 2.0, (n, n)) * scale for scale in (20.0, gbps))
    places = [f"r{d % 3}" for d in range(n)] if regions else [""] * n
    return Topology.from_matrices(ms, gbps_of, regions=places, gpu="laptop", peak_flop_per_s=1e9, name="laptops")


def placed(topology: Topology, stages: list[list[int]], **fields: object) -> Plan:
    given = {"schedule": "1f1b", "global_batch": 8, "microbatch": 1} | fields
    job = Job(model=MODEL, n_stages=len(stages), n_replicas=len(stages[0]), **given)
    return lab.evaluate(topology, job, stages=stages)


def test_without_a_spread_every_draw_is_the_network_itself():
    plan = placed(laptops(4), [[0, 1], [2, 3]])
    found = lab.compare(plan, spread=0, draws=7)
    assert found.seconds.tolist() == [[plan.iteration_s]] * 7
    assert (found.mean_s[0], found.quantile_s(0.9)[0]) == (plan.iteration_s, plan.iteration_s)


@pytest.mark.parametrize("spread", [0.1, 0.5])
def test_one_device_takes_the_mean_of_a_lognormal_factor(spread):
    plan = placed(laptops(1), [[0]])
    found = lab.compare(plan, spread={"compute": spread}, draws=2000)
    logs = np.log(found.seconds[:, 0] / plan.iteration_s)
    assert abs(logs.mean()) < 4 * spread / sqrt(2000)
    assert logs.std() == pytest.approx(spread, rel=0.1)
    wanted_s, error_s = plan.iteration_s * exp(spread**2 / 2), found.to_frame()["error_s"][0]
    assert abs(found.mean_s[0] - wanted_s) < 4 * error_s


def test_two_replicas_wait_for_the_slower_one():
    """E max of two lognormal factors is 2 exp(s^2 / 2) P(Z < s / sqrt 2)."""
    plan, spread = placed(laptops(2, gbps=1e6), [[0, 1]]), 0.3
    alone_s = placed(laptops(1), [[0]], global_batch=4).iteration_s
    found = lab.compare(plan, spread={"compute": spread}, draws=2000)
    late_s = plan.iteration_s - alone_s  # latencies, which do not vary here
    wanted_s = late_s + alone_s * 2 * exp(spread**2 / 2) * NormalDist().cdf(spread / sqrt(2))
    assert abs(found.mean_s[0] - wanted_s) < 4 * found.to_frame()["error_s"][0]


@pytest.mark.parametrize("regions", [False, True])
@pytest.mark.parametrize(
    ("fields", "replayed"),
    [
        ({}, True),
        ({"schedule": "gpipe", "synchronisation": "ring"}, True),
        ({"schedule": "adaptive-1f1b", "warmups": (2, 0)}, True),
        ({"schedule": "adaptive-1f1b"}, False),  # its order would follow the draw
        ({"compression": "int8"}, False),  # coding takes a device's own speed
        ({"schedule": "zb-h1"}, False),
    ],
)
def test_a_draw_is_the_iteration_on_that_network(fields, replayed, regions):
    topology = laptops(6, regions=regions)
    plan = placed(topology, [[0, 1, 2], [3, 4, 5]], **({"global_batch": 12} | fields))
    base, replay = simulated_iterations(plan), ReplayedPlan.of(plan)
    assert (replay is not None and not replay.codes) == replayed
    order = lab.simulate(plan).context.recorded_schedule
    spread = checked_spread(0.4)
    for one in _factors(topology, spread, 3, 0):
        devices = tuple(
            replace(device, peak_flop_per_s=device.peak_flop_per_s * factor)
            for device, factor in zip(topology.devices, one.speed.tolist(), strict=True)
        )
        there = replace(
            topology,
            devices=devices,
            latency_s=topology.latency_s * one.latency,
            bandwidth_bytes_per_s=topology.bandwidth_bytes_per_s * one.bandwidth,
        )
        if "compression" in fields:  # which a codec's own speed decides, not the device's peak
            continue
        wanted_s = lab.simulate(plan.changed(topology=there), order).iteration_s
        assert _seconds(base, replay, one) == pytest.approx(wanted_s, rel=1e-9)


def test_links_of_two_regions_share_a_factor_and_devices_have_their_own():
    topology = laptops(6, regions=True)
    (one,) = _factors(topology, checked_spread({"bandwidth": 0.3, "compute": 0.2}), 1, 0)
    assert (one.latency == 1.0).all()
    assert len(np.unique(one.speed)) == 6
    assert len(np.unique(one.bandwidth)) == 6  # three pairs of regions, and within each of three
    assert (one.bandwidth == one.bandwidth.T).all()
    assert one.bandwidth[0, 1] == one.bandwidth[3, 4]


def test_draws_depend_on_the_seed_alone():
    topology = laptops(4)
    plans = placed(topology, [[0, 1], [2, 3]]), placed(topology, [[0], [1], [2], [3]])
    both, again = (drawn(plans, 0.2, n=20, seed=3).seconds for _ in range(2))
    assert (both == again).all()
    assert (drawn(plans[1:], 0.2, n=30, seed=3).seconds[:20, 0] == both[:, 1]).all()
    assert not (drawn(plans, 0.2, n=20, seed=4).seconds == both).any()


def test_of_two_alike_devices_each_is_ahead_in_half_of_the_draws():
    topology = laptops(2)
    ours, theirs = (placed(topology, [[d]]) for d in (0, 1))
    one, other = (lab.compare(a, b, spread=0.2, draws=400) for a, b in ((ours, theirs), (theirs, ours)))
    assert one.overtaking().share + other.overtaking().share == pytest.approx(1.0)
    assert one.overtaking().low < 0.5 < one.overtaking().high
    assert lab.compare(ours, ours, spread=0.2, draws=9).overtaking().share == 0.5


def test_a_plan_far_ahead_is_never_overtaken():
    topology = laptops(2)
    found = lab.compare(placed(topology, [[0]], global_batch=64), placed(topology, [[1]]), spread=0.1, draws=200)
    assert found.expected_best == 1
    assert found.overtaking() == (0.0, 0.0, pytest.approx(1 - 0.025 ** (1 / 200)))
    (pair,) = found.to_frame("pairs").itertuples()
    assert (pair.faster, pair.slower, pair.overtakes) == (1, 0, 0.0)
    assert pair.change == pytest.approx(7.0, rel=0.2)
    assert "is faster in 0 % of 200 draws" in found.sentence


@pytest.mark.parametrize("n", [1, 20, 1000])
def test_the_interval_of_a_share_holds_it_and_is_that_of_its_complement(n):
    for k in {0, n // 3, n}:
        low, high = binomial_interval(k, n)
        assert 0 <= low <= k / n <= high <= 1
        assert binomial_interval(n - k, n) == pytest.approx((1 - high, 1 - low))
    assert log(1 - binomial_interval(0, n)[1]) == pytest.approx(log(0.025) / n)


def test_the_plan_for_a_spread_is_the_nominal_one_where_there_is_none_and_expected_no_slower():
    nominal, same, robust = (
        lab.plan("lecture-hall", "tiny", seed=1, steps=2, **given) for given in ({}, {"spread": 0}, {"spread": 0.5})
    )
    assert (same.stages, same.job) == (nominal.stages, nominal.job)
    assert robust.iteration_s >= nominal.iteration_s
    chosen_by = drawn([nominal, robust], 0.5, n=THEN_DRAWS, seed=OF_THE_CHOICE)
    assert THEN_DRAWS > FIRST_DRAWS
    assert chosen_by.mean_s[1] <= chosen_by.mean_s[0]


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda plan: lab.compare(plan, spread=-0.1), PlanError, "spread of bandwidth is -0.1; wanted 0 to"),
        (lambda plan: lab.compare(plan, spread={"speed": 1}), UnknownName, "no spread named 'speed'"),
        (lambda plan: lab.compare(plan, spread=0.1, draws=0), PlanError, "draws is 0; wanted a whole number from 1"),
        (lambda plan: lab.compare(plan, plan, plan), LabError, "3 things to compare without a spread; wanted two"),
        (lambda plan: drawn([], 0.1), PlanError, "no plans; wanted one at least"),
        (lambda plan: drawn([plan], 0.1, n=1).quantile_s(2), PlanError, "share of draws is 2; wanted 0 to 1"),
        (
            lambda plan: lab.compare(plan, placed(laptops(3), [[0]]), spread=0.1),
            PlanError,
            "plans of laptops and of laptops, which differ",
        ),
        (
            lambda plan: lab.plan(plan.topology, plan.job, objective="communication", spread=0.1),
            PlanError,
            "spread with the objective communication; wanted iteration",
        ),
    ],
)
def test_what_is_refused(call, error, says):
    with pytest.raises(error, match="^" + re.escape(says)):
        call(placed(laptops(2), [[0, 1]]))


def test_a_plan_without_a_model_has_no_seconds_to_draw():
    plan = evaluate(laptops(2), Job.from_bytes(2, 1, gradient_bytes=1e6, activation_bytes=1e3), stages=[[0], [1]])
    with pytest.raises(LabError, match="model"):
        lab.compare(plan, spread=0.1)
