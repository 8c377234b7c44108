"""Small pictures of networks."""

from xml.etree import ElementTree

import pytest

import dtfm_lab as lab
from dtfm_lab.figures.maps.marks import gpu_shape, link_dash, link_width
from dtfm_lab.figures.maps.thumbnail import HEIGHT, WIDTH, thumbnail_svg
from dtfm_lab.files import topology_names

SVG = "{http://www.w3.org/2000/svg}"


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
