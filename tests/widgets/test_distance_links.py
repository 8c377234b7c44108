"""Which pairs of regions the rule of distances fills."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from dtfm_lab import lab
from dtfm_lab.domain.network import find_place, link_between

filling = pytest.importorskip("dtfm_lab.widgets.network.links", reason="needs the lab extra")
documents = pytest.importorskip("dtfm_lab.widgets.network.document_conversion", reason="needs the lab extra")


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


def drawn_by_hand() -> dict[str, Any]:
    """Twelve devices in three regions without a city's name, one of them further off than the others."""
    corners = {"region-1": (0, 0), "region-2": (300, 0), "region-3": (1500, 600)}
    devices = [
        {"name": f"{region}-{i}", "region": region, "gpu": "T4", "x": x + 60 * i, "y": y}
        for region, (x, y) in corners.items()
        for i in range(4)
    ]
    regions = [{"name": name, "latency_ms": 0.5, "bandwidth_gbps": 10.0} for name in corners]
    return documents.empty_document() | {"devices": devices, "regions": regions}


def test_regions_drawn_by_hand_are_as_far_apart_as_they_are_drawn() -> None:
    near, far, across = filling.filled(drawn_by_hand())
    assert (near["distance_km"], far["distance_km"]) == (3000, 16250)
    assert near["latency_ms"] < across["latency_ms"] < far["latency_ms"]
    assert near["bandwidth_gbps"] > across["bandwidth_gbps"] > far["bandwidth_gbps"]


def test_a_nudge_changes_no_link_and_a_move_does() -> None:
    drawn = drawn_by_hand()
    drawn["devices"][0]["x"] += 5
    assert filling.filled(drawn) == filling.filled(drawn_by_hand())
    drawn["devices"][0]["x"] += 400
    assert filling.filled(drawn) != filling.filled(drawn_by_hand())


def test_known_cities_on_a_blank_canvas_have_their_own_distance_wherever_they_are_drawn() -> None:
    drawn = drawn_by_hand()
    for region, name in zip(drawn["regions"], ("Tokyo", "Lisbon", "rack"), strict=True):
        for device in drawn["devices"]:
            device["region"] = name if device["region"] == region["name"] else device["region"]
        region["name"] = name
    (pair,) = (line for line in filling.filled(drawn) if set(line["regions"]) == {"Tokyo", "Lisbon"})
    assert pair == filling.filled(document("Tokyo", "Lisbon"))[0]


def test_planners_differ_on_regions_drawn_by_hand() -> None:
    topology = documents.topology_of(drawn_by_hand())
    job = lab.load_job("gpt3-xl", n_stages=3, n_replicas=4, global_batch=48, microbatch=1)
    names = ("random", "evolutionary")
    options = {"objective": "communication", "seed": 0, "steps": 3}
    cost_s = {name: lab.plan(topology, job, planner=name, **options).cost.total_s for name in names}
    assert cost_s["evolutionary"] < 0.9 * cost_s["random"]
