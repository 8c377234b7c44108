"""Seconds against dollars: streamed, stopped, and a click that makes a plan the lab's."""

from __future__ import annotations

import pytest
from loops import on_a_loop, send, until

import dtfm_lab as lab

pytest.importorskip("anywidget", reason="needs the lab extra")

from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.planner.plan_panel import PlanPanel


def a_panel() -> tuple[LabState, PlanPanel]:
    lab_state = LabState(topology=lab.load_topology("mixed-gpus").with_typical_prices())
    panel = PlanPanel(lab_state, lab.load_job("tiny"))
    panel.mode.value = "Frontier"
    panel.frontier.seconds.value, panel.frontier.searches.value = 1.0, 3
    return lab_state, panel


@on_a_loop
async def test_a_click_on_a_point_makes_its_plan_the_labs():
    lab_state, panel = a_panel()
    panel.frontier.start.click()
    assert panel.real.start.disabled
    await until(lambda: panel.frontier.search is None)
    frontier = panel.frontier.frontier
    chart = panel.frontier.chart
    assert len(chart.points) == len(frontier.plans) > 0
    assert chart.bounds[-1][1] <= chart.points[0]["seconds"] * (1 + 1e-9)
    send(chart, {"kind": "choose", "point": len(frontier.plans) - 1})
    assert lab_state.plan is frontier.plans[-1]
    assert chart.chosen == len(frontier.plans) - 1
    assert chart.alt_text().endswith(frontier.sentence)
    send(chart, {"kind": "choose", "point": 99})
    assert lab_state.plan is frontier.plans[-1]


@on_a_loop
async def test_a_frontier_is_stopped_and_keeps_what_it_has():
    _, panel = a_panel()
    panel.frontier.seconds.value, panel.frontier.searches.value = 6.0, 200
    panel.frontier.start.click()
    panel.frontier.stop.click()
    assert panel.frontier.stop.disabled
    await until(lambda: panel.frontier.search is None)
    assert not panel.real.start.disabled


@on_a_loop
async def test_devices_without_prices_are_one_line():
    topology = lab.load_topology("campus")
    lab_state = LabState(topology=topology)
    panel = PlanPanel(lab_state, lab.load_job("gpt3-xl"))
    panel.frontier.start.click()
    assert "has a price" in lab_state.message
    assert panel.frontier.search is None
