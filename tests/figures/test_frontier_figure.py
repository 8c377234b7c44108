"""The figure of a frontier: a point for each plan, where its seconds and dollars put it."""

import numpy as np
import pytest
from drawn import array

import dtfm_lab as lab
from dtfm_lab import figures
from dtfm_lab.domain.errors import UnknownName
from dtfm_lab.domain.network import Device, Topology


@pytest.fixture(scope="module")
def topology():
    devices = [Device(name=f"<b>{gpu}</b> {i}", gpu=gpu) for i, gpu in enumerate(["A100", "H100", "T4", "H100"])]
    links = np.full((4, 4), 1.0)
    return Topology(tuple(devices), links * 1e-3, links * 1e9, name="four").with_typical_prices()


@pytest.fixture(scope="module")
def frontier(topology):
    return lab.frontier(topology, lab.load_job("gpt3-xl", global_batch=16), steps=1, searches=4)


@pytest.mark.parametrize("against", ["price_per_hour", "price_per_billion_tokens"])
def test_every_plan_is_a_point_at_its_seconds_and_dollars(frontier, against):
    drawn = frontier if against == "price_per_hour" else frontier.by_token()
    points, bound = figures.frontier(frontier, against).data
    assert array(points.x) == pytest.approx([getattr(plan, against) for plan in drawn])
    assert array(points.y) == pytest.approx([plan.iteration_s for plan in drawn])
    assert [frontier.plans[row] for row in points.customdata] == list(drawn.plans)
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


def test_another_axis_is_refused(frontier):
    with pytest.raises(UnknownName, match="axis of a frontier"):
        figures.frontier(frontier, "seconds")


def test_its_text_says_what_it_shows(frontier):
    words = figures.alt_text(figures.frontier(frontier))
    assert "Seconds against US dollars an hour" in words
    assert frontier.sentence in words
