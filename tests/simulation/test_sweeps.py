"""Sweeps: rows that equal single plans and simulations, whoever makes them; mistakes in one line; intervals."""

from __future__ import annotations

import itertools
import math
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import psutil
import pytest
from plans import plan_of, uneven
from scipy import stats

import dtfm_lab as lab
from dtfm_lab import planning
from dtfm_lab.domain.errors import LabError, RunError, UnknownName
from dtfm_lab.domain.schedule import Schedule
from dtfm_lab.planning.sweeps import sweep_points, sweep_summary, sweep_table
from dtfm_lab.simulation import task_runner
from dtfm_lab.simulation.memory import memory
from dtfm_lab.simulation.schedules import peak_activations, schedules
from dtfm_lab.simulation.simulate import simulate
from dtfm_lab.simulation.variations import OUTCOMES

PLAN = plan_of(4, 8, 2, uneven(8, 5), n_layers=8, d_model=8, dtype="fp32")
HALL = lab.load_topology("lecture-hall")
LIMITS = {"steps": 2, "objective": "communication"}


def test_rows_are_all_combinations_and_the_last_setting_varies_fastest() -> None:
    table = lab.sweep(PLAN, schedule=["1f1b", "gpipe"], microbatch=[1, 2], latency=1.0)
    settings = list(zip(table["schedule"], table["microbatch"], table["latency"], strict=True))
    assert settings == list(itertools.product(["1f1b", "gpipe"], [1, 2], [1.0]))
    assert list(table.columns) == ["schedule", "microbatch", "latency", *OUTCOMES, "error"]


@pytest.mark.parametrize(
    "settings",
    [
        {"schedule": "gpipe", "microbatch": 2, "compression": "int8", "efficiency": 0.25},
        {"schedule": "zb-h1", "synchronisation": "ring", "queueing": "nics", "global_batch": 32},
        {"schedule": "interleaved-1f1b", "recompute": True, "dtype": "fp16", "latency": 0},
        {"schedule": "adaptive-1f1b", "bandwidth": 0.25, "gradient_compression": "fp16", "synchronise_every": 3},
    ],
    ids=lambda settings: settings["schedule"],
)
def test_a_row_is_what_one_simulation_tells(settings: dict[str, object]) -> None:
    simulated = {what: settings[what] for what in ("queueing", "efficiency") if what in settings}
    factors = {what: settings.get(what, 1) for what in ("bandwidth", "latency")}
    others = {w: v for w, v in settings.items() if w not in (*simulated, *factors)}
    links = PLAN.topology
    plan = replace(
        PLAN,
        job=replace(PLAN.job, **others),
        topology=replace(
            links,
            latency_s=links.latency_s * factors["latency"],
            bandwidth_bytes_per_s=links.bandwidth_bytes_per_s * factors["bandwidth"],
        ),
    )
    trace = simulate(plan, **simulated)
    held = memory(plan, trace=trace)
    [point] = sweep_points(PLAN, **settings)
    assert point.outcome is not None, point.error
    assert point.outcome.iteration_s == trace.iteration_s
    assert point.outcome.tokens_per_s == trace.metrics["tokens_per_s"]
    assert point.outcome.bubble_share == pytest.approx(1 - (trace.bubble.busy_s / trace.bubble.iteration_s).mean())
    assert (point.outcome.fits, point.outcome.peak_memory_bytes) == (held.fits, held.peak_bytes.max())
    played = Schedule.from_orders(trace.context.schedule, trace.context.plan.orders)
    assert point.outcome.peak_activations == max(peak_activations(played))
    assert math.isnan(point.outcome.price_per_million_tokens)


def test_what_cannot_be_is_a_row_with_its_reason() -> None:
    table = lab.sweep(PLAN, schedule=["gpipe", "interleaved-1f1b"], microbatch=[1, 3], stages_per_device=[2, 4])
    assert table["error"].str.contains("leave").tolist() == [False, False, True, True] * 2
    too_many = table[table["error"].ne("") & ~table["error"].str.contains("leave")]
    assert too_many[["schedule", "stages_per_device"]].to_numpy().tolist() == [["interleaved-1f1b", 4]]
    wrong = table[table["error"].ne("")]
    assert wrong[list(OUTCOMES)].isna().all(axis=None)
    assert not wrong["error"].str.contains("\n").any()
    assert table.loc[table["error"].eq(""), "iteration_s"].notna().all()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"schedul": ["gpipe"]}, "no setting of a sweep named 'schedul'; did you mean 'schedule'?"),
        ({"schedule": []}, "schedule of a sweep has no values; wanted one or more"),
        ({}, "a sweep of nothing; wanted values for one or more of schedule"),
        ({"schedule": ["gpipe", "gpip"]}, "no schedule named 'gpip'; did you mean 'gpipe'?"),
        ({"queueing": ["pears"]}, "no queueing named 'pears'; did you mean 'pairs'?"),
        ({"bandwidth": [1, 0]}, "bandwidth is 0; wanted more than 0"),
        ({"latency": [-1]}, "latency is -1; wanted 0 or more"),
        ({"bandwidth": np.array([[1.0, 2.0]])}, "bandwidth is [1.0, 2.0]; wanted more than 0"),
        ({"efficiency": [0.5, 2]}, "efficiency is 2; wanted more than 0 and at most 1"),
        ({"planner": "dtf"}, "no planner named 'dtf'; did you mean 'dtfm'?"),
        ({"objective": "communicatio"}, "no objective named 'communicatio'; did you mean 'communication'?"),
        ({"seed": [1, 2], "repeats": 2}, "a sweep has 2 seeds and 2 repeats; wanted one of them"),
        ({"seed": -1}, "seed is -1; wanted a whole number from 0"),
        ({"repeats": 0}, "repeats is 0; wanted a whole number from 1"),
        ({"shape": "8"}, "shape of a sweep is '8'; wanted stages x replicas, such as (8, 4) or 8x4"),
        ({"shape": [(0, 2)]}, "n_stages is 0; wanted a whole number from 1"),
        ({"shape": "2x2", "n_stages": 2}, "a sweep has shape and n_stages or n_replicas; wanted one of them"),
        ({"max_price_per_hour": 0}, "max_price_per_hour is 0; wanted more than 0"),
        ({"network": [3]}, "network of a sweep is 3; wanted a Topology"),
    ],
    ids=str,
)
def test_mistakes_are_refused_before_anything_runs(settings: dict[str, object], says: str) -> None:
    with pytest.raises(LabError, match=re.escape(says)):
        sweep_points(PLAN, **settings)  # not even asked for a row


def test_a_job_of_message_sizes_has_no_outcome() -> None:
    priced = replace(PLAN, job=replace(PLAN.job, model=None, given_gradient_bytes=1.0, given_hop_bytes=1.0))
    [point] = sweep_points(priced, schedule="gpipe")
    assert "needs a model" in point.error


def test_schedules_and_numpy_numbers_are_values_too() -> None:
    own = schedules["gpipe"](4, 8)
    table = lab.sweep(PLAN, schedule=["gpipe", replace(own, name="own")], bandwidth=np.array([1.0, 2.0]))
    assert table["schedule"].tolist() == ["gpipe", "gpipe", "own", "own"]
    assert table["iteration_s"][:2].tolist() == table["iteration_s"][2:].tolist()
    assert lab.sweep(PLAN, bandwidth=np.array(2.0))["bandwidth"].tolist() == [2.0]


@pytest.mark.filterwarnings("error")
def test_links_out_of_range_are_a_reason_and_no_warning() -> None:
    assert lab.sweep(PLAN, bandwidth=1e308)["error"].str.contains("bandwidth is inf").all()


def test_an_interrupt_keeps_the_rows_so_far_and_progress_counts_them() -> None:
    seen = []

    def progress(point) -> None:
        seen.append((point.number, point.total))
        if len(seen) == 3:
            raise KeyboardInterrupt

    table = lab.sweep(PLAN, progress=progress, schedule=["1f1b", "gpipe"], microbatch=[1, 2, 4])
    assert seen == [(1, 6), (2, 6), (3, 6)]
    assert table["microbatch"].tolist() == [1, 2, 4]


def test_a_short_sweep_asks_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_runner, "_in_processes", None)
    assert len(lab.sweep(PLAN, schedule=["1f1b", "gpipe"], microbatch=[1, 2])) == 4


def workers_of(process: psutil.Process) -> list[psutil.Process]:
    return [child for child in process.children() if any("LokyProcess" in word for word in child.cmdline())]


@pytest.mark.slow
def test_processes_change_nothing_and_end_with_the_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"schedule": ["1f1b", "gpipe", "zb-h1"], "bandwidth": [0.5, 1, 2], "microbatch": [1, 2, 3]}
    alone = lab.sweep(PLAN, executor="here", **settings)
    monkeypatch.setattr(task_runner, "WORTHWHILE_S", -1.0)
    monkeypatch.setattr(task_runner, "usable_cores", lambda: 2)
    points = sweep_points(PLAN, **settings)
    shared = list(itertools.islice(points, len(alone) - 1))
    busy = workers_of(psutil.Process())
    assert len(busy) == 2
    points.close()
    psutil.wait_procs(busy, timeout=120)
    assert not any(process.is_running() for process in busy)
    assert sweep_table(shared).equals(alone[:-1])


@pytest.mark.slow
def test_a_process_that_dies_is_told_in_one_line() -> None:
    with pytest.raises(RunError, match="one of 1 worker processes died"):
        list(task_runner._in_processes(os._exit, [(1,)], 0, 1, print))


SWEEPING = """
import sys
sys.path[:0] = {path!r}
from test_sweeps import PLAN, task_runner, psutil, sweep_points, workers_of
task_runner.WORTHWHILE_S, task_runner.usable_cores = -1.0, lambda: 2
points = sweep_points(PLAN, bandwidth=[1.0 + i for i in range(1000)])
for _ in range(3):
    next(points)
print(*(process.pid for process in workers_of(psutil.Process())), flush=True)
for _ in points:
    pass
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no such signal on this system")
def test_no_process_outlives_the_one_that_asked() -> None:
    code = SWEEPING.format(path=[os.path.dirname(__file__)])
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as asking:
        assert asking.stdout is not None
        workers = [psutil.Process(int(pid)) for pid in asking.stdout.readline().split()]
        assert len(workers) == 2
        asking.kill()
    deadline = time.monotonic() + 120
    while any(process.is_running() for process in workers) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(process.is_running() for process in workers)


# sweeps that plan


def test_every_row_is_the_plan_and_the_simulation_of_its_settings() -> None:
    shapes = [(4, 2), (2, 4)]
    varied = {"planner": ["evolutionary", "random"], "shape": shapes, "seed": [0, 1]}
    table = lab.sweep(HALL, "tiny", **varied, microbatch=1, **LIMITS)
    cells = list(zip(table["planner"], table["shape"], table["seed"], strict=True))
    assert cells == list(itertools.product(["evolutionary", "random"], ["4 x 2", "2 x 4"], [0, 1]))
    for row, (planner, shape, seed) in zip(
        table.itertuples(), itertools.product(["evolutionary", "random"], shapes, [0, 1]), strict=True
    ):
        job = lab.load_job("tiny", n_stages=shape[0], n_replicas=shape[1], microbatch=1)
        plan = planning.plan(HALL, job, planner, seed=seed, **LIMITS)
        assert row.communication_cost_s == plan.cost.total_s
        assert row.iteration_s == lab.simulate(plan).iteration_s
        assert (row.plan_stages, row.plan_replicas, row.plan_devices) == (*shape, 8)


def test_networks_links_and_schedules_vary_and_are_planned_for() -> None:
    table = lab.sweep(
        HALL, network=["lecture-hall", "raspberry-pi"], bandwidth=[1, 4], schedule=["gpipe", "1f1b"], **LIMITS
    )
    assert len(table) == 8
    job = lab.load_job("small", schedule="1f1b")
    plan = planning.plan(lab.load_topology("raspberry-pi").scaled(1, 4), job, seed=0, **LIMITS)
    row = table[(table["network"] == "raspberry-pi") & (table["bandwidth"] == 4) & (table["schedule"] == "1f1b")]
    assert row["iteration_s"].tolist() == [lab.simulate(plan).iteration_s]


def test_a_plan_gives_its_network_and_its_job_and_repeats_are_seeds_in_a_row() -> None:
    plan = planning.plan(HALL, lab.load_job("tiny"), steps=1)
    table = lab.sweep(plan, planner="random", repeats=3, **LIMITS)
    assert table["seed"].tolist() == [0, 1, 2]
    assert lab.sweep(plan, planner="random", seed=1, **LIMITS)["iteration_s"].iloc[0] == table["iteration_s"].iloc[1]
    kept = lab.sweep(plan, bandwidth=[1.0])
    assert "seed" not in kept
    assert kept["iteration_s"].iloc[0] == lab.simulate(plan).iteration_s


def test_a_job_that_leaves_its_shape_open_is_planned_for_seconds_and_under_a_limit() -> None:
    job = lab.load_job("tiny", n_stages=None, n_replicas=None)
    table = lab.sweep(HALL, job, max_iteration_s=[10.0, 1e-9], steps=1)
    assert table["error"].eq("").tolist() == [True, False]
    plan = planning.plan(HALL, job, objective="iteration", max_iteration_s=10.0, steps=1)
    row = table.iloc[0]
    assert (row["plan_stages"], row["plan_replicas"]) == (plan.job.n_stages, plan.job.n_replicas)
    assert row["iteration_s"] == pytest.approx(lab.simulate(plan).iteration_s, rel=1e-12)
    assert row["iteration_lower_bound_s"] <= row["iteration_s"]


def test_the_interval_of_repeats_is_student_s() -> None:
    table = lab.sweep(HALL, "tiny", planner=["random", "evolutionary"], repeats=5, steps=1, objective="communication")
    summary = sweep_summary(table, "communication_cost_s")
    assert summary["planner"].tolist() == ["random", "evolutionary"]
    for row in summary.itertuples():
        costs = table.loc[table["planner"] == row.planner, "communication_cost_s"]
        assert (row.n, row.failed, row.mean) == (5, 0, pytest.approx(costs.mean()))
        assert (row.least, row.most) == (costs.min(), costs.max())
        if costs.std() > 0:
            low, high = stats.t.interval(0.95, 4, loc=costs.mean(), scale=stats.sem(costs))
            assert (row.low, row.high) == pytest.approx((low, high))
    with pytest.raises(UnknownName, match="no result of a sweep named 'iteration'; did you mean 'iteration_s'"):
        sweep_summary(table, "iteration")


def test_a_misspelt_network_or_plan_is_named() -> None:
    with pytest.raises(UnknownName, match="no topology named 'lecture-hal'; did you mean 'lecture-hall'"):
        lab.sweep("lecture-hal", planner="random")
    with pytest.raises(LabError, match=r"plan\.json: no such file"):
        lab.sweep("plan.json", planner="random")
