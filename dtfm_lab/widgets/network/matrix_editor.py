"""The matrix of links, with fields for what is selected in it."""

import re
from collections import Counter
from collections.abc import Sequence
from functools import partial
from html import escape
from typing import Any

import numpy as np

from dtfm_lab.domain.errors import LabError, TopologyError
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.options import Option
from dtfm_lab.domain.units import counted, to_gbps, to_ms
from dtfm_lab.widgets import quiet as w
from dtfm_lab.widgets.controls import checkbox, classed, labelled, segments, toolbar
from dtfm_lab.widgets.lab_state import Guard
from dtfm_lab.widgets.network.drawing import Document, Drawing
from dtfm_lab.widgets.network.links import Pair, set_links
from dtfm_lab.widgets.views.matrix import BANDWIDTH, LATENCY, MatrixView

QUANTITIES = {
    LATENCY: Option(name="latency", help="Latency one way, in milliseconds", unit="ms", type=float, least=0),
    BANDWIDTH: Option(name="bandwidth", help="Bandwidth in Gbit/s", unit="Gbit/s", type=float, above=0),
}
"""Unit and valid range of the number typed for the selected links, for each quantity of the matrix."""
WIDTHS = {LATENCY: ("74px", "20px"), BANDWIDTH: ("98px", "42px")}
NOTHING_SELECTED = "Click a cell to edit the link from its row to its column. Drag to select many."


class MatrixEditor:
    """``view`` shows a drawing's links as a matrix and edits them. ``canvas`` is the matrix alone.

    A typed number applies at once to the selected links. Each of them then has its own line in the document.
    """

    def __init__(self, drawing: Drawing, *, height: int = 520) -> None:
        """``height`` is the matrix's height in pixels. 0 fills the parent element."""
        self._drawing = drawing
        self._is_showing = Guard()
        self.canvas = MatrixView(drawing, height=height)
        keys = ["Milliseconds, one way (key L)", "Gbit/s (key B)"]
        shown = [("Latency", LATENCY), ("Bandwidth", BANDWIDTH)]
        self.shows = segments(shown, keys, "84px", layout=w.Layout(width="auto", flex="none"))
        self.what = w.HTML(layout=w.Layout(flex="1 1 0", min_width="0", overflow="hidden"))
        self.fields = {
            shows: labelled(w.Text, of.unit, *WIDTHS[shows], tooltip=of.help, continuous_update=False)
            for shows, of in QUANTITIES.items()
        }
        self.both_ways = checkbox("both ways", True, "Give the opposite direction the same number")
        self.result = w.HTML(layout=w.Layout(flex="none"))
        row = toolbar(self.shows, *self.fields.values(), self.both_ways)
        result_row = w.HBox([self.what, self.result], layout=w.Layout(height="26px", padding="0 0 0 4px"))
        self.view = classed(w.VBox([row, result_row, self.canvas]), "dtfm-matrix-editor")
        if not height:
            self.view.add_class("dtfm-fill")
        w.link((self.shows, "value"), (self.canvas, "shows"))
        self.canvas.observe(lambda _: self._show_selected(), ["picked", "latency_ms", "bandwidth_gbps", "names"])
        self.canvas.observe(lambda _: setattr(self.result, "value", ""), "picked")
        for shows, field in self.fields.items():
            field.observe(partial(self._typed, shows), "value")
        self.canvas.on_msg(self._on_message)
        self._show_selected()

    def show(self, topology: Topology | None) -> None:
        """Show the drawing's network. None, for a drawing that is not valid, shows nothing."""
        self.canvas.show(topology)

    def _on_message(self, _widget: object, content: dict[str, Any], _buffers: object) -> None:
        """Focus the field of the shown quantity after Enter or a double click on the matrix."""
        if content.get("kind") == "edit":
            self.fields[self.canvas.shows].focus()

    def _show_selected(self) -> None:
        """Show latency and bandwidth of the selected links in the fields. If they differ, show the range instead."""
        links = self.canvas.picked_links()
        topology = self.canvas.topology
        there = bool(links) and topology is not None and set(self.canvas.names) <= set(topology.names)
        for field in (*self.fields.values(), self.both_ways):
            field.disabled = not there
        self.what.value = f'<div class="dtfm-line">{escape(self._describe(links) if there else NOTHING_SELECTED)}</div>'
        if not there or topology is None:
            with self._is_showing:
                for text in self.fields.values():
                    text.value, text.placeholder = "", ""
            return
        rows, columns = zip(*((topology.index(a), topology.index(b)) for a, b in links), strict=True)
        with self._is_showing:
            _fill(self.fields[LATENCY], to_ms(topology.latency_s[rows, columns]))
            _fill(self.fields[BANDWIDTH], to_gbps(topology.bandwidth_bytes_per_s[rows, columns]))

    def _describe(self, links: Sequence[Pair]) -> str:
        if len(links) == 1:
            return f"{links[0][0]} → {links[0][1]}"
        sources, targets = (len(set(ends)) for ends in zip(*links, strict=True))
        return f"{counted(len(links), 'link')}: from {sources} to {counted(targets, 'device')}"

    def _typed(self, shows: str, entered: dict[str, Any]) -> None:
        links, text = self.canvas.picked_links(), entered["new"]
        if self._is_showing or not text.strip() or not links:
            return
        try:
            number = QUANTITIES[shows].checked(_number(text), error=TopologyError)
            document, n_changed = self._edited(links, shows, number)
        except LabError as error:
            self.result.value = f'<div class="dtfm-line dtfm-warning" role="alert">{escape(str(error))}</div>'
            return
        # An equal document would still count as an edit to undo.
        if document != self._drawing.document:
            self._drawing.document = document
        text = f"{counted(n_changed, 'link')} changed"
        self.result.value = f'<div class="dtfm-line" role="status">{escape(text)}</div>'

    def _edited(self, links: Sequence[Pair], shows: str, number: float) -> tuple[Document, int]:
        """Return the edited document and the number of links that got the typed number."""
        document, topology = self._drawing.document, self.canvas.topology
        assert topology is not None, "links are selected of nothing"
        # Names may be doubled while someone types in the drawing.
        drawn = Counter(device["name"] for device in document["devices"])
        if lost := next((name for pair in links for name in pair if drawn[name] != 1), None):
            raise TopologyError(f"device {lost} is drawn {drawn[lost]} times; wanted once, before its links are edited")
        wanted = dict.fromkeys([*links, *((b, a) for a, b in links)] if self.both_ways.value else links)
        rows, columns = zip(*((topology.index(a), topology.index(b)) for a, b in wanted), strict=True)
        ms, gbps = to_ms(topology.latency_s[rows, columns]), to_gbps(topology.bandwidth_bytes_per_s[rows, columns])
        # A line holds both numbers, so the one that was not typed goes along.
        (ms if shows == LATENCY else gbps)[:] = number
        speeds = zip(map(_plain, ms), map(_plain, gbps), strict=True)
        return set_links(document, dict(zip(wanted, speeds, strict=True))), len(wanted)


def _fill(field: w.Text, values: np.ndarray[Any, np.dtype[np.float64]]) -> None:
    low, high = float(values.min()), float(values.max())
    near = high - low <= 1e-9 * high
    field.value = f"{low:.6g}" if near else ""
    field.placeholder = "" if near else f"{low:.4g} – {high:.4g}"


def _plain(value: float) -> float:
    """Return the value without the rounding errors of converting units."""
    return float(f"{value:.12g}")


def _number(text: str) -> float:
    if re.fullmatch(r"[+-]?\d{1,3}(,\d{3})+", text.strip()):
        raise TopologyError(f"{text.strip()!r} may be thousands or thousandths; wanted it without a comma")
    try:
        return float(text.strip().replace(",", "."))
    except ValueError:
        raise TopologyError(f"{text.strip()!r} is not a number; wanted one such as 12.5") from None
