"""Looks down on the globe: Lambert's azimuthal equal-area projection, centred on what is shown.

Source: Snyder 1987, Map Projections: A Working Manual, chapter 24. The page of the map has the same projection.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dtfm_lab.domain.network import Place
from dtfm_lab.domain.units import FloatArray

ROUND_THE_WORLD = 200.0
"""Places whose widest gap in longitude is smaller, in degrees, lie round the world: it is then seen from a pole."""
BEHIND = -0.64
"""Cosine of the angle from the centre at which the picture ends (130 degrees); further land is moved to its edge."""


class Globe(NamedTuple):
    """A view of the globe. The three unit vectors (3,) are perpendicular to each other."""

    towards: FloatArray
    """Centre of the picture."""
    right: FloatArray
    up: FloatArray

    def project(self, points: FloatArray) -> FloatArray:
        """(n, 2) x to the right and y up of (n, 2) longitudes and latitudes in degrees; 1.41 is 90 degrees away."""
        sphere = on_sphere(points)
        depth = sphere @ self.towards
        plane = np.column_stack([sphere @ self.right, sphere @ self.up])
        seen = plane * np.sqrt(2 / np.maximum(1 + depth, 1e-9))[:, None]
        edge = plane / np.maximum(np.linalg.norm(plane, axis=1), 1e-9)[:, None] * np.sqrt(2 * (1 - BEHIND))
        projected: FloatArray = np.where((depth < BEHIND)[:, None], edge, seen)
        return projected

    def shows(self, points: FloatArray) -> bool:
        """Whether any of (n, 2) longitudes and latitudes is within the picture."""
        return bool((on_sphere(points) @ self.towards > BEHIND).any())


def on_sphere(points: FloatArray) -> FloatArray:
    """(n, 3) unit vectors of (n, 2) longitudes and latitudes in degrees."""
    longitude, latitude = np.radians(np.asarray(points, dtype=float)).T
    return np.column_stack(
        [np.cos(latitude) * np.cos(longitude), np.cos(latitude) * np.sin(longitude), np.sin(latitude)]
    )


def globe_of(places: Sequence[Place]) -> Globe:
    """Look at the middle of the places with north up; at a pole, with the widest gap up, where they lie round it."""
    points = np.array([(place.longitude, place.latitude) for place in places], dtype=float)
    longitudes = np.sort(points[:, 0])
    gaps = np.diff(longitudes, append=longitudes[0] + 360)
    widest = int(gaps.argmax())
    if gaps[widest] < ROUND_THE_WORLD:
        north = 1.0 if points[:, 1].mean() > -15 else -1.0
        top = np.radians(longitudes[widest] + gaps[widest] / 2)
        up, towards = np.array([np.cos(top), np.sin(top), 0.0]), np.array([0.0, 0.0, north])
    else:
        middle = on_sphere(points).mean(axis=0)
        towards = middle / np.linalg.norm(middle)
        up = np.array([0.0, 0.0, 1.0]) - towards[2] * towards
        up /= np.linalg.norm(up) or 1.0
    return Globe(towards, np.cross(up, towards), up)
