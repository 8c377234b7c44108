"""Every link of a network as a cell of a heat map."""

from typing import Any

import numpy as np
import traitlets

from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.units import FloatArray, by_key, counted, to_gbps, to_ms
from dtfm_lab.widgets.network.links import Origin, drawn_links
from dtfm_lab.widgets.views.view import DocumentView

CAPPED = 8
"""Flag added to the number of an Origin if a NIC limits the bandwidth more than the line does."""
# Values of ``MatrixView.shows``.
LATENCY = "latency"
BANDWIDTH = "bandwidth"

Rectangle = tuple[int, int, int, int]
"""First row, first column, last row, last column."""


class MatrixView(DocumentView):
    """Latency or bandwidth of all ordered pairs of devices, grouped by region. ``show`` fills it.

    The page receives the matrices, not the document, which may hold tens of thousands of lines.
    """

    document = traitlets.Dict()
    names = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """The N devices in the order of rows and columns."""
    blocks = traitlets.List(traitlets.List()).tag(sync=True)
    """[region, number of devices] of each region, in the order of ``names``."""
    latency_ms = traitlets.Bytes().tag(sync=True)
    """Milliseconds from row to column, f4 (N, N)."""
    bandwidth_gbps = traitlets.Bytes().tag(sync=True)
    """Gbit/s from row to column, f4 (N, N). 0 on the diagonal."""
    origin = traitlets.Bytes().tag(sync=True)
    """Where each number comes from, u1 (N, N): an Origin, with CAPPED added if a NIC limits it."""
    shows = traitlets.Enum([LATENCY, BANDWIDTH], LATENCY).tag(sync=True)
    picked = traitlets.List(traitlets.Int()).tag(sync=True)
    """The selected cells: row and column where the selection starts and where it ends. Empty for none."""

    def __init__(self, *arguments: Any, **traits: Any) -> None:
        self.topology: Topology | None = None
        """The network that is shown, or will be once the view follows its drawing."""
        self._stale = False
        super().__init__(*arguments, **{"height": 520, **traits})
        self.observe(lambda _: self._mark_link(), ["selected_link", "names"])

    @property
    def rectangle(self) -> Rectangle | None:
        """The selected cells. None without a selection."""
        # The page sets the cells, and the network may have become smaller since.
        if len(self.picked) != 4 or max(self.picked) >= len(self.names) or min(self.picked) < 0:
            return None
        row, column, to_row, to_column = self.picked
        return min(row, to_row), min(column, to_column), max(row, to_row), max(column, to_column)

    def picked_links(self) -> list[tuple[str, str]]:
        """Return (source, target) of each selected link."""
        if (cells := self.rectangle) is None:
            return []
        top, left, bottom, right = cells
        rows, columns = self.names[top : bottom + 1], self.names[left : right + 1]
        return [(source, target) for source in rows for target in columns if source != target]

    def show(self, topology: Topology | None) -> None:
        """Show the drawing's network, as soon as the view follows its drawing. None, for a drawing that is not valid,
        shows nothing."""
        self._stale = self._stale or topology is not self.topology
        self.topology = topology
        # Packing is left until someone looks, because the matrices of a large network take time.
        if self.following and self._stale:
            self._pack()

    def follow(self) -> None:
        super().follow()
        if self._stale:
            self._pack()

    def _pack(self) -> None:
        self._stale = False
        if self.topology is None:
            with self.hold_sync(), self.hold_trait_notifications():
                self.names, self.blocks, self.picked = [], [], []
                self.latency_ms = self.bandwidth_gbps = self.origin = b""
            return
        order, blocks = _order(self.topology)
        names = [self.topology.names[i] for i in order]
        grid = np.ix_(order, order)
        latency_ms, gbps = to_ms(self.topology.latency_s[grid]), to_gbps(self.topology.bandwidth_bytes_per_s[grid])
        # The network says that a device reaches itself with infinite bandwidth, which no colour scale can show.
        np.fill_diagonal(gbps, 0.0)
        links = drawn_links(self.drawing.document, names)  # self.document may lag behind the topology
        # Less than a billionth is rounding of units, not a limit.
        capped = (links.origin != Origin.NOWHERE) & (gbps < links.bandwidth_gbps * (1 - 1e-9))
        with self.hold_sync(), self.hold_trait_notifications():
            if names != self.names:
                # The same cells would now mean other links.
                self.picked = []
            self.names, self.blocks = names, blocks
            self.latency_ms = latency_ms.astype("<f4").tobytes()
            self.bandwidth_gbps = gbps.astype("<f4").tobytes()
            self.origin = (links.origin + np.where(capped, CAPPED, 0)).astype("u1").tobytes()

    def _mark_link(self) -> None:
        """Select the cell of a link that was selected elsewhere."""
        if len(self.selected_link) != 2 or not set(self.selected_link) <= set(self.names):
            return
        row, column = (self.names.index(name) for name in self.selected_link)
        cells = self.rectangle
        # If the link is already among the selected cells, a larger selection stays.
        if cells is None or not (cells[0] <= row <= cells[2] and cells[1] <= column <= cells[3]):
            self.picked = [row, column, row, column]

    def values(self) -> FloatArray:
        """Return the shown (N, N) matrix, ms or Gbit/s, from row to column."""
        sent = self.latency_ms if self.shows == LATENCY else self.bandwidth_gbps
        n = len(self.names)
        return np.frombuffer(sent, "<f4").reshape(n, n).astype(float)

    def alt_text(self) -> str:
        values = self.values()[~np.eye(len(self.names), dtype=bool)] if self.names else np.empty(0)
        if not values.size:
            return "Matrix of links: no link yet"
        unit = "ms of latency" if self.shows == LATENCY else "Gbit/s of bandwidth"
        return f"Matrix of {counted(values.size, 'link')}: {values.min():.3g} to {values.max():.3g} {unit}"


def _order(topology: Topology) -> tuple[list[int], list[list[Any]]]:
    """Return the indices of the devices, region by region, and [region, number of devices] of each."""
    members = by_key((device.region, i) for i, device in enumerate(topology.devices))
    return [i for inside in members.values() for i in inside], [[r, len(inside)] for r, inside in members.items()]
