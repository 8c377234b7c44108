"""A small picture of a network without words, for a gallery: on the part of the world where its places are."""

from html import escape
from itertools import pairwise

import numpy as np

from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import FloatArray
from dtfm_lab.figures.maps.atlas import ROOMY, Atlas, atlas, land_outlines
from dtfm_lab.figures.maps.layout import device_places, region_patches
from dtfm_lab.figures.maps.marks import gpu_shape
from dtfm_lab.figures.palette import stage_color
from dtfm_lab.figures.theme import count

WIDTH, HEIGHT = 224, 130
"""Pixels of the picture."""
MARGIN = 14


def thumbnail_svg(topology: Topology, plan: Plan | None = None, *, dark: bool = False) -> str:
    """Devices in their places as standalone SVG of 224 x 130 pixels: shapes by kind of GPU, colours by stage.

    Where a region is a known place, this is a map; else regions are faint boxes. Everything but the stages has the
    colour of the text around the picture. ``dark`` brightens the stages for a dark page.
    """
    where = atlas(topology)
    ground, places, cell = _abstract(topology) if where is None else _on_map(where)
    stages = {} if plan is None else {name: s for s, names in enumerate(plan.stages) for name in names}
    shapes = []
    for device, (x, y) in zip(topology.devices, places.tolist(), strict=True):
        stage = stages.get(device.name)
        color = "currentColor" if stage is None or plan is None else stage_color(stage, plan.job.n_stages, dark=dark)
        look = f'fill="{color}"' + ("" if stage is not None else ' fill-opacity="0.5"')
        shapes.append(_shape(device.gpu, x, y, 0.42 * cell, look))
    lines = "" if plan is None else _hops(plan, places)
    title = escape(f"{topology.name}: {count(len(topology), 'device')}", quote=True)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}">'
        f"{ground}{lines}{''.join(shapes)}</svg>"
    )


def _on_map(where: Atlas) -> tuple[str, FloatArray, float]:
    """The land, (N, 2) places in pixels, those of the large map, and the pixels that a device may fill."""
    view = where.view
    scale = min(WIDTH / (view.east - view.west), HEIGHT / ((view.north - view.south) * view.stretch))
    per_degree = scale * np.array([1.0, -view.stretch])
    middle = np.array([view.west + view.east, view.south + view.north]) / 2
    half = np.array([WIDTH, HEIGHT]) / 2
    shown = where.world.with_points(middle + half / per_degree * [[-1, -1], [1, 1]])
    rings = ((ring - middle) * per_degree + half for ring in land_outlines(shown, 0.6 / scale))
    paths = ["M" + "L".join(f"{x:.0f} {y:.0f}" for x, y in ring.tolist()) + "Z" for ring in rings]
    ground = f'<path d="{"".join(paths)}" fill="currentColor" fill-opacity="0.1" fill-rule="evenodd"/>'
    return ground, (where.places - middle) * per_degree + half, ROOMY * where.marker_px * scale / where.per_degree_px


def _abstract(topology: Topology) -> tuple[str, FloatArray, float]:
    """Boxes of regions, (N, 2) places in pixels as on the canvas, and the pixels that a device may fill."""
    places = device_places(topology)
    low, high = places.min(axis=0), places.max(axis=0)
    scale = float(np.min((np.array([WIDTH, HEIGHT]) - 2 * MARGIN - 6) / np.maximum(high - low, 1.0)))
    scale = min(scale, 26.0)
    to_px = np.array([scale, -scale])
    middle = np.array([WIDTH / 2, HEIGHT / 2]) - (low + high) / 2 * to_px
    boxes = []
    for patch in region_patches(topology, places, margin=0.6).values() if len(topology.regions) > 1 else ():
        x, y = (patch.centre * to_px + middle - patch.half * scale).tolist()
        width, height = (2 * patch.half * scale).tolist()
        corner = min(width, height) / 2 if patch.round else 5
        boxes.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{corner:.1f}"/>')
    ground = f'<g fill="currentColor" fill-opacity="0.08">{"".join(boxes)}</g>'
    return ground, places * to_px + middle, min(scale, 18.0)


def _shape(gpu: str, x: float, y: float, radius: float, look: str) -> str:
    """A circle for a data-centre GPU, a box for a laptop or a processor, a triangle for a consumer card."""
    shape = gpu_shape(gpu)
    if shape == "box":
        side = 1.8 * radius
        return (
            f'<rect x="{x - side / 2:.1f}" y="{y - side / 2:.1f}" width="{side:.1f}" height="{side:.1f}" '
            f'rx="{side / 4:.1f}" {look}/>'
        )
    if shape == "triangle":
        wide, tall = 1.1 * radius, radius
        return f'<path d="M{x:.1f} {y - tall:.1f}l{wide:.1f} {1.9 * tall:.1f}h{-2 * wide:.1f}z" {look}/>'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" {look}/>'


def _hops(plan: Plan, places: FloatArray) -> str:
    """The pipelines' ways between regions, one line for each pair of regions, from and to the middle of its devices."""
    regions = [device.region for device in plan.topology.devices]
    ends: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for visited in plan.placement.devices.T.tolist():
        for a, b in pairwise(visited):
            if regions[a] != regions[b]:
                ends.setdefault((min(regions[a], regions[b]), max(regions[a], regions[b])), []).append(
                    (a, b) if regions[a] < regions[b] else (b, a)
                )
    ways = []
    for pairs in ends.values():
        (x0, y0), (x1, y1) = (places[[pair[end] for pair in pairs]].mean(axis=0).tolist() for end in (0, 1))
        ways.append(f"M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}")
    return f'<path d="{"".join(ways)}" fill="none" stroke="currentColor" stroke-opacity="0.4" stroke-width="1.2"/>'
