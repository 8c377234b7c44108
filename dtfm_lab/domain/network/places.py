"""Coordinates of regions by name, for maps and estimated links. Costs follow from a network's links, never from these.

Latitudes and longitudes are in degrees, rounded to 0.1, from the GeoNames gazetteer (geonames.org, CC BY 4.0). If
several cities share a name, the largest counts. Region codes and names come from Amazon's documentation. If a region
is named after a state or a country, the point is a city in it, which need not be where the machines are.

Latency and bandwidth of a link are estimated from the distance alone, by a rule with four constants. They were fitted
to the 45 pairs of AWS regions in DT-FM's config.py (2022) by least squares of logarithms. Latencies are one way, as
that code charges them to each message.

- latency = 5.6 ms + 3.0 x great circle / (200,000 km/s, light in fibre). The factor covers the detours of cables.
  Its size suggests that the published latencies are round trips.
- bandwidth = 78 Mbit / latency, at most 1.05 Gbit/s: the rate of one stream with a window of 9.75 MB.

Over the 45 pairs the rule's latency is off by 15 % at the median and 43 % at most (traffic from Seoul to Europe takes a
long detour). Its bandwidth is off by 12 % and 66 %.
"""

import csv
import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from math import asin, cos, radians, sin, sqrt
from pathlib import Path
from typing import NamedTuple

from dtfm_lab.domain.network.streams import streams_bandwidth
from dtfm_lab.domain.units import from_gbps

CODE = re.compile(r"\b([a-z]{2}-[a-z]+-\d)[a-z]?\b")
"""Matches a region's code, with an optional letter of a zone."""
EARTH_RADIUS_M = 6_371_008.8
"""Mean radius (IUGG)."""
FIBRE_M_PER_S = 2.0e8
"""Speed of light in glass, about two thirds of the speed in vacuum."""
DETOUR = 3.0
"""Length of a message's path as a multiple of the great circle (fitted)."""
OVERHEAD_S = 5.6e-3
"""Latency at distance 0, in seconds."""
WINDOW_BYTES = 78e6 / 8
"""Bytes of one stream that are in flight at a time (fitted)."""
MOST_BYTES_PER_S = from_gbps(1.05)
"""Bandwidth limit of nearby pairs, in bytes per second (fitted)."""


class Place(NamedTuple):
    """A point on the globe, in degrees."""

    latitude: float
    """Positive to the north."""
    longitude: float
    """Positive to the east, -180 to 180."""


def find_place(region: str) -> Place | None:
    """Return the place of a city, a region or a region's code; None for any other name.

    Case, accents and punctuation do not matter, nor does a number or a zone's letter at the end: ``zurich``,
    ``Sao-Paulo``, ``us-west-2``, ``aws:eu-west-1b``, ``Tokyo 2``, ``US East (N. Virginia)``.
    """
    places = _places()
    if code := CODE.search(region.casefold().replace("_", "-")):
        return places.get(_words(code.group(1)))
    tries = (region, *re.findall(r"\(([^)]*)\)", region), region.partition("(")[0])
    return next((places[words] for words in map(_name, tries) if words in places), None)


def place_names() -> list[str]:
    """Return the cities that ``find_place`` knows, without their alternative names."""
    return [name for name, _ in _cities()]


def _name(region: str) -> str:
    return re.sub(r"[ \d]+$", "", _words(region))


def _words(name: str) -> str:
    """Return lower-case words of plain letters and digits, so that ``São Paulo`` equals ``sao_paulo``."""
    letters = (c for c in unicodedata.normalize("NFKD", name) if not unicodedata.combining(c))
    return " ".join(re.findall(r"[^\W_]+", "".join(letters).casefold()))


@cache
def _places() -> dict[str, Place]:
    places = {_words(name): place for name, place in _cities()}
    for row in _rows("city_names.csv"):  # names of one place, the city's own last
        *others, city = map(_words, row)
        places |= dict.fromkeys(others, places[city])
    return places


def _cities() -> list[tuple[str, Place]]:
    return [(name, Place(float(latitude), float(longitude))) for name, latitude, longitude in _rows("cities.csv")]


def _rows(name: str) -> Iterator[list[str]]:
    return csv.reader(Path(__file__).with_name(name).read_text(encoding="utf-8").splitlines())


class Link(NamedTuple):
    """Estimated link from one place to another, one way."""

    distance_m: float
    latency_s: float
    bandwidth_bytes_per_s: float


def great_circle_m(a: Place, b: Place) -> float:
    """Return metres along the globe, taken as a sphere, which is within 0.6 % of the ellipsoid."""
    north_a, north_b = radians(a.latitude), radians(b.latitude)
    half_north, half_east = (north_b - north_a) / 2, radians(b.longitude - a.longitude) / 2
    haversine = sin(half_north) ** 2 + cos(north_a) * cos(north_b) * sin(half_east) ** 2
    return 2 * EARTH_RADIUS_M * asin(sqrt(min(haversine, 1.0)))


def link_over(distance_m: float) -> Link:
    """Return the link that the rule estimates for a distance."""
    latency_s = OVERHEAD_S + DETOUR * distance_m / FIBRE_M_PER_S
    # the rule's latency is as long as a round trip
    reached = streams_bandwidth(MOST_BYTES_PER_S, latency_s, window_bytes=WINDOW_BYTES)
    return Link(distance_m, latency_s, float(reached))


def link_between(a: Place, b: Place) -> Link:
    """Return the link that the rule estimates between two places. It is the same in both directions."""
    return link_over(great_circle_m(a, b))
