"""What-ifs as plotly figures that stand alone. They are slow to make, so a thread makes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from dtfm_lab import figures, lab
from dtfm_lab.domain.plan import Plan
from dtfm_lab.figures.results.pinned import pinned
from dtfm_lab.widgets.what_if.measures import Measure
from dtfm_lab.widgets.what_if.pins import Pin
from dtfm_lab.widgets.what_if.setting import FACTORS, Setting

TRIED = {"bandwidth": (0.1, 0.18, 0.32, 0.56, 1.0, 1.8, 3.2, 5.6, 10.0), "latency": (0.1, 1.0, 10.0)}
"""Factors that the figure shows."""


def of_factors(plan: Plan, setting: Setting) -> go.Figure:
    """Return a figure of the iteration over both factors, all else as in the setting."""
    held: dict[str, Any] = {name: value for name, value in setting.values.items() if name not in FACTORS}
    return figures.sweep(lab.sweep(plan, **held | TRIED), x="bandwidth")


def of_pins(pins: Sequence[Pin], measure: Measure) -> go.Figure | None:
    """Return a figure of one measure of all pins; None where no pin has it."""
    answers = [(pin.name, pin.answer) for pin in pins if pin.answer is not None]
    rows = [(name, value, answer.fits) for name, answer in answers if (value := measure.of(answer)) is not None]
    return pinned(rows, measure.title, measure.text, more_is_better=measure.more_is_better) if rows else None
