"""The gain from a better link or device: the table of ``simulation.sensitivity`` as a tornado chart."""

import pandas as pd
import plotly.graph_objects as go

from dtfm_lab.domain.errors import TraceError
from dtfm_lab.domain.units import format_s
from dtfm_lab.figures.palette import CAUSE_COLORS
from dtfm_lab.figures.results.drawn_plans import drawn_plans
from dtfm_lab.figures.theme import (
    bare,
    by_name,
    edged,
    literal,
    row_bars,
    stacked,
    titled,
    with_headings,
)
from dtfm_lab.planning import Draws

MOST_ROWS = 10
"""Most rows of links, of regions and of devices, those that change most."""
ROW_PX = 24
HEADING_PX = 44
NEGLIGIBLE = 1e-9
"""Relative change of an iteration up to which it counts as none."""
WHAT = {
    "bandwidth": ("bandwidth", CAUSE_COLORS["bandwidth"]),
    "latency": ("latency", CAUSE_COLORS["latency"]),
    "compute": ("computing", CAUSE_COLORS["busy"]),
}
OF = {"link": "links", "regions": "regions, all links of two or within one", "device": "devices"}
COLUMNS = ("what", "of", "name", "iteration_s", "change", "sentence")


def sensitivity(frame: pd.DataFrame | Draws) -> go.Figure:
    """A bar for each improvement: by how much it would shorten the iteration, the greatest on top.

    Links, pairs of regions and devices have panels of their own. Improvements that change nothing are counted, not
    drawn. Of ``Draws``, plans compared under a spread, a row a plan: see ``drawn_plans``.

    Raises TraceError for a table of other columns.
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
                bar = _bars(some, word, color).update(showlegend=word not in named)
                figure.add_trace(bar, row=number, col=1)
                named.add(word)
        figure.update_yaxes(**by_name(_names(rows)), row=number, col=1)
    low, high = 100 * min(0.0, changes["change"].min()), 100 * max(0.0, changes["change"].max())
    room = 0.12 * (high - low)  # for the numbers beside the bars
    figure.update_xaxes(range=[low - room if low < 0 else 0, high + room if high > 0 else 0], zeroline=True)
    figure.update_xaxes(title_text="change of the iteration's time (%)", row=len(shown), col=1)
    best = frame.iloc[int(frame["change"].argmin())]
    before_s = float(best["iteration_s"] / (1 + best["change"])) if best["change"] > -1 else 0.0
    without = len(frame) - len(changes)
    titled(
        figure,
        str(best["sentence"]),
        f"one improvement at a time, of an iteration of {format_s(before_s)} · "
        f"{len(frame):,} tried, {without:,} of them without effect",
        alt=_alt(frame, changes),
        barmode="overlay",
        height=max(300, total_px + 206),
        legend_traceorder="normal",
    )
    return with_headings(figure)


def _bars(rows: pd.DataFrame, word: str, color: str) -> go.Bar:
    hover = [
        f"{literal(sentence)}<br>{format_s(iteration_s)} an iteration"
        for sentence, iteration_s in zip(rows["sentence"], rows["iteration_s"], strict=True)
    ]
    return row_bars(
        (100 * rows["change"]).tolist(),
        _names(rows),
        hover,
        width=0.75,
        name=f"better {word}",
        legendgroup=word,
        text=[f"{100 * change:+.2g} %" for change in rows["change"]],
        marker=edged(color),
    )


def _names(rows: pd.DataFrame) -> list[str]:
    """The name of each improvement: the link or device, and what gets better."""
    return [f"{literal(name)} · {WHAT[what][0]}" for name, what in zip(rows["name"], rows["what"], strict=True)]


def _heading(of: str, shown: pd.DataFrame, everything: pd.DataFrame) -> str:
    return OF[of] + (f", first {len(shown)} of {len(everything)}" if len(shown) < len(everything) else "")


def _alt(frame: pd.DataFrame, changes: pd.DataFrame) -> str:
    first = changes.sort_values("change", kind="stable").head(3)["sentence"]
    return f"Of {len(frame)} improvements {len(changes)} change the iteration; the greatest: {'; '.join(first)}."


def _nothing(n: int) -> go.Figure:
    """The figure where no improvement changes anything, or where none was tried."""
    words = "none of them alone makes the iteration shorter" if n else "nothing was tried"
    figure = go.Figure()
    figure.add_annotation(text=words, x=0.5, y=0.5, xref="paper", yref="paper", showarrow=False, font_size=14)
    subtitle = "several critical paths are equally long: shorten one, and the others still take as long" if n else ""
    alt = f"{n} improvements tried: {words}."
    return titled(bare(figure), f"{n:,} improvements tried", subtitle, alt=alt, height=300)
