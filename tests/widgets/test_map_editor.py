"""The world map without a browser: what it sends to the page, and its picture."""

from __future__ import annotations

import numpy as np

import dtfm_lab as lab
from dtfm_lab.figures.maps.atlas import land_rings
from dtfm_lab.widgets.network.document_conversion import document_of
from dtfm_lab.widgets.network.drawing import Drawing
from dtfm_lab.widgets.views.map import MapView


def map_of(name: str) -> MapView:
    return MapView(Drawing(document_of(lab.load_topology(name))))


def test_the_outline_arrives_as_whole_tenths_of_degrees() -> None:
    tenths = np.frombuffer(MapView().land, "<i2")
    rings, at = [], 0
    while at < len(tenths):
        count = int(tenths[at])
        rings.append(tenths[at + 1 : at + 1 + 2 * count].reshape(count, 2) / 10)
        at += 1 + 2 * count
    assert len(rings) == len(land_rings())
    for sent, ring in zip(rings, land_rings(), strict=True):
        np.testing.assert_allclose(sent, ring, atol=1e-9)


def test_regions_are_placed_by_their_names_as_these_change() -> None:
    shown = map_of("worldwide")
    document = shown.document
    assert set(shown.places) == {region["name"] for region in document["regions"]}
    assert shown.places["Tokyo"] == [139.7, 35.7]
    renamed = [{**region, "name": region["name"].replace("Tokyo", "rack 7")} for region in document["regions"]]
    shown.drawing.document = {**document, "regions": renamed}
    assert "rack 7" not in shown.places
    assert len(shown.places) == 7


def test_a_device_dropped_on_another_asks_for_a_swap_of_two_that_are_drawn() -> None:
    shown = map_of("volunteers")
    asked: list[tuple[str, str]] = []
    shown.drawing.on_swap = lambda a, b: asked.append((a, b))
    for a, b in (("amy", "ben"), ("amy", "nobody")):
        shown._handle_custom_msg({"kind": "swap", "a": a, "b": b}, [])
    assert asked == [("amy", "ben")]
    assert shown.drawing.history == [], "a swap changes the plan, not the network"


def test_one_is_said_as_one() -> None:
    region = {"name": f"Tokyo ({'x' * 180})", "latency_ms": 1.0, "bandwidth_gbps": 1.0}
    devices = [
        {"name": name, "region": where, "gpu": "T4", "x": 0, "y": 0}
        for name, where in (("a", region["name"]), ("b", ""))
    ]
    canvas = MapView(Drawing({**Drawing().document, "name": "<b>", "devices": devices, "regions": [region]}))
    assert canvas.alt_text() == "World map of <b>: 1 device in 1 city, 1 in no known place"


def test_a_network_in_no_known_place_has_words() -> None:
    canvas = map_of("spot")
    assert canvas.alt_text() == "World map of spot: 0 devices in 0 cities, 64 in no known place"
    assert MapView().alt_text() == "World map of drawn: 0 devices in 0 cities"
