"""The groups of a plan alone in a cell: selected, stepped through, dragged."""

import re

from playwright.sync_api import expect

GROUPS = """
from dtfm_lab.widgets.views.groups import GroupsView
plan = dict(
    groups=[{"stage": s, "devices": [f"d{2 * s}", f"d{2 * s + 1}"], "cost_s": 1.25} for s in range(3)],
    weights=[[0, 3.21, 5], [3.21, 0, 2], [5, 2, 0]],
    matchings=[[["d0", "d3", 3.21], ["d1", "d2", 0.5]], [["d2", "d4", 1], ["d3", "d5", 2]]],
)
groups = GroupsView(mode="ring")
groups
"""
PANEL = """
import dtfm_lab as lab
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.groups import GroupsPanel
topology = lab.load_topology("lecture-hall")
names = topology.names
job = lab.load_job("tiny", n_stages=3, n_replicas=2)
the_lab = LabState()
panel = GroupsPanel(the_lab)
panel.view
"""
PLAN = "plan = the_lab.plan = lab.evaluate(topology, job, stages=[names[0:2], names[2:4], names[4:6]])"


def middle(page, selector):
    """Where the middle of an element is, once it has stopped gliding."""
    element, box = page.locator(selector), None
    while (now := element.bounding_box()) != box:
        box = now
        page.wait_for_timeout(300)
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def drag(page, start, end):
    page.mouse.move(*start)
    page.mouse.down()
    page.mouse.move(*end, steps=8)


def test_clicking_a_hop_opens_its_matching(page, open_notebook, ask_kernel, eventually):
    open_notebook(page, [GROUPS])
    page.get_by_text("No plan yet").wait_for()
    ask_kernel(page, "for name, value in plan.items(): setattr(groups, name, value)")
    page.get_by_role("button", name="Stage 0 to stage 1, 3.21 s").locator(".hit").click()
    eventually(page, "groups.selected_edge", 0)
    expect(page.locator(".dtfm-matching .pair.bottleneck > div")).to_have_text(["d0", "3.21 s", "d3"])
    ask_kernel(page, "groups.selected_edge = 1")
    page.get_by_text("Stage 1 to stage 2 · 2 s").wait_for()
    page.get_by_role("button", name="Stage 2 · 2 devices · 1.25 s").locator("circle").click()
    expect(page.locator(".dtfm-groups-side li")).to_have_text(["d4", "d5"])
    eventually(page, "groups.selected_edge", -1)
    eventually(page, "groups.selected", ["d4", "d5"])


def test_a_person_drags_a_device_to_another_group_and_takes_it_back(page, open_notebook, ask_kernel, eventually):
    open_notebook(page, [PANEL])
    page.locator(".dtfm-groups .dtfm-empty", has_text="No plan yet").wait_for()
    ask_kernel(page, PLAN)
    path = page.locator(".dtfm-path")
    expect(path.locator(".column")).to_have_count(4)  # three groups and the idle ones
    expect(path.locator(".hop")).to_have_count(2)
    first, other = ask_kernel(page, "print(plan.stages[0][0], plan.stages[2][1])").split()
    start = middle(page, f'.dtfm-path [data-device="{first}"]')
    end = middle(page, f'.dtfm-path [data-device="{other}"]')
    drag(page, start, middle(page, '.column[data-stage="2"] .head'))
    expect(path.locator(".column.target")).to_have_attribute("data-stage", "2")
    expect(path.locator('.column[data-stage="0"] .price')).to_have_text("here")
    expect(path.locator('.column[data-stage="2"] .price')).to_have_text(re.compile(r"^(same|[+−].* m?s)$"))
    expect(path.locator(".dtfm-path-told")).to_contain_text(f"if {first} and ")
    page.mouse.move(*end, steps=4)
    expect(path.locator(".dtfm-path-told")).to_contain_text(f"if {first} and {other} swap places")
    page.mouse.up()
    eventually(page, f"{first!r} in the_lab.plan.stages[2] and {other!r} in the_lab.plan.stages[0]", True)
    page.get_by_text(f"You swapped {first} and {other}").wait_for()
    page.locator(".dtfm-groups-panel button[title^='Undo: ']").click()
    eventually(page, "the_lab.plan is plan", True)

    page.mouse.click(*middle(page, f'.dtfm-path [data-device="{first}"]'))
    eventually(page, "the_lab.selected", (first,))
    page.get_by_role("button", name="Why?", exact=True).click()
    expect(page.locator(".dtfm-why")).to_contain_text(f"{first} serves stage 0")
    page.get_by_role("button", name="Why?", exact=True).click()
    page.get_by_role("button", name="Move …", exact=True).click()
    page.locator(".dtfm-groups-panel button", has_text=re.compile(r"^\s*Move\s*$")).click()
    eventually(page, "the_lab.plan is not plan", True)
    page.get_by_role("button", name="Move …", exact=True).click()
    page.locator(".dtfm-groups").focus()
    page.keyboard.press("Control+z")
    eventually(page, "the_lab.plan is plan", True)

    path.locator(f'[data-device="{first}"]').focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    eventually(page, "the_lab.selected == (plan.stages[1][0],)", True)
    path.locator(".hop").nth(1).click()
    eventually(page, "panel.groups.selected_edge", 1)
    eventually(page, "the_lab.selected_link == tuple(panel.groups.matchings[1][0][:2])", True)
    expect(page.locator(".dtfm-matching .pair")).to_have_count(2)
    path.locator('.column[data-stage="1"] .head').click()
    eventually(page, "the_lab.selected_stage", 1)


def test_a_person_walks_through_the_papers_steps(page, open_notebook, ask_kernel, eventually):
    open_notebook(page, [PANEL])
    ask_kernel(page, PLAN)
    page.get_by_role("button", name="Ring", exact=True).click()
    page.get_by_role("button", name="(a)", exact=True).click()
    eventually(page, "panel.groups.step", "a")
    expect(page.locator(".dtfm-step-told")).to_contain_text("8 devices and 56 directed links")
    page.get_by_role("button", name="(b)", exact=True).click()
    eventually(page, "panel.groups.step", "b")
    expect(page.locator(".dtfm-step-told")).to_contain_text("sets the data-parallel cost")
    first, other = ask_kernel(page, "print(plan.stages[0][0], plan.stages[2][1])").split()
    start = middle(page, f'.dtfm-steps [data-device="{first}"] circle')
    drag(page, start, middle(page, '.dtfm-steps [data-stage="2"] .mark'))
    expect(page.locator(".dtfm-offer b")).to_have_count(3)  # two groups and the idle ones
    expect(page.locator(".dtfm-offer.target i")).to_contain_text("with ")
    page.mouse.move(*middle(page, f'.dtfm-steps [data-device="{other}"] circle'), steps=4)
    expect(page.locator(".dtfm-groups .dtfm-tooltip")).to_contain_text(f"with {other}: ")
    page.mouse.up()
    eventually(page, f"{first!r} in the_lab.plan.stages[2]", True)
    page.get_by_role("button", name="Weights", exact=True).click()
    eventually(page, "panel.groups.mode", "weights")
    expect(page.locator(".dtfm-groups[data-matrix='true']")).to_be_visible()


TWO_KEYS = """(matrix) => {
    for (const _ of [1, 2]) matrix.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true }));
}"""
"""Two keys between two frames, as they come on a busy machine."""


def test_more_than_sixteen_groups_are_a_matrix(page, open_notebook, ask_kernel, eventually):
    many = (
        "import numpy as np, dtfm_lab as lab\n"
        "from dtfm_lab.widgets.views.groups import GroupsView\n"
        "rng = np.random.default_rng(0)\n"
        "topology = lab.Topology.from_matrices(rng.uniform(5, 200, (40, 40)), rng.uniform(0.3, 5, (40, 40)))\n"
        "job = lab.Job.from_bytes(20, 2, gradient_bytes=1e8, activation_bytes=1e8)\n"
        "groups = GroupsView(mode='ring')\n"
        "groups.show(lab.evaluate(topology, job, stages=np.arange(40).reshape(20, 2).tolist()))\n"
        "groups"
    )
    open_notebook(page, [many])
    matrix = page.locator(".dtfm-groups-matrix")
    page.wait_for_selector(".dtfm-groups[data-matrix='true']")
    matrix.focus()
    matrix.evaluate(TWO_KEYS)
    eventually(page, "groups.selected_edge", 1)
    page.keyboard.press("ArrowRight")
    eventually(page, "groups.selected_edge", 2)
    expect(page.locator(".dtfm-matching .pair")).to_have_count(2)
    ask_kernel(page, "groups.step = 'b'")
    expect(matrix).to_be_hidden()
    expect(page.locator(".dtfm-steps .node")).to_have_count(20)
