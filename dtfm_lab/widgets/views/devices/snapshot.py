"""The devices of a run as a picture that stands alone: a tile each, a row a pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from dtfm_lab.figures.palette import GREEN, GREY, ORANGE, VERMILLION, stage_color

TILE, GAP, LEFT, TOP = (118, 46), 6, 74, 24
LETTERS = 17
"""of a name, a line of a tile holds so many"""
EDGES = {"killed": VERMILLION, "lost": VERMILLION, "paused": GREY, "slow": ORANGE, "recovered": GREEN}


def picture(devices: Sequence[Mapping[str, Any]], states: Mapping[str, Mapping[str, Any]]) -> str:
    """From the devices and states of a DevicesView; empty where there are no devices."""
    if not devices:
        return ""
    pipelines = list(dict.fromkeys(device["pipeline"] for device in devices))
    columns = len(devices) // len(pipelines)
    width = LEFT + columns * (TILE[0] + GAP)
    height = TOP + len(pipelines) * (TILE[1] + GAP)
    parts = []
    for at, device in enumerate(devices):
        row, column = divmod(at, columns)
        x, y = LEFT + column * (TILE[0] + GAP), TOP + row * (TILE[1] + GAP)
        if row == 0:
            parts.append(_text(x, TOP - 8, f"stage {device['stages']}", "#666"))
        if column == 0:
            parts.append(_text(4, y + TILE[1] / 2 + 4, f"pipeline {device['pipeline']}", "#666"))
        parts.append(_tile(x, y, device, states.get(device["name"], {})))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="system-ui, sans-serif" font-size="12" role="img" aria-label="{len(devices)} devices, '
        f'{len(pipelines)} pipelines"><rect width="{width}" height="{height}" fill="#fff"/>{"".join(parts)}</svg>'
    )


def _tile(x: float, y: float, device: Mapping[str, Any], state: Mapping[str, Any]) -> str:
    edge = EDGES.get(state.get("condition", ""), "#ccc")
    said = state.get("said") or device["region"]
    busy = state.get("busy")
    full, bar_y = TILE[0] - 14, y + TILE[1] - 8
    bar = "" if busy is None else (
        f'<rect x="{x + 9}" y="{bar_y}" width="{full}" height="3" fill="#ddd"/>'
        f'<rect x="{x + 9}" y="{bar_y}" width="{full * busy:.0f}" height="3" fill="#666"/>'
    )  # fmt: skip
    return (
        f'<rect x="{x + 0.5}" y="{y + 0.5}" width="{TILE[0]}" height="{TILE[1]}" rx="3" fill="#fff" stroke="{edge}"/>'
        f'<rect x="{x}" y="{y}" width="4" height="{TILE[1] + 1}" fill="{stage_color(device["stage"])}"/>'
        f"{_text(x + 9, y + 15, device['name'], '#222')}{_text(x + 9, y + 30, said, '#666')}{bar}"
    )


def _text(x: float, y: float, text: str, fill: str) -> str:
    shown = text if len(text) <= LETTERS else text[: LETTERS - 1] + "…"
    return f'<text x="{x:g}" y="{y:g}" fill="{fill}">{escape(shown)}</text>'
