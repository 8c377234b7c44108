"""Seconds of plans on the same draws of their network: where they lie, and how often another is ahead."""

import numpy as np
import plotly.graph_objects as go

from dtfm_lab.domain.units import format_s
from dtfm_lab.figures.palette import BLUE, LINE_GREY, ORANGE
from dtfm_lab.figures.theme import LEGEND_BELOW, UNBOXED, numbered_rows, time_unit, titled
from dtfm_lab.planning import Draws

MOST_ROWS = 12
"""Plans that are drawn, those of least expected seconds."""
ROW_PX = 34
ROOM = 0.6
"""Share of the seconds drawn that is left at the right for words."""


def drawn_plans(found: Draws) -> go.Figure:
    """A row a plan, the least expected seconds on top: a line from 5 to 95 % of the draws, a thick one from 25 to 75 %,
    the expected seconds and the nominal ones."""
    rows = np.argsort(found.mean_s, kind="stable")[:MOST_ROWS].tolist()
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
    return titled(
        figure,
        f"{names[0]} has the least expected seconds: {format_s(found.mean_s[rows[0]])}",
        f"{len(found):,} draws; spread of {', '.join(sorted(spreads)) or 'nothing'}, one standard deviation of the "
        f"logarithm{f'; {left_out} slower plans are not drawn' if left_out else ''}",
        alt=found.sentence,
        height=200 + ROW_PX * len(rows),
        legend=LEGEND_BELOW,
        margin_b=110,
    )


def _name(found: Draws, plan: int) -> str:
    stages, replicas = found.plans[plan].placement.devices.shape
    return f"plan {plan}, {stages} × {replicas}"


def _overtakes(found: Draws, plan: int) -> str:
    """How often a plan is ahead of the nominally best; nothing of that one."""
    nominal = int(found.nominal_s.argmin())
    if plan == nominal:
        return ", nominally best" if len(found.plans) > 1 else ""
    share = found.overtaking(nominal, plan)
    return f", ahead of plan {nominal} in {100 * share.share:.2g} % ({100 * share.low:.2g} to {100 * share.high:.2g})"
