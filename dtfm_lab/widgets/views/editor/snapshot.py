"""The drawn network as a still picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import isfinite
from typing import Any

from dtfm_lab.figures.palette import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, YELLOW
from dtfm_lab.widgets.network.drawing import Document

WIDTH, HEIGHT = 900, 460
MARGIN_PX, LEGEND_PX, PADDING_PX, NAME_PX, RADIUS_PX = 46, 26, 20, 8, 9
GPU_COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY, YELLOW)
STAGE_COLOURS = (SKY, ORANGE, GREEN, YELLOW, BLUE, PURPLE)
MOST_NAMED = 40
"""devices; of more, only regions are named"""
MOST_LINES = 150
"""of links and of region pairs each; more than that nobody can follow"""
MOST_DEVICES = 300
LARGEST_ZOOM = 1.2

Place = tuple[float, float]


def network_words(document: Document) -> str:
    """How many of what, one line."""
    parts = ("devices", "regions", "links")
    counts = ", ".join(f"{len(document[p])} {p[:-1] if len(document[p]) == 1 else p}" for p in parts)
    return f"network {document.get('name') or 'drawn'}: {counts} of their own"


def network_picture(document: Document, gpus: Sequence[str], stages: Mapping[str, int]) -> str:
    """SVG of at most some 60 KB; devices wear their GPU's colour, or with ``stages`` their stage's, numbered."""
    devices = [d for d in document["devices"] if isfinite(d["x"]) and isfinite(d["y"])][:MOST_DEVICES]
    parts: list[str] = []
    if devices:
        at = _fitted(devices)
        boxes = _boxes(devices, at)
        centres = {region: ((x0 + x1) / 2, (y0 + y1) / 2) for region, (x0, y0, x1, y1) in boxes.items()}
        pairs = [(pair.get("regions") or [pair["from"], pair["to"]]) for pair in document["between"][:MOST_LINES]]
        links = [(link["source"], link["target"]) for link in document["links"]]
        parts += [_box(region, corners) for region, corners in boxes.items() if region]
        parts += [_line(centres[a], centres[b], 2.5, 0.35) for a, b in pairs if a in centres and b in centres]
        if len(links) <= MOST_LINES:
            parts += [_line(at[a], at[b], 1.2, 0.8) for a, b in links if a in at and b in at]
        parts += [_device(d, at[d["name"]], gpus, stages, named=len(devices) <= MOST_NAMED) for d in devices]
        parts.append(_legend(devices, gpus, stages))
    else:
        parts.append(_text(WIDTH / 2, HEIGHT / 2, "a blank canvas", "middle"))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img" aria-label="{escape(network_words(document))}" font-family="sans-serif" font-size="11">'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>{"".join(parts)}</svg>'
    )


def _fitted(devices: Sequence[Mapping[str, Any]]) -> dict[str, Place]:
    """Pixels of each device by name: all of them inside the picture, in proportion."""
    xs, ys = [d["x"] for d in devices], [d["y"] for d in devices]
    room = (WIDTH - 2 * MARGIN_PX, HEIGHT - 2 * MARGIN_PX - LEGEND_PX)
    wide, high = max(xs) - min(xs), max(ys) - min(ys)
    fits = [space / extent for space, extent in zip(room, (wide, high), strict=True) if extent]
    zoom = min([LARGEST_ZOOM, *fits])
    left = (WIDTH - zoom * wide) / 2 - zoom * min(xs)
    top = (HEIGHT - LEGEND_PX - zoom * high) / 2 - zoom * min(ys)
    return {d["name"]: (left + zoom * d["x"], top + zoom * d["y"]) for d in devices}


def _boxes(devices: Sequence[Mapping[str, Any]], at: Mapping[str, Place]) -> dict[str, tuple[float, ...]]:
    """Left, top, right and bottom of each region."""
    members: dict[str, list[Place]] = {}
    for device in devices:
        members.setdefault(device["region"], []).append(at[device["name"]])
    boxes: dict[str, tuple[float, ...]] = {}
    for region, places in members.items():
        xs, ys = zip(*places, strict=True)
        boxes[region] = (
            min(xs) - PADDING_PX,
            min(ys) - PADDING_PX,
            max(xs) + PADDING_PX,
            max(ys) + PADDING_PX + NAME_PX,
        )
    return boxes


def _box(region: str, corners: tuple[float, ...]) -> str:
    x0, y0, x1, y1 = corners
    return (
        f'<rect x="{x0:.0f}" y="{y0:.0f}" width="{x1 - x0:.0f}" height="{y1 - y0:.0f}" rx="6" fill="#888" '
        f'fill-opacity="0.08" stroke="#999"/>{_text((x0 + x1) / 2, y0 - 4, region, "middle", bold=True)}'
    )


def _line(start: Place, end: Place, width: float, opacity: float) -> str:
    (x0, y0), (x1, y1) = start, end
    return (
        f'<path d="M{x0:.0f} {y0:.0f}L{x1:.0f} {y1:.0f}" stroke="#777" stroke-width="{width}" '
        f'stroke-opacity="{opacity}"/>'
    )


def _device(
    device: Mapping[str, Any], at: Place, gpus: Sequence[str], stages: Mapping[str, int], *, named: bool
) -> str:
    x, y = at
    stage = stages.get(device["name"])
    colour = _gpu_colour(device["gpu"], gpus) if not stages else "#fff"
    if stage is not None:
        colour = STAGE_COLOURS[stage % len(STAGE_COLOURS)]
    drawn = f'<circle cx="{x:.0f}" cy="{y:.0f}" r="{RADIUS_PX}" fill="{colour}" stroke="#555" stroke-width=".6"/>'
    if stage is not None:
        drawn += _text(x, y + 3.5, str(stage), "middle")
    return drawn + (_text(x, y + RADIUS_PX + 12, device["name"], "middle") if named else "")


def _legend(devices: Sequence[Mapping[str, Any]], gpus: Sequence[str], stages: Mapping[str, int]) -> str:
    if stages:
        return _text(MARGIN_PX, HEIGHT - 10, "colours and numbers are pipeline stages", "start")
    parts, left = [], float(MARGIN_PX)
    for gpu in dict.fromkeys(device["gpu"] for device in devices):
        dot = f'<circle cx="{left:.0f}" cy="{HEIGHT - 14}" r="5" fill="{_gpu_colour(gpu, gpus)}"/>'
        parts.append(dot + _text(left + 9, HEIGHT - 10, gpu, "start"))
        left += 24 + 7 * len(gpu)
        if left > WIDTH - MARGIN_PX:
            break
    return "".join(parts)


def _gpu_colour(gpu: str, gpus: Sequence[str]) -> str:
    return GPU_COLOURS[list(gpus).index(gpu) % len(GPU_COLOURS)] if gpu in gpus else GREY


def _text(x: float, y: float, text: str, anchor: str, *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" fill="#222"{weight}>{escape(text)}</text>'
