"""The groups of a plan alone in a cell."""

import pytest

expect = pytest.importorskip("playwright.sync_api", reason="the browser tests need playwright").expect

GROUPS = """
from dtfm_lab.widgets.groups import GroupsView
plan = dict(
    groups=[{"stage": s, "devices": [f"d{2 * s}", f"d{2 * s + 1}"], "cost_s": 1.25} for s in range(3)],
    weights=[[0, 3.21, 5], [3.21, 0, 2], [5, 2, 0]],
    matchings=[[["d0", "d3", 3.21], ["d1", "d2", 0.5]], [["d2", "d4", 1], ["d3", "d5", 2]]],
)
groups = GroupsView()
groups
"""


def test_clicking_a_hop_opens_its_matching(page, open_notebook, ask_kernel, eventually):
    open_notebook(page, [GROUPS])
    page.get_by_text("No plan yet").wait_for(timeout=90_000)
    ask_kernel(page, "for name, value in plan.items(): setattr(groups, name, value)")
    page.locator(".dtfm-ring text").filter(has_text="2 devices · 1.25 s").first.wait_for()
    page.get_by_role("button", name="Stage 0 to stage 1, 3.21 s").locator(".hit").click()
    eventually(page, "groups.selected_edge", 0)
    expect(page.locator(".dtfm-matching .bottleneck")).to_have_text(["d0", "3.21 s", "d3"])
    ask_kernel(page, "groups.selected_edge = 1")
    page.get_by_text("Stage 1 to stage 2").wait_for()
    page.get_by_role("button", name="Stage 2 · 2 devices · 1.25 s").locator("circle").click()
    expect(page.locator(".dtfm-groups-side li")).to_have_text(["d4", "d5"])
    eventually(page, "groups.selected_edge", -1)
