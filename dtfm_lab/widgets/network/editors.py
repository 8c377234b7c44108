"""Editors of a drawing beside the canvas: the matrix of links with fields for what is selected in it, and the map."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

import ipywidgets as w
import numpy as np

from dtfm_lab.domain.errors import LabError, TopologyError
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.units import to_gbps, to_ms
from dtfm_lab.widgets.controls import checkbox, classed, labelled, more_menu, segments, toolbar
from dtfm_lab.widgets.lab_state import Guard
from dtfm_lab.widgets.network.drawing import Document, Drawing
from dtfm_lab.widgets.network.links import Change, Pair, change_inside, change_pair, set_links
from dtfm_lab.widgets.views.map import MapView
from dtfm_lab.widgets.views.matrix import BANDWIDTH, LATENCY, MatrixView

LINKS, REGIONS = "links", "regions"
NOTHING_SELECTED = "Click a cell, a link from its row to its column, to type other numbers; drag for many."


class MatrixEditor:
    """``view`` shows a drawing's links as a matrix and edits them; ``canvas`` is the matrix alone.

    A typed number is set at once, on the selected links or on all links between their regions.
    """

    def __init__(self, drawing: Drawing, *, height: int = 520) -> None:
        """``height`` of the matrix in pixels; 0 fills the element that ``view`` is in."""
        self._drawing = drawing
        self._is_showing = Guard()
        self.canvas = MatrixView(drawing, height=height)
        self.shows = segments(
            [("Latency", LATENCY), ("Bandwidth", BANDWIDTH)],
            ["Milliseconds, one way (key L)", "Gbit/s (key B)"],
            "94px",
            layout=w.Layout(width="auto", flex="none"),
        )
        self.what = w.HTML(layout=w.Layout(flex="1 1 0", min_width="0", overflow="hidden"))
        self.latency_ms = self._field("ms", "Latency one way, in milliseconds", "84px", "20px")
        self.bandwidth_gbps = self._field("Gbit/s", "Bandwidth in Gbit/s", "112px", "42px")
        self.both_ways = checkbox("both ways", True, "The way back becomes the same")
        self.scope = w.RadioButtons(
            options=[("only the selected links", LINKS), ("every link between their regions", REGIONS)],
            layout=w.Layout(width="auto"),
        )
        self.result = w.HTML(layout=w.Layout(flex="none"))
        self._fields = [self.latency_ms, self.bandwidth_gbps, self.both_ways, self.scope]
        options = more_menu([self.both_ways, self.scope], tooltip="What a typed number applies to")
        row = toolbar(self.shows, self.latency_ms, self.bandwidth_gbps, options)
        told = w.HBox([self.what, self.result], layout=w.Layout(height="26px", padding="0 0 0 4px"))
        self.view = classed(w.VBox([row, told, self.canvas]), "dtfm-matrix-editor")
        if not height:
            self.view.add_class("dtfm-fill")
        w.link((self.shows, "value"), (self.canvas, "shows"))
        self.canvas.observe(lambda _: self._show_selected(), ["picked", "latency_ms", "bandwidth_gbps", "names"])
        self.canvas.observe(lambda _: setattr(self.result, "value", ""), "picked")
        self.scope.observe(lambda _: self._show_selected(), "value")
        self.latency_ms.observe(lambda change: self._typed("latency_ms", change["new"]), "value")
        self.bandwidth_gbps.observe(lambda change: self._typed("bandwidth_gbps", change["new"]), "value")
        self.canvas.on_msg(self._on_message)
        self._show_selected()

    def show(self, topology: Topology | None) -> None:
        """Show the drawing's network; None while it is not valid."""
        self.canvas.show(topology)

    @staticmethod
    def _field(unit: str, tooltip: str, width: str, label_width: str) -> w.Text:
        return labelled(w.Text, unit, width, label_width, tooltip=tooltip, continuous_update=False)

    def _on_message(self, _widget: object, content: dict[str, Any], _buffers: object) -> None:
        """Focus the field of the shown quantity after Enter or a double click on the matrix."""
        if content.get("kind") == "edit":
            field = self.latency_ms if self.canvas.shows == LATENCY else self.bandwidth_gbps
            field.focus()

    def _show_selected(self) -> None:
        """Show the number of the selected links, or its smallest and largest value."""
        links = self.canvas.picked_links()
        topology = self.canvas.topology
        there = bool(links) and topology is not None and set(self.canvas.names) <= set(topology.names)
        for field in self._fields:
            field.disabled = not there
        self.what.value = f'<div class="dtfm-line">{escape(self._describe(links) if there else NOTHING_SELECTED)}</div>'
        if not there or topology is None:
            with self._is_showing:
                for text in (self.latency_ms, self.bandwidth_gbps):
                    text.value, text.placeholder = "", ""
            return
        rows, columns = zip(*((topology.index(a), topology.index(b)) for a, b in links), strict=True)
        with self._is_showing:
            _fill(self.latency_ms, to_ms(topology.latency_s[rows, columns]))
            _fill(self.bandwidth_gbps, to_gbps(topology.bandwidth_bytes_per_s[rows, columns]))

    def _describe(self, links: Sequence[Pair]) -> str:
        if self.scope.value == REGIONS:
            return "; ".join(
                f"inside {a or 'no region'}" if a == b else f"all from {a or 'no region'} to {b or 'no region'}"
                for a, b in self._regions(links)[:4]
            ) + (" …" if len(self._regions(links)) > 4 else "")
        if len(links) == 1:
            return f"{links[0][0]} → {links[0][1]}"
        sources, targets = (len(set(ends)) for ends in zip(*links, strict=True))
        return f"{len(links)} links: from {sources} to {targets} device{'s' * (targets > 1)}"

    def _regions(self, links: Sequence[Pair]) -> list[Pair]:
        region_of = {device["name"]: device["region"] for device in self._drawing.document["devices"]}
        return list(dict.fromkeys((region_of.get(a, ""), region_of.get(b, "")) for a, b in links))

    def _typed(self, quantity: str, text: str) -> None:
        links = self.canvas.picked_links()
        if self._is_showing or not text.strip() or not links:
            return
        try:
            change = Change(**{quantity: _number(text)})
            document, count = self._edited(links, change)
        except LabError as error:
            self.result.value = f'<div class="dtfm-line dtfm-warning" role="alert">{escape(str(error))}</div>'
            return
        if document != self._drawing.document:
            self._drawing.document = document
        text = f"{count} changed{self._capped(links, change)}"
        self.result.value = f'<div class="dtfm-line" role="status">{escape(text)}</div>'

    def _capped(self, links: Sequence[Pair], change: Change) -> str:
        """Return why some of the selected links are slower than what was typed; empty where none is."""
        topology = self.canvas.topology
        if change.bandwidth_gbps is None or topology is None:
            return ""
        at = [(topology.index(a), topology.index(b)) for a, b in links]
        slowest = min(to_gbps(topology.bandwidth_bytes_per_s[i, j]) for i, j in at)
        if slowest >= change.bandwidth_gbps * (1 - 1e-9):
            return ""
        return f"; a network card lets {slowest:.4g} Gbit/s through"

    def _edited(self, links: Sequence[Pair], change: Change) -> tuple[Document, str]:
        """Return the edited document, and what changed in words."""
        document = self._drawing.document
        drawn = Counter(device["name"] for device in document["devices"])
        if lost := next((name for pair in links for name in pair if drawn[name] != 1), None):
            raise TopologyError(f"device {lost} is drawn {drawn[lost]} times; wanted once, before its links are edited")
        if self.scope.value == LINKS:
            topology = self.canvas.topology
            assert topology is not None, "links are selected of nothing"
            wanted = dict.fromkeys([*links, *((b, a) for a, b in links)] if self.both_ways.value else links)
            at = [(topology.index(a), topology.index(b)) for a, b in wanted]
            rows, columns = zip(*at, strict=True)
            latency_ms, gbps = (
                to_ms(topology.latency_s[rows, columns]),
                to_gbps(topology.bandwidth_bytes_per_s[rows, columns]),
            )
            now = zip(map(_plain, latency_ms), map(_plain, gbps), strict=True)
            speeds = {pair: change.of(speed) for pair, speed in zip(wanted, now, strict=True)}
            return set_links(document, speeds), _count(len(speeds), "link")
        pairs = self._regions(links)
        if any("" in pair for pair in pairs):
            raise TopologyError("a device without a region is selected; wanted only these links, or a region for it")
        done: set[Pair] = set()
        for a, b in pairs:
            if a == b:
                document = change_inside(document, a, change)
            elif (b, a) not in done or not self.both_ways.value:
                document = change_pair(document, a, b, change, both_ways=self.both_ways.value)
            done.add((a, b))
        return document, _count(len({frozenset(pair) for pair in pairs}), "pair of regions", "pairs of regions")


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
        raise TopologyError(f"{text.strip()!r} is no number; wanted one such as 12.5") from None


def _count(n: int, one: str, many: str = "") -> str:
    return f"{n} {one if n == 1 else many or one + 's'}"


class MapEditor:
    """``view`` shows a drawing on the map, which fills its pane; ``canvas`` is the same.

    ``on_swap(a, b)`` is called where a person drops device ``a`` on device ``b`` to exchange their places in the plan.
    """

    def __init__(self, drawing: Drawing) -> None:
        self.canvas = self.view = MapView(drawing, height=0)
        self.canvas.add_class("dtfm-fill")
        self.on_swap: Callable[[str, str], None] = lambda a, b: None
        self.canvas.on_msg(self._on_message)

    @property
    def worth_showing(self) -> bool:
        """Whether at least two regions are known places."""
        return bool(self.canvas.worth_showing)

    def _on_message(self, _widget: object, content: dict[str, object], _buffers: object) -> None:
        drawn = {device["name"] for device in self.canvas.document["devices"]}
        a, b = content.get("a"), content.get("b")
        if content.get("kind") == "swap" and isinstance(a, str) and isinstance(b, str) and {a, b} <= drawn:
            self.on_swap(a, b)
