"""A first visit: the door opens by itself, and its tour is walked to the end, or left and taken up again."""

import re

import pytest
from lab_page import LabPage

expect = pytest.importorskip("playwright.sync_api", reason="the browser tests need playwright").expect

N_STEPS = 6
STEP_MS = 180_000
"""Patience with a step, of which one trains for real."""
PLACED = """() => {
    const [card, ring] = [".dtfm-tour", ".dtfm-tour-ring"].map((one) => document.querySelector(one));
    const inside = (edge, end) => edge >= -1 && end <= 1;
    const lab = document.querySelector(".dtfm-lab").getBoundingClientRect(), at = card.getBoundingClientRect();
    return {
        ring: !ring.hidden && ring.getBoundingClientRect().width > 0,
        inLab: inside(at.left - lab.left, at.right - lab.right) && inside(at.top - lab.top, at.bottom - lab.bottom),
    };
}"""
"""Whether something is ringed, and whether the card lies in the lab."""


def visit(page, open_notebook, size):
    page.set_viewport_size({"width": size[0], "height": size[1]})
    open_notebook(page, ["import dtfm_lab as lab\nthe_lab = lab.Lab(autosave=False)\nthe_lab"])
    lab = LabPage(page, f"tour-{size[0]}")
    door = page.get_by_role("dialog", name="Open a network")
    door.wait_for()
    return lab, door, page.get_by_role("dialog", name="Tour")


@pytest.mark.parametrize(("size", "theme"), [((1440, 900), "light"), ((1100, 800), "dark")])
def test_all_six_steps_do_something_and_the_card_stays_in_the_lab(
    page, open_notebook, ask_kernel, eventually, set_theme, size, theme
):
    lab, door, card = visit(page, open_notebook, size)
    set_theme(page, theme)
    door.get_by_role("button", name=re.compile("^Close")).click()
    lab.whole_window()
    lab.press_next("Open a network")
    door.get_by_role("button", name=re.compile("^Show me")).click()
    eventually(page, "the_lab.plan is not None and the_lab.predicted is not None", True)
    for number in range(1, N_STEPS + 1):
        expect(card.get_by_text(f"{number} of {N_STEPS}")).to_be_visible()
        page.wait_for_timeout(700)  # the card looks for its target, which may come a moment later
        found = page.evaluate(PLACED)
        assert found == {"ring": True, "inLab": True}, f"step {number}: {found}"
        lab.keep(f"step-{number}")
        act = card.locator("footer button.dtfm-primary:visible").first
        if act.inner_text() not in ("Next", "Finish"):
            act.click()
        onward = card.get_by_role("button", name="Finish" if number == N_STEPS else "Next", exact=True)
        expect(onward).to_have_class(re.compile("dtfm-primary"), timeout=STEP_MS)
        lab.keep(f"step-{number}-done")
        onward.click()
    expect(card).to_be_hidden()
    eventually(page, "the_lab.measured is not None and the_lab.comparison is not None", True)


def test_it_can_be_left_and_taken_up_where_it_was(page, open_notebook, ask_kernel, eventually):
    _, door, card = visit(page, open_notebook, (1440, 900))
    door.get_by_role("button", name=re.compile("^Show me")).click()
    eventually(page, "the_lab.plan is not None", True)
    card.get_by_role("button", name="Skip").click()
    expect(card.get_by_text(f"2 of {N_STEPS}")).to_be_visible()
    card.focus()
    page.keyboard.press("Escape")
    expect(card).to_be_hidden()
    ask_kernel(page, "the_lab.tour.start()")
    expect(card.get_by_text(f"2 of {N_STEPS}")).to_be_visible()


def test_a_door_that_was_closed_stays_closed(page, open_notebook, eventually):
    _, door, _ = visit(page, open_notebook, (1440, 900))
    page.keyboard.press("Escape")
    expect(door).to_be_hidden()
    open_notebook(page, ["import dtfm_lab as lab\nthe_lab = lab.Lab(autosave=False)\nthe_lab"])
    page.locator(".dtfm-lab .dtfm-bar").wait_for()
    eventually(page, "the_lab.door.offered", True)
    page.wait_for_timeout(800)
    expect(door).to_be_hidden()
