"""Controls that a search and a race have in common."""

from __future__ import annotations

from typing import Any

import ipywidgets as w

from dtfm_lab.widgets.planner.background_search import SPEEDS

WATCHED = "to watch"


def seed_control() -> w.BoundedIntText:
    return w.BoundedIntText(
        0,
        min=0,
        max=2**31,
        description="Seed",
        tooltip="Equal seeds and generations give equal plans",
        layout=w.Layout(width="110px"),
        style={"description_width": "38px"},
    )


def speed_control() -> w.SelectionSlider:
    return w.SelectionSlider(
        options=list(SPEEDS),
        value=WATCHED,
        description="Speed",
        tooltip="How long an improvement stays on the screen; may be moved while it runs, and costs no budget",
        layout=w.Layout(width="265px"),
        style={"description_width": "45px"},
    )


def button(text: str, icon: str, style: str, tooltip: str, **options: Any) -> w.Button:
    layout = w.Layout(width="105px")
    return w.Button(description=text, icon=icon, button_style=style, tooltip=tooltip, layout=layout, **options)


def show_paused(pause: w.Button, paused: bool) -> None:
    """The button says what it would do."""
    pause.description, pause.icon = ("Resume", "play") if paused else ("Pause", "pause")
