"""The time line of the pane Hours: when devices are online, edited by hand, and the history of one policy below it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from dtfm_lab.domain.errors import LabError
from dtfm_lab.extensions.elasticity.availability import Availability
from dtfm_lab.extensions.elasticity.figures.history import BAND_ROW, PARTS
from dtfm_lab.extensions.elasticity.figures.history import history as drawn
from dtfm_lab.extensions.elasticity.figures.history import stays_of as timeline_stays
from dtfm_lab.extensions.elasticity.history import History
from dtfm_lab.extensions.elasticity.views.hours import HoursView
from dtfm_lab.figures.theme import CLEAR, HEADING_PX, template, time_axis
from dtfm_lab.widgets import markup
from dtfm_lab.widgets import quiet as w
from dtfm_lab.widgets.controls import button, classed, disable, show
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.undoing import Undoable

LEFT_PX = 92
"""Pixels to the left of the time axis, the same in the rows of devices and in the charts below them."""
RIGHT_PX = 16
"""Pixels to the right of the time axis, the same in both."""
PANEL_PX = 104
"""Height of a panel, with its heading."""

KEYS = {
    "devices online and in use": "devices online (grey) and in use (blue)",
    "samples so far (thousands)": "thousand samples so far (dashed: bound of perfect foresight)",
}
"""Heading of the figure -> the text that replaces it here. It explains the lines, because there is no legend. The band
of states has the colours of the comparison above."""
MOST_UNDONE = 100
"""Maximum number of edits that can be undone."""
HOW = "drag an end; double-click a bar for a departure, a gap for an arrival"
NOTHING = "Select devices on the network, and click a moment on the time line"


class TimeLine:
    """Shows when devices are online, and lets the user edit it. ``edited`` is the edited availability; None before the
    first edit. ``children`` are the widgets to display."""

    def __init__(self, lab_state: LabState, changed: Callable[[], None], report_error: Callable[[str], None]) -> None:
        """``changed`` is called after every edit and undo, also while the end of a stay is dragged."""
        self._lab_state, self._changed, self._report_error = lab_state, changed, report_error
        self.edited: Availability | None = None
        self._here: Availability | None = None
        """The displayed availability."""
        self._before: Availability | None = None
        """``edited`` before the current drag."""
        self._past: Undoable[Availability | None] = Undoable(MOST_UNDONE)
        self._is_dragged = False
        self.line = HoursView(self._edit, room=[LEFT_PX, RIGHT_PX])
        what = "Selected devices leave at this moment, or arrive if they are away"
        self.toggle = button("Leave or arrive", "", what, "auto")
        self.undo = button("Undo", "undo", "Undo the last change of the time line", "auto")
        self.back = button("Back to the trace", "", "Restore the recorded hours", "auto")
        self.summary = w.HTML()
        row = classed(w.HBox([self.summary, self.toggle, self.undo, self.back]), "dtfm-hours-by-hand")
        self.children: list[w.Widget] = [row, self.line]
        show(row, False)
        self.toggle.on_click(lambda _: self._toggle())
        self.undo.on_click(lambda _: self._undo())
        self.back.on_click(lambda _: self._change(None))
        self.line.observe(lambda _: self._show_buttons(), "moment_s")
        lab_state.observe(lambda _: self._show_buttons(), "selected")
        self._show_buttons()

    def forget(self) -> None:
        """Discard the edits, because other hours were selected."""
        self.edited = None
        self._past.clear()

    def show(self, here: Availability) -> None:
        """Display when devices are online. While the end of a stay is being dragged, the display stays as it is."""
        self._here = here
        show(self.children[0], True)
        # Otherwise the end would jump back under the user's pointer.
        if not self._is_dragged:
            unit, in_s = time_axis(here.end_s)
            with self.line.hold_sync():
                self.line.devices, self.line.end_s = [*here.devices], here.end_s
                self.line.unit, self.line.in_s = unit, in_s
                self.line.stays = [list(stay) for stay in stays_of(here)]
            self._show_buttons()

    def _show_buttons(self) -> None:
        self.line.chosen = [name for name in self._lab_state.selected if name in self.line.devices]
        disable(self.toggle, "" if self.line.chosen and self.line.moment_s >= 0 else NOTHING)
        self.undo.disabled = not self._past.past
        self.back.disabled = self.edited is None
        how = HOW if self.line.devices else ""
        self.summary.value = markup.line(f"<b>Edited by hand</b> · {how}" if self.edited is not None else how, "note")

    def _edit(self, content: Mapping[str, Any]) -> None:
        """Apply an edit made on the page."""
        here, kind, phase = self._here, content.get("kind"), content.get("phase")
        if here is None:
            return
        stays = stays_of(here)
        try:
            match kind:
                case "stays" if phase == "begin":
                    self._before, self._is_dragged = self.edited, True
                case "stays" if phase == "move":
                    self._set(edited(here, content["stays"]))
                case "stays":
                    # Undo is to return to the hours before the drag, not to its last position.
                    self._is_dragged, self.edited = False, self._before
                    self._change(edited(here, content["stays"]))
                case "toggle":
                    time_s = float(content["time_s"])
                    self._change(edited(here, toggled(stays, int(content["device"]), time_s, here.end_s)))
                case "remove":
                    index, leaves = int(content["stay"]), bool(content["leaves"])
                    self._change(edited(here, removed(stays, index, here.end_s, leaves=leaves)))
        except LabError as error:
            self._is_dragged = False
            self._report_error(str(error))

    def _change(self, hours: Availability | None) -> None:
        """Switch to another availability; None switches back to the recorded one. Undo restores the previous one."""
        self._past.add(self.edited)
        self._set(hours)

    def _set(self, hours: Availability | None) -> None:
        self.edited = hours
        self._changed()
        self._show_buttons()

    def _undo(self) -> None:
        if self._past.past:
            self._set(self._past.past.pop())

    def _toggle(self) -> None:
        """Let the selected devices leave at the selected moment, or arrive if they are away."""
        here = self._here
        if here is None or self.toggle.disabled:
            return
        stays = stays_of(here)
        for name in self.line.chosen:
            stays = toggled(stays, here.devices.index(name), self.line.moment_s, here.end_s)
        self._change(edited(here, stays))


Stay = tuple[int, float, float]
"""Index of a device, its arrival and its departure in seconds. A device that stays to the end has no departure: the
last number is then the end."""
NAME = "edited"


def stays_of(here: Availability) -> list[Stay]:
    """Return every stay longer than 0 s, sorted by device and time."""
    device, begin_s, end_s, _ = timeline_stays(here)
    every = zip(device.tolist(), begin_s.tolist(), end_s.tolist(), strict=True)
    return [stay for stay in every if stay[1] < stay[2]]


def edited(here: Availability, stays: Sequence[Sequence[float]]) -> Availability:
    """Return the availability with these stays. Two stays of a device that touch are merged. Raises TraceError if two
    overlap, or if one is empty."""
    present: dict[str, list[tuple[float, float]]] = {name: [] for name in here.devices}
    for device, begin_s, end_s in sorted((int(stay[0]), float(stay[1]), float(stay[2])) for stay in stays):
        intervals = present[here.devices[device]]
        if intervals and intervals[-1][1] == begin_s:
            begin_s = intervals.pop()[0]
        intervals.append((begin_s, end_s))
    return Availability.from_intervals(present, here.end_s, name=NAME)


def toggled(stays: Sequence[Stay], device: int, time_s: float, end_s: float) -> list[Stay]:
    """Return the stays after a device was toggled at ``time_s``.

    If it is online, it leaves until its next arrival. If it is away, it arrives and stays until its next arrival or the
    end.
    """
    own = [stay for stay in stays if stay[0] == device]
    others = [stay for stay in stays if stay[0] != device]
    if now := next((stay for stay in own if stay[1] <= time_s < stay[2]), None):
        kept = [(device, now[1], time_s)] if now[1] < time_s else []
        return others + [stay for stay in own if stay is not now] + kept
    until_s = min((stay[1] for stay in own if stay[1] > time_s), default=end_s)
    return [*others, *own, (device, time_s, until_s)]


def removed(stays: Sequence[Stay], index: int, end_s: float, *, leaves: bool) -> list[Stay]:
    """Return the stays without the departure (``leaves``) or the arrival of one of them.

    Without a departure, the device stays until its next arrival or the end. Without an arrival, it is online from its
    previous departure or the start.
    """
    device, begin_s, until_s = stays[index]
    others = [stay for at, stay in enumerate(stays) if at != index]
    own = [stay for stay in others if stay[0] == device]
    if leaves:
        return [*others, (device, begin_s, min((stay[1] for stay in own if stay[1] >= until_s), default=end_s))]
    return [*others, (device, max((stay[2] for stay in own if stay[2] <= begin_s), default=0.0), until_s)]


class HistoryChart:
    """``lab.figures.history`` without its title, because the headline of the pane says the same.

    The figure is created when there is a history: it loads plotly's script of several MB into the page.
    """

    def __init__(self, look_at: Callable[[float], None]) -> None:
        """``look_at`` is called with the time in seconds at which the user points."""
        self.view = classed(w.VBox(), "dtfm-hours-chart")
        self.figure: go.FigureWidget | None = None
        self._look_at, self._in_s = look_at, 1.0

    def show(self, history: History | None, *, dark: bool) -> None:
        """Display a history, or nothing for None."""
        self.view.layout.display = "none" if history is None else ""
        if history is None:
            return
        figure = drawn(history)
        self._in_s = time_axis(history.availability.end_s)[1]
        self.view.layout.height = f"{self._fitted(figure, dark=dark)}px"
        now = self.figure
        # Updating is quicker than a new figure and keeps the reader's zoom.
        if now is None or {trace.name for trace in now.data} != {trace.name for trace in figure.data}:
            self.figure = go.FigureWidget(figure)
            self.figure._config = self.figure._config | {"displayModeBar": False, "responsive": True}
            self.view.children = (self.figure,)
            for trace in self.figure.data:
                trace.on_hover(self._pointed)
            return
        drawn_before = {trace.name: trace for trace in now.data}
        with now.batch_update():
            for new in figure.data:
                old = drawn_before[new.name]
                old.x, old.y = new.x, new.y
                if new.type == "bar":
                    old.width = new.width
            now.layout.xaxis.range, now.layout.meta = figure.layout.xaxis.range, figure.layout.meta
            now.layout.template = figure.layout.template

    def _fitted(self, figure: go.Figure, *, dark: bool) -> int:
        """Fit a figure to the pane, and return its height in pixels."""
        n_panels = len(list(figure.select_yaxes()))
        height = n_panels * PANEL_PX + 44
        margin = {"l": LEFT_PX, "r": RIGHT_PX, "t": HEADING_PX + 4, "b": 40, "autoexpand": False}
        figure.update_layout(template=template(dark), paper_bgcolor=CLEAR, plot_bgcolor=CLEAR, margin=margin)
        figure.update_layout(title=None, height=height, autosize=True, showlegend=False)
        for heading in figure.layout.annotations:
            heading.update(text=KEYS.get(heading.text, heading.text), bgcolor=CLEAR)
        here = {trace.name for trace in figure.data}
        for name, color in PARTS.items():
            if name not in here:  # all figures have the same traces, so that the figure is updated and not rebuilt
                figure.add_bar(x=[], y=[], name=name, marker_color=color, row=BAND_ROW, col=1)
        figure.update_yaxes(automargin=False)
        return height

    def _pointed(self, _: object, points: object, __: object) -> None:
        if xs := getattr(points, "xs", None):
            self._look_at(float(xs[0]) * self._in_s)
