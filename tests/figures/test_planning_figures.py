"""Matching, links as a matrix, convergence, frontiers: what they count and say."""

from dataclasses import replace

import numpy as np
import pytest
from drawn import array, lines, said_all_along, trace

import dtfm_lab as lab
from dtfm_lab import figures
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Device, Topology
from dtfm_lab.domain.units import format_s, to_gbps
from dtfm_lab.files import load_topology
from dtfm_lab.planning import evaluate
from dtfm_lab.planning.cost import bottleneck_matching


def uneven(n=5, names=None):
    rng = np.random.default_rng(0)
    return Topology.from_matrices(rng.uniform(1, 90, (n, n)), 10 ** rng.uniform(-1, 1, (n, n)), names=names)


def placed(topology, stages):
    job = Job.from_bytes(len(stages), len(stages[0]), gradient_bytes=1e8, activation_bytes=1e7)
    return evaluate(topology, job, stages=stages)


# matching


def test_a_matching_shows_every_candidate_and_marks_the_slowest_pair(large_plan):
    figure = figures.matching(large_plan, 2)
    candidates = trace(figure, "other 56 candidates")
    assert len(lines(candidates)) == len(said_all_along(candidates)) == 56
    matched = [t for t in figure.data if t.name.startswith(("matched", "slowest"))]
    assert sum(len(lines(t)) for t in matched) == 8
    labels = [label for t in matched for label in t.text if label.strip()]
    assert max(label.count("<b>") for label in labels) == 1, "the slowest stand out"
    assert format_s(large_plan.cost.hop_s[2]) in figure.layout.title.text
    assert "no perfect matching of these 64 pairs has a faster slowest pair" in figure.layout.title.subtitle.text


def test_two_stages_that_are_no_hop_are_matched_for_their_weight(large_plan):
    figure = figures.matching(large_plan, (5, 1))
    assert figure.layout.title.text.startswith("stage 5 – stage 1: 8 matched pairs")
    assert format_s(large_plan.cost.weights_s[1, 5]) in figure.layout.title.text
    assert "not a hop of the pipelines" in figure.layout.title.subtitle.text


def test_a_pairing_that_is_not_the_best_is_told():
    topology = uneven(6)
    job = Job.from_bytes(2, 3, gradient_bytes=1e8, activation_bytes=1e8)
    pair_s = topology.round_trip_s(job.hop_bytes)
    best_s, columns = bottleneck_matching(pair_s[:3, 3:])
    other = np.roll(columns, 1)
    ranks = [2 * i for i in range(3)] + [2 * int(np.flatnonzero(other == j)[0]) + 1 for j in range(3)]
    plan = evaluate(topology, job, rank_map=ranks)
    assert plan.cost.hop_s[0] > best_s
    assert f"the best matching would need {format_s(best_s)}" in figures.alt_text(figures.matching(plan, 0))


# links as a matrix


def test_link_matrix_shows_the_logarithm_and_nothing_on_the_diagonal():
    [heat] = figures.link_matrix(load_topology("lecture-hall")).data
    z = [list(row) for row in heat.z]
    assert all(np.isnan(z[i][j]) == (i == j) for i in range(8) for j in range(8))
    assert 10 ** z[0][1] == pytest.approx(0.3)
    assert (heat.y[0], heat.x[1], heat.text[0][1]) == ("ada", "alan", "0.3")
    assert "%{y} → %{x}: %{text} Gbit/s" in heat.hovertemplate


def test_a_large_link_matrix_says_its_values_as_exactly_as_a_small_one(large_plan):
    topology = large_plan.topology
    [heat] = figures.link_matrix(topology).data
    assert heat.texttemplate is None
    assert "%{text:.4~g} Gbit/s" in heat.hovertemplate
    np.testing.assert_allclose(heat.text, to_gbps(topology.bandwidth_bytes_per_s), rtol=1e-6)


def test_both_directions_of_a_link_are_shown_and_the_widest_difference_is_told():
    topology = uneven(4).with_link(2, 0, bandwidth_bytes_per_s=1e12, one_way=True)
    figure = figures.link_matrix(topology)
    [heat] = figure.data
    assert heat.text[2][0] != heat.text[0][2]
    assert "directions differ: device-2 → device-0 is" in figure.layout.title.subtitle.text
    alike = figures.link_matrix(load_topology("worldwide"))
    assert "both directions alike" in alike.layout.title.subtitle.text


def test_a_latency_of_0_one_way_only_is_a_difference_too():
    topology = load_topology("datacenter").with_link(0, 1, latency_s=0.002, one_way=True)
    assert "is longer than back" in figures.link_matrix(topology, "latency").layout.title.subtitle.text


def test_large_matrices_name_and_part_their_regions(large_plan):
    figure = figures.link_matrix(large_plan.topology)
    assert list(figure.layout.xaxis.ticktext) == list(large_plan.topology.regions)
    assert list(figure.layout.xaxis.tickvals) == [8 * i + 3.5 for i in range(8)]
    assert len(figure.layout.shapes) == 2 * 7


def test_names_that_are_numbers_stay_names():
    [heat] = figures.link_matrix(uneven(4, names=["3", "1e2", "lab", "0"])).data
    assert list(heat.x) == ["device 3", "device 1e2", "lab", "device 0"]


# convergence


def test_a_curve_of_convergence_only_falls_and_stays_above_the_bound(steps):
    curve, bound = figures.convergence(steps).data
    assert list(curve.y) == sorted(curve.y, reverse=True)
    assert curve.y[-1] == pytest.approx(steps[-1].best_s)
    assert bound.y[0] == pytest.approx(steps[-1].bound_s)
    assert curve.y[-1] >= bound.y[0]
    assert curve.line.shape == "hv"
    assert bound.line.dash == "dash"


@pytest.mark.parametrize(
    ("objective", "axis", "proof"),
    [
        ("communication", "best communication cost (s)", "of it could be saved"),
        ("iteration", "best iteration (s)", "of it could be saved"),
        ("price", "best price of a billion tokens ($)", "$"),
        ("somebody's", "best somebody's (s)", "somebody's"),
    ],
)
def test_a_curve_is_written_in_the_words_of_its_objective(steps, objective, axis, proof):
    figure = figures.convergence([replace(step, objective=objective) for step in steps])
    assert figure.layout.yaxis.title.text == axis
    assert proof in figure.data[0].name + figure.layout.title.text


def test_several_searches_share_one_bound(steps):
    figure = figures.convergence({"a": steps, "b": iter(steps[:3])})
    assert [trace.name.split(" ")[0] for trace in figure.data] == ["a:", "b:", "lower"]


def test_the_bound_is_the_largest_so_far_and_may_rise(steps):
    raised = [replace(step, bound_s=step.bound_s + 0.5 * i) for i, step in enumerate(steps[:4])]
    bound = figures.convergence({"steady": steps, "rising": raised}).data[-1]
    assert list(bound.y) == sorted(bound.y)
    assert bound.y[-1] == pytest.approx(raised[-1].bound_s)
    assert bound.name == f"lower bound {format_s(raised[-1].bound_s)}"


def test_the_legend_says_the_gap_to_the_common_bound_in_words(steps):
    last = steps[-1]
    proven = [replace(last, bound_s=last.best_s)]
    names = [t.name for t in figures.convergence({"a": steps, "b": proven}).data]
    assert names[0] == f"a: {format_s(last.best_s)}, communication cost proven best"


def test_searches_of_different_networks_have_a_bound_each(steps, population):
    names = [t.name for t in figures.convergence({"a": steps, "b": population}).data]
    assert sum(name.startswith("lower bound of ") for name in names) == 2


@pytest.mark.parametrize(
    ("against", "title"),
    [("evaluations", "placements priced"), ("seconds", "time of search (s)"), ("generation", "generation")],
)
def test_the_axis_is_the_one_asked_for_and_has_its_unit(steps, against, title):
    figure = figures.convergence(steps, against=against)
    assert figure.layout.xaxis.title.text == title
    assert figure.data[0].x[-1] == pytest.approx(getattr(steps[-1], against))
    far = [*steps, replace(steps[-1], **{against: 1000 * getattr(steps[-1], against)})]
    assert figures.convergence(far, against=against).layout.xaxis.type == (None if against == "generation" else "log")


def test_medians_of_a_population_are_drawn(population):
    medians_s = [s.median_s for s in population if s.median_s is not None]
    assert trace(figures.convergence({"evo": population}), "median of evo").y == pytest.approx(medians_s)


def test_of_a_long_search_only_what_can_be_seen_is_drawn(population):
    rng = np.random.default_rng(0)
    noise = rng.normal(size=20_000)
    long = [replace(population[-1], generation=i + 1, median_s=float(10 + value)) for i, value in enumerate(noise)]
    shown = trace(figures.convergence({"long": long}, against="generation"), "median of long")
    assert len(shown.y) < 1_000
    assert (shown.y.min(), shown.y.max()) == pytest.approx((10 + noise.min(), 10 + noise.max()))
    assert shown.y[-1] == pytest.approx(10 + noise[-1])
    assert (np.diff(shown.x) >= 0).all()


@pytest.fixture(scope="module")
def topology():
    devices = [Device(name=f"<b>{gpu}</b> {i}", gpu=gpu) for i, gpu in enumerate(["A100", "H100", "T4", "H100"])]
    links = np.full((4, 4), 1.0)
    return Topology(tuple(devices), links * 1e-3, links * 1e9, name="four").with_typical_prices()


@pytest.fixture(scope="module")
def frontier(topology):
    return lab.frontier(topology, lab.load_job("gpt3-xl", global_batch=16), steps=1, searches=4)


def test_every_plan_is_a_point_at_its_seconds_and_dollars(frontier):
    points, bound = figures.frontier(frontier).data
    assert array(points.x) == pytest.approx([plan.price_per_hour for plan in frontier])
    assert array(points.y) == pytest.approx([plan.iteration_s for plan in frontier])
    assert [frontier.plans[row] for row in points.customdata] == list(frontier.plans)
    assert (np.diff(array(bound.y)) <= 1e-12).all()
    for x, y in zip(array(points.x), array(points.y), strict=True):
        assert np.interp(x, array(bound.x), array(bound.y)) <= y * 1.02


def test_a_point_names_its_shape_its_gpus_and_who_is_idle(frontier):
    points = figures.frontier(frontier).data[0]
    for plan, text in zip(frontier, points.hovertext, strict=True):
        assert f"{plan.job.n_stages} stage" in text
        assert f"&#36;{plan.price_per_hour:,.2f} an hour" in text
        assert "<b>A100" not in text, "names are shown letter by letter"
        assert ("no device idle" in text) == (not plan.idle_devices)


def test_plans_that_a_faster_one_beats_by_the_token_are_hollow(frontier):
    points = figures.frontier(frontier).data[0]
    pays = frontier.to_frame()["cheaper_by_token"]
    assert [symbol == "circle" for symbol in points.marker.symbol] == pays.tolist()


def test_several_batches_are_curves_of_hours_a_billion_tokens(topology):
    job = lab.load_job("gpt3-xl", global_batch=16)
    several = lab.frontier(topology, job, steps=1, searches=2, batches=[16, 32])
    figure = figures.frontier(several)
    assert [trace.name for trace in figure.data] == ["16 sequences an iteration", "32 sequences an iteration"]
    assert figure.layout.yaxis.title.text == "hours a billion tokens"
    first = several.plans[0]
    assert array(figure.data[0].y)[0] == pytest.approx(1e9 / (first.job.tokens / first.iteration_s) / 3600)


def test_its_text_says_what_it_shows(frontier):
    words = figures.alt_text(figures.frontier(frontier))
    assert "Seconds against US dollars an hour" in words
    assert frontier.sentence in words
