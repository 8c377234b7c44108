"""In a fixed order: nothing gets better by getting longer, and slack is how much longer does not matter."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import cases

from dtfm_lab.simulation.engine import Played
from dtfm_lab.simulation.kernels.events import COMPUTATION, RECEIVE, SEND

seeds = st.integers(0, 10_000)


def replayed(played: Played, delay_s: np.ndarray) -> np.ndarray:
    """Every end, queues served in the order in which they were, each start put off by so much: from the rules."""
    whole = played.scene.structure
    source = np.repeat(np.arange(len(whole)), np.diff(whole.next_from))
    behind: list[list[int]] = [[] for _ in range(len(whole))]
    for a, b in zip(source.tolist(), whole.next_node.tolist(), strict=True):
        behind[b].append(a)
    start_s, end_s = np.zeros(len(whole)), np.zeros(len(whole))
    for i in played.order:
        earliest_s = max((end_s[j] for j in behind[i]), default=0.0)
        if played.before[i] >= 0:
            earliest_s = max(earliest_s, end_s[played.before[i]])
        if whole.role[i] == RECEIVE:
            earliest_s = max(earliest_s, start_s[whole.partner[i]] + played.latency_s[whole.partner[i]])
        start_s[i] = earliest_s + delay_s[i]
        end_s[i] = start_s[i] + played.duration_s[i]
    return end_s


@given(cases)
@settings(max_examples=30, deadline=None)
def test_the_order_in_which_it_happened_gives_the_same_again(case):
    played = case.played()
    again = played.scene.in_the_order_of(played).play(case.links)
    for one, other in ((again.start_s, played.start_s), (again.end_s, played.end_s), (again.before, played.before)):
        assert (one == other).all()
    assert replayed(played, np.zeros(len(played.end_s))) == pytest.approx(played.end_s)


@given(cases, st.sampled_from(["duration", "latency", "bandwidth"]), seeds)
@settings(max_examples=60, deadline=None)
def test_in_a_fixed_order_nothing_ends_earlier_when_anything_takes_longer(case, what, seed):
    played, rng = case.played(), np.random.default_rng(seed)
    scene, links = played.scene.in_the_order_of(played), case.links
    shape = scene.compute_s.shape if what == "duration" else links.latency_s.shape
    factor = np.where(rng.random(shape) < 0.2, rng.uniform(1, 4, shape), 1.0)
    if what == "duration":
        scene = replace(scene, compute_s=scene.compute_s * factor)
    elif what == "latency":
        links = replace(links, latency_s=links.latency_s * factor)
    else:
        links = replace(links, bandwidth_bytes_per_s=links.bandwidth_bytes_per_s / factor)
    worse = scene.play(links)
    assert (worse.end_s >= played.end_s).all()
    assert (worse.start_s >= played.start_s).all()
    assert (worse.before == played.before).all()


@given(cases, seeds, st.floats(0.01, 5))
@settings(max_examples=60, deadline=None)
def test_slack_is_how_much_later_anything_can_start(case, seed, later_s):
    """Put off by more than its slack, any action makes the end later by exactly the rest."""
    played = case.played()
    slack_s, end_s = played.slack_s, played.makespan_s
    assert slack_s.min() >= -1e-9 * end_s
    rng = np.random.default_rng(seed)
    for i in rng.integers(0, len(slack_s), 3):
        for delay_s in (0.9 * slack_s[i], slack_s[i] + later_s):
            delays_s = np.zeros(len(slack_s))
            delays_s[i] = delay_s
            expected_s = end_s + max(delay_s - slack_s[i], 0.0)
            assert replayed(played, delays_s).max() == pytest.approx(expected_s, rel=1e-9)


@given(cases, seeds, st.floats(0.01, 5))
@settings(max_examples=40, deadline=None)
def test_a_computation_longer_by_less_than_its_slack_changes_nothing_and_by_more_the_rest(case, seed, longer_s):
    played = case.played()
    scene, slack_s = played.scene.in_the_order_of(played), played.slack_s
    i = np.random.default_rng(seed).choice(np.flatnonzero(scene.structure.role == COMPUTATION))
    longer = scene.compute_s.copy()
    longer[i] += longer_s
    expected_s = played.makespan_s + max(longer_s - slack_s[i], 0.0)
    assert replace(scene, compute_s=longer).play(case.links).makespan_s == pytest.approx(expected_s, rel=1e-9)


@given(cases, seeds)
@settings(max_examples=40, deadline=None)
def test_shortening_what_is_off_every_critical_path_changes_nothing(case, seed):
    """One action to nothing, and all of them at once."""
    played = case.played()
    scene, loose = played.scene.in_the_order_of(played), played.slack_s > 1e-9 * played.makespan_s
    loose &= scene.structure.role == COMPUTATION
    some = np.flatnonzero(loose)
    if not some.size:
        return
    one = np.arange(len(loose)) == np.random.default_rng(seed).choice(some)
    for which in (one, loose):
        shorter = replace(scene, compute_s=np.where(which, 0.0, scene.compute_s)).play(case.links)
        assert shorter.makespan_s == pytest.approx(played.makespan_s, rel=1e-9)


@given(cases)
@settings(max_examples=60, deadline=None)
def test_the_chain_of_what_each_waited_for_last_is_contiguous_and_has_no_slack(case):
    played = case.played()
    whole, i = played.scene.structure, int(played.end_s.argmax())
    whole_s, tiny_s = 0.0, 1e-9 * played.makespan_s
    while True:
        before = int(played.after[i])
        assert played.slack_s[i] <= tiny_s
        if before < 0:
            begins_s = 0.0
        elif whole.role[i] == RECEIVE and before == whole.partner[i]:
            assert played.start_s[i] == pytest.approx(played.start_s[before] + played.latency_s[before])
            begins_s = played.end_s[before] if played.latency_s[before] else played.start_s[i]
        else:
            assert played.start_s[i] == played.end_s[before]
            begins_s = played.end_s[before]
        whole_s += played.end_s[i] - begins_s
        if before < 0:
            assert played.start_s[i] == 0
            break
        i = before
    assert whole_s == pytest.approx(played.makespan_s)


@given(cases)
@settings(max_examples=40, deadline=None)
def test_whatever_has_no_slack_is_part_of_a_chain_as_long_as_the_iteration(case):
    """It starts when something without slack lets it, and something without slack starts when it lets that."""
    played = case.played()
    whole, tiny_s = played.scene.structure, 1e-9 * played.makespan_s
    critical = played.slack_s <= tiny_s
    successors: dict[int, list[tuple[int, float]]] = defaultdict(list)
    source = np.repeat(np.arange(len(whole)), np.diff(whole.next_from))
    for a, b in zip(source.tolist(), whole.next_node.tolist(), strict=True):
        successors[a].append((b, played.end_s[a]))
    for i in range(len(whole)):
        if whole.role[i] == SEND:
            successors[i].append((int(whole.partner[i]), played.start_s[i] + played.latency_s[i]))
        if played.before[i] >= 0:
            successors[int(played.before[i])].append((i, played.end_s[played.before[i]]))
    for i in np.flatnonzero(critical):
        before = int(played.after[i])
        assert critical[before] if before >= 0 else played.start_s[i] == 0
        goes_on = [j for j, at_s in successors[int(i)] if critical[j] and played.start_s[j] - at_s <= tiny_s]
        assert goes_on or played.end_s[i] >= played.makespan_s - tiny_s
