"""Charts of sensitivity to the network: a tornado chart of better links and devices, and iteration times of plans on
randomly sampled networks."""

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from dtfm_lab.domain.errors import TraceError
from dtfm_lab.domain.units import format_s
from dtfm_lab.figures.palette import BLUE, CAUSE_COLORS, LINE_GREY, ORANGE
from dtfm_lab.figures.theme import (
    LEGEND_BELOW,
    UNBOXED,
    bare,
    by_name,
    edged,
    figure_of,
    literal,
    numbered_rows,
    row_bars,
    stacked,
    time_unit,
    titled,
    with_headings,
)
from dtfm_lab.planning import Draws

MOST_ROWS = 10
"""Maximum number of rows of each panel: the improvements that change the iteration most."""
ROW_PX = 24
HEADING_PX = 44
NEGLIGIBLE = 1e-9
"""Relative changes of an iteration up to this size count as no change, because they come from rounding."""
WHAT = {
    "bandwidth": ("bandwidth", CAUSE_COLORS["bandwidth"]),
    "latency": ("latency", CAUSE_COLORS["latency"]),
    "compute": ("computing", CAUSE_COLORS["busy"]),
}
OF = {
    "link": "links",
    "regions": "regions, all links of two or within one",
    "network": "network, all links between hosts",
    "device": "devices",
    "kind": "kinds, all devices with the same GPU",
}
COLUMNS = ("what", "of", "name", "iteration_s", "change", "sentence")


@figure_of(pd.DataFrame, Draws)
def sensitivity(frame: pd.DataFrame | Draws) -> go.Figure:
    """A bar for each improvement: by how much it changes the iteration, the largest change on top.

    Links, regions (pairs, or within one), all links between hosts, devices and kinds of device have separate panels.
    Improvements that change nothing are counted, not drawn. For ``Draws``, plans compared under a spread, there is one
    row per plan: see ``drawn_plans``. Raises TraceError for a table with other columns.
    """
    if isinstance(frame, Draws):
        return drawn_plans(frame)
    if missing := [column for column in COLUMNS if column not in frame.columns]:
        raise TraceError(f"table has no column {', '.join(missing)}; wanted the table of sensitivity")
    changes = frame[frame["change"].abs() > NEGLIGIBLE]
    by = {of: changes[changes["of"] == of] for of in OF}
    by = {of: rows for of, rows in by.items() if len(rows)}
    if not by:
        return _nothing(len(frame))
    shown = {
        # By size: what would hurt is as telling as what would help.
        of: rows.loc[rows["change"].abs().sort_values(ascending=False, kind="stable").index[:MOST_ROWS]]
        for of, rows in by.items()
    }
    drawn_px = ROW_PX * sum(map(len, shown.values()))
    total_px = drawn_px + HEADING_PX * (len(shown) - 1)
    headings = [_heading(of, rows, by[of]) for of, rows in shown.items()]
    figure = stacked([len(rows) for rows in shown.values()], headings, gap_px=HEADING_PX, total_px=total_px)
    named: set[str] = set()
    for number, rows in enumerate(shown.values(), start=1):
        for what, (word, color) in WHAT.items():
            some = rows[rows["what"] == what]
            if len(some):
                # Each kind once in the legend, whichever panel has it first.
                bar = _bars(some, word, color).update(showlegend=word not in named)
                figure.add_trace(bar, row=number, col=1)
                named.add(word)
        figure.update_yaxes(**by_name(_names(rows)), row=number, col=1)
    low, high = 100 * min(0.0, changes["change"].min()), 100 * max(0.0, changes["change"].max())
    room = 0.12 * (high - low)  # for the numbers next to the bars
    figure.update_xaxes(range=[low - room if low < 0 else 0, high + room if high > 0 else 0], zeroline=True)
    figure.update_xaxes(title_text="change of the iteration's time (%)", row=len(shown), col=1)
    best = frame.iloc[int(frame["change"].argmin())]
    before_s = float(best["iteration_s"] / (1 + best["change"])) if best["change"] > -1 else 0.0
    without = len(frame) - len(changes)
    note = f"each improvement alone, of an iteration of {format_s(before_s)}"
    note += f" · {len(frame):,} tried, {without:,} of them without effect"
    look = {"barmode": "overlay", "height": max(300, total_px + 206), "legend_traceorder": "normal"}
    titled(figure, str(best["sentence"]), note, alt=_alt(frame, changes), **look)
    return with_headings(figure)


def _bars(rows: pd.DataFrame, word: str, color: str) -> go.Bar:
    hover = [
        f"{literal(sentence)}<br>{format_s(iteration_s)} an iteration"
        for sentence, iteration_s in zip(rows["sentence"], rows["iteration_s"], strict=True)
    ]
    changes, text = (100 * rows["change"]).tolist(), [f"{100 * change:+.2g} %" for change in rows["change"]]
    look = {"name": f"better {word}", "legendgroup": word, "marker": edged(color)}
    return row_bars(changes, _names(rows), hover, width=0.75, text=text, **look)


def _names(rows: pd.DataFrame) -> list[str]:
    """Return the name of each improvement: the link or device, and what gets better."""
    return [f"{literal(name)} · {WHAT[what][0]}" for name, what in zip(rows["name"], rows["what"], strict=True)]


def _heading(of: str, shown: pd.DataFrame, everything: pd.DataFrame) -> str:
    return OF[of] + (f", first {len(shown)} of {len(everything)}" if len(shown) < len(everything) else "")


def _alt(frame: pd.DataFrame, changes: pd.DataFrame) -> str:
    first = changes.sort_values("change", kind="stable").head(3)["sentence"]
    return f"Of {len(frame)} improvements {len(changes)} change the iteration; the greatest: {'; '.join(first)}."


def _nothing(n: int) -> go.Figure:
    """Return the figure for the case that no improvement changes anything, or that none was tried."""
    words = "none of them alone makes the iteration shorter" if n else "nothing was tried"
    figure = go.Figure()
    figure.add_annotation(text=words, x=0.5, y=0.5, xref="paper", yref="paper", showarrow=False, font_size=14)
    subtitle = "several critical paths are equally long: shorten one, and the others still take as long" if n else ""
    alt = f"{n} improvements tried: {words}."
    return titled(bare(figure), f"{n:,} improvements tried", subtitle, alt=alt, height=300)


MOST_PLANS = 12
"""Maximum number of plans that are drawn, the smallest expected seconds first."""
PLAN_PX = 34
ROOM = 0.6
"""Room at the right for words, as a share of the range of seconds that is drawn."""


def drawn_plans(found: Draws) -> go.Figure:
    """One row for each of up to 12 plans, the smallest expected seconds on top.

    A thin line spans 5 to 95 % of the draws, a thick one 25 to 75 %. Marks show the expected and the nominal seconds.
    """
    rows = np.argsort(found.mean_s, kind="stable")[:MOST_PLANS].tolist()
    low_s, first_s, third_s, high_s = (found.quantile_s(share)[rows] for share in (0.05, 0.25, 0.75, 0.95))
    unit, per_s = time_unit(float(high_s.max()))
    figure, numbers = go.Figure(), list(range(len(rows)))
    for name, begin, end, width in (("5 to 95 %", low_s, high_s, 2), ("25 to 75 %", first_s, third_s, 8)):
        x = np.stack([begin * per_s, end * per_s, np.full(len(rows), np.nan)], axis=1).ravel()
        line = {"color": BLUE if width > 2 else LINE_GREY, "width": width}
        figure.add_scatter(x=x, y=np.repeat(numbers, 3), mode="lines", name=name, line=line, hoverinfo="skip")
    names = [_name(found, row) for row in rows]
    for word, values, marker in (
        ("expected", found.mean_s, {"symbol": "circle", "size": 12, "color": ORANGE, "line": {"width": 1}}),
        ("nominal", found.nominal_s, {"symbol": "line-ns-open", "size": 20, "color": LINE_GREY, "line": {"width": 3}}),
    ):
        hover = [f"{name}: {format_s(values[row])} {word}" for name, row in zip(names, rows, strict=True)]
        figure.add_scatter(
            x=values[rows] * per_s, y=numbers, mode="markers", name=word, marker=marker, hovertext=hover,
            hoverinfo="text",
        )  # fmt: skip
    words = [f"{format_s(found.mean_s[row])} expected{_overtakes(found, row)}" for row in rows]
    least, most = min(found.nominal_s[rows].min(), low_s.min()) * per_s, high_s.max() * per_s
    for number, text in zip(numbers, words, strict=True):
        figure.add_annotation(x=high_s[number] * per_s, y=number, text=text, xanchor="left", xshift=8, **UNBOXED)
    room = ROOM * (most - least)
    figure.update_xaxes(range=[least - 0.05 * (most - least), most + room], title_text=f"an iteration ({unit})")
    figure.update_yaxes(**numbered_rows(names))
    left_out = len(found.plans) - len(rows)
    spreads = {f"{what} {spread:g}" for what, spread in found.spread.items() if spread}
    title = f"{names[0]} has the least expected seconds: {format_s(found.mean_s[rows[0]])}"
    note = f"{len(found):,} draws; spread of {', '.join(sorted(spreads)) or 'nothing'}, one standard deviation of the "
    note += "logarithm" + (f"; {left_out} slower plans are not drawn" if left_out else "")
    look = {"height": 200 + PLAN_PX * len(rows), "legend": LEGEND_BELOW, "margin_b": 110}
    return titled(figure, title, note, alt=found.sentence, **look)


def _name(found: Draws, plan: int) -> str:
    stages, replicas = found.plans[plan].placement.devices.shape
    return f"plan {plan}, {stages} × {replicas}"


def _overtakes(found: Draws, plan: int) -> str:
    """Return in words how often a plan is faster than the nominally best one, or that it is the nominally best one.
    Empty if no other plan is compared."""
    nominal = int(found.nominal_s.argmin())
    if plan == nominal:
        return ", nominally best" if len(found.plans) > 1 else ""
    share = found.overtaking(nominal, plan)
    return f", ahead of plan {nominal} in {100 * share.share:.2g} % ({100 * share.low:.2g} to {100 * share.high:.2g})"
