"""Tabs with pages: which pane stands where, what the page switches by itself, and what is offered when."""

from __future__ import annotations

import pytest
from loops import until

import dtfm_lab as lab
from dtfm_lab.widgets.controls import Panel
from dtfm_lab.widgets.shell.panes import SYSTEMS, TABS, LabStep
from dtfm_lab.widgets.shell.workspace import restore_state, state_of


def a_lab(**options: object) -> lab.Lab:
    return lab.Lab("lecture-hall", autosave=False, live=False, **options)


def tabs_of(the_lab: lab.Lab) -> dict[str, list[str]]:
    """The pages of each tab, as the page of the lab is told."""
    found: dict[str, list[str]] = {}
    for pane in the_lab.panes.tabs.tabs:
        found.setdefault(pane["tab"] or pane["title"], []).append(pane["name"])
    return found


def test_the_labs_own_panes_stand_under_six_tabs_in_their_order() -> None:
    found = tabs_of(a_lab())
    assert [tab for tab in found if tab in TABS] == [tab for tab in TABS if tab in found]
    assert found["Plan"] == ["schedule", "groups"]
    assert found["What if"] == ["what-if", "worth"]
    assert not set(found) - set(TABS), "nothing of the lab has a tab beside the six"


def test_a_pane_of_a_plug_in_has_a_tab_after_the_six_or_is_a_page_of_one() -> None:
    own, page = LabStep("mine", Panel(), "Mine"), LabStep("more", Panel(), "More", tab=SYSTEMS)
    steps = sorted([own, page, *a_lab().steps], key=lambda step: step.order)
    assert steps[-1] is own
    assert [step for step in steps if step.tab == SYSTEMS][-1] is page


def test_a_comparison_is_offered_once_something_is_measured() -> None:
    the_lab = a_lab()
    plan = lab.plan(the_lab.topology, the_lab.job, seed=0, steps=1)
    the_lab.lab_state.plan = plan
    assert tabs_of(the_lab)["Run"] == ["run"]
    the_lab.lab_state.measured = lab.simulate(plan)
    assert tabs_of(the_lab)["Run"] == ["run", "compare"]


def test_the_page_switches_by_styles_of_every_pane_and_python_follows() -> None:
    the_lab = a_lab()
    panes = the_lab.panes
    assert all(f'data-panes~="{step.name}"' in panes.css for step in the_lab.steps)
    panes.tabs.value = "groups"  # as the page does
    assert the_lab.lab_state.pane == panes.tabs.heard == "groups"
    panes.split.value = True
    assert the_lab.lab_state.shown_panes == ("groups", "schedule")
    the_lab.show_pane("words")
    assert the_lab.lab_state.shown_panes == ("words", "groups"), "what was shown goes below"


async def test_every_pane_is_on_the_page_soon_so_that_switching_needs_no_python() -> None:
    the_lab = a_lab()
    boxes = the_lab.panes._boxes
    assert [name for name, box in boxes.items() if box.children] == ["schedule"]
    the_lab.panes.tabs.received({"kind": "rendered"}, [])
    await until(lambda: all(box.children for box in boxes.values()))


@pytest.mark.parametrize("pane", ["schedule", "groups", "plan", "what-if", "run", "compare"])
def test_a_saved_lab_opens_on_the_pane_it_was_saved_with(pane: str, tmp_path) -> None:
    one, other = a_lab(), a_lab()
    one.show_pane(pane)
    state = state_of(one.lab_state, one.panels)
    restore_state(state, other.lab_state, other.panels)
    assert other.lab_state.pane == ("run" if pane == "compare" else pane), "a comparison of nothing is an empty page"
