"""The planner's controls: what they begin, show while it runs, keep and bring back."""

from __future__ import annotations

import itertools
import json
import time
from dataclasses import replace

import pytest
from loops import on_a_loop, until
from plan_widgets import JOB, irregular

import dtfm_lab as lab
from dtfm_lab.domain.job import Job
from dtfm_lab.planning import planners

pytest.importorskip("anywidget", reason="needs the lab extra")

from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.planner.job_controls import nearest_shape
from dtfm_lab.widgets.planner.plan_panel import PlanPanel
from dtfm_lab.widgets.planner.search_mode import SHOWN_S


def a_panel(**traits: object) -> tuple[LabState, PlanPanel]:
    lab_state = LabState(topology=irregular())
    panel = PlanPanel(lab_state, JOB)
    for name, value in traits.items():
        getattr(panel.real, name).value = value
    return lab_state, panel


@on_a_loop
async def test_the_best_so_far_is_shown_on_the_map_a_few_times_a_second_until_the_plan_speaks():
    lab_state, panel = a_panel(seconds=1)
    shown: list[tuple[float, dict]] = []
    lab_state.observe(lambda change: shown.append((time.monotonic(), change["new"])), "shown_stages")
    panel.redo()
    await until(lambda: lab_state.plan is not None and panel.real.search is None)
    assert shown[0][1].keys() == set(lab_state.topology.names)
    assert sorted(shown[0][1].values()) == sorted(list(range(4)) * 4)
    times = [at for at, stages in shown if stages]
    assert all(b - a >= SHOWN_S for a, b in itertools.pairwise(times))
    assert shown[-1][1] == {}


@on_a_loop
async def test_a_search_by_any_planner_stops_with_the_best_kept():
    lab_state, panel = a_panel(seconds=600)
    for planner in planners:
        panel.real.planner.value = planner
        panel.redo()
        assert lab_state.busy == ("plan",)
        await until(lambda planner=planner: planner in panel.real.curve.points)
        panel.end()
        await until(lambda planner=planner: lab_state.plan is not None and lab_state.plan.planner == planner)
        await until(lambda: panel.real.search is None)
    assert lab_state.busy == ()


@on_a_loop
async def test_the_median_of_the_population_is_drawn():
    lab_state, panel = a_panel(seconds=0.5, planner="dtfm")
    panel.redo()
    await until(lambda: lab_state.plan is not None)
    rows = panel.real.curve.points["dtfm"]
    assert (rows[-1, 4] >= rows[-1, 2]).all()


def test_settings_are_plain_and_come_back():
    _, panel = a_panel(planner="dtfm", seed=7, seconds=9)
    panel.job_controls.batch.value = 64
    panel.real.curve.against = "seconds"
    panel.mode.value = "Race"
    panel.race.seconds.value = 12
    panel.race.planners["exact"].value = True
    kept = json.loads(json.dumps(panel.settings()))
    _, other = a_panel()
    other.restore(kept)
    assert other.settings() == panel.settings()
    assert other.job_controls.shape.value == (4, 4)
    assert other.real.search is None
    assert other.race.search is None


def test_settings_that_are_not_possible_are_passed_over():
    _, panel = a_panel()
    before = panel.settings()
    for odd in (
        {},
        {"job": 3, "search": [], "race": None, "mode": "By hand"},
        {"job": {"job": "nobody's", "shape": [3, 3], "batch": -1}},
        {"search": {"planner": "luck", "seconds": -2, "seed": "x", "speed": 4, "against": "hope"}},
        {"race": {"planners": 5, "seconds": 1e9}, "unknown": 1},
    ):
        panel.restore(odd)
        assert panel.settings() == before


@pytest.mark.parametrize(
    ("wanted", "n_devices", "kept"),
    [
        ((8, 8), 64, (8, 8)),
        ((8, 8), 71, (8, 8)),
        ((8, 8), 72, None),
        ((8, 8), 63, (7, 8)),
        ((2, 2), 3, (1, 2)),
        ((1, 1), 0, None),
    ],
)
def test_a_plans_shape_stays_near_when_devices_come_and_go(wanted, n_devices, kept):
    job = replace(lab.load_job("dtfm-gpt3-xl"), n_stages=1, n_replicas=1)
    assert nearest_shape(job, wanted, n_devices) == kept


def test_a_device_that_is_gone_changes_the_shape_as_little_as_can_be():
    topology = irregular(64)
    job = Job.from_bytes(8, 8, 1e9, 5e8)
    lab_state = LabState(topology=topology)
    panel = PlanPanel(lab_state, job)
    lab_state.plan = lab.plan(topology, lab_state.job, seed=0, steps=1)
    lab_state.topology = topology.subset(topology.names[:63])
    assert panel.job_controls.shape.value in ((7, 8), (8, 7))
    assert panel.job_controls.shape.label.endswith("7 idle")
    lab_state.plan = lab.plan(lab_state.topology, lab_state.job, seed=0, steps=1)
    lab_state.topology = topology
    assert panel.job_controls.shape.value == (8, 8), "room for one more pipeline or group is not left idle"
    lab_state.plan = lab.plan(lab_state.topology, lab_state.job, seed=0, steps=1)
    lab_state.topology = topology.subset(topology.names[:63])
    lab_state.plan = lab.plan(lab_state.topology, lab_state.job, seed=0, steps=1)
    lab_state.topology = irregular(60)
    assert panel.job_controls.shape.value == (lab_state.plan.job.n_stages, lab_state.plan.job.n_replicas)
