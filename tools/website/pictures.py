"""Pictures of figures: drawn by a Chromium, for light and for dark pages; none where no Chromium is installed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import plotly.io

from dtfm_lab import figures

SCALE, N_COLORS = 1.25, 96
"""Dots a pixel, and colours, of a PNG: some 20 KB a picture."""


def draw_all(drawn: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """Write the pictures of figures by name; name -> file name with ``{theme}``; empty without a browser."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as closing:
        try:
            browser = closing.enter_context(_draughtsman())
        except Exception:  # no playwright, no Chromium, or one that does not start
            return {}
        for name, figure in drawn.items():
            for theme in ("light", "dark"):
                plain = plotly.io.to_json(figures.theme(figure, dark=theme == "dark"))
                picture = browser.plotly_png(json.loads(plain), SCALE, N_COLORS)
                (folder / f"{name}-{theme}.png").write_bytes(picture)
        return {name: f"{name}-{{theme}}.png" for name in drawn}


def _draughtsman() -> Any:
    from tools.still_pictures import draughtsman  # loads playwright, which not everyone has

    return draughtsman()
