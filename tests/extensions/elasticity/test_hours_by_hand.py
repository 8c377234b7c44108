"""The time line of the pane Hours: an edit is replayed as the availability that it is, and can be taken back."""

from __future__ import annotations

import pytest
from loops import send, until

import dtfm_lab as lab
from dtfm_lab.extensions.elasticity import pane as hours
from dtfm_lab.extensions.elasticity.availability import Availability
from dtfm_lab.extensions.elasticity.pane import HoursPanel, time_line
from dtfm_lab.widgets.lab_state import LabState

HERE = Availability.from_intervals({"a": [(0, 50)], "b": [(10, 40), (60, 100)]}, 100)


async def at_rest(panel: HoursPanel) -> None:
    await until(lambda: not panel._asked.is_running and not panel._asked.waits)


@pytest.fixture
def a_panel(monkeypatch) -> HoursPanel:
    monkeypatch.setattr(hours, "policies", ("goodput", "restart"))
    panel = HoursPanel(LabState(topology=lab.load_topology("lecture-hall"), job=lab.load_job("small")))
    panel.hours.value = 2
    return panel


def intervals(here: Availability) -> list[time_line.Stay]:
    return time_line.stays_of(here)


def test_stays_say_who_is_there_when_and_make_the_same_availability() -> None:
    assert intervals(HERE) == [(0, 0, 50), (1, 10, 40), (1, 60, 100)]
    assert time_line.edited(HERE, intervals(HERE)).changes == HERE.changes


def test_a_device_leaves_or_comes_and_an_end_is_removed() -> None:
    stays = intervals(HERE)
    assert sorted(time_line.toggled(stays, 0, 20, 100))[0] == (0, 0, 20)
    assert (0, 70, 100) in time_line.toggled(stays, 0, 70, 100)
    assert (1, 45, 60) in time_line.toggled(stays, 1, 45, 100), "it stays to its next coming"
    joined = time_line.edited(HERE, time_line.removed(stays, 1, 100, leaves=True))
    assert intervals(joined) == [(0, 0, 50), (1, 10, 100)], "stays that touch are one"
    assert (1, 0, 40) in time_line.removed(stays, 1, 100, leaves=False)


async def test_dragging_a_departure_is_replaying_the_edited_availability(a_panel) -> None:
    panel, line = a_panel, a_panel.time_line.line
    panel.start.click()
    await at_rest(panel)
    recorded = panel.histories
    stays = [list(stay) for stay in line.stays]
    index = next(at for at, (_, _, end_s) in enumerate(stays) if end_s < line.end_s)
    send(line, {"kind": "stays", "stays": stays, "phase": "begin"})
    for phase, share in (("move", 0.7), ("end", 0.5)):
        stays[index][2] = stays[index][1] + share * (stays[index][2] - stays[index][1])
        send(line, {"kind": "stays", "stays": stays, "phase": phase})
    await at_rest(panel)
    edited = panel.time_line.edited
    assert edited is not None
    assert edited.name == "edited"
    assert [list(stay) for stay in intervals(edited)] == stays == line.stays
    for one in panel.histories:
        made = lab.replay(panel._lab_state.topology, panel._lab_state.job, edited, one.policy)
        assert (one.samples, one.seconds) == (made.samples, made.seconds)
    panel.time_line.undo.click()
    await at_rest(panel)
    assert (panel.time_line.edited, panel.histories) == (None, recorded)
    send(line, {"kind": "toggle", "device": 0, "time_s": 3000.0})
    assert panel.time_line.edited is not None
    panel.time_line.back.click()
    await at_rest(panel)
    assert panel.histories == recorded


async def test_the_network_shows_who_is_there_at_the_moment_that_is_pointed_at(a_panel) -> None:
    panel, state = a_panel, a_panel._lab_state
    panel.start.click()
    await at_rest(panel)
    panel.time_line.line.moment_s = 5000.0
    one = panel.history
    there = one.availability.present_at(5000.0)
    assert set(state.moment["absent"]) == set(state.topology.names) - set(there)
    assert f"{len(there)} online" in panel.time_line.line.said
    assert set(state.moment["tasks"]) <= set(there)
    state.selected = (there[0],)
    panel.time_line.toggle.click()
    await at_rest(panel)
    assert there[0] in state.moment["absent"]
    state.shown_panes = ("schedule",)
    assert state.moment == {}
