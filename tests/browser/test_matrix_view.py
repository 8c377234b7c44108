"""The matrix of links alone in a cell: real gestures in the page, and what Python holds after them."""

import pytest
from playwright.sync_api import expect

MATRIX = """
from dtfm_lab import load_topology
from dtfm_lab.widgets.network.document_conversion import document_of, topology_of
from dtfm_lab.widgets.network.drawing import Drawing
from dtfm_lab.widgets.network.matrix_editor import MatrixEditor

document = document_of(load_topology("lecture-hall"))
editor = MatrixEditor(Drawing(document))
matrix = editor.canvas
editor.show(topology_of(document))
matrix.drawing.observe(lambda change: editor.show(topology_of(change["new"])), "document")
def speed(source, target):
    latency, bandwidth = matrix.topology.to_matrices()
    return round(float(latency.loc[source, target]), 6), round(float(bandwidth.loc[source, target]), 6)
editor.view
"""


class MatrixPage:
    """Where cells are in the first matrix of the page."""

    def __init__(self, page):
        self.page = page
        self.box = page.locator(".dtfm-matrix .dtfm-box").first
        self.box.locator("canvas").first.wait_for()
        self.box.scroll_into_view_if_needed()
        page.wait_for_function("() => document.querySelector('.dtfm-matrix').whereIs?.(0, 1)")
        page.wait_for_timeout(300)

    def cell(self, row, column):
        x, y = self.page.evaluate("(at) => document.querySelector('.dtfm-matrix').whereIs(...at)", [row, column])
        box = self.box.bounding_box()
        return box["x"] + x, box["y"] + y

    def click(self, row, column):
        self.page.mouse.click(*self.cell(row, column))


@pytest.fixture
def matrix(page, open_notebook):
    open_notebook(page, [MATRIX])
    return MatrixPage(page)


def test_a_cell_is_told_selected_and_edited(page, matrix, eventually):
    page.mouse.move(*matrix.cell(0, 4))
    expect(page.locator(".dtfm-matrix .dtfm-tooltip")).to_have_text(
        "ada → edsger: 8 ms, 0.1 Gbit/s (as any other pair)"
    )
    matrix.click(0, 4)
    eventually(page, "(matrix.drawing.selected_link, matrix.picked)", (["ada", "edsger"], [0, 4, 0, 4]))
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.activeElement.tagName === 'INPUT'")
    page.keyboard.press("Control+a")
    page.keyboard.type("21")
    page.keyboard.press("Enter")
    eventually(page, "(speed('ada', 'edsger'), speed('edsger', 'ada'))", ((21.0, 0.1), (21.0, 0.1)))
    page.mouse.move(*matrix.cell(4, 0))
    expect(page.locator(".dtfm-matrix .dtfm-tooltip")).to_have_text("edsger → ada: 21 ms, 0.1 Gbit/s (its own link)")
    matrix.click(4, 0)
    page.keyboard.press("Control+z")
    eventually(page, "speed('ada', 'edsger')", (8.0, 0.1))


def test_a_drag_selects_a_rectangle_arrow_keys_move_and_python_selects(page, matrix, ask_kernel, eventually):
    page.mouse.move(*matrix.cell(1, 5))
    page.mouse.down()
    page.mouse.move(*matrix.cell(3, 6), steps=5)
    page.mouse.up()
    eventually(page, "(matrix.picked, len(matrix.picked_links()))", ([1, 5, 3, 6], 6))
    matrix.click(1, 3)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    eventually(page, "matrix.drawing.selected_link", ["edsger", "claude"])
    page.keyboard.press("Shift+ArrowLeft")
    eventually(page, "matrix.picked", [4, 3, 4, 2])
    page.keyboard.press("b")
    eventually(page, "(matrix.shows, editor.shows.value)", ("bandwidth", "bandwidth"))
    assert page.locator(".jp-CodeCell").count() == 1, "typing in the matrix is not typing in the notebook"
    ask_kernel(page, "matrix.drawing.selected_link = ['grace', 'ada']")
    expect(page.locator(".dtfm-matrix .dtfm-caption")).to_contain_text("grace → ada: ")
    ask_kernel(page, "editor.show(None)")
    expect(page.locator(".dtfm-matrix .dtfm-empty")).to_be_visible()


def test_256_devices_are_drawn_pointed_at_and_zoomed(page, open_notebook):
    big = """
import numpy as np
from dtfm_lab import Topology
from dtfm_lab.widgets.network.matrix_editor import MatrixEditor
from dtfm_lab.widgets.network.document_conversion import document_of
from dtfm_lab.widgets.network.drawing import Drawing
regions = [["Oslo", "Lima", "Perth", "Delhi"][at // 64] for at in range(256)]
apart = np.not_equal.outer(regions, regions)
topology = Topology.from_matrices(np.where(apart, 80.0, 2.0), np.where(apart, 0.5, 10.0), regions=regions)
editor = MatrixEditor(Drawing(document_of(topology)))
editor.show(topology)
editor.view
"""
    open_notebook(page, [big])
    matrix = MatrixPage(page)
    assert page.evaluate("document.querySelector('.dtfm-matrix').dataset.cells") == "65536"
    page.mouse.move(*matrix.cell(3, 200))
    told = "device-3 → device-200: 80 ms, 0.5 Gbit/s (as any other pair)"
    expect(page.locator(".dtfm-matrix .dtfm-tooltip")).to_have_text(told)
    page.evaluate("document.querySelector('.dtfm-matrix').focus({ preventScroll: true })")
    one, next_one = matrix.cell(3, 200), matrix.cell(3, 201)
    for _ in range(4):
        page.keyboard.press("+")
    page.wait_for_timeout(200)
    wider = matrix.cell(3, 201)[0] - matrix.cell(3, 200)[0]
    assert wider > 3 * (next_one[0] - one[0])
