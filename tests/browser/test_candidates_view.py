"""The table of schedules alone in a cell."""

from playwright.sync_api import expect

CANDIDATES = """
from dtfm_lab.widgets.views.candidates import CandidatesView
table = CandidatesView(chosen="gpipe", caption="click a row", rows=[
    {"name": "gpipe", "iteration_s": 2.0, "bubble": 0.5, "memory": "54.8 GiB of 16 GiB on ada", "fits": False},
    {"name": "1f1b", "iteration_s": 2.5, "bubble": 0.6, "memory": "7.1 GiB of 16 GiB on ada", "fits": True},
    {"name": "zb-h1"},
    {"name": "interleaved-1f1b", "problem": "micro-batches do not divide <b>"},
])
table
"""


def test_a_schedule_is_chosen_from_the_table_by_mouse_and_by_keyboard(page, open_notebook, ask_kernel, eventually):
    open_notebook(page, [CANDIDATES])
    view = page.locator(".dtfm-candidates").first
    view.wait_for()
    rows = view.get_by_role("row")
    expect(rows).to_have_count(5)
    expect(rows.nth(1)).to_contain_text("no")
    expect(rows.nth(2)).to_contain_text("2.5 s · fastest that fits")
    expect(rows.nth(4)).to_contain_text("micro-batches do not divide <b>")
    rows.nth(2).get_by_text("60.0 %").click()
    eventually(page, "table.chosen", "1f1b")
    expect(view.get_by_role("button", name="1f1b", exact=True)).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("Tab")
    view.get_by_role("button", name="gpipe").focus()
    page.keyboard.press("Enter")
    eventually(page, "table.chosen", "gpipe")
    expect(view.get_by_role("button", name="gpipe")).to_be_focused()
    ask_kernel(page, "table.stale = True")
    view.get_by_text("compare again").wait_for()
