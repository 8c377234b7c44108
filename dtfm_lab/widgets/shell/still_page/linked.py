"""The plan and its predicted iteration as bytes for a shared link (a URL), and the page that shows them to people
without the lab.

``views/link_reader`` reads what ``picture_of`` writes. A bar starts after the bar or message that it waited for, and
many durations are equal. So for each bar, only what it waited for and the indices of its durations are written. This
takes 2 to 3 bytes per bar.
"""

from __future__ import annotations

import json
import zlib
from typing import Any

import numpy as np

from dtfm_lab import lab
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.trace import Trace
from dtfm_lab.domain.units import IntArray
from dtfm_lab.widgets.quiet import untold
from dtfm_lab.widgets.schedule.predictions import PredictionChart
from dtfm_lab.widgets.shell.still_page import VIEWS, built, html_of, made_of, title_of, views_of
from dtfm_lab.widgets.views.frame import Glossary, Legend, TopBar
from dtfm_lab.widgets.views.gantt.bars import KIND_INDEX, NO_BAR, NO_BARS, Chart, ChartRows, legend
from dtfm_lab.widgets.views.map import MapView
from dtfm_lab.widgets.views.player import PlayerView

FORMAT = 1
"""Version of the data that a shared link holds for the page. If it is newer than the page, the page says so in one
line."""
TICKS = 1e9
"""Ticks per iteration: times in a shared link are whole ticks, so that equal durations are equal numbers."""
NOTHING, A_BAR, A_MESSAGE = range(3)
"""What a bar waited for last: nothing, another bar, or a message."""
KEPT = {
    "top_bar": ("network", "job", "numbers", "headline"),
    "map": ("document", "filled", "highlight", "places", "playback_devices"),
    "player": ("source",),
    "gantt": (
        "rows",
        "names",
        "devices",
        "units",
        "devices_per_pipeline",
        "n_stages",
        "title",
        "caption",
        "shares",
        "interval",
        "kinds",
    ),
    "legend": ("n_stages",),
}
"""Traits of each view that a shared link holds if they differ from ``default_views``. The page computes the others."""


def picture_of(plan: Plan, predicted: Trace | None) -> bytes:
    """Return the plan and its predicted iteration for the page that opens links: compressed JSON, then columns.

    The columns come from ``_columns``, in numbers of seven bits per byte. Without ``predicted`` the plan is
    simulated, unless its job has no model.
    """
    if predicted is None and plan.job.model is not None:
        predicted = lab.simulate(plan)
    views, page = views_of(plan, predicted), default_views()
    kept = {
        name: {what: value for what in traits if (value := getattr(views[name], what)) != getattr(page[name], what)}
        for name, traits in KEPT.items()
    }
    data: dict[str, Any] = {"format": FORMAT, "title": title_of(plan, predicted), "made": made_of(plan, predicted)}
    columns = b""
    if predicted is not None and predicted.after is not None:
        data["tick_s"] = predicted.iteration_s / TICKS
        data["ticks"], numbers = _columns(predicted)
        data["counts"] = [len(one) for one in numbers]
        columns = _varints(np.concatenate(numbers))
    text = json.dumps(data | {"views": kept}, separators=(",", ":")).encode()
    return zlib.compress(len(text).to_bytes(4, "little") + text + columns, 9)


def _columns(trace: Trace) -> tuple[list[int], list[IntArray]]:
    """Return the distinct durations in ticks, and the columns of the typical iteration.

    - For each bar, in order of row and start: row and kind, as differences from the previous bar; micro-batch; stage;
      NOTHING, A_BAR or A_MESSAGE for what it waited for; which one (how many bars before it, or the message's
      difference from the previous one that a bar waited for); the durations of its wait and of the bar, as indices
      into the durations.
    - For each message, in order of the bar that sends it: that bar, as a difference from the previous message's; the
      receiver's row; the duration of the transit, as an index into the durations.
    - The critical path: a bar b as b, a message m as -1 - m.
    """
    iteration = trace.typical_iteration
    rows = np.flatnonzero(trace.iteration == iteration)
    drawn = rows[np.array([action.kind in KIND_INDEX for action in trace.actions])[trace.action[rows]]]
    chart = ChartRows(trace.context).chart(trace)
    bars, order = chart.bars.ordered()
    drawn = drawn[order]
    bar_of = np.full(len(trace) + 1, NO_BAR)  # index NO_BAR gives NO_BAR
    bar_of[drawn] = np.arange(len(drawn))

    sent, received = trace.message_rows(iteration)
    by_time = np.argsort(trace.start_s[sent], kind="stable")  # the order of the chart's messages
    sent, received = sent[by_time], received[by_time]
    by_sender = np.argsort(bar_of[sent], kind="stable")
    sent, received = sent[by_sender], received[by_sender]
    message_of = np.full(len(trace) + 1, -1)
    message_of[received] = np.arange(len(received))

    assert trace.after is not None
    waited = trace.after[drawn]
    is_message, is_bar = message_of[waited] >= 0, bar_of[waited] >= 0
    what = np.where(is_message, A_MESSAGE, np.where(is_bar, A_BAR, NOTHING))
    which = np.where(is_bar, np.arange(len(drawn)) - bar_of[waited], 0)
    which[is_message] = _differences(message_of[waited][is_message])
    since_s = np.where(what == NOTHING, 0.0, trace.end_s[waited])
    tick_s = trace.iteration_s / TICKS
    lasting = [
        trace.start_s[drawn] - since_s,
        trace.end_s[drawn] - trace.start_s[drawn],
        trace.end_s[received] - trace.end_s[sent],
    ]
    ticks = [np.rint(seconds / tick_s).astype(np.int64) for seconds in lasting]
    unlike = np.unique(np.concatenate(ticks))
    wait, length, transit = (np.searchsorted(unlike, one) for one in ticks)
    along = trace.critical_path(iteration)["row"].to_numpy()
    path = np.where(bar_of[along] >= 0, bar_of[along], -1 - message_of[along])
    columns = (
        *(_differences(bars.row), _differences(bars.kind), bars.microbatch, bars.stage, what, which, wait, length),
        *(_differences(bar_of[sent]), chart.messages.target[by_sender], transit, path),
    )
    return unlike.tolist(), [column.astype(np.int64) for column in columns]


def _differences(column: IntArray) -> IntArray:
    wide: IntArray = column.astype(np.int64)
    steps: IntArray = wide.copy()
    steps[1:] -= wide[:-1]
    return steps


def _varints(column: IntArray) -> bytes:
    """Return integers in seven bits per byte, the lowest first, with the sign as the lowest bit."""
    coded = bytearray()
    for number in ((column << 1) ^ (column >> 63)).tolist():
        while number > 0x7F:
            coded.append(number & 0x7F | 0x80)
            number >>= 7
        coded.append(number)
    return bytes(coded)


@untold()
def default_views() -> dict[str, Any]:
    """Return the page's views without a plan, by name."""
    gantt = PredictionChart(bare=False, overview=True, empty_words="No iteration in this link", title="One iteration")
    gantt.set_predicted(Chart(NO_BARS), rows=[], kinds=legend(1))
    views = TopBar(lambda _: None, still=True), MapView(height=0, still=True), PlayerView(), gantt
    return dict(zip(VIEWS, (*views, Legend(shortcuts="Space plays · ? words"), Glossary()), strict=True))


def opening_page() -> str:
    """Return the HTML of the page that shows the plan in its own address, after the ``#``. It makes no requests."""
    models = {name: view.own_traits() for name, view in default_views().items()}
    foot = "Everything here is in the link: nothing was sent or fetched."
    return html_of("A plan in a link", foot, models, reader=built("link_reader", ".js"))
