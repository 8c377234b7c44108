import pytest

from dtfm_lab.domain.network import find_place, place_names
from dtfm_lab.files import load_topology


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
