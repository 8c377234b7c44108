"""Latency and bandwidth of a link, estimated from nothing but the distance of its ends.

A rule with four constants, fitted to the 45 pairs of AWS regions in DT-FM's config.py (2022) by least squares
of logarithms. Latencies are one way, as that code charges them to each message.

- latency = 5.6 ms + 3.0 x great circle / (200,000 km/s, light in fibre). The factor is cables' detours, and, by
  its size, that these latencies look like round trips.
- bandwidth = 78 Mbit / latency, at most 1.05 Gbit/s: what one stream carries whose window is 9.75 MB.

Over the 45 pairs the rule's latency is off by 15 % at the median and by 43 % at most (Seoul to Europe takes a
long way round), its bandwidth by 12 % and 66 %.
"""

from __future__ import annotations

from math import asin, cos, radians, sin, sqrt
from typing import NamedTuple

from dtfm_lab.domain.network.places import Place
from dtfm_lab.domain.units import from_gbps

EARTH_RADIUS_M = 6_371_008.8
"""Mean radius, IUGG."""
FIBRE_M_PER_S = 2.0e8
"""Speed of light in glass, about two thirds of that in a vacuum."""
DETOUR = 3.0
"""Fitted length of a message's way as a multiple of the great circle."""
OVERHEAD_S = 5.6e-3
"""Latency at distance 0, in seconds."""
WINDOW_BYTES = 78e6 / 8
"""Bytes of one stream in flight at once."""
MOST_BYTES_PER_S = from_gbps(1.05)
"""Bandwidth limit of near pairs, in bytes per second."""


class Link(NamedTuple):
    """Estimated link from one place to another, one way."""

    distance_m: float
    latency_s: float
    bandwidth_bytes_per_s: float


def great_circle_m(a: Place, b: Place) -> float:
    """Metres along the globe, taken as a sphere: within 0.6 % of the ellipsoid."""
    north_a, north_b = radians(a.latitude), radians(b.latitude)
    half_north, half_east = (north_b - north_a) / 2, radians(b.longitude - a.longitude) / 2
    haversine = sin(half_north) ** 2 + cos(north_a) * cos(north_b) * sin(half_east) ** 2
    return 2 * EARTH_RADIUS_M * asin(sqrt(min(haversine, 1.0)))


def link_over(distance_m: float) -> Link:
    """The rule's link over a distance."""
    latency_s = OVERHEAD_S + DETOUR * distance_m / FIBRE_M_PER_S
    return Link(distance_m, latency_s, min(MOST_BYTES_PER_S, WINDOW_BYTES / latency_s))


def link_between(a: Place, b: Place) -> Link:
    """The rule's link between two places, the same in both directions."""
    return link_over(great_circle_m(a, b))
