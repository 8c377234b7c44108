"""The pane Course in the lab: found by its key, a mission is opened, helped with, checked and won."""

from playwright.sync_api import expect

START = """
import os, tempfile
os.environ["DTFM_LAB_PROGRESS"], os.environ["DTFM_LAB_READER"] = tempfile.mkdtemp(), "ada"
import dtfm_lab as lab
the_lab = lab.Lab("lecture-hall", autosave=False)
the_lab
"""
BYTES = """
given = lab.missions.given("half-and-half")
print(given.latency_ms * given.bandwidth_gbps * 1e6 / 8)
"""


def test_missions_are_opened_helped_with_and_won_in_the_lab(page, open_notebook, ask_kernel, eventually):
    open_notebook(page, [START])
    eventually(page, "the_lab.plan is not None", True)
    page.locator(".dtfm-effect-head .dtfm-tab").first.focus()
    page.keyboard.press("6")
    eventually(page, "the_lab.lab_state.pane", "course")
    board = page.locator(".dtfm-course")
    expect(board).to_contain_text("0 of")

    for lesson in ("The network", "Searching"):
        opened = board.locator("details", has_text=lesson)
        if opened.get_attribute("open") is None:  # that of the next mission is open already
            opened.locator("summary").click()
    number = board.locator("button[data-name=half-and-half]")
    number.focus()
    page.keyboard.press("Enter")
    expect(number).to_have_attribute("aria-expanded", "true")
    expect(number).to_be_focused()
    detail = board.get_by_role("region", name="Mission")
    detail.get_by_role("button", name="A hint (of").click()
    expect(detail.get_by_role("listitem")).to_have_count(1)
    expect(detail.get_by_role("button", name="Another hint")).to_be_focused()
    field = detail.get_by_role("textbox", name="Your answer")
    field.fill(ask_kernel(page, BYTES).strip())
    field.press("Enter")
    expect(detail.get_by_role("status")).to_contain_text("✓ Won")
    expect(board).to_contain_text("1 of")

    tour = board.locator("details", has_text="The tour")
    if tour.get_attribute("open") is None:
        tour.locator("summary").click()
    board.locator("button[data-name=one-left-the-hall]").click()
    detail.get_by_role("button", name="Check the plan").click()
    expect(detail.get_by_role("status")).to_contain_text("another network than")
    assert "planner" not in detail.locator("pre").inner_text()
    detail.get_by_role("button", name="Show the worked answer").click()
    expect(detail.locator("pre")).to_contain_text("lab.missions.check('one-left-the-hall', answer)")
