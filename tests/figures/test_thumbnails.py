"""The globe from above, and small pictures of networks."""

from xml.etree import ElementTree

import numpy as np
import pytest

import dtfm_lab as lab
from dtfm_lab.domain.network import find_place
from dtfm_lab.figures.maps.looks import gpu_shape, link_dash, link_width
from dtfm_lab.figures.maps.thumbnail import HEIGHT, WIDTH, globe_of, thumbnail_svg
from dtfm_lab.files import topology_names

SVG = "{http://www.w3.org/2000/svg}"


def places(*names):
    return [find_place(name) for name in names]


def test_cities_round_the_north_are_seen_from_the_pole_and_others_from_their_middle():
    globe = globe_of(places("Tokyo", "Oregon", "Virginia", "London", "Frankfurt"))
    np.testing.assert_allclose(globe.towards, [0, 0, 1], atol=1e-12)
    (x, y), *_ = globe.project(np.array([[70.0, 50.0]]))
    assert y > 0.5 > abs(x), "the widest gap, over Asia, is above"
    south = globe_of(places("Sydney", "Johannesburg", "São Paulo", "Auckland"))
    assert south.towards[2] == -1
    europe = globe_of(places("London", "Madrid", "Warsaw"))
    spot = find_place("Paris")
    assert np.linalg.norm(europe.project(np.array([[spot.longitude, spot.latitude]]))) < 0.15


def test_the_projection_keeps_areas_and_distances_from_the_centre():
    globe = globe_of(places("Nairobi"))
    spot = find_place("Nairobi")
    ring = np.array([[spot.longitude + 90, 0.0]])
    assert np.linalg.norm(globe.project(ring)) == pytest.approx(np.sqrt(2), abs=0.02)
    # a small square keeps its area wherever it lies
    for longitude, latitude in ((30.0, 10.0), (80.0, -30.0), (100.0, 40.0)):
        corners = globe.project(np.array([(longitude + i, latitude + j) for i, j in ((0, 0), (0.01, 0), (0, 0.01))]))
        a, b = corners[1] - corners[0], corners[2] - corners[0]
        true = np.radians(0.01) ** 2 * np.cos(np.radians(latitude))
        assert abs(a[0] * b[1] - a[1] * b[0]) == pytest.approx(true, rel=1e-3)


@pytest.mark.parametrize("name", topology_names())
def test_a_thumbnail_has_a_shape_for_each_device_inside_and_no_words(name):
    topology = lab.load_topology(name)
    picture = thumbnail_svg(topology)
    root = ElementTree.fromstring(picture)
    assert not list(root.iter(f"{SVG}text"))
    assert len(picture) < 20_000
    marks = [one for one in root if one.get("fill-opacity") == "0.5"]
    assert len(marks) == len(topology)
    spots = [(float(one.get("cx")), float(one.get("cy"))) for one in marks if one.tag == f"{SVG}circle"]
    assert all(0 < x < WIDTH and 0 < y < HEIGHT for x, y in spots)
    assert len(set(spots)) == len(spots)


def test_a_thumbnail_of_a_plan_has_its_stages_colours():
    topology = lab.load_topology("lecture-hall")
    job = lab.load_job("small", n_stages=4, n_replicas=2)
    plan = lab.plan(topology, job, seed=0, seconds=0.1)
    for dark in (False, True):
        picture = thumbnail_svg(topology, plan, dark=dark)
        colors = [lab.figures.palette.stage_color(stage, 4, dark=dark) for stage in range(4)]
        assert [picture.count(f'fill="{color}"') for color in colors] == [2] * 4


def test_wide_is_fast_and_dotted_is_far():
    widths = [link_width(gbps) for gbps in (0.001, 0.1, 1, 10, 1e4)]
    assert widths == sorted(widths)
    assert (widths[0], widths[-1]) == (1, 7)
    assert [link_dash(ms) for ms in (0, 29.9, 30, 80, 150, 400)] == ["solid", "solid", "longdash", "dash", "dot", "dot"]


def test_shapes_say_the_kind_of_gpu():
    kinds = {
        "box": ("laptop", "Raspberry Pi", ""),
        "triangle": ("RTX 4090", "GTX 1080"),
        "circle": ("V100", "RTX A6000"),
    }
    assert {name: gpu_shape(name) for names in kinds.values() for name in names} == {
        name: kind for kind, names in kinds.items() for name in names
    }
