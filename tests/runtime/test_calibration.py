"""The paced clock's scale, from what computations took here: unequal devices keep their ratio where time allows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dtfm_lab as lab
from dtfm_lab.costs.efficiency import peak_of
from dtfm_lab.costs.seconds import analytic
from dtfm_lab.domain.network import HARDWARE, Topology
from dtfm_lab.domain.schedule import COMPUTE, PASSES, Kind
from dtfm_lab.domain.trace import ComputeTime
from dtfm_lab.runtime.coordinator.calibration import (
    LARGEST_SCALE,
    LONGEST_S,
    PADDING,
    SPREAD_UNDER_LOAD,
    MeasuredDurations,
    RunCalibration,
    Work,
    calibrate,
)
from dtfm_lab.runtime.protocol.run_options import RunSpec
from dtfm_lab.simulation import build
from dtfm_lab.simulation.engine import simulate_iteration

HERE_S = 0.002


def spec_of(*gpus: str, latency_ms: float = 0.01, **options: object) -> RunSpec:
    """``tiny``, with a stage on each of these GPUs."""
    n = len(gpus)
    devices = tuple(lab.Device(name=f"{gpu} {i}", gpu=gpu) for i, gpu in enumerate(gpus))
    links = Topology.from_matrices(np.full((n, n), latency_ms), np.full((n, n), 100.0))
    topology = replace(links, devices=devices)
    job = lab.load_job("tiny", n_stages=n, n_replicas=1, global_batch=8)
    plan = lab.evaluate(topology, job, stages=[[i] for i in range(n)])
    built = build(plan, "1f1b")
    return RunSpec(plan=plan, schedule=built.name, orders=built.orders, iterations=1, clock="paced", **options)


def measured_of(spec: RunSpec) -> dict[Work, MeasuredDurations]:
    """Every computation takes as long on this machine, but a backward twice as long."""
    programs = spec.programs(synchronise=True)
    work = {
        (step.action.stage, replica, step.action.kind)
        for position, replica in spec.workers
        for step in programs.of(position, replica)
        if step.action.kind in COMPUTE
    }
    return {key: MeasuredDurations(*[took_s(key[2])] * 3) for key in work}


def took_s(kind: Kind) -> float:
    return HERE_S * (2 if kind is Kind.BACKWARD else 1)


def passes(rows: Iterable[ComputeTime]) -> dict[Work, float]:
    return {(row.stage, row.replica, row.kind): row.seconds for row in rows if row.kind in PASSES}


def ratios(spec: RunSpec, found: RunCalibration) -> list[float]:
    """By pass, how many times longer it takes than on the specified device."""
    drawn = passes(analytic(spec.plan, spec.programs(synchronise=True)))
    return [seconds / drawn[work] for work, seconds in passes(found.profile).items()]


def test_unequal_devices_and_their_links_are_slowed_down_together_as_far_as_this_machine_needs():
    spec = spec_of("A100", "T4")
    found = calibrate(spec, measured_of(spec))
    assert found.time_scale > LARGEST_SCALE
    assert found.stretched == 0
    assert ratios(spec, found) == pytest.approx([1.0] * 4)
    assert min(row.seconds * found.time_scale / took_s(row.kind) for row in found.profile) == pytest.approx(PADDING)


def test_where_slow_links_would_take_too_long_with_them_unequal_devices_still_keep_their_ratio():
    spec = spec_of("A100", "T4", latency_ms=20)
    found = calibrate(spec, measured_of(spec))
    assert found.time_scale == LARGEST_SCALE
    assert found.stretched == len(found.profile)
    longer = ratios(spec, found)
    assert longer == pytest.approx([longer[0]] * 4)
    assert longer[0] > 1


def test_equal_devices_that_outrun_this_machine_are_paced_as_fast_as_it_can():
    spec = spec_of("A100", "A100")
    found = calibrate(spec, measured_of(spec))
    assert found.time_scale == LARGEST_SCALE
    assert {row.seconds for row in found.profile if row.kind is Kind.FORWARD} == {PADDING * HERE_S / LARGEST_SCALE}


@given(st.lists(st.sampled_from(sorted(HARDWARE)), min_size=2, max_size=4), st.floats(0.001, 50.0))
@settings(max_examples=30)
def test_all_computations_fit_at_the_chosen_scale_and_none_is_shorter_than_drawn(gpus, latency_ms):
    spec = spec_of(*gpus, latency_ms=latency_ms)
    measured = measured_of(spec)
    found = calibrate(spec, measured)
    for row in found.profile:
        needed_s = PADDING * measured[row.stage, row.replica, row.kind].crowded_wall_s
        assert row.seconds * found.time_scale >= needed_s * (1 - 1e-9)
    assert min(ratios(spec, found)) >= 1 - 1e-9
    equal = len({peak_of(device, "fp32") for device in spec.plan.topology.devices}) == 1
    assert found.time_scale <= LARGEST_SCALE or not equal
    if found.time_scale > LARGEST_SCALE:
        predicted = lab.simulate(spec.plan, "1f1b", profile=found.profile)
        assert predicted.iteration_s * found.time_scale <= LONGEST_S * (1 + 1e-9)


def test_devices_slower_than_this_machine_are_not_hurried():
    spec = spec_of("T4", "T4")
    found = calibrate(spec, {work: MeasuredDurations(1e-9, 1e-9, 1e-9) for work in measured_of(spec)})
    assert (found.time_scale, found.stretched) == (1.0, 0)


def test_a_scale_that_is_given_stretches_nothing():
    spec = spec_of("A100", "T4", latency_ms=20, time_scale=3.0)
    found = calibrate(spec, measured_of(spec))
    assert (found.time_scale, found.stretched) == (3.0, 0)
    assert ratios(spec, found) == pytest.approx([1.0] * 4)


@pytest.mark.parametrize("longer", [1.0, 1.3, 4.0])
def test_messages_on_real_links_take_what_whole_iterations_took_beyond_their_computations(longer):
    spec = replace(spec_of("T4", "T4", "T4"), clock="real")
    measured = measured_of(spec)
    alone_s = simulate_iteration(spec.plan, spec.built, calibrate(spec, measured).profile, spec.links).makespan_s
    found = calibrate(spec, measured, [longer * alone_s, 10.0, 0.0001])
    links = spec.links.delayed(found.message_s)
    assert simulate_iteration(spec.plan, spec.built, found.profile, links).makespan_s == pytest.approx(
        longer * alone_s, rel=1e-4
    )
    assert (found.message_s > 0) == (longer > 1)


def test_iterations_that_differ_make_a_prediction_less_sure():
    spec = replace(spec_of("T4", "T4"), clock="real")
    spreads = [calibrate(spec, measured_of(spec), [1, 1 + by, 1 - by]).compute_spread for by in (0.0, 0.01, 0.1)]
    assert spreads[0] == 0
    assert spreads[0] < spreads[1] < spreads[2]


def test_threads_that_wait_for_a_core_make_the_virtual_clock_less_sure():
    spec = replace(spec_of("T4", "T4"), clock="virtual")
    alone = measured_of(spec)
    crowded = {key: figures._replace(wall_s=4 * figures.wall_s) for key, figures in alone.items()}
    assert calibrate(spec, alone).compute_spread == 0
    assert calibrate(spec, crowded).compute_spread == pytest.approx(0.75 * SPREAD_UNDER_LOAD)


@pytest.mark.parametrize(("clock", "counted"), [("virtual", "cpu_s"), ("real", "wall_s")])
def test_the_virtual_clock_is_predicted_from_cpu_seconds_and_the_real_one_from_wall_seconds(clock: str, counted: str):
    spec = replace(spec_of("T4", "T4"), clock=clock)
    measured = {key: MeasuredDurations(each.cpu_s, 4 * each.wall_s, 9.0) for key, each in measured_of(spec).items()}
    found = {row[:3]: row.seconds for row in calibrate(spec, measured).profile}
    assert found == pytest.approx({key: getattr(each, counted) for key, each in measured.items()})
