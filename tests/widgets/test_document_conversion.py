"""What is drawn is what the planner plans on, and what was not edited stays what it was."""

from __future__ import annotations

import copy
import dataclasses
from itertools import combinations
from typing import Any

import numpy as np
import pytest

import dtfm_lab as lab
from dtfm_lab import files
from dtfm_lab.domain.network import Topology, find_place, link_between
from dtfm_lab.widgets.network import document_conversion as documents
from dtfm_lab.widgets.network import links as filling


@pytest.mark.parametrize("name", files.topology_names())
def test_a_shipped_network_survives_the_canvas_whole(name: str) -> None:
    topology = lab.load_topology(name)
    document = documents.document_of(topology)
    drawn = documents.topology_of(document)
    np.testing.assert_array_equal(drawn.latency_s, topology.latency_s)
    np.testing.assert_array_equal(drawn.bandwidth_bytes_per_s, topology.bandwidth_bytes_per_s)
    assert drawn.fingerprint == topology.fingerprint
    assert (drawn.name, drawn.description) == (topology.name, topology.description)
    assert documents.is_document(document)


def test_nics_and_one_way_pairs_are_drawn_as_such_not_link_by_link() -> None:
    nics = documents.document_of(lab.load_topology("volunteers"))
    assert nics["links"] == []
    assert all(device["uplink_gbps"] <= device["downlink_gbps"] for device in nics["devices"])
    pairs = documents.document_of(lab.load_topology("campus"))
    assert pairs["links"] == []
    assert any("from" in pair for pair in pairs["between"])


def test_an_uplink_caps_what_the_default_says_and_no_link_of_its_own() -> None:
    document = documents.document_of(lab.load_topology("lecture-hall"))
    document["devices"][0]["uplink_gbps"] = 0.01
    ada, alan, barbara = (device["name"] for device in document["devices"][:3])
    own = {"source": ada, "target": barbara, "latency_ms": 1.0, "bandwidth_gbps": 5.0, "one_way": True}
    drawn = documents.topology_of(document | {"links": [own]})
    gbps = drawn.bandwidth_bytes_per_s * 8 / 1e9
    capped, free = gbps[drawn.index(ada), drawn.index(alan)], gbps[drawn.index(ada), drawn.index(barbara)]
    assert (round(capped, 6), round(free, 6)) == (0.01, 5.0)


def test_a_device_that_changes_its_gpu_takes_that_gpus_numbers_and_has_its_own_back_afterwards() -> None:
    document = documents.document_of(lab.load_topology("raspberry-pi"))
    pi = next(device for device in document["devices"] if device["name"] == "raspberry")
    own = documents.topology_of(document).devices[-1].peak_flop_per_s
    before = pi["gpu"]
    for gpu, peak_flop_per_s in (("A100", 312e12), ("V100", 125e12), (before, own)):
        pi["gpu"] = gpu
        assert documents.topology_of(document).devices[-1].peak_flop_per_s == peak_flop_per_s


def test_a_renamed_device_and_a_copy_keep_hardware_and_price() -> None:
    topology = lab.load_topology("volunteers")
    document = documents.document_of(topology)
    document["devices"].append(document["devices"][0] | {"name": "copy"})
    document["devices"][1]["name"] = "renamed"
    drawn = documents.topology_of(document)
    unnamed = [dataclasses.replace(device, name="x") for device in (*topology.devices, topology.devices[0])]
    assert [dataclasses.replace(device, name="x", position=None) for device in drawn.devices] == unnamed


def test_a_price_that_is_typed_is_taken_and_a_new_device_costs_what_its_gpu_costs() -> None:
    document = documents.document_of(lab.load_topology("islands"))
    price = document["devices"][0]["price_per_hour"]
    assert price > 0
    document["devices"][1]["price_per_hour"] = 9.5
    document["devices"].append({"name": "new", "region": "", "gpu": "A10", "x": 0.0, "y": 0.0})
    drawn = documents.topology_of(document)
    assert [drawn.devices[i].price_per_hour for i in (0, 1, -1)] == [price, 9.5, price]


def timed() -> Topology:
    """Three devices whose six links were all timed at two sizes."""
    topology = Topology.from_matrices(np.full((3, 3), 7.0), np.full((3, 3), 0.3), names=["a", "b", "c"])
    message_s = 0.02 * np.arange(1, 19).reshape(3, 3, 2)
    return dataclasses.replace(topology, message_bytes=np.array([1e3, 1e6]), message_s=message_s)


def test_measured_message_times_stay_with_links_that_stay_what_they_were() -> None:
    known = timed()
    document = documents.document_of(known)
    whole = documents.topology_of(document, known)
    assert whole.fingerprint == known.fingerprint
    link = {"source": "a", "target": "b", "latency_ms": 9.0, "bandwidth_gbps": 0.3, "one_way": True}
    edited = document | {"links": [link]}
    drawn = documents.topology_of(edited, known)
    assert np.isnan(drawn.message_s[0, 1]).all()
    np.testing.assert_array_equal(drawn.message_s[1, 0], known.message_s[1, 0])
    assert documents.topology_of(document, known).fingerprint == known.fingerprint, "an edit taken back loses nothing"


def test_measured_message_times_follow_a_renamed_device_and_no_copy() -> None:
    known = timed()
    document = copy.deepcopy(documents.document_of(known))
    document["devices"][0]["name"] = "alpha"
    document["devices"].append(document["devices"][1] | {"name": "copy"})
    drawn = documents.topology_of(document, known)
    np.testing.assert_array_equal(drawn.message_s[0, 1], known.message_s[0, 1])
    assert np.isnan(drawn.message_s[3]).all()


def broken(**parts: Any) -> dict[str, Any]:
    document = copy.deepcopy(documents.document_of(lab.load_topology("lecture-hall")))
    for part, change in parts.items():
        one = document[part] if isinstance(document[part], dict) else document[part][0]
        one |= change
    return document


ONE_WAY = {"from": "front", "to": "back", "latency_ms": 1.0, "bandwidth_gbps": 1.0}
LINK = {"source": "ada", "target": "grace", "latency_ms": 1.0, "bandwidth_gbps": 1.0, "one_way": False}


@pytest.mark.parametrize(
    ("document", "says"),
    [
        (broken(default={"latency_ms": -5}), "^all other pairs: latency_ms: .* greater than or equal to 0; found -5"),
        (broken(regions={"bandwidth_gbps": 0}), "^inside region front: bandwidth_gbps: .* greater than 0; found 0"),
        (
            broken(devices={"price_per_hour": -1}),
            "^device ada: price_per_hour: .* greater than or equal to 0; found -1",
        ),
        (
            broken(devices={"region": "attic"}),
            "^device ada: no region named 'attic'; known: back, front; wanted one with a line",
        ),
        (broken(devices={"name": "alan"}), "^2 devices are named 'alan'; names must be unique"),
        (
            broken() | {"links": [LINK | {"latency_ms": "soon"}]},
            "^link ada – grace: latency_ms: .* number.*; found 'soon'",
        ),
        (broken() | {"links": [LINK | {"target": "bob"}]}, "^no device named 'bob'; known: ada"),
        (broken() | {"between": [ONE_WAY | {"latency_ms": -1}]}, "^region pair front – back: latency_ms: .*; found -1"),
    ],
)
def test_a_mistake_is_told_by_the_thing_the_value_found_and_the_value_wanted(document: Any, says: str) -> None:
    with pytest.raises(lab.LabError, match=says):
        documents.topology_of(document)


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        {"devices": []},
        broken() | {"devices": [{"name": "ada"}]},
        broken() | {"devices": "ada"},
        broken() | {"links": [LINK | {"source": 3}]},
        broken() | {"between": [{"latency_ms": 1, "bandwidth_gbps": 1}]},
        broken() | {"between": [{"regions": ["front"], "latency_ms": 1, "bandwidth_gbps": 1}]},
        broken(default={"latency_ms": "x"}),
    ],
)
def test_what_cannot_be_drawn_is_no_document(value: Any) -> None:
    assert not documents.is_document(value)


def test_an_empty_canvas_says_how_to_begin() -> None:
    with pytest.raises(lab.LabError, match="the canvas is empty: press D"):
        documents.topology_of(documents.empty_document())


def test_a_drawing_offers_its_own_gpus_first() -> None:
    document = documents.empty_document()
    assert documents.gpus_of(document)[0] == "laptop"
    document["devices"] = [{"name": "a", "region": "", "gpu": "abacus", "x": 0.0, "y": 0.0}]
    assert documents.gpus_of(document)[:1] == ["abacus"]
    table = documents.gpus_of(document)[1:]
    assert table == sorted(table, key=str.casefold)


def regions_of(*regions: str, between: tuple[dict[str, Any], ...] = (), fill: str = "distance") -> dict[str, Any]:
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
    drawn = regions_of("Tokyo", "rack 7", "Lisbon", "us-west-2")
    assert [pair["regions"] for pair in filling.filled(drawn)] == [
        list(pair) for pair in combinations(["Tokyo", "Lisbon", "us-west-2"], 2)
    ]


def test_a_filled_pair_says_what_the_rule_says_in_screen_units() -> None:
    (pair,) = filling.filled(regions_of("Tokyo", "Lisbon"))
    link = link_between(find_place("Tokyo"), find_place("Lisbon"))
    assert pair["distance_km"] == round(link.distance_m / 1e3)
    assert pair["latency_ms"] == pytest.approx(link.latency_s * 1e3, abs=0.05)
    assert pair["bandwidth_gbps"] == pytest.approx(link.bandwidth_bytes_per_s * 8e-9, abs=5e-4)


def test_an_ocean_is_never_faster_than_the_room_at_either_end() -> None:
    drawn = regions_of("Berlin", "Paris")
    drawn["regions"][1]["bandwidth_gbps"] = 0.1
    assert filling.filled(drawn)[0]["bandwidth_gbps"] == 0.1


@pytest.mark.parametrize("line", [{"regions": ["Lisbon", "Tokyo"]}, {"from": "Lisbon", "to": "Tokyo"}])
def test_a_pair_that_a_line_speaks_of_is_left_alone(line: dict[str, Any]) -> None:
    assert filling.filled(regions_of("Tokyo", "Lisbon", between=(line,))) == []


def test_nothing_is_filled_unless_it_is_wanted() -> None:
    assert filling.filled(regions_of("Tokyo", "Lisbon", fill="default")) == []
    unsaid = regions_of("Tokyo", "Lisbon")
    del unsaid["fill"]
    assert filling.filled(unsaid) == []


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
    assert pair == filling.filled(regions_of("Tokyo", "Lisbon"))[0]
