"""What holds for every figure, and what each of the smaller ones shows."""

import math

import numpy as np
import plotly.graph_objects as go
import pytest
from drawn import array, lines, said_all_along

from dtfm_lab import figures
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.units import signed_share
from dtfm_lab.files import load_topology
from dtfm_lab.lab import explain, sweep
from dtfm_lab.planning import evaluate
from dtfm_lab.simulation import simulate
from dtfm_lab.simulation.memory import memory


def numbers(value):
    """Every number in a figure's dictionary, but for the lifts of a pen and the gaps of a matrix."""
    if isinstance(value, dict) and "bdata" in value:
        value = [number for number in array(value).ravel().astype(float).tolist() if not math.isnan(number)]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        for item in value:
            yield from numbers(item)
    elif isinstance(value, float):
        yield value


def one_device():
    return Topology.from_matrices([[0]], [[1]], name="alone")


def asymmetric(n=5):
    rng = np.random.default_rng(0)
    latency, bandwidth = rng.uniform(0, 90, (n, n)), 10 ** rng.uniform(-2, 2, (n, n))
    latency[0, 1] = 0.0
    return Topology.from_matrices(latency, bandwidth, name="uneven")


def given(topology, *shape):
    job = Job.from_bytes(*shape, gradient_bytes=1e8, activation_bytes=1e7)
    return evaluate(topology, job, stages=np.arange(shape[0] * shape[1]).reshape(shape).tolist())


MAKERS = {
    "network": lambda s: figures.network(s.small.topology),
    "network with a plan": lambda s: figures.network(s.small.topology, s.small),
    "large network with a plan": lambda s: figures.network(s.large.topology, s.large),
    "network with idle devices": lambda s: figures.network(asymmetric(), given(asymmetric(), 2, 2)),
    "network of one": lambda s: figures.network(one_device(), given(one_device(), 1, 1)),
    "bandwidth": lambda s: figures.link_matrix(s.small.topology),
    "latency": lambda s: figures.link_matrix(asymmetric(), of="latency"),
    "large latency": lambda s: figures.link_matrix(s.large.topology, of="latency"),
    "links of one": lambda s: figures.link_matrix(one_device()),
    "coarse graph": lambda s: figures.coarse_graph(s.small),
    "coarse graph of 1": lambda s: figures.coarse_graph(given(s.small.topology, 1, 4)),
    "coarse graph of 2": lambda s: figures.coarse_graph(given(s.small.topology, 2, 4)),
    "coarse graph of 3": lambda s: figures.coarse_graph(given(s.small.topology, 3, 2)),
    "coarse graph of 16": lambda s: figures.coarse_graph(given(s.large.topology, 16, 4)),
    "coarse graph of 32": lambda s: figures.coarse_graph(given(s.large.topology, 32, 2)),
    "network map": lambda s: figures.network_map(s.large.topology),
    "network map without places": lambda s: figures.network_map(asymmetric()),
    "map of a plan": lambda s: figures.plan_map(s.large),
    "map of a plan without places": lambda s: figures.plan_map(s.small),
    "matching": lambda s: figures.matching(s.large, 3),
    "gantt": lambda s: figures.gantt(s.predicted),
    "gantt of two": lambda s: figures.gantt(s.predicted, against=s.measured),
    "gantt with all": lambda s: figures.gantt(s.predicted, critical=True, messages=True),
    "gantt of interleaved stages": lambda s: figures.gantt(simulate(s.small, "interleaved-1f1b"), critical=True),
    "large gantt": lambda s: figures.gantt(simulate(s.large, "gpipe"), critical=True, messages=True),
    "bubble": lambda s: figures.bubble(s.predicted),
    "large bubble": lambda s: figures.bubble(simulate(s.large, "gpipe")),
    "memory": lambda s: figures.memory_over_time(memory(s.small, trace=s.predicted)),
    "large memory": lambda s: figures.memory_over_time(memory(s.large, "gpipe")),
    "sensitivity": lambda s: figures.sensitivity(explain(s.small).sensitivity("1f1b")),
    "sweep": lambda s: figures.sweep(sweep(s.small, schedule=["gpipe", "1f1b"], latency=[0, 1, 2])),
    "sweep of names": lambda s: figures.sweep(sweep(s.small, compression=["none", "int8"])),
    "convergence": lambda s: figures.convergence({"one": s.steps, "two": s.steps[:1]}),
    "convergence in time": lambda s: figures.convergence(s.population, against="seconds"),
    "convergence of a step": lambda s: figures.convergence(s.steps[:1]),
    "cost breakdown": lambda s: figures.cost_breakdown(s.small),
    "cost breakdown of several": lambda s: figures.cost_breakdown(s.large, given(s.large.topology, 1, 64)),
    "comparison": lambda s: figures.comparison(s.compared),
    "losses": lambda s: figures.losses(s.measured),
}


@pytest.fixture(scope="session", params=MAKERS)
def figure(request, samples):
    return MAKERS[request.param](samples)


def test_no_figure_holds_a_nan_or_an_infinity(figure):
    assert all(math.isfinite(number) for number in numbers(figure.to_dict()))


def test_a_dark_copy_changes_the_page_and_not_the_data(figure):
    dark = figures.theme(figure)
    assert dark.layout.template.layout.paper_bgcolor != figure.layout.template.layout.paper_bgcolor
    assert figures.theme(dark, dark=False) == figure


def test_figures_need_no_network(figure):
    assert not any("geo" in trace.type or "map" in trace.type.replace("heatmap", "") for trace in figure.data)
    assert "http" not in figure.to_json()


def test_no_point_has_empty_words(figure):
    """Among others with words: plotly loses some of these when it draws again, as in a notebook's cell."""
    words = [trace.text for trace in figure.data if trace.type == "scatter" and "text" in (trace.mode or "")]
    assert not [text for text in words if "" in text]


def test_figures_have_a_title_a_height_and_no_latex(figure):
    assert figure.layout.title.text
    assert figure.layout.height >= 250
    assert "$" not in figure.to_json()


def test_visible_axes_of_numbers_carry_a_unit_or_a_noun(figure):
    axes = [a for a in figure.select_xaxes() if a.visible is not False and a.showticklabels is not False]
    assert axes or not figure.layout.xaxis.visible
    assert all(axis.title.text for axis in axes)


def test_every_figure_has_words_for_who_cannot_see_it(figure):
    assert figures.alt_text(figure)
    assert "nan" not in figures.alt_text(figure)


def test_a_link_of_a_small_network_tells_both_directions():
    topology = asymmetric(3)
    texts = {t for line in figures.network(topology).data if line.mode == "lines" for t in said_all_along(line)}
    assert len(texts) == 3
    assert all(text.count("→") == 2 and text.count("Gbit/s") == 2 for text in texts)


def test_faster_links_are_wider():
    lines = [line for line in figures.network(load_topology("lecture-hall")).data if line.mode == "lines"]
    assert [line.name for line in lines] == ["0.3 Gbit/s", "0.2 Gbit/s", "0.1 Gbit/s"]
    widths = [line.line.width for line in lines]
    assert widths == sorted(widths, reverse=True)
    assert len(set(widths)) == 3


def test_a_large_network_draws_regions_only(large_plan):
    drawn = [trace for trace in figures.network(large_plan.topology).data if trace.mode == "lines"]
    assert sum(len(lines(trace)) for trace in drawn) == 8 * 7 / 2
    assert sum(trace.showlegend for trace in drawn) <= 5
    assert {trace.line.dash for trace in drawn} == {"solid", "longdash", "dash", "dot"}


def test_devices_wear_the_number_of_their_stage(small_plan):
    figure = figures.network(small_plan.topology, small_plan)
    marks = next(trace for trace in figure.data if trace.name == "devices")
    stages = [s for i in range(8) for s, group in enumerate(small_plan.placement.devices) if i in group]
    assert list(marks.text) == [str(stage) for stage in stages]
    pipelines = [trace for trace in figure.data if trace.name == "pipelines"]
    assert len(pipelines) == small_plan.job.n_replicas
    assert sum(bool(p.showlegend) for p in pipelines) == 1


def test_positions_of_the_topology_are_kept_with_y_down():
    topology = load_topology("lecture-hall")
    marks = next(trace for trace in figures.network(topology).data if trace.name == "devices")
    x, y = (np.array(v) for v in zip(*(d.position for d in topology.devices), strict=True))
    assert np.ptp(marks.x) / np.ptp(marks.y) == pytest.approx(np.ptp(x) / np.ptp(y))
    assert marks.y[0] > marks.y[-1]


def test_devices_without_a_place_keep_apart_and_by_region():
    topology = load_topology("spot")
    marks = next(trace for trace in figures.network(topology).data if trace.name == "devices")
    places = np.column_stack([marks.x, marks.y])
    gaps = np.linalg.norm(places[:, None] - places[None], axis=-1) + 99 * np.eye(64)
    assert gaps.min() == pytest.approx(1.0)
    regions = np.array([d.region for d in topology.devices])
    assert np.all(regions[gaps.argmin(axis=1)] == regions)


def test_the_coarse_graph_labels_every_hop_of_the_path(large_plan):
    figure = figures.coarse_graph(large_plan)
    labels = [a.text for a in figure.layout.annotations if a.text.startswith("<b>")]
    assert len(labels) == large_plan.job.n_stages - 1
    nodes = [a.text for a in figure.layout.annotations if a.text.startswith("stage")]
    assert nodes[0].startswith("stage 0<br>8 devices<br>sync ")


def test_the_parts_of_a_cost_add_up(large_plan):
    bars = [trace for trace in figures.cost_breakdown(large_plan).data if isinstance(trace, go.Bar)]
    assert len(bars) == large_plan.job.n_stages
    assert sum(bar.x[0] for bar in bars) == pytest.approx(large_plan.cost.total_s)


def test_the_lower_bound_is_marked_above_and_below_the_bar(small_plan):
    figure = figures.cost_breakdown(small_plan)
    marks = next(t for t in figure.data if t.name.startswith("lower bound"))
    points = np.concatenate(lines(marks))
    assert points[:, 0] == pytest.approx([small_plan.lower_bound_s] * 4)
    assert (np.abs(points[:, 1]) > 0.3).all()


def test_a_breakdown_says_every_gap_in_words(small_plan, large_plan):
    words = [a.text for a in figures.cost_breakdown(small_plan, large_plan).layout.annotations]
    assert words == ["proven best communication cost", f"gap {100 * large_plan.gap:.1f} %"]


def test_a_comparison_names_the_clock_and_the_error(compared):
    figure = figures.comparison(compared)
    assert "virtual clock" in figure.layout.title.text
    assert f"({signed_share(compared.iteration_error)})" in figure.layout.title.text


def test_a_comparison_shows_every_kind_once_and_the_worst_links(compared):
    figure = figures.comparison(compared)
    measured = [t for t in figure.data if t.name == "measured"]
    assert [len(t.y) for t in measured] == [8, 4]
    [arrivals] = [t for t in figure.data if t.type == "bar"]
    errors = compared.links["arrival_error_s"].abs().sort_values()
    assert len(arrivals.x) == 16
    assert sorted(np.abs(arrivals.x)) == pytest.approx(list(errors.tail(16) * 1e3))


def test_losses_are_drawn_by_iteration(measured):
    [curve] = figures.losses(measured).data
    assert list(curve.x) == [0, 1, 2]
    assert list(curve.y) == [5.5, 5.0, 4.6]
