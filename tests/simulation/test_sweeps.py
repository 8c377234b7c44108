"""Sweeps: rows that equal single simulations, whoever makes them; mistakes in one line; no process left behind."""

from __future__ import annotations

import itertools
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import psutil
import pytest
from plans import plan_of, uneven

from dtfm_lab import lab
from dtfm_lab.domain.errors import LabError, RunError
from dtfm_lab.domain.schedule import Schedule
from dtfm_lab.simulation import process_pool
from dtfm_lab.simulation.memory import memory
from dtfm_lab.simulation.schedules import peak_activations, schedules
from dtfm_lab.simulation.simulate import simulate
from dtfm_lab.simulation.sweeps import OUTCOMES, sweep_table, sweeps

PLAN = plan_of(4, 8, 2, uneven(8, 5), n_layers=8, d_model=8, dtype="fp32")


def test_rows_are_all_combinations_and_the_last_setting_varies_fastest() -> None:
    table = lab.sweep(PLAN, schedule=["1f1b", "gpipe"], microbatch=[1, 2], latency=1.0)
    settings = list(zip(table["schedule"], table["microbatch"], table["latency"], strict=True))
    assert settings == list(itertools.product(["1f1b", "gpipe"], [1, 2], [1.0]))
    assert list(table.columns) == ["schedule", "microbatch", "latency", *OUTCOMES, "error"]


@pytest.mark.parametrize(
    "settings",
    [
        {"schedule": "gpipe", "microbatch": 2, "compression": "int8", "efficiency": 0.25},
        {"schedule": "zb-h1", "synchronisation": "ring", "queueing": "cards", "global_batch": 32},
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
    [point] = sweeps(PLAN, **settings)
    assert point.outcome is not None, point.error
    assert point.outcome.iteration_s == trace.iteration_s
    assert point.outcome.tokens_per_s == trace.metrics["tokens_per_s"]
    assert point.outcome.bubble_share == pytest.approx(1 - (trace.bubble.busy_s / trace.bubble.iteration_s).mean())
    assert (point.outcome.fits, point.outcome.peak_memory_bytes) == (held.fits, held.peak_bytes.max())
    played = Schedule.from_orders(trace.context.schedule, trace.context.orders)
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
        ({"microbatch": np.array([])}, "microbatch of a sweep has no values"),
        ({}, "a sweep of nothing; wanted values for one or more of schedule"),
        ({"schedule": ["gpipe", "gpip"]}, "no pipeline schedule named 'gpip'; did you mean 'gpipe'?"),
        ({"compression": ["none", "int4"]}, "no compression named 'int4'; did you mean 'int8'?"),
        ({"synchronisation": "rin"}, "no synchronisation named 'rin'; did you mean 'ring'?"),
        ({"dtype": ["fp8"]}, "no dtype named 'fp8'"),
        ({"queueing": ["pears"]}, "no queueing named 'pears'; did you mean 'pairs'?"),
        ({"bandwidth": [1, 0]}, "bandwidth of a sweep, a factor on that of all links, is 0; wanted a number above 0"),
        ({"latency": [-1]}, "is -1; wanted a number from 0"),
        ({"latency": ["far"]}, "is 'far'; wanted a number from 0"),
        ({"bandwidth": np.inf}, "is inf; wanted a number above 0"),
        ({"bandwidth": np.array([[1.0, 2.0]])}, "is [1.0, 2.0]; wanted a number above 0"),
        ({"efficiency": [0.5, 2]}, "efficiency of a sweep is 2; wanted more than 0 and at most 1"),
        ({"microbatch": [1, 0]}, "microbatch is 0; wanted a whole number from 1"),
        ({"recompute": [True, "yes"]}, "recompute is 'yes'; wanted true or false"),
        ({"codec_bytes_per_s": [-1]}, "codec_bytes_per_s is -1; wanted more than 0"),
        ({"bandwidth": 1, "workers": 0}, "workers of a sweep are 0; wanted a whole number from 1"),
        ({"bandwidth": 1, "workers": "two"}, "workers of a sweep are 'two'"),
        ({"bandwidth": 1, "workers": True}, "workers of a sweep are True"),
    ],
    ids=str,
)
def test_mistakes_are_refused_before_anything_runs(settings: dict[str, object], says: str) -> None:
    with pytest.raises(LabError) as refused:
        sweeps(PLAN, **settings)  # not even asked for a row
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_job_of_message_sizes_has_no_outcome() -> None:
    priced = replace(PLAN, job=replace(PLAN.job, model=None, given_gradient_bytes=1.0, given_hop_bytes=1.0))
    [point] = sweeps(priced, schedule="gpipe")
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


def test_an_interrupt_before_the_first_row_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dtfm_lab.simulation.sweeps.simulate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lab.sweep(PLAN, schedule=["1f1b", "gpipe"])


def test_a_table_of_no_points_has_its_columns() -> None:
    assert list(sweep_table([]).columns) == [*OUTCOMES, "error"]


def test_a_short_sweep_asks_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_pool, "_in_processes", None)
    assert len(lab.sweep(PLAN, schedule=["1f1b", "gpipe"], microbatch=[1, 2], workers=8)) == 4


def workers_of(process: psutil.Process) -> list[psutil.Process]:
    return [child for child in process.children() if any("LokyProcess" in word for word in child.cmdline())]


@pytest.mark.slow
def test_processes_change_nothing_and_end_with_the_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"schedule": ["1f1b", "gpipe", "zb-h1"], "bandwidth": [0.5, 1, 2], "microbatch": [1, 2, 3]}
    alone = lab.sweep(PLAN, workers=1, **settings)
    monkeypatch.setattr(process_pool, "WORTHWHILE_S", -1.0)
    points = sweeps(PLAN, workers=2, **settings)
    shared = list(itertools.islice(points, len(alone) - 1))
    busy = workers_of(psutil.Process())
    assert len(busy) == 2
    points.close()
    psutil.wait_procs(busy, timeout=120)
    assert not any(process.is_running() for process in busy)
    assert sweep_table(shared).equals(alone[:-1])


@pytest.mark.slow
def test_a_process_that_dies_is_told_in_one_line() -> None:
    with pytest.raises(RunError, match="one of 1 worker processes died") as told:
        list(process_pool._in_processes(os._exit, [(1,)], 1))
    assert "\n" not in str(told.value)


SWEEPING = """
import sys
sys.path[:0] = {path!r}
from test_sweeps import PLAN, process_pool, psutil, sweeps, workers_of
process_pool.WORTHWHILE_S = -1.0
points = sweeps(PLAN, workers=2, bandwidth=[1.0 + i for i in range(1000)])
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


def test_the_plan_is_as_it_was() -> None:
    before = (PLAN.job, PLAN.topology.fingerprint)
    lab.sweep(PLAN, schedule="gpipe", bandwidth=[1, 3], recompute=True)
    assert (PLAN.job, PLAN.topology.fingerprint) == before
