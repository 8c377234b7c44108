"""Missions about searching: what wins them, and what does not."""

from dataclasses import replace

import numpy as np
from mission_cases import READERS, assert_not_won, assert_won_by_its_answer

import dtfm_lab as lab
from dtfm_lab.course import missions
from dtfm_lab.course.tasks.searching import simple_bound_s


def test_spot_under_32():
    assert_won_by_its_answer("spot-under-32")
    by_chance = lab.plan("spot", "dtfm-gpt3-xl", planner="random", objective="communication", seed=0, steps=1)
    assert_not_won("spot-under-32", by_chance, because="costs 49.5")
    elsewhere = lab.plan("regional", "dtfm-gpt3-xl", objective="communication", seed=0, steps=1)
    assert_not_won("spot-under-32", elsewhere, because="another network")
    easier = lab.plan(
        "spot", lab.load_job("dtfm-gpt3-xl", gradient_bytes=1e6), objective="communication", seed=0, steps=1
    )
    assert_not_won("spot-under-32", easier, because="gradient_bytes")


def test_what_a_gap_promises():
    assert_won_by_its_answer("what-a-gap-promises")
    given = missions["what-a-gap-promises"].given(READERS[0])
    assert_not_won("what-a-gap-promises", given.cost_s, because="room")
    assert_not_won("what-a-gap-promises", given.cost_s * given.gap_percent / 100, because="save at most")
    assert_not_won("what-a-gap-promises", given.cost_s / (1 + given.gap_percent / 100), because="share of the cost")


def test_beat_the_search_by_hand():
    assert_won_by_its_answer("beat-the-search-by-hand")
    given = missions["beat-the-search-by-hand"].given(READERS[0])
    assert_not_won("beat-the-search-by-hand", given.published, because="wanted less than")
    found = lab.plan(given.network, given.job, seed=0, steps=20)
    assert_not_won("beat-the-search-by-hand", found, because="by hand")
    as_listed = lab.evaluate(given.network, given.job, groups=[range(6), range(6, 12), range(12, 18)])
    assert_not_won("beat-the-search-by-hand", as_listed, because="wanted less than")
    lighter = lab.Job.from_bytes(3, 6, gradient_bytes=1e6, activation_bytes=given.job.hop_bytes)
    light = lab.evaluate(given.network, lighter, groups=as_listed.placement.devices.tolist())
    assert_not_won("beat-the-search-by-hand", light, because="gradient_bytes")
    forged = replace(given.published, cost=replace(given.published.cost, group_s=np.ones(3)), lower_bound_s=0.0)
    assert_not_won("beat-the-search-by-hand", forged, because="wanted less than")


def test_tighten_a_bound():
    assert_won_by_its_answer("tighten-a-bound")

    def mean_partner(group_s, hop_s, n_stages, n_replicas):
        return (n_replicas - 1) * group_s.mean() + (n_stages - 1) * hop_s.mean()

    assert_not_won("tighten-a-bound", simple_bound_s, because="closes 0%")
    assert_not_won("tighten-a-bound", mean_partner, because="no lower bound")
    assert_not_won("tighten-a-bound", lambda *given: 0.0, because="below the simple one")
    assert_not_won("tighten-a-bound", lambda *given: 1.0, lambda *given: "high", lambda: 0.0)
