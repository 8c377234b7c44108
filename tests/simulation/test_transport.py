"""Sends that block: what follows from waiting for arrivals and from one link for both directions of a pair."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import Case, cases, equal, even, node_of, plan_of

from dtfm_lab.domain.network import Links
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Action, Kind
from dtfm_lab.domain.schedule.task_graph import SEND
from dtfm_lab.simulation.engine import TaskTimes, simulate_iteration
from dtfm_lab.simulation.schedules import schedules
from dtfm_lab.simulation.simulate import simulate

seconds = st.floats(0.1, 5)
blocking_cases = cases.map(lambda case: replace(case, transport="blocking"))


def both(case: Case) -> tuple[TaskTimes, TaskTimes]:
    overlapped, blocking = (replace(case, transport=how).simulated() for how in ("overlapped", "blocking"))
    return overlapped, blocking


@given(cases)
def test_blocking_is_never_faster_and_no_action_is_earlier(case):
    overlapped, blocking = both(replace(case, queueing="pairs"))
    before, after = node_of(overlapped.tasks), node_of(blocking.tasks)
    assert before.keys() == after.keys()
    at, there = [before[node] for node in before], [after[node] for node in before]
    assert (blocking.start_s[there] >= overlapped.start_s[at] - 1e-9).all()
    assert blocking.makespan_s >= overlapped.makespan_s - 1e-9


@given(cases)
def test_batched_sends_lie_between_overlapped_and_blocking_ones(case):
    seconds = [
        replace(case, queueing="pairs", transport=how).simulated().makespan_s
        for how in ("overlapped", "batched", "blocking")
    ]
    assert seconds[0] <= seconds[1] + 1e-9
    assert seconds[1] <= seconds[2] + 1e-9


@given(cases)
def test_on_free_links_blocking_changes_nothing(case):
    n = len(case.topology)
    free = [replace(case, transport=how).tasks().simulate(Links.free(n)) for how in ("overlapped", "blocking")]
    assert free[1].makespan_s == pytest.approx(free[0].makespan_s)


@given(st.integers(1, 9), seconds, seconds, st.floats(0, 3), st.floats(0, 3), st.sampled_from(["batched", "blocking"]))
def test_gpipe_of_two_stages_pays_every_hop_in_both_directions(
    n_microbatches, forward_s, backward_s, far_s, moving_s, transport
):
    """Stage 0 sends between its forwards and stage 1 between its backwards: (M + 1)(f + b) + 2 M h."""
    plan = plan_of(2, n_microbatches, transport=transport)
    links = even(2, far_s, plan.job.activation_bytes / moving_s if moving_s > 1e-6 else np.inf)
    moving_s = moving_s if moving_s > 1e-6 else 0.0
    schedule = schedules["gpipe"](2, n_microbatches)
    found = simulate_iteration(plan, schedule, equal(plan, forward_s, backward_s), links)
    hop_s = far_s + moving_s
    wanted_s = (n_microbatches + 1) * (forward_s + backward_s) + 2 * n_microbatches * hop_s
    assert found.makespan_s == pytest.approx(wanted_s)


@given(blocking_cases)
def test_the_critical_path_is_as_long_as_the_iteration_and_every_gap_has_a_cause(case):
    trace = simulate(case.plan, case.schedule, queueing=case.queueing)
    path = trace.critical_path()
    assert (path["end_s"] - path["start_s"]).sum() == pytest.approx(trace.iteration_s)
    bubble = trace.bubble
    idle = bubble.filter(like="_s").drop(columns="iteration_s").sum(axis=1)
    assert idle.to_numpy() == pytest.approx(bubble["iteration_s"].to_numpy())


def far_plan(**fields: object) -> Plan:
    return plan_of(2, 4, d_model=5, **fields)


def test_a_message_that_waits_for_the_other_direction_is_said_to_queue():
    plan = far_plan(transport="blocking")
    # forward and backward messages of 1F1B cross on the one link between the two devices
    trace = simulate(plan, "1f1b", profile=equal(plan, 1.0, 1.0))
    found = simulate_iteration(plan, schedules["1f1b"](2, 4), equal(plan, 1.0, 1.0), even(2, 0.7))
    graph = found.tasks.graph
    waited = [i for i in np.flatnonzero(graph.role == SEND) if found.after[i] >= 0]
    behind = [i for i in waited if graph.actions[graph.action[found.after[i]]].kind in (Kind.RECV_F, Kind.RECV_B)]
    assert behind
    assert all(found.start_s[i] == pytest.approx(found.end_s[found.after[i]]) for i in behind)
    assert trace.context.plan.transport == "blocking"


def test_the_embedding_of_a_tied_model_is_exchanged_in_both_directions_at_once():
    plan = plan_of(2, 3, tied=True, transport="blocking")
    links = Links(np.array([[0, 50.0], [0.1, 0]]), np.full((2, 2), np.inf))  # so far that both are under way at once
    found = simulate_iteration(plan, schedules["1f1b"](2, 3), equal(plan, 1.0, 2.0), links)
    nodes = node_of(found.tasks)
    for stage in (0, 1):
        sent, last = Action(stage, Kind.SEND_E, peer=1 - 2 * stage), Action(stage, Kind.BACKWARD, 2)
        arrived_s = found.end_s[nodes[0, Action(0, Kind.RECV_B, 2)]] if stage else 0.0
        assert found.start_s[nodes[0, sent]] == max(found.end_s[nodes[0, last]], arrived_s)
