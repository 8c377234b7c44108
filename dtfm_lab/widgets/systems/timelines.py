"""One iteration of a system's plan above that of the lab's own, on one time axis."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.trace import Trace
from dtfm_lab.domain.units import format_s
from dtfm_lab.systems import Outcome
from dtfm_lab.widgets.views.gantt import GanttView
from dtfm_lab.widgets.views.gantt.bars import Chart, ChartRows, arranged, legend
from dtfm_lab.widgets.views.gantt.columns import FIRST_MESSAGE, NO_BAR, Bars, CriticalPath, Messages

MOST_WITH_MESSAGES = 10
"""Most stages and devices of all timelines for which messages are drawn, so that all are in sight at once."""


@dataclass(frozen=True, eq=False)
class Timeline:
    """One iteration, ready to be drawn under a name."""

    name: str
    plan: Plan
    trace: Trace
    rows: ChartRows
    chart: Chart

    @classmethod
    def of(cls, name: str, plan: Plan, trace: Trace) -> "Timeline":
        """Read a trace; for a thread, as it may have many actions."""
        rows = ChartRows(trace.context)
        return cls(name, plan, trace, rows, rows.chart(trace))

    @classmethod
    def of_outcome(cls, outcome: Outcome) -> "Timeline":
        return cls.of(outcome.title, outcome.plan, outcome.trace)

    @property
    def heading(self) -> str:
        return f"{self.name} · {format_s(self.trace.iteration_s)}"

    @property
    def end_s(self) -> float:
        """When the drawn iteration ends."""
        ends = self.chart.bars.end
        return float(ends.max()) if len(ends) else 0.0

    def units(self, first_row: int, *, network: bool) -> list[dict[str, Any]]:
        """What is drawn, as ``GanttView.units`` takes it, from a row on; the first unit has the heading.

        Without ``network``, computations alone, in half the room.
        """
        regions = {device.name: device.region for device in self.plan.topology.devices}
        own = arranged(self.rows, "stage", regions, network=network)
        first, *rest = (_moved(unit, first_row, self.end_s) for unit in own)
        return [first | {"heading": self.heading}, *rest]


class TimelinesChart(GanttView):
    """``show`` draws timelines below each other; none clears it."""

    def __init__(self, **traits: Any) -> None:
        super().__init__(**({"height": 0, "bare": True, "overview": False, "title": "One iteration of each"} | traits))

    def show(self, timelines: Sequence[Timeline]) -> None:
        """Draw these, on one time axis with a mark where each ends."""
        if not timelines:
            self.clear()
            return
        counts = [len(one.rows.labels) for one in timelines]
        firsts = [sum(counts[:at]) for at in range(len(counts))]
        chart = joined([one.chart for one in timelines], firsts)
        n_shades = max(one.trace.context.stages_per_device for one in timelines)
        names = [name for one in timelines for name in one.rows.labels[::2] for _ in range(2)]
        has_room = sum(len(one.units(0, network=True)) for one in timelines) <= MOST_WITH_MESSAGES
        units = [
            unit for one, first in zip(timelines, firsts, strict=True) for unit in one.units(first, network=has_room)
        ]
        with self.hold_sync():
            self.set_predicted(
                *chart.bars,
                rows=[label for one in timelines for label in one.rows.labels],
                names=names,
                devices=[device for one in timelines for device in one.rows.devices],
                kinds=legend(n_shades),
                after=chart.after,
                path=chart.path,
                messages=chart.messages,
                units=units,
                n_stages=max(len(one.trace.context.devices) for one in timelines),
            )
            self.ends = [
                {"at": one.end_s, "text": f"{one.name} {format_s(one.end_s)}", "dashed": at > 0}
                for at, one in enumerate(timelines)
            ]
            self.caption = "; ".join(one.heading for one in timelines)


def joined(charts: Sequence[Chart], firsts: Sequence[int]) -> Chart:
    """Return charts as one, the rows of each beginning at ``firsts``."""
    bars, after, messages = [], [], []
    n_bars = n_messages = 0
    for chart, first in zip(charts, firsts, strict=True):
        waited = np.full(len(chart.bars.start), NO_BAR) if chart.after is None else np.asarray(chart.after)
        bars.append(chart.bars._replace(row=(chart.bars.row + first).astype(chart.bars.row.dtype)))
        after.append(
            np.where(waited <= FIRST_MESSAGE, waited - n_messages, np.where(waited >= 0, waited + n_bars, NO_BAR))
        )
        sent = chart.messages
        source, target = ((rows + first).astype(rows.dtype) for rows in (sent.source, sent.target))
        messages.append(sent._replace(source=source, target=target))
        n_bars += len(chart.bars.start)
        n_messages += len(sent.leaves)
    path = charts[0].path  # of the first alone: one path is drawn
    path = path._replace(row=(path.row + firsts[0]).astype(path.row.dtype))
    return Chart(
        Bars.concatenate(bars),
        np.concatenate(after),
        CriticalPath(*path),
        Messages(*(np.concatenate(column) for column in zip(*messages, strict=True))),
    )


def _moved(unit: dict[str, Any], first: int, until_s: float) -> dict[str, Any]:
    """Return a unit, and its members, with rows that begin later and wait for nothing after the iteration's end."""
    moved = unit | {"rows": [row + first for row in unit["rows"]], "until": until_s}
    if "members" in unit:
        moved["members"] = [_moved(member, first, until_s) for member in unit["members"]]
    return moved
