"""Figures of histories hold what they were made of."""

from dataclasses import replace

import numpy as np
import pytest

from dtfm_lab import lab
from dtfm_lab.domain.errors import TraceError
from dtfm_lab.extensions.elasticity.availability import Availability
from dtfm_lab.extensions.elasticity.figures.history import REDUNDANT, parts
from dtfm_lab.extensions.elasticity.replaying import replay
from dtfm_lab.figures import alt_text, history, race

TABLE = {2: 10.0, 3: 14.0, 4: 19.0}


def hours(end_s: float = 900.0) -> Availability:
    present = {"a": [(0, end_s)], "b": [(0, end_s)], "c": [(0, 400)], "d": [(0, 250), (500, end_s)]}
    return Availability.from_intervals(present, end_s, name="four devices")


def test_the_band_holds_every_second_and_the_curve_every_sample():
    made = replay(TABLE, 190, hours(), "oobleck", start_s=20)
    figure = history(made)
    bars = [trace for trace in figure.data if trace.type == "bar"]
    assert np.sum([trace.y for trace in bars], axis=0) == pytest.approx(np.ones(len(bars[0].y)))
    by_name = {trace.name: trace for trace in figure.data}
    assert 1e3 * by_name["samples"].y[-1] == pytest.approx(made.samples)
    assert 1e3 * by_name["bound: perfect foresight"].y[-1] == pytest.approx(made.bound_samples)
    assert max(by_name["online"].y) == 4
    assert "oobleck on four devices" in alt_text(figure)


def test_redundant_work_is_its_own_part_and_dollars_reach_their_sum():
    made = replay(TABLE, 190, hours(), "oobleck", start_s=20)
    made = replace(made, operations=tuple(replace(one, redundant_share=0.25) for one in made.operations))
    priced = replace(made, price_per_hour=np.array([1.0, 2.0, 3.0, 4.0]))
    by_name = {trace.name: trace for trace in history(priced).data}
    assert by_name["dollars"].y[-1] == pytest.approx(priced.dollars)
    bin_s = made.availability.end_s / len(by_name[REDUNDANT].y)
    assert by_name[REDUNDANT].y.sum() * bin_s == pytest.approx(made.seconds["redundant"])
    assert sum(parts(made).values()) == pytest.approx(made.availability.end_s)


def test_a_race_ranks_by_samples_and_refuses_other_hours():
    made = [replay(TABLE, 190, hours(), policy) for policy in ("restart", "swarm")]
    figure = race(made)
    assert list(figure.layout.yaxis.ticktext) == [one.policy for one in sorted(made, key=lambda one: -one.samples)]
    lengths = np.sum([trace.x for trace in figure.data], axis=0)
    assert lengths == pytest.approx(np.ones(2))
    with pytest.raises(TraceError, match="race of no histories"):
        race([])
    with pytest.raises(TraceError, match="differ in length: restart 900 s, swarm 800 s"):
        race([made[0], replay(TABLE, 190, hours(800.0), "swarm")])


def test_what_is_no_fleet_is_refused_in_a_line():
    with pytest.raises(lab.LabError, match="job is None with a table; wanted the samples per step"):
        replay(TABLE, None, hours())
    with pytest.raises(lab.LabError, match="job is 512; wanted a job, or a table"):
        replay("lecture-hall", 512, hours())
    with pytest.raises(lab.LabError, match="availability is 3; wanted an Availability, its name or its file"):
        replay("lecture-hall", "small", 3)
    with pytest.raises(lab.LabError, match="no option of policy varuna named 'every'; did you mean 'every_s'"):
        replay(TABLE, 190, hours(), "varuna", every=3)
