"""Regions have places; the rule from distance to latency and bandwidth is held against the pairs it was fitted to."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtfm_lab.domain.network import Place, find_place, link_between, place_names
from dtfm_lab.domain.network.places import EARTH_RADIUS_M, FIBRE_M_PER_S, great_circle_m, link_over
from dtfm_lab.domain.units import to_gbps, to_ms
from dtfm_lab.files import load_topology

AWS = """
Oregon Virginia 67 0.79; Oregon Ohio 49 1.10; Oregon Tokyo 96 0.523; Oregon Seoul 124 0.46; Oregon Singapore 163 0.341;
Oregon Sydney 139 0.36; Oregon London 136 0.42; Oregon Frankfurt 143 0.404; Oregon Ireland 124 0.482;
Virginia Ohio 11 1.12; Virginia Tokyo 143 0.524; Virginia Seoul 172 0.500; Virginia Singapore 230 0.364;
Virginia Sydney 197 0.383; Virginia London 76 1.16; Virginia Frankfurt 90 1.02; Virginia Ireland 67 1.05;
Ohio Tokyo 130 0.694; Ohio Seoul 159 0.529; Ohio Singapore 197 0.452; Ohio Sydney 185 0.484; Ohio London 86 1.05;
Ohio Frankfurt 99 0.799; Ohio Ireland 77 1.14; Tokyo Seoul 34 1.10; Tokyo Singapore 73 1.01; Tokyo Sydney 100 0.761;
Tokyo London 210 0.366; Tokyo Frankfurt 223 0.36; Tokyo Ireland 199 0.465; Seoul Singapore 74 1.14;
Seoul Sydney 148 0.58; Seoul London 238 0.342; Seoul Frankfurt 235 0.358; Seoul Ireland 228 0.335;
Singapore Sydney 92 0.816; Singapore London 169 0.500; Singapore Frankfurt 155 0.535; Singapore Ireland 179 0.492;
Sydney London 262 0.326; Sydney Frankfurt 265 0.328; Sydney Ireland 254 0.344; London Frankfurt 14 1.14;
London Ireland 12 1.09; Frankfurt Ireland 24 1.08
"""
"""Pairs of AWS regions, ms and Gbit/s: DT-FM's config.py (2022), all 45 of them."""

places = st.builds(Place, st.floats(-90, 90), st.floats(-180, 180))


def _pairs() -> list[tuple[str, str, float, float]]:
    lines = (entry.split() for entry in AWS.split(";"))
    return [(a, b, float(ms), float(gbps)) for a, b, ms, gbps in lines]


def _off() -> tuple[np.ndarray, np.ndarray]:
    """Ratios of what the rule says to what the table has, of latency and of bandwidth."""
    links = [link_between(find_place(a), find_place(b)) for a, b, _, _ in _pairs()]
    latency = [to_ms(link.latency_s) / ms for link, (_, _, ms, _) in zip(links, _pairs(), strict=True)]
    bandwidth = [
        to_gbps(link.bandwidth_bytes_per_s) / gbps for link, (_, _, _, gbps) in zip(links, _pairs(), strict=True)
    ]
    return np.array(latency), np.array(bandwidth)


def test_the_rule_is_as_far_off_as_it_says() -> None:
    latency, bandwidth = (np.abs(ratio - 1) for ratio in _off())
    assert len(latency) == 45
    assert np.median(latency) == pytest.approx(0.15, abs=0.01)
    assert latency.max() == pytest.approx(0.43, abs=0.01)
    assert np.median(bandwidth) == pytest.approx(0.12, abs=0.01)
    assert bandwidth.max() == pytest.approx(0.67, abs=0.01)


@given(places, places)
@settings(max_examples=25)
def test_a_distance_is_the_same_both_ways_and_at_most_half_a_turn(a: Place, b: Place) -> None:
    assert great_circle_m(a, b) == pytest.approx(great_circle_m(b, a), abs=1e-6)
    assert 0 <= great_circle_m(a, b) <= np.pi * EARTH_RADIUS_M * (1 + 1e-12)


@given(places, places, places)
@settings(max_examples=25)
def test_no_detour_is_shorter(a: Place, b: Place, c: Place) -> None:
    assert great_circle_m(a, c) <= great_circle_m(a, b) + great_circle_m(b, c) + 1e-3


def test_a_quarter_of_the_globe_has_its_length() -> None:
    quarter = np.pi / 2 * EARTH_RADIUS_M
    assert great_circle_m(Place(90, 0), Place(0, 77)) == pytest.approx(quarter)
    assert great_circle_m(Place(0, 170), Place(0, -100)) == pytest.approx(quarter)


@given(st.floats(0, 2.1e7), st.floats(0, 2.1e7))
@settings(max_examples=25)
def test_further_is_slower_and_no_message_is_faster_than_light_in_fibre(near: float, far: float) -> None:
    near, far = sorted((near, far))
    assert link_over(near).latency_s <= link_over(far).latency_s
    assert link_over(near).bandwidth_bytes_per_s >= link_over(far).bandwidth_bytes_per_s > 0
    assert link_over(far).latency_s > far / FIBRE_M_PER_S


@pytest.mark.parametrize("name", ["ten-cities", "worldwide", "regional"])
def test_every_region_of_the_papers_wide_networks_has_a_place(name):
    assert all(find_place(region) for region in load_topology(name).regions)


@pytest.mark.parametrize(
    ("written", "city"),
    [
        ("zurich", "Zürich"),
        ("SAO-PAULO", "São Paulo"),
        ("us-west-2", "Oregon"),
        ("us_east_1", "Virginia"),
        ("aws:eu-west-1b", "Ireland"),
        ("ap-northeast-2", "Seoul"),
        ("Tokyo 2", "Tokyo"),
        ("US East (N. Virginia)", "Virginia"),
        ("Frankfurt (eu-central-1)", "Frankfurt"),
        ("new_york", "New York"),
        ("Washington, D.C.", "Washington"),
    ],
)
def test_a_place_is_found_however_it_is_written(written, city):
    assert find_place(written) == find_place(city) is not None


@pytest.mark.parametrize("name", ["", "2", "front", "spot_instance_0", "eu-nowhere-9", "cluster", "moon"])
def test_a_name_that_says_no_place_has_none(name):
    assert find_place(name) is None


def test_places_are_on_the_globe_and_where_everybody_knows():
    places = {name: find_place(name) for name in place_names()}
    assert len(places) > 200
    assert all(-60 < p.latitude < 72 and -180 <= p.longitude <= 180 for p in places.values())
    assert find_place("Sydney").latitude < -30 < 60 < find_place("Reykjavik").latitude
    assert find_place("Oregon").longitude < -100 < 130 < find_place("Tokyo").longitude


def test_no_place_is_listed_twice():
    assert len(set(place_names())) == len(place_names())
