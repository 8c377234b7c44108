"""The world map: land, places, clusters that keep apart, a plan drawn on it; and small pictures of networks."""

import itertools
from xml.etree import ElementTree

import numpy as np
import pytest
from drawn import lines as lines_of
from drawn import trace
from hypothesis import given as for_any
from hypothesis import strategies as st

import dtfm_lab as lab
from dtfm_lab import figures
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology, find_place, place_names
from dtfm_lab.figures.maps.atlas import COAST_PX, POINTS_PX, atlas, flight, land, land_rings, plane, view_of
from dtfm_lab.figures.maps.layout import apart, cluster
from dtfm_lab.figures.maps.marks import gpu_shape, link_dash, link_width
from dtfm_lab.figures.maps.network import HEIGHT, WIDTH, thumbnail_svg
from dtfm_lab.figures.strokes import outline
from dtfm_lab.files import load_topology, topology_names
from dtfm_lab.planning import evaluate


def network_of(regions, each):
    named = [region for region in regions for _ in range(each)]
    n = len(named)
    return Topology.from_matrices(np.full((n, n), 5.0), np.ones((n, n)), regions=named, name="drawn")


def places_of(figure):
    marks = trace(figure, "devices")
    return np.column_stack([marks.x, marks.y])


def holds(point, ring):
    """Whether a closed ring goes around a point: an odd number of edges cross the ray to its right."""
    (x, y), (a, b) = point, (ring, np.roll(ring, -1, axis=0))
    across = (a[:, 1] > y) != (b[:, 1] > y)
    with np.errstate(divide="ignore", invalid="ignore"):
        at = a[:, 0] + (y - a[:, 1]) / (b[:, 1] - a[:, 1]) * (b[:, 0] - a[:, 0])
    return bool((across & (at > x)).sum() % 2)


def test_land_is_closed_rings_of_degrees_without_antarctica():
    rings = land_rings()
    assert len(rings) > 100
    assert all(np.array_equal(ring[0], ring[-1]) for ring in rings)
    everything = np.vstack(rings)
    assert everything[:, 1].min() > -60
    assert everything[:, 1].max() < 90
    assert max(np.abs(np.diff(ring[:, 0])).max() for ring in rings) < 60, "no ring jumps at the antimeridian"


def test_the_middle_of_the_pacific_is_sea():
    assert not any(holds((-140.0, 10.0), ring) for ring in land_rings())


@for_any(st.sampled_from(place_names()), st.sampled_from(place_names()))
def test_a_flight_begins_and_ends_at_its_cities_and_goes_the_shorter_way_round(a, b):
    ends = plane([find_place(a), find_place(b)])
    pieces = flight(*ends)
    np.testing.assert_allclose(pieces[0][0], ends[0])
    np.testing.assert_allclose(pieces[-1][-1], ends[1])
    assert all(np.ptp(piece[:, 0]) <= 180 + 1e-9 for piece in pieces)


def test_the_pacific_is_not_cut_where_all_stand_around_it():
    points = plane([find_place("Tokyo"), find_place("Oregon")])
    assert np.ptp(points[:, 0]) < 120
    assert len(flight(*points)) == 1
    assert len(flight(*plane([find_place(c) for c in ("Tokyo", "Oregon", "Frankfurt", "Delhi")])[:2])) == 2


@for_any(st.integers(1, 60))
def test_devices_of_a_cluster_keep_apart(n):
    places = cluster(n)
    gaps = np.linalg.norm(places[:, None] - places[None], axis=-1) + 9 * np.eye(n)
    assert gaps.min() > 0.85
    if n > 2:
        assert np.linalg.norm(np.diff(places, axis=0), axis=1).max() < 1.6


@for_any(st.lists(st.tuples(st.integers(-300, 300), st.integers(-150, 150)), min_size=1, max_size=10), st.data())
def test_boxes_part_until_none_overlaps(centres, data):
    sides = st.tuples(st.integers(5, 30), st.integers(5, 30))
    halves = np.array([data.draw(sides) for _ in centres], dtype=float)
    moved = apart(np.array(centres, dtype=float), halves)
    for i, j in itertools.combinations(range(len(centres)), 2):
        overlap = halves[i] + halves[j] - np.abs(moved[i] - moved[j])
        assert (overlap < 1.0).any()
    np.testing.assert_allclose(apart(moved, halves / 4), moved, atol=0.01)  # what stands apart stays


@pytest.mark.parametrize(
    "topology",
    [
        load_topology("worldwide"),
        load_topology("universities"),
        network_of(place_names()[::8], 8),
        network_of(["Ireland 1", "Ireland 2", "Ireland 3"], 16),
    ],
    ids=["8 x 8", "2 x 32", "32 x 8", "3 x 16 at one place"],
)
def test_no_two_devices_cover_each_other_on_the_map(topology):
    where = atlas(topology)
    px = where.places / where.px(1.0)
    gaps = np.linalg.norm(px[:, None] - px[None], axis=-1) + 999 * np.eye(len(topology))
    assert gaps.min() >= where.marker_px
    view = where.view
    assert ((where.places > (view.west, view.south)) & (where.places < (view.east, view.north))).all()


def test_devices_stand_around_their_regions_place():
    topology = load_topology("regional")
    places = places_of(figures.network_map(topology))
    for region in topology.regions:
        of_it = places[[device.region == region for device in topology.devices]]
        latitude, longitude = find_place(region)
        assert np.abs(of_it.mean(axis=0) - (longitude, latitude)).max() < 3


def test_a_map_has_land_names_and_no_network_to_ask():
    topology = load_topology("worldwide")
    figure = figures.network_map(topology)
    assert figure.data[0].name == "land"
    assert {t.type for t in figure.data} == {"scatter"}
    assert {a.text for a in figure.layout.annotations} == {f"<b>{region}</b>" for region in topology.regions}
    assert figure.layout.yaxis.scaleanchor == "x"
    assert "64 devices in 8 regions" in figures.alt_text(figure)


def test_many_regions_show_their_fastest_links_and_say_so():
    figure = figures.network_map(network_of(place_names()[::16], 1))
    assert "2 fastest links of each region" in figure.layout.title.subtitle.text


def test_regions_without_a_place_stand_below_the_map_and_are_named():
    topology = network_of(["Tokyo", "Oregon", "moon"], 4)
    figure = figures.network_map(topology)
    assert "no known place, so below the map: moon" in figure.layout.title.subtitle.text
    places = places_of(figure)
    assert places[8:, 1].max() < places[:8, 1].min()
    assert np.nanmin(figure.data[0].y) > places[8:, 1].max()


def test_a_network_of_no_known_place_is_drawn_as_before_with_a_note(small_plan):
    topology = small_plan.topology
    figure = figures.network_map(topology)
    assert figure.to_dict()["data"] == figures.network(topology).to_dict()["data"]
    assert "no region has a known place on Earth" in figure.layout.title.subtitle.text


def test_a_plan_on_the_map_shows_every_pipeline(large_plan):
    figure = figures.plan_map(large_plan)
    assert sum(t.name == "pipelines" for t in figure.data) == large_plan.job.n_replicas
    assert sum(t.name == "pipelines" and bool(t.showlegend) for t in figure.data) == 1
    marks = trace(figure, "devices")
    assert sorted(marks.text) == sorted(str(s) for s in range(8) for _ in range(8))
    assert marks.marker.opacity == 1


def test_idle_devices_are_counted_and_grey():
    topology = network_of(["Tokyo", "Oregon"], 3)
    job = Job.from_bytes(2, 2, gradient_bytes=1e8, activation_bytes=1e7)
    figure = figures.plan_map(evaluate(topology, job, stages=[[0, 3], [1, 4]]))
    assert "2 devices idle" in figure.layout.title.subtitle.text
    assert list(trace(figure, "devices").text).count(" ") == 2


def test_the_land_on_a_map_is_that_of_the_outline_but_for_a_pixel_or_two():
    where = atlas(load_topology("worldwide"))
    drawn = lines_of(land(where.world, where.px(COAST_PX)[0]))
    exact = lines_of(land(where.world, 0.0))
    assert sum(map(len, drawn)) < 0.8 * sum(map(len, exact))
    for inland in ("Denver", "Munich", "Delhi", "Moscow"):
        latitude, longitude = find_place(inland)
        assert sum(holds((longitude, latitude), ring) for ring in drawn) == 1


def test_a_line_on_the_map_has_a_point_wherever_a_mouse_may_be():
    where = atlas(load_topology("worldwide"))
    way = where.route("Oregon", "London")
    steps = np.linalg.norm(np.diff(way, axis=0) / where.px(1.0), axis=1)
    assert steps.max() < 1.5 * POINTS_PX
    assert len(way) < 40


def test_a_view_is_neither_a_ribbon_nor_a_tower():
    for cities in (["Oslo"], ["Sydney", "Tokyo"], ["Lisbon", "Athens"], ["Oregon", "Tokyo", "London"]):
        view = view_of(plane([find_place(city) for city in cities]))
        assert 0.3 < (view.north - view.south) / (view.east - view.west) < 0.7


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


@pytest.mark.parametrize(("aside", "kept"), [(1.01, 6), (0.99, 5)])
def test_an_outline_keeps_what_is_further_aside_than_the_tolerance(aside, kept):
    ring = np.array([[0, 0], [5, aside], [10, 0], [10, 10], [0, 10], [0, 0]])
    assert len(outline(ring, tolerance=1.0)) == kept
