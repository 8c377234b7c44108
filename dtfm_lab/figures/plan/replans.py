"""Figures of replanning: when moving to a new plan pays, and how many iterations each plan loses when devices leave or
join."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import by_key, counted
from dtfm_lab.figures.palette import GREEN, LINE_GREY, ORANGE, VERMILLION
from dtfm_lab.figures.theme import UNBOXED, duration, figure_of, literal, numbered_rows, row_bars, titled, upright
from dtfm_lab.planning import Replan

ROW_PX = 38
ROOM = 1.65
"""Length of the whole axis in multiples of the longest bar. The rest is for words."""


@figure_of(Replan, Sequence, wanted="a Replan, or several")
def replans(found: Replan | Sequence[Replan], *, every_s: float = 900.0) -> go.Figure:
    """When moving to a new plan pays, or how many iterations each plan loses to changes.

    For one change, it draws iterations over time: with the new plan, and with the old one in which only the lost
    devices are replaced.

    For many changes, such as the loss of each device of several plans, it draws a bar for each plan. The bar shows the
    iterations that it completes on average in the horizon after a change, and those lost to moving and redoing. The
    plan that completes most is on top. A mark shows how many it completes without a change.

    ``every_s`` is the time in seconds between two checkpoints. Half of it is redone if a stage comes from a checkpoint.
    Raises PlanError if there are no replans, and for plans without an iteration time.
    """
    asked = [found] if isinstance(found, Replan) else list(found)
    if not asked:
        raise PlanError("no replans; wanted one at least")
    for one in asked:
        if one.before.iteration_s is None or one.plan.iteration_s is None:
            raise PlanError(f"a plan was made for {one.before.objective}; wanted plans for seconds of an iteration")
    return _move(found) if isinstance(found, Replan) else _shapes(asked, every_s)


def _iterations(plan: Plan, seconds: float) -> float:
    """Return the number of iterations in this many seconds, with a fraction for the last one."""
    assert plan.iteration_s is not None, "checked before"
    return max(0.0, seconds) / plan.iteration_s


class _ReplanRow(NamedTuple):
    """Numbers of iterations of one plan within the horizon, averaged over the changes."""

    before: Plan
    undisturbed: float
    made: float
    moving: float
    """Iterations lost while the state moves."""
    redone: float
    to_checkpoint: int
    """Number of changes after which all devices go back to a checkpoint."""
    n: int


def _row(found: Sequence[Replan], every_s: float) -> _ReplanRow:
    before = found[0].before
    # On average half an interval between checkpoints is lost.
    # If one stage comes from a checkpoint, all devices go back to it.
    redo_s = [every_s / 2 * bool(one.moves.from_checkpoint.any()) for one in found]
    made = [_iterations(one.plan, one.horizon_s - one.move_s - redo) for one, redo in zip(found, redo_s, strict=True)]
    moving = [_iterations(one.plan, min(one.move_s, one.horizon_s)) for one in found]
    redone = [_iterations(one.plan, min(redo, one.horizon_s)) for one, redo in zip(found, redo_s, strict=True)]
    return _ReplanRow(
        before=before,
        undisturbed=_iterations(before, found[0].horizon_s),
        made=float(np.mean(made)),
        moving=float(np.mean(moving)),
        redone=float(np.mean(redone)),
        to_checkpoint=sum(bool(one.moves.from_checkpoint.any()) for one in found),
        n=len(found),
    )


def _shapes(found: Sequence[Replan], every_s: float) -> go.Figure:
    by_plan = by_key((id(one.before), one) for one in found)
    rows = sorted((_row(each, every_s) for each in by_plan.values()), key=lambda row: -row.made)
    numbers, hour = list(range(len(rows))), duration(found[0].horizon_s)
    most = max(max(row.made + row.moving + row.redone, row.undisturbed) for row in rows)
    figure = go.Figure()
    begins = np.zeros(len(rows))
    for name, of, color in (("made", "made", GREEN), ("moving", "moving", ORANGE), ("redone", "redone", VERMILLION)):
        parts = [float(getattr(row, of)) for row in rows]
        hover = [f"{_shape(row.before)}: {part:,.0f} iterations {name}" for row, part in zip(rows, parts, strict=True)]
        figure.add_trace(
            row_bars(parts, numbers, hover, base=begins.tolist(), name=name, marker_color=color, width=0.62)
        )
        begins = begins + parts
    figure.add_scatter(
        x=[row.undisturbed for row in rows], y=numbers, mode="markers", name="undisturbed",
        marker={"symbol": "line-ns-open", "size": 24, "color": LINE_GREY, "line": {"width": 3}}, hoverinfo="text",
        hovertext=[f"{_shape(row.before)}: {row.undisturbed:,.0f} iterations undisturbed" for row in rows],
    )  # fmt: skip
    for number, row in enumerate(rows):
        back = f"; {row.to_checkpoint} of {row.n} go back" if row.to_checkpoint else ""
        text = f"{row.made:,.0f}; undisturbed {row.undisturbed:,.0f}{back}"
        figure.add_annotation(x=1.02 * most, y=number, text=text, xanchor="left", **UNBOXED)
    figure.update_xaxes(range=[0, ROOM * most], title_text=f"iterations in the {hour} after a change")
    figure.update_yaxes(**numbered_rows([_shape(row.before) for row in rows]))
    best = rows[0]
    return titled(
        figure,
        f"{_shape(best.before)} makes most: {best.made:,.0f} iterations in the {hour} after a change",
        f"stages × replicas; mean of {counted(best.n, 'change')} of each plan, planned again; if a stage has no "
        f"other copy, all devices go back, and half of the {duration(every_s)} between two checkpoints is redone",
        alt="; ".join(f"{_shape(row.before)} {row.made:,.0f} of {row.undisturbed:,.0f} iterations" for row in rows),
        height=210 + ROW_PX * len(rows),
        barmode="overlay",
    )


def _shape(plan: Plan) -> str:
    stages, replicas = plan.placement.devices.shape
    return f"{stages} × {replicas}"


def _move(found: Replan) -> go.Figure:
    """Draw the number of iterations done against the seconds since the change. None is done until the state has
    moved."""
    figure = go.Figure()
    pays_s = found.pays_after_s
    stay_s = 0.0 if found.stay_moves is None else found.stay_moves.move_s
    # Until well after the move has paid, so that the crossing is in the picture.
    until_s = min(found.horizon_s, 2.5 * max(pays_s or 0.0, found.move_s, stay_s)) or found.horizon_s
    curves = [("move at once", found.plan, found.move_s, GREEN)]
    if found.stay is not None and not found.stays:
        curves.append(("stay, and only fill the holes" if stay_s else "stay", found.stay, stay_s, ORANGE))
    for name, plan, move_s, color in curves:
        # Nothing is trained until the move ends, and then at a constant rate: three points are the whole curve.
        at_s = [0.0, move_s, until_s]
        figure.add_scatter(
            x=at_s, y=[_iterations(plan, each - move_s) for each in at_s], mode="lines",
            name=f"{name}: {plan.iteration_s:.4g} s an iteration", line={"color": color, "width": 2.4},
            hovertemplate="%{y:.4~g} iterations",
        )  # fmt: skip
    if found.move_s:
        figure.add_vrect(x0=0, x1=found.move_s, fillcolor=GREEN, opacity=0.12, line_width=0, layer="below")
        words = f"moving, {duration(found.move_s)}"
        figure.add_annotation(x=0, y=1, yref="paper", yanchor="top", xanchor="left", text=words, **UNBOXED)
    if pays_s:
        upright(figure, pays_s, f"ahead after {duration(pays_s)}", y=0.02)
    figure.update_xaxes(title_text="seconds since the change", range=[0, until_s])
    figure.update_yaxes(title_text="iterations", rangemode="tozero")
    look = {"height": 430, "showlegend": True, "hovermode": "x unified"}
    alt = f"{_verdict(found)}. {found.sentence}"
    return titled(figure, _verdict(found), literal(found.sentence), alt=alt, **look)


def _verdict(found: Replan) -> str:
    pays_s = found.pays_after_s
    if pays_s is None:
        return f"Stay: no move pays within {duration(found.horizon_s)}"
    if not pays_s:
        return "Move at once: it is ahead from the first second"
    return f"Move at once, unless the next change comes within {duration(pays_s)}"
