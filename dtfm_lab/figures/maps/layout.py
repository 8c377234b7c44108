"""Positions for devices and regions that have none, and boxes that are moved until they no longer overlap."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.units import FloatArray

ROUNDS = 400
"""Maximum number of rounds in which overlapping boxes are pushed apart."""
HOMEWARD = 0.02
"""Share of the way back to its original place that a box moves in each round of the first half."""
CLEARANCE = 0.45
"""Minimum distance at which a straight line passes a device, as a share of the smallest distance between two devices.
``bent`` returns an arc instead of a line that passes closer."""
RING_UP_TO = 12
"""Maximum number of devices of a region in a ring. More devices fill a spiral."""


class Patch(NamedTuple):
    """The area of a region's devices: a disc or a box."""

    centre: FloatArray
    half: FloatArray
    """Half of its width and height, (2,)."""
    round: bool

    def rim(self, towards: FloatArray) -> FloatArray:
        """Return the point at which the line from the centre to a point outside leaves the patch."""
        way = towards - self.centre
        if self.round:
            rim: FloatArray = self.centre + way * self.half[0] / np.linalg.norm(way)
        else:
            rim = self.centre + way * min(half / abs(w) for half, w in zip(self.half, way, strict=True) if w)
        return rim

    def holds(self, point: FloatArray) -> bool:
        """True if a point lies in the patch's bounding box."""
        return bool(np.all(np.abs(point - self.centre) <= self.half))


def is_drawn(topology: Topology) -> bool:
    """True if the user has placed every device."""
    return all(device.position is not None for device in topology.devices)


def device_places(topology: Topology) -> FloatArray:
    """Return (N, 2) x and y, y upwards: the topology's own positions, or clusters of devices on a circle of regions.

    The smallest distance between two devices is 1.
    """
    drawn = [device.position for device in topology.devices]
    places = np.array(drawn, dtype=float) * (1, -1) if is_drawn(topology) else _rings(topology)
    gaps = np.linalg.norm(places[:, None] - places[None, :], axis=-1)
    positive = gaps[gaps > 0]
    return places / positive.min() if positive.size else places


def region_patches(topology: Topology, places: FloatArray, margin: float) -> dict[str, Patch]:
    """Return the patch of each region: a box around its devices, or a disc if they are in rings."""
    patches = {}
    for region in topology.regions:
        of_it = places[[device.region == region for device in topology.devices]]
        centre = (of_it.min(axis=0) + of_it.max(axis=0)) / 2
        half = np.ptp(of_it, axis=0) / 2
        if disc := not is_drawn(topology):
            half = np.full(2, np.linalg.norm(of_it - centre, axis=1).max())
        patches[region] = Patch(centre, half + margin, disc)
    return patches


def rim_to_rim(patches: Mapping[str, Patch], a: str, b: str) -> FloatArray:
    """Return (7, 2) points of the line between two regions, from rim to rim unless one holds the other's centre."""
    start, end = patches[a].centre, patches[b].centre
    if not (patches[a].holds(end) or patches[b].holds(start)):
        start, end = patches[a].rim(end), patches[b].rim(start)
    return np.linspace(start, end, 7)


def circle(n: int, radius: float) -> FloatArray:
    """Return (n, 2) points on a circle, clockwise from the top. Two points are side by side, and a single one is in the
    middle."""
    start = np.pi if n == 2 else np.pi / 2
    angle = start - 2 * np.pi * np.arange(n) / max(1, n)
    return (radius if n > 1 else 0.0) * np.column_stack([np.cos(angle), np.sin(angle)])


def cluster(n: int) -> FloatArray:
    """Return (n, 2) points about 1 apart, each next to the one before: a ring, or a spiral if there are many."""
    if n <= RING_UP_TO:
        return circle(n, 0.5 / np.sin(np.pi / n)) if n > 1 else np.zeros((1, 2))
    turn = np.sqrt(4 * np.pi * (np.arange(n) + 0.9))
    spiral = (turn / (2 * np.pi))[:, None] * np.column_stack([np.sin(turn), np.cos(turn)])
    centred: FloatArray = spiral - (spiral.min(axis=0) + spiral.max(axis=0)) / 2
    return centred


def open_ellipse(n: int) -> FloatArray:
    """Return (n, 2) points within ±1, from the lower left over the top to the lower right, for a path with two ends."""
    if n <= 2:
        return np.column_stack([np.linspace(-0.6, 0.6, n) if n == 2 else np.zeros(n), np.zeros(n)])
    if n == 3:
        return np.array([[-1.0, -0.5], [0.0, 0.7], [1.0, -0.5]])
    angle = 1.5 * np.pi - 2 * np.pi * (np.arange(n) + 0.5) / n
    return np.column_stack([np.cos(angle), np.sin(angle)])


def bent(a: FloatArray, b: FloatArray, others: Iterable[FloatArray]) -> FloatArray:
    """Return (n, 2) points from a to b: a straight line, or an arc if the line would pass over another device."""
    along = b - a
    length = float(np.linalg.norm(along))
    if not length:
        return np.array([a, b])
    aside = np.array([-along[1], along[0]]) / length
    for other in others:
        share = float((other - a) @ along) / length**2
        # Only a device that lies between the ends, and close to the line, is in the way.
        if 0 < share < 1 and abs(float((other - a) @ aside)) < CLEARANCE:
            bend = (a + b) / 2 + aside * (0.2 * length + 0.5)
            t = np.linspace(0, 1, 17)[:, None]
            arc: FloatArray = (1 - t) ** 2 * a + 2 * t * (1 - t) * bend + t**2 * b
            return arc
    return np.array([a, (a + b) / 2, b])


def apart(centres: FloatArray, halves: FloatArray) -> FloatArray:
    """Return the centres (n, 2) of boxes of half sizes (n, 2), moved until no two boxes overlap, in at most ``ROUNDS``
    rounds.

    In each round, overlapping boxes are pushed apart along the axis on which they overlap least, and all move a little
    towards their original places. The second half of the rounds only pushes.
    """
    home = np.asarray(centres, dtype=float)
    n = len(home)
    now = home
    # boxes with equal coordinates have no direction, so their order decides
    in_order = np.sign(np.subtract.outer(np.arange(n), np.arange(n)))[..., None]
    reach = halves[:, None] + halves[None, :]
    for step in range(ROUNDS):
        away = now[:, None] - now[None, :]
        overlap = reach - np.abs(away)
        touching = (overlap > 1e-9).all(axis=-1) & ~np.eye(n, dtype=bool)
        last = step >= ROUNDS // 2
        if not touching.any() and last:
            break
        # Along the axis with less overlap, so that boxes move as little as possible.
        along_x = overlap[..., 0] < overlap[..., 1]
        sense = np.where(away == 0, in_order, np.sign(away))
        push = np.where(np.stack([along_x, ~along_x], axis=-1), overlap * sense, 0.0)
        now = now + 0.3 * np.where(touching[..., None], push, 0.0).sum(axis=1)
        # Homewards in the first half only, so that the second ends without overlap.
        if not last:
            now = now + HOMEWARD * (home - now)
    return now


def _rings(topology: Topology) -> FloatArray:
    """Return places with the regions on a circle, large enough for the two largest regions to be neighbours."""
    members = [[i for i, d in enumerate(topology.devices) if d.region == region] for region in topology.regions]
    groups = [cluster(len(of_it)) for of_it in members]
    radii = sorted((float(np.linalg.norm(group, axis=1).max()) for group in groups), reverse=True)
    n = len(groups)
    centres = circle(n, (sum(radii[:2]) + 3.5) / (2 * np.sin(np.pi / n)) if n > 1 else 0.0)
    places = np.empty((len(topology), 2))
    for of_it, group, centre in zip(members, groups, centres, strict=True):
        places[of_it] = centre + group
    return places
