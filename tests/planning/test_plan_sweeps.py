"""Sweeps that plan: rows are the plans and simulations of their settings, and repeats have Student's interval."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import dtfm_lab as lab
from dtfm_lab import planning
from dtfm_lab.domain.errors import LabError, PlanError, UnknownName
from dtfm_lab.planning.plan_sweeps import PLANNED
from dtfm_lab.simulation.sweeps import OUTCOMES

HALL = lab.load_topology("lecture-hall")
LIMITS = {"steps": 2, "objective": "communication"}


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


def test_columns_are_the_settings_the_outcome_and_what_is_known_of_the_plan() -> None:
    table = lab.sweep(HALL, "tiny", planner="random", **LIMITS)
    assert list(table.columns) == ["planner", "objective", "seed", *OUTCOMES, *PLANNED, "error"]
    assert table.attrs["settings"] == ["planner", "objective", "seed"]


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


def test_what_cannot_be_planned_is_a_row_with_its_reason() -> None:
    table = lab.sweep(HALL, "tiny", shape=["4x2", "8x8", "9 x 1"], **LIMITS)
    assert table["error"].str.contains("need 64 devices|has 8 blocks").tolist() == [False, True, True]
    assert table["plan_stages"].isna().tolist() == [False, True, True]
    assert lab.sweep_summary(table)[["n", "failed"]].to_numpy().tolist() == [[1, 0], [0, 1], [0, 1]]


def test_the_interval_of_repeats_is_student_s() -> None:
    table = lab.sweep(HALL, "tiny", planner=["random", "evolutionary"], repeats=5, steps=1, objective="communication")
    summary = lab.sweep_summary(table, "communication_cost_s")
    assert summary["planner"].tolist() == ["random", "evolutionary"]
    for row in summary.itertuples():
        costs = table.loc[table["planner"] == row.planner, "communication_cost_s"]
        assert (row.n, row.failed, row.mean) == (5, 0, pytest.approx(costs.mean()))
        assert (row.least, row.most) == (costs.min(), costs.max())
        if costs.std() > 0:
            low, high = stats.t.interval(0.95, 4, loc=costs.mean(), scale=stats.sem(costs))
            assert (row.low, row.high) == pytest.approx((low, high))
    wide = lab.sweep_summary(table, "communication_cost_s", confidence=0.99)
    assert (wide["high"] - wide["low"] >= summary["high"] - summary["low"]).all()


def test_an_interval_holds_the_true_mean_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    n_cells = 2000
    table = pd.DataFrame({"cell": np.repeat(np.arange(n_cells), 4), "seed": np.tile(np.arange(4), n_cells)})
    table["iteration_s"] = rng.normal(10, 2, len(table))
    table.attrs["settings"] = ["cell", "seed"]
    summary = lab.sweep_summary(table)
    assert ((summary["low"] <= 10) & (summary["high"] >= 10)).mean() == pytest.approx(0.95, abs=0.02)


def test_a_single_run_has_no_interval() -> None:
    summary = lab.sweep_summary(lab.sweep(HALL, "tiny", **LIMITS))
    assert summary[["low", "high"]].isna().all(axis=None)
    assert summary["mean"].notna().all()


def test_results_do_not_depend_on_the_processes() -> None:
    settings = {"planner": "random", "repeats": 4, **LIMITS}
    one, two = (lab.sweep(HALL, "tiny", workers=n, **settings).drop(columns="planning_s") for n in (1, 2))
    pd.testing.assert_frame_equal(one, two)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"planner": "dtf"}, "no planner named 'dtf'; did you mean 'dtfm'?"),
        ({"planer": "dtfm"}, "no setting of a sweep named 'planer'; did you mean 'planner'?"),
        ({"objective": "communicatio"}, "no objective named 'communicatio'; did you mean 'communication'?"),
        ({"seed": [1, 2], "repeats": 2}, "a sweep has 2 seeds and 2 repeats; wanted one of them"),
        ({"seed": -1}, "seed is -1; wanted a whole number from 0"),
        ({"repeats": 0}, "repeats of a sweep are 0; wanted a whole number from 1"),
        ({"shape": "8"}, "shape of a sweep is '8'; wanted stages x replicas, such as (8, 4) or 8x4"),
        ({"shape": [(0, 2)]}, "n_stages is 0; wanted a whole number from 1"),
        ({"shape": "2x2", "n_stages": 2}, "a sweep has shape and n_stages or n_replicas; wanted one of them"),
        ({"max_price_per_hour": 0}, "max_price_per_hour of a sweep is 0; wanted a number above 0"),
        ({"network": "nowhere"}, "no topology named 'nowhere'"),
        ({"network": [3]}, "network of a sweep is 3; wanted a Topology"),
        ({"planner": []}, "planner of a sweep has no values"),
        ({"planner": "dtfm", "microbatch": 0}, "microbatch is 0; wanted a whole number from 1"),
        ({"planner": "dtfm", "workers": 0}, "workers of a sweep are 0"),
    ],
    ids=str,
)
def test_mistakes_are_refused_before_anything_is_planned(settings: dict[str, object], says: str) -> None:
    with pytest.raises(LabError) as refused:
        lab.sweep(HALL, "tiny", **settings)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_summary_of_no_such_result_is_refused() -> None:
    table = lab.sweep(HALL, "tiny", **LIMITS)
    with pytest.raises(UnknownName, match="no result of a sweep named 'iteration'; did you mean 'iteration_s'"):
        lab.sweep_summary(table, "iteration")
    with pytest.raises(PlanError, match="confidence is 95; wanted more than 0 and less than 1"):
        lab.sweep_summary(table, confidence=95)


def test_a_misspelt_network_or_plan_is_named() -> None:
    with pytest.raises(UnknownName, match="no topology named 'lecture-hal'; did you mean 'lecture-hall'"):
        lab.sweep("lecture-hal", planner="random")
    with pytest.raises(LabError, match=r"plan\.json: no such file"):
        lab.sweep("plan.json", planner="random")


def test_the_command_line_plans_prints_and_summarises(shell: Callable[..., tuple[int, str, str]]) -> None:
    vary = ["--vary", "planner=random,evolutionary", "--vary", "shape=4x2", "--vary", "objective=communication"]
    arguments = ["simulate", "--sweep", "lecture-hall", "--job", "tiny", *vary, "--repeats", "2", "--steps", "2"]
    status, out, _ = shell(*arguments)
    assert status == 0
    assert "interval of 95 % confidence" in out
    told = json.loads(shell(*arguments, "--json")[1])
    assert told["settings"] == ["planner", "shape", "objective", "seed"]
    assert (len(told["points"]), len(told["summary"])) == (4, 2)
    status, _, err = shell(*arguments, "--vary", "seed=1,2")
    assert (status, "2 seeds and 2 repeats" in err, err.count("\n")) == (2, True, 1)
