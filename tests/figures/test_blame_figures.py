"""Who is to blame, since when, and what would have been right, as pictures."""

from dataclasses import replace

import numpy as np
import pytest

from dtfm_lab import figures
from dtfm_lab.compare import compare
from dtfm_lab.domain.trace import Subplan
from dtfm_lab.planning import evaluate
from dtfm_lab.simulation import simulate


@pytest.fixture(scope="module")
def other_network(small_plan):
    """What the small plan met instead: one link at half the bandwidth."""
    a, b = (small_plan.stages[stage][0] for stage in (1, 2))
    topology = small_plan.topology
    half = topology.bandwidth_bytes_per_s[topology.index(a), topology.index(b)] / 2
    return topology.with_link(a, b, bandwidth_bytes_per_s=half, one_way=True), f"{a} -> {b}"


@pytest.fixture(scope="module")
def slowed(small_plan, other_network):
    """Predicted as drawn, measured on the other network."""
    ran = simulate(replace(small_plan, topology=other_network[0]), "1f1b")
    context = replace(
        ran.context,
        source="measured",
        clock="virtual",
        links="emulated",
        topology_fingerprint=small_plan.topology.fingerprint,
    )
    return compare(simulate(small_plan, "1f1b"), replace(ran, context=context))


@pytest.fixture(scope="module")
def refitted(small_plan, slowed):
    return slowed.refit(small_plan, simulate)


def test_the_slow_link_has_the_longest_bar_and_is_the_title(slowed, other_network):
    figure = figures.blame(slowed)
    link = other_network[1].replace("->", "→")
    bars = {name: x for bar in figure.data for name, x in zip(bar.y, bar.x, strict=True)}
    assert max(bars, key=lambda name: abs(bars[name])) == link
    assert sum(bars.values()) == pytest.approx(1e3 * slowed.blame.error_s)
    assert figure.layout.title.text.startswith(f"link {link}: messages take 2.0 times the predicted")
    assert slowed.verdict in figures.alt_text(figure)


def test_every_picture_names_clock_links_hardware_part_and_stand_in(slowed, refitted):
    context = replace(slowed.measured.context, rehearsed=Subplan((0, 1), (0,), 4, 2), stand_in="tiny")
    found = compare(slowed.predicted, replace(slowed.measured, context=context))
    drawn = [figures.blame(found), figures.drift(found), figures.comparison(found)]
    told = "virtual clock, messages by the link model, on CPU, rehearsing stages 0 and 1 of 4, pipeline 0 of 2"
    for figure in (*drawn, figures.refit(replace(refitted, measured=context))):
        assert told in figure.layout.title.subtitle.text.replace("<br>", " ")


def test_the_drift_of_a_device_is_a_line_and_begins_at_a_mark(slowed):
    figure = figures.drift(slowed)
    first = slowed.drift.devices.iloc[0]
    [mark] = [t for t in figure.data if t.mode == "markers" and first["action"] in t.hovertext]
    assert mark.y[0] == pytest.approx(1e3 * first["late_s"])
    assert first["device"] in {t.name for t in figure.data if t.mode == "lines"}
    assert figures.alt_text(figure) == slowed.drift.sentence


def test_several_iterations_are_a_panel_of_their_own(compared):
    figure = figures.drift(compared)
    [ends] = [t for t in figure.data if t.name == "iteration's end"]
    assert list(ends.x) == [0, 1, 2]
    assert list(ends.y) == pytest.approx(1e3 * compared.iterations["error_s"])


def test_a_refit_is_drawn_as_shares_of_the_drawn_values(refitted, other_network):
    figure = figures.refit(refitted)
    marks = {t.name: dict(zip(t.y, t.x, strict=True)) for t in figure.data if t.mode == "markers"}
    assert marks["bandwidth of links"][other_network[1].replace("->", "→")] == pytest.approx(0.5)
    assert all(x == pytest.approx(1) for x in marks["latency of links"].values())
    low, high = 10 ** np.array(figure.layout.xaxis.range)
    assert all(low < x < high for panel in marks.values() for x in panel.values())


def test_what_is_exactly_as_predicted_is_drawn_too(predicted, small_plan):
    same = compare(predicted, predicted)
    assert "no link and no device stands out" in figures.blame(same).layout.title.text
    assert "every action ends as predicted" in figures.drift(same).layout.title.text
    assert "0.0 % as fitted" in figures.refit(same.refit(small_plan, simulate)).layout.title.text


def test_a_single_worker_is_blamed_and_refitted(small_plan):
    alone = evaluate(small_plan.topology, replace(small_plan.job, n_stages=1, n_replicas=1), stages=[["ada"]])
    trace = simulate(alone)
    slow = replace(trace, start_s=2 * trace.start_s, end_s=2 * trace.end_s)
    found = compare(trace, slow)
    assert figures.blame(found).layout.title.text.startswith("device ada: computations take 2.0 times")
    assert figures.drift(found).data
    assert {t.name for t in figures.refit(found.refit(alone, simulate)).data if t.mode == "markers"} == {
        "seconds of computations"
    }


@pytest.mark.parametrize("name", ["<b>bold</b>", "$x$ and $y$", "%{x}", "a" * 60])
def test_awkward_names_are_shown_letter_by_letter(small_plan, name):
    devices = tuple(replace(d, name=name + d.name) for d in small_plan.topology.devices)
    plan = replace(small_plan, topology=replace(small_plan.topology, devices=devices))
    trace = simulate(plan)
    found = compare(trace, replace(trace, start_s=2 * trace.start_s, end_s=2 * trace.end_s))
    for figure in (figures.blame(found), figures.drift(found), figures.refit(found.refit(plan, simulate))):
        words = figure.update_layout(meta=None).to_json()  # what is read aloud is plain text
        assert "<b>bold" not in words
        assert "$x$" not in words
        assert "%{x}" not in words
