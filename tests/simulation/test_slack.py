"""In a fixed order: nothing gets better by getting longer, and slack is how much longer does not matter."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import cases

from dtfm_lab.domain.schedule.task_graph import COMPUTATION, RECEIVE, SEND
from dtfm_lab.simulation.engine import PlacedTasks, TaskTimes

seeds = st.integers(0, 10_000)


def in_the_order_of(simulated: TaskTimes) -> PlacedTasks:
    """The same tasks, every queue served in the order in which it was then, whichever is ready first."""
    served, taking_turns = np.flatnonzero(simulated.before >= 0), np.flatnonzero(simulated.ahead >= 0)
    sources = np.concatenate([simulated.before[served], simulated.ahead[taking_turns]])
    return replace(simulated.tasks, extra_edges=(sources, np.concatenate([served, taking_turns])))


def replayed(simulated: TaskTimes, delay_s: np.ndarray) -> np.ndarray:
    """Every end, queues served in the order in which they were, each start put off by so much: from the rules."""
    whole = simulated.tasks.graph
    source = whole.sources
    behind: list[list[int]] = [[] for _ in range(len(whole))]
    for a, b in zip(source.tolist(), whole.successors.tolist(), strict=True):
        behind[b].append(a)
    start_s, end_s = np.zeros(len(whole)), np.zeros(len(whole))
    for i in simulated.order:
        earliest_s = max((end_s[j] for j in behind[i]), default=0.0)
        if simulated.before[i] >= 0:
            earliest_s = max(earliest_s, end_s[simulated.before[i]])
        if simulated.ahead[i] >= 0:
            earliest_s = max(earliest_s, end_s[simulated.ahead[i]])
        if whole.role[i] == RECEIVE:
            earliest_s = max(earliest_s, start_s[whole.partner[i]] + simulated.latency_s[whole.partner[i]])
        start_s[i] = earliest_s + delay_s[i]
        end_s[i] = start_s[i] + simulated.duration_s[i]
    return end_s


@given(cases)
@settings(max_examples=30, deadline=None)
def test_the_order_in_which_it_happened_gives_the_same_again(case):
    simulated = case.simulated()
    again = in_the_order_of(simulated).simulate(case.links)
    for one, other in (
        (again.start_s, simulated.start_s),
        (again.end_s, simulated.end_s),
        (again.before, simulated.before),
    ):
        assert (one == other).all()
    assert replayed(simulated, np.zeros(len(simulated.end_s))) == pytest.approx(simulated.end_s)


@given(cases, st.sampled_from(["duration", "latency", "bandwidth"]), seeds)
@settings(max_examples=60, deadline=None)
def test_in_a_fixed_order_nothing_ends_earlier_when_anything_takes_longer(case, what, seed):
    simulated, rng = case.simulated(), np.random.default_rng(seed)
    tasks, links = in_the_order_of(simulated), case.links
    shape = tasks.compute_s.shape if what == "duration" else links.latency_s.shape
    factor = np.where(rng.random(shape) < 0.2, rng.uniform(1, 4, shape), 1.0)
    if what == "duration":
        tasks = replace(tasks, compute_s=tasks.compute_s * factor)
    elif what == "latency":
        links = replace(links, latency_s=links.latency_s * factor)
    else:
        links = replace(links, bandwidth_bytes_per_s=links.bandwidth_bytes_per_s / factor)
    worse = tasks.simulate(links)
    assert (worse.end_s >= simulated.end_s).all()
    assert (worse.start_s >= simulated.start_s).all()
    assert (worse.before == simulated.before).all()


@given(cases, seeds, st.floats(0.01, 5))
@settings(max_examples=60, deadline=None)
def test_slack_is_how_much_later_anything_can_start(case, seed, later_s):
    """Put off by more than its slack, any action makes the end later by exactly the rest."""
    simulated = case.simulated()
    slack_s, end_s = simulated.slack_s, simulated.makespan_s
    assert slack_s.min() >= -1e-9 * end_s
    rng = np.random.default_rng(seed)
    for i in rng.integers(0, len(slack_s), 3):
        for delay_s in (0.9 * slack_s[i], slack_s[i] + later_s):
            delays_s = np.zeros(len(slack_s))
            delays_s[i] = delay_s
            expected_s = end_s + max(delay_s - slack_s[i], 0.0)
            assert replayed(simulated, delays_s).max() == pytest.approx(expected_s, rel=1e-9)


@given(cases, seeds, st.floats(0.01, 5))
@settings(max_examples=40, deadline=None)
def test_a_computation_longer_by_less_than_its_slack_changes_nothing_and_by_more_the_rest(case, seed, longer_s):
    simulated = case.simulated()
    tasks, slack_s = in_the_order_of(simulated), simulated.slack_s
    i = np.random.default_rng(seed).choice(np.flatnonzero(tasks.graph.role == COMPUTATION))
    longer = tasks.compute_s.copy()
    longer[i] += longer_s
    expected_s = simulated.makespan_s + max(longer_s - slack_s[i], 0.0)
    assert replace(tasks, compute_s=longer).simulate(case.links).makespan_s == pytest.approx(expected_s, rel=1e-9)


@given(cases, seeds)
@settings(max_examples=40, deadline=None)
def test_shortening_what_is_off_every_critical_path_changes_nothing(case, seed):
    """One action to nothing, and all of them at once."""
    simulated = case.simulated()
    tasks, loose = in_the_order_of(simulated), simulated.slack_s > 1e-9 * simulated.makespan_s
    loose &= tasks.graph.role == COMPUTATION
    some = np.flatnonzero(loose)
    if not some.size:
        return
    one = np.arange(len(loose)) == np.random.default_rng(seed).choice(some)
    for which in (one, loose):
        shorter = replace(tasks, compute_s=np.where(which, 0.0, tasks.compute_s)).simulate(case.links)
        assert shorter.makespan_s == pytest.approx(simulated.makespan_s, rel=1e-9)


@given(cases)
@settings(max_examples=60, deadline=None)
def test_the_chain_of_what_each_waited_for_last_is_contiguous_and_has_no_slack(case):
    simulated = case.simulated()
    whole, i = simulated.tasks.graph, int(simulated.end_s.argmax())
    whole_s, tiny_s = 0.0, 1e-9 * simulated.makespan_s
    while True:
        before = int(simulated.after[i])
        assert simulated.slack_s[i] <= tiny_s
        if before < 0:
            begins_s = 0.0
        elif whole.role[i] == RECEIVE and before == whole.partner[i]:
            assert simulated.start_s[i] == pytest.approx(simulated.start_s[before] + simulated.latency_s[before])
            begins_s = simulated.end_s[before] if simulated.latency_s[before] else simulated.start_s[i]
        else:
            assert simulated.start_s[i] == simulated.end_s[before]
            begins_s = simulated.end_s[before]
        whole_s += simulated.end_s[i] - begins_s
        if before < 0:
            assert simulated.start_s[i] == 0
            break
        i = before
    assert whole_s == pytest.approx(simulated.makespan_s)


@given(cases)
@settings(max_examples=40, deadline=None)
def test_whatever_has_no_slack_is_part_of_a_chain_as_long_as_the_iteration(case):
    """It starts when something without slack lets it, and something without slack starts when it lets that."""
    simulated = case.simulated()
    whole, tiny_s = simulated.tasks.graph, 1e-9 * simulated.makespan_s
    critical = simulated.slack_s <= tiny_s
    successors: dict[int, list[tuple[int, float]]] = defaultdict(list)
    source = whole.sources
    for a, b in zip(source.tolist(), whole.successors.tolist(), strict=True):
        successors[a].append((b, simulated.end_s[a]))
    for i in range(len(whole)):
        if whole.role[i] == SEND:
            successors[i].append((int(whole.partner[i]), simulated.start_s[i] + simulated.latency_s[i]))
        if simulated.before[i] >= 0:
            successors[int(simulated.before[i])].append((i, simulated.end_s[simulated.before[i]]))
        if simulated.ahead[i] >= 0:
            successors[int(simulated.ahead[i])].append((i, simulated.end_s[simulated.ahead[i]]))
    for i in np.flatnonzero(critical):
        before = int(simulated.after[i])
        assert critical[before] if before >= 0 else simulated.start_s[i] == 0
        goes_on = [j for j, at_s in successors[int(i)] if critical[j] and simulated.start_s[j] - at_s <= tiny_s]
        assert goes_on or simulated.end_s[i] >= simulated.makespan_s - tiny_s
