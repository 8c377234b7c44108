"""Positions on the canvas for devices without one: a square block for each region, blocks in rows."""

from __future__ import annotations

from math import ceil, sqrt

from dtfm_lab.domain.network import Topology

SPACING = 90.0
"""Pixels between devices that have no position of their own."""
WIDER_THAN_HIGH = 1.7
"""About the canvas's width over its height."""


def canvas_positions(topology: Topology) -> list[tuple[float, float]]:
    """Return (x, y) in pixels for every device: its own position, or a slot in its region's block."""
    counts = dict.fromkeys(topology.regions, 0)
    for device in topology.devices:
        counts[device.region] += 1
    sides = {region: ceil(sqrt(count)) for region, count in counts.items()}
    corners = _shelves(sides)
    placed = dict.fromkeys(sides, 0)
    places = []
    for device in topology.devices:
        (left, top), side, slot = corners[device.region], sides[device.region], placed[device.region]
        placed[device.region] += 1
        own = ((left + slot % side + 1) * SPACING, (top + slot // side + 1) * SPACING)
        places.append(own if device.position is None else device.position)
    return places


def _shelves(sides: dict[str, int]) -> dict[str, tuple[int, int]]:
    """Return the corner of each region's block, counted in devices: rows that fill a canvas wider than high."""
    width = WIDER_THAN_HIGH * sqrt(sum((side + 1) ** 2 for side in sides.values()))
    corners, left, top, height = {}, 0, 0, 0
    for region, side in sides.items():
        if left and left + side + 1 > width:
            left, top, height = 0, top + height, 0
        corners[region] = (left, top)
        left += side + 1
        height = max(height, side + 1)
    return corners
