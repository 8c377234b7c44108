"""Who is to blame, since when, and what would have been right, as pictures."""

import itertools
from dataclasses import replace

import pytest

from dtfm_lab import figures
from dtfm_lab.compare import compare
from dtfm_lab.domain.trace import Subplan
from dtfm_lab.figures.theme import NAME_LETTERS, short
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
        plan=replace(ran.context.plan, topology_fingerprint=small_plan.topology.fingerprint),
    )
    return compare(simulate(small_plan, "1f1b"), replace(ran, context=context))


def test_the_slow_link_has_the_longest_bar_and_is_the_title(slowed, other_network):
    figure = figures.blame(slowed)
    link = other_network[1].replace("->", "→")
    bars = {name: x for bar in figure.data for name, x in zip(bar.y, bar.x, strict=True)}
    assert max(bars, key=lambda name: abs(bars[name])) == link
    assert sum(bars.values()) == pytest.approx(1e3 * slowed.blame.error_s)
    assert figure.layout.title.text.startswith(f"link {link}: messages take 2.0 times the predicted")
    assert slowed.verdict in figures.alt_text(figure)


def test_every_picture_names_clock_links_hardware_part_and_stand_in(slowed):
    context = replace(slowed.measured.context, rehearsed=Subplan((0, 1), (0,), 4, 2), stand_in="tiny")
    found = compare(slowed.predicted, replace(slowed.measured, context=context))
    drawn = [figures.blame(found), figures.comparison(found)]
    told = "virtual clock, messages by the link model, on CPU, rehearsing stages 0 and 1 of 4, pipeline 0 of 2"
    for figure in drawn:
        assert told in figure.layout.title.subtitle.text.replace("<br>", " ")


def test_what_is_exactly_as_predicted_is_drawn_too(predicted):
    same = compare(predicted, predicted)
    assert "no link and no device stands out" in figures.blame(same).layout.title.text


def test_a_single_worker_is_blamed(small_plan):
    alone = evaluate(small_plan.topology, replace(small_plan.job, n_stages=1, n_replicas=1), stages=[["ada"]])
    trace = simulate(alone)
    slow = replace(trace, start_s=2 * trace.start_s, end_s=2 * trace.end_s)
    found = compare(trace, slow)
    assert figures.blame(found).layout.title.text.startswith("device ada: computations take 2.0 times")


def test_long_names_are_shortened_and_stay_apart():
    names = [f"{'a' * 60}-{i}.of.the.same.company" for i in range(3)]
    links = short([f"{a} -> {b}" for a, b in itertools.combinations(names, 2)])
    assert len(set(links)) == 3
    assert all(len(end) <= NAME_LETTERS for link in links for end in link.split(" → "))
