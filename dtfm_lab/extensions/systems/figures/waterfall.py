"""A waterfall from one set of assumptions to another: a floating bar shows the change by each switch."""

import itertools
import textwrap
from typing import Any

import plotly.graph_objects as go

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.extensions.systems.waterfall import Waterfall, WaterfallStep
from dtfm_lab.figures.palette import BLUE, GREEN, LINE_GREY, ORANGE, PURPLE
from dtfm_lab.figures.theme import UNBOXED, figure_of, literal, numbered_rows, row_bars, titled, with_headings, wrapped

ROW_PX = 52
NAME_LETTERS = 52
"""Maximum letters per line of the text next to a bar."""
ROOM = 1.2
"""Length of the axis, divided by the longest bar, if there is only a number next to the bar."""
ROOM_WORDS = 1.4
"""Length of the axis, divided by the longest bar, if there are words too."""
LEAST = 2e-3
"""Minimum width at which a change is drawn, as a share of the longest bar, so that it is visible."""
KINDS = {"end": ("the model", BLUE), "longer": ("takes longer", ORANGE), "shorter": ("takes less", GREEN)}
PUBLISHED = PURPLE


@figure_of(Waterfall)
def waterfall(found: Waterfall) -> go.Figure:
    """Return a figure with one row per switch. Its bar extends from the value before to the value after. The bars of
    the first row, and of a last row for all switches together, start at 0.

    A published number is a line, and a range is a band. A switch without a plan shows the reason.

    Raises PlanError if no step has a plan.
    """
    if found.start is None or found.end is None:
        raise PlanError(f"a waterfall {found.sentence}; wanted a first step with a plan")
    steps = list(found.steps)
    last = next(step for step in reversed(steps) if step.value is not None)
    longest = max([step.value or 0.0 for step in steps] + list(found.published or ()))
    bars = [_bar(found, step, row, longest) for row, step in enumerate(steps) if step.value is not None]
    end_row = len(steps)
    assert last.value is not None, "it was chosen so"
    bars.append({"row": end_row, "kind": "end", "from": 0.0, "to": last.value, "text": found.text_of(last.value)})
    bars[-1]["hover"] = f"the model after all switches: {bars[-1]['text']}"
    figure = go.Figure([_trace(kind, [bar for bar in bars if bar["kind"] == kind]) for kind in KINDS])
    # A kind without bars would still take a place in the legend.
    figure.data = [trace for trace in figure.data if len(trace.y)]
    for before, after in itertools.pairwise(bars):
        line = {"color": LINE_GREY, "width": 1, "dash": "dot"}
        figure.add_shape(type="line", x0=before["to"], x1=before["to"], y0=before["row"], y1=after["row"], line=line)
    for row, step in enumerate(steps):
        if step.value is None:
            reason = step.outcome.reason or ("" if step.against is None else step.against.reason)
            shown = textwrap.shorten(reason, 90, placeholder="…")
            figure.add_annotation(x=0, y=row, text=literal(shown), hovertext=literal(reason), xanchor="left", **UNBOXED)
    _add_published(figure, found)
    names = ["<br>".join(wrapped(step.sentence.rstrip("."), NAME_LETTERS)) for step in steps] + ["all of them"]
    room = ROOM_WORDS if any(step.held or not step.fits for step in steps) else ROOM
    against = found.steps[-1].against
    unit = "an iteration (s)"
    if found.in_times and against is not None:
        unit = f"times the seconds of {literal(against.strategy.heading)}"
    figure.update_xaxes(title_text=unit, range=[0, room * longest or 1.0], exponentformat="none")
    figure.update_yaxes(**numbered_rows(names))
    note = "each row on top of those above it, predicted by the link model; the changes depend on their order"
    look = {"barmode": "overlay", "height": 190 + ROW_PX * len(names), "legend_traceorder": "normal"}
    titled(figure, _title(found), note, alt=_alt(found), **look)
    return with_headings(figure) if found.published else figure


def _bar(found: Waterfall, step: WaterfallStep, row: int, longest: float) -> dict[str, Any]:
    assert step.value is not None, "rows without a plan have no bar"
    bar = {"row": row, "kind": "end", "from": 0.0, "to": step.value, "text": found.text_of(step.value)}
    hover = [literal(step.sentence), found.text_of(step.value)]
    if step.change is not None and step.ratio is not None and step.before is not None and step.before.value is not None:
        sign = "+" if step.change >= 0 else "−"
        text = f"{sign}{found.text_of(abs(step.change))} ({step.ratio:.2f}×)" if step.ratio != 1 else "no change"
        tiny = abs(step.change) < LEAST * longest
        bar |= {
            "kind": "longer" if step.change >= 0 else "shorter",
            # A change too small to see is drawn as a thin bar, or its row would look empty.
            "from": step.value - LEAST * longest if tiny else step.before.value,
            "text": text + (", plan held" if step.held else "") + ("" if step.fits else ", does not fit"),
        }
        hover += ["with the plan of the row above"] * step.held + ["does not fit in memory"] * (not step.fits)
    if step.source:
        hover.append(f"source: {literal(step.source)}")
    return bar | {"hover": "<br>".join(hover)}


def _trace(kind: str, bars: list[dict[str, Any]]) -> go.Bar:
    word, color = KINDS[kind]
    lengths = [abs(bar["to"] - bar["from"]) for bar in bars]
    rows, hover, text = ([bar[what] for bar in bars] for what in ("row", "hover", "text"))
    look = {"base": [min(bar["from"], bar["to"]) for bar in bars], "width": 0.56, "marker": {"color": color}}
    return row_bars(lengths, rows, hover, name=word, text=list(map(literal, text)), **look)


def _add_published(figure: go.Figure, found: Waterfall) -> None:
    if found.published is None:
        return
    low, high = found.published
    figure.add_vrect(x0=low, x1=high, fillcolor=PUBLISHED, opacity=0.16, line_width=0, layer="below")
    # A set, because a single number has one line.
    for end in {low, high}:
        figure.add_vline(x=end, line={"color": PUBLISHED, "width": 1.5}, layer="below")
    text = f"published {literal(found.published_text)}"
    figure.add_annotation(x=(low + high) / 2, y=1, yref="paper", yanchor="bottom", text=text, showarrow=False)


def _title(found: Waterfall) -> str:
    assert found.start is not None
    assert found.end is not None
    text = f"From {found.text_of(found.start)} to {found.text_of(found.end)}, one change at a time"
    if found.residue is None:
        return text
    return text + (": as published" if found.residue == 1 else f"; a factor of {found.residue:.2f} remains")


def _alt(found: Waterfall) -> str:
    each = [
        f"{step.sentence.rstrip('.')}: {'no plan' if step.value is None else found.text_of(step.value)}"
        for step in found.steps
    ]
    return f"A waterfall {found.sentence}. {'; '.join(each)}."
