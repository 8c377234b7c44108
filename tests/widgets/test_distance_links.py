"""Which pairs of regions the rule of distances fills."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from dtfm_lab.domain.network import find_place, link_between

filling = pytest.importorskip("dtfm_lab.widgets.network.links", reason="needs the lab extra")


def document(*regions: str, between: tuple[dict[str, Any], ...] = (), fill: str = "distance") -> dict[str, Any]:
    speed = {"latency_ms": 1.0, "bandwidth_gbps": 1.0}
    return {
        "name": "some",
        "devices": [{"name": "loose", "region": "", "gpu": "T4", "x": 0, "y": 0}],
        "regions": [{"name": name, **speed} for name in regions],
        "between": [{**line, **speed} for line in between],
        "links": [],
        "default": speed,
        "fill": fill,
    }


def test_pairs_of_known_places_without_a_line_are_filled() -> None:
    drawn = document("Tokyo", "rack 7", "Lisbon", "us-west-2")
    assert [pair["regions"] for pair in filling.filled(drawn)] == [
        list(pair) for pair in combinations(["Tokyo", "Lisbon", "us-west-2"], 2)
    ]


def test_a_filled_pair_says_what_the_rule_says_in_screen_units() -> None:
    (pair,) = filling.filled(document("Tokyo", "Lisbon"))
    link = link_between(find_place("Tokyo"), find_place("Lisbon"))
    assert pair["distance_km"] == round(link.distance_m / 1e3)
    assert pair["latency_ms"] == pytest.approx(link.latency_s * 1e3, abs=0.05)
    assert pair["bandwidth_gbps"] == pytest.approx(link.bandwidth_bytes_per_s * 8e-9, abs=5e-4)


@pytest.mark.parametrize("line", [{"regions": ["Lisbon", "Tokyo"]}, {"from": "Lisbon", "to": "Tokyo"}])
def test_a_pair_that_a_line_speaks_of_is_left_alone(line: dict[str, Any]) -> None:
    assert filling.filled(document("Tokyo", "Lisbon", between=(line,))) == []


def test_nothing_is_filled_unless_it_is_wanted() -> None:
    assert filling.filled(document("Tokyo", "Lisbon", fill="default")) == []
    unsaid = document("Tokyo", "Lisbon")
    del unsaid["fill"]
    assert filling.filled(unsaid) == []


def test_the_rule_names_its_constants() -> None:
    for constant in ("5.6 ms", "3.0", "200,000 km/s", "78 Mbit", "1.05 Gbit/s"):
        assert constant in filling.RULE
