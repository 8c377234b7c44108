"""Residuals alone in a cell: sorted, chosen, and bars on the right side of zero."""

import pytest
from playwright.sync_api import expect

RESIDUALS = """
from dtfm_lab.widgets.views.residuals import ResidualsView
def row(name, predicted_s, measured_s, suspect=False):
    error_s = measured_s - predicted_s
    return {"id": name, "label": name.replace("->", "→"), "predicted_s": predicted_s, "measured_s": measured_s,
            "error_s": error_s, "low_s": error_s - 0.01, "high_s": error_s + 0.01, "relative": error_s / predicted_s,
            "second_s": 2 * error_s, "hue": "forward", "stage": -1, "suspect": suspect}
links = [row("a -> b", 0.1, 0.2, True), row("b -> c", 0.15, 0.1), row("c -> <b>", 0.3, 0.29)]
chosen = []
residuals = ResidualsView(chosen.append, tables=[
    {"key": "links", "name": "Links", "noun": "link", "own": "longer", "second": "later", "count": 3, "rows": links},
    {"key": "devices", "name": "Devices", "noun": "device", "own": "longer", "second": "", "count": 1,
     "rows": [row("ada", 1.0, 2.0) | {"stage": 0, "second_s": None}]},
])
residuals
"""


def test_rows_are_sorted_chosen_and_drawn_on_their_side_of_zero(page, open_notebook, ask_kernel, eventually):
    open_notebook(page, [RESIDUALS])
    view = page.locator(".dtfm-residuals").first
    names = view.locator("tbody th")
    expect(names).to_have_text(["a → b", "b → c", "c → <b>"])
    zero = view.locator(".dtfm-residuals-zero").first.bounding_box()["x"]
    short, long = (view.locator(f".dtfm-residuals-{side}").first.bounding_box() for side in ("short", "long"))
    assert short["x"] + short["width"] <= zero + 1.5
    assert long["x"] >= zero - 1.5
    assert long["width"] == pytest.approx(2 * short["width"], rel=0.05)
    expect(view.locator("tbody tr").first).to_contain_text("+100 %")
    expect(view.locator(".dtfm-residuals-suspect")).to_have_count(1)

    view.get_by_role("button", name="measured", exact=True).click()
    expect(names).to_have_text(["c → <b>", "a → b", "b → c"])
    eventually(page, "(residuals.sort_by, residuals.descending)", ("measured_s", True))
    view.get_by_role("button", name="measured").first.click()
    expect(names).to_have_text(["b → c", "a → b", "c → <b>"])
    expect(view.locator("th[aria-sort=ascending]")).to_contain_text("measured")

    view.locator("tbody tr").nth(1).click()
    eventually(page, "chosen", ["a -> b"])
    view.get_by_role("button", name="a → b").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    eventually(page, "chosen[1:]", ["c -> <b>"])
    ask_kernel(page, "residuals.selected = ['c -> <b>']")
    expect(view.get_by_role("button", name="c → <b>")).to_have_attribute("aria-pressed", "true")

    view.get_by_role("tab", name="Devices").click()
    eventually(page, "residuals.table", "devices")
    page.evaluate("document.addEventListener('dtfm-shine', ({ detail }) => { window.lit = detail.what; })")
    view.locator("tbody tr").first.click()
    eventually(page, "chosen[2:]", ["ada"])
    page.mouse.move(0, 0)
    view.locator("tbody tr").first.hover()
    page.wait_for_function("() => window.lit?.devices?.[0] === 'ada'")
    ask_kernel(page, "residuals.tables = []")
    expect(view).to_contain_text("Nothing to compare yet")
    page.wait_for_function("() => window.lit === null")  # what is pointed at ends with the row, which nobody has left
