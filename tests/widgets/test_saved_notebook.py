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


@pytest.mark.parametrize("is_lab", [True, False])
def test_an_output_holds_the_widget_a_line_and_that_of_the_lab_a_picture(is_lab):
    worldwide = lab.load_topology("worldwide")
    data = shown(lab.Lab(worldwide, autosave=False) if is_lab else MapView(document=document_of(worldwide)))
    assert VIEW in data
    assert data.get("image/svg+xml", "").startswith("<svg") == is_lab
    assert "\n" not in data["text/plain"]
    json.dumps(data)


def test_nbconvert_shows_the_picture_where_no_widget_state_was_saved():
    output = nbformat.v4.new_output("display_data", data=shown(lab.Lab("lecture-hall", autosave=False)))
    cell = nbformat.v4.new_code_cell("lab.Lab('lecture-hall')", outputs=[output])
    page, _ = nbconvert.HTMLExporter().from_notebook_node(nbformat.v4.new_notebook(cells=[cell]))
    pictures = re.findall(r'<img[^>]*src="data:image/svg\+xml;base64,([^"]+)', page)
    assert any("lecture-hall: 8 devices" in base64.b64decode(picture).decode() for picture in pictures)
