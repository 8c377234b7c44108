"""The topology editor: devices, regions and links drawn by hand."""

import copy
from pathlib import Path

import anywidget
import traitlets

STATIC = Path(__file__).parent / "static"

EMPTY_DOCUMENT = {
    "name": "untitled",
    "devices": [],
    "regions": [],
    "between": [],
    "links": [],
    "default": {"latency_ms": 50.0, "bandwidth_gbps": 1.0},
}


class TopologyEditor(anywidget.AnyWidget):
    """Draws and edits a topology document; every gesture sets ``document`` once.

    The document is in screen units (ms, Gbit/s). What it means, and whether it is valid, is for
    whoever observes it to say, in ``problem`` and ``summary``.
    """

    _esm = STATIC / "editor.js"
    _css = STATIC / "editor.css"

    document = traitlets.Dict().tag(sync=True)
    gpus = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """what a device may be; the first is what a new device gets"""
    problem = traitlets.Unicode("").tag(sync=True)
    """one line on what is wrong with the document; empty if nothing is"""
    summary = traitlets.Unicode("").tag(sync=True)
    """shown when there is no problem"""
    highlight = traitlets.Dict().tag(sync=True)
    """{"stages": {device: stage}} marks devices with their stage; {} marks none"""
    selected = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """names of the selected devices"""
    height = traitlets.Int(420).tag(sync=True)

    @traitlets.default("document")
    def _empty_document(self) -> dict:
        return copy.deepcopy(EMPTY_DOCUMENT)
