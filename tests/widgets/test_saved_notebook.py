"""A saved notebook without a kernel: what GitHub, nbviewer and nbconvert have to show."""

import base64
import json
import re

import pytest

pytest.importorskip("anywidget", reason="needs the lab extra")
pytest.importorskip("nbconvert", reason="needs JupyterLab's nbconvert")

import nbconvert
import nbformat

import dtfm_lab as lab
from dtfm_lab.widgets import MapView
from dtfm_lab.widgets.network.document_conversion import document_of

VIEW = "application/vnd.jupyter.widget-view+json"


def shown(widget):
    """The data that the kernel sends for the last line of a cell, as JupyterLab saves it."""
    bundle = widget._repr_mimebundle_()
    return bundle[0] if isinstance(bundle, tuple) else bundle


@pytest.mark.parametrize(
    "make",
    [
        lambda: lab.Lab("lecture-hall", autosave=False),
        lambda: MapView(document=document_of(lab.load_topology("worldwide"))),
    ],
    ids=["lab", "view"],
)
def test_an_output_holds_the_widget_a_picture_and_a_line(make):
    data = shown(make())
    assert VIEW in data
    assert data["image/svg+xml"].startswith("<svg")
    assert "\n" not in data["text/plain"]
    json.dumps(data)


def test_nbconvert_shows_the_picture_where_no_widget_state_was_saved():
    output = nbformat.v4.new_output("display_data", data=shown(lab.Lab("lecture-hall", autosave=False)))
    cell = nbformat.v4.new_code_cell("lab.Lab('lecture-hall')", outputs=[output])
    page, _ = nbconvert.HTMLExporter().from_notebook_node(nbformat.v4.new_notebook(cells=[cell]))
    pictures = re.findall(r'<img[^>]*src="data:image/svg\+xml;base64,([^"]+)', page)
    assert any("ada" in base64.b64decode(picture).decode() for picture in pictures)
