"""The event loop: the same as asking the links one by one, nothing lost, nothing early, nothing twice on a link."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import replace

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import Case, cases, node_of, passes_of
from slow_interpreter import interpret

from dtfm_lab.domain.job.system import TRANSPORTS
from dtfm_lab.domain.network import QUEUEING
from dtfm_lab.domain.schedule import PASSES, SENDS, Kind, synchronisations
from dtfm_lab.domain.schedule.task_graph import COMPUTATION, RECEIVE, SEND
from dtfm_lab.simulation import engine
from dtfm_lab.simulation.engine import TaskTimes, programs_of
from dtfm_lab.simulation.kernels import compilation, events
from dtfm_lab.simulation.schedules import schedules

EVERY = list(itertools.product(sorted(schedules), sorted(synchronisations), QUEUEING, TRANSPORTS))


def same_as_asking_the_links(case: Case, *, synchronise: bool = True) -> None:
    tasks = case.tasks(synchronise=synchronise)
    simulated = tasks.simulate(case.links)
    nodes = node_of(tasks)
    seconds = {node: float(tasks.compute_s[i]) for node, i in nodes.items()}
    times = interpret(case.plan, tasks.graph.programs, case.links, seconds)
    assert times.keys() == nodes.keys()
    for node, i in nodes.items():
        assert times[node] == pytest.approx((simulated.start_s[i], simulated.end_s[i]), rel=1e-9, abs=1e-12)


@given(cases, st.booleans())
@settings(max_examples=60, deadline=None)
def test_every_row_is_as_the_links_of_a_real_run_would_have_it(case, synchronise):
    same_as_asking_the_links(case, synchronise=synchronise)


@pytest.mark.parametrize(("name", "synchronisation", "queueing", "transport"), EVERY)
def test_no_schedule_and_no_way_to_average_is_left_out_of_that(name, synchronisation, queueing, transport):
    same_as_asking_the_links(Case(name, 3, 6, 4, synchronisation, queueing, True, "int8", 7, transport))


@given(cases)
@settings(max_examples=15, deadline=None)
def test_compiled_and_plain_kernels_give_the_same_bits(case):
    assert compilation.start().wait(120)
    compiled = compilation.compiled_kernels
    assert set(compiled) == {"event_loop", "longest_paths"}
    tasks = case.tasks()
    found = []
    for kernels in (compiled, vars(events)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(engine, "kernel", lambda name, n, kernels=kernels: kernels[name])
            simulated = tasks.simulate(case.links)
            found.append([getattr(simulated, c) for c in ("start_s", "end_s", "after", "before", "order", "slack_s")])
    for one, other in zip(*found, strict=True):
        assert one.tobytes() == other.tobytes()


@given(cases, st.booleans())
@settings(max_examples=60, deadline=None)
def test_no_schedule_deadlocks_loses_or_repeats_an_action(case, synchronise):
    tasks = case.tasks(synchronise=synchronise)
    simulated = tasks.simulate(case.links)
    nodes = node_of(tasks)
    assert sorted(simulated.order.tolist()) == sorted(nodes.values())
    assert len(nodes) == len(tasks.graph)
    programs = tasks.graph.programs
    wanted = {
        (r, step.action) for p in range(case.n_stages) for r in range(case.n_replicas) for step in programs.of(p, r)
    }
    assert nodes.keys() == wanted
    for replica, n_microbatches in enumerate(case.counts):
        assert {a for r, a in nodes if r == replica and a.kind in PASSES} == passes_of(case.schedule, n_microbatches)


@given(cases)
@settings(max_examples=60, deadline=None)
def test_nothing_starts_before_what_it_needs_has_ended(case):
    simulated = case.simulated()
    programs, nodes = simulated.tasks.graph.programs, node_of(simulated.tasks)
    latency_s, bandwidth, grid = case.links.latency_s, case.links.bandwidth_bytes_per_s, case.plan.placement.devices
    for position, replica in itertools.product(range(case.n_stages), range(case.n_replicas)):
        steps = programs.of(position, replica)
        at = [nodes[replica, step.action] for step in steps]
        computed = [i for i in at if simulated.tasks.graph.role[i] == COMPUTATION]
        assert all(simulated.start_s[b] >= simulated.end_s[a] for a, b in itertools.pairwise(computed))
        for i, step in zip(at, steps, strict=True):
            assert simulated.end_s[i] >= simulated.start_s[i] >= 0
            assert all(simulated.start_s[i] >= simulated.end_s[at[need]] for need in step.needs)
            if step.action.kind in SENDS:
                stage, other = step.action.other_end(replica, case.n_replicas)
                j = nodes[other, step.action.counterpart()]
                pair = grid[position, replica], grid[stage % case.n_stages, other]
                assert simulated.start_s[j] >= simulated.start_s[i] + latency_s[pair] - 1e-12
                assert simulated.end_s[j] >= simulated.end_s[i] + latency_s[pair] - 1e-9
                seconds = simulated.tasks.n_bytes[i] / bandwidth[pair]
                assert simulated.duration_s[i] == simulated.duration_s[j] == pytest.approx(seconds)


def busy_times(simulated: TaskTimes, queueing: str) -> dict[object, list[tuple[float, float]]]:
    """Of each directed pair; with cards, of each card out and each card in."""
    tasks, busy = simulated.tasks, defaultdict(list)
    for i in np.flatnonzero(tasks.graph.role != COMPUTATION):
        sends = tasks.graph.role[i] == SEND
        if queueing == "cards":
            busy[bool(sends), int(tasks.here[i])].append((simulated.start_s[i], simulated.end_s[i]))
        elif sends:
            busy[int(tasks.here[i]), int(tasks.there[i])].append((simulated.start_s[i], simulated.end_s[i]))
    return busy


@given(cases)
@settings(max_examples=60, deadline=None)
def test_no_two_messages_are_on_a_link_or_a_card_at_once(case):
    for messages in busy_times(case.simulated(), case.queueing).values():
        assert all(later[0] >= earlier[1] for earlier, later in itertools.pairwise(sorted(messages)))


@given(cases)
@settings(max_examples=30, deadline=None)
def test_what_is_ready_first_is_served_first(case):
    """A send is before another on its link or card exactly where its content was ready before."""
    simulated = case.simulated()
    whole, served = simulated.tasks.graph, simulated.before
    source = whole.sources
    ready_s = np.zeros(len(whole))
    np.maximum.at(ready_s, whole.successors, simulated.end_s[source])
    later = np.flatnonzero((served >= 0) & (whole.role == SEND))
    assert (ready_s[served[later]] <= ready_s[later]).all()
    received = np.flatnonzero((served >= 0) & (whole.role == RECEIVE))
    first_byte_s = simulated.start_s[whole.partner] + simulated.latency_s[whole.partner]
    assert (first_byte_s[served[received]] <= first_byte_s[received]).all()


@given(cases)
@settings(max_examples=20, deadline=None)
def test_replicas_wait_for_each_other_only_to_synchronise(case):
    """On links of their own, one replica's passes are those of its pipeline alone, whatever the others do."""
    case = replace(case, queueing="pairs")
    together, alone = case.simulated(), case.tasks(synchronise=False)
    nodes, theirs = node_of(together.tasks), node_of(alone)
    there = np.array([nodes[node] for node, _ in sorted(theirs.items(), key=lambda item: item[1])])
    apart = replace(alone, compute_s=together.tasks.compute_s[there]).simulate(case.links)
    for (_, action), i in theirs.items():
        if action.kind in PASSES:
            assert apart.start_s[i] == together.start_s[there[i]]


@given(cases)
@settings(max_examples=20, deadline=None)
def test_equal_inputs_give_equal_times_bit_by_bit(case):
    one, other = case.simulated(), case.simulated()
    assert one.start_s.tobytes() == other.start_s.tobytes()
    assert one.order.tobytes() == other.order.tobytes()


@pytest.mark.parametrize("queueing", QUEUEING)
def test_a_network_too_large_for_a_table_of_pairs_queues_alike(monkeypatch, queueing):
    case = Case("1f1b", 3, 5, 3, "sharded-at-once", queueing, True, "none", 3)
    dense = case.simulated()
    monkeypatch.setattr(engine, "DENSE_DEVICES", 0)
    assert case.simulated().start_s.tobytes() == dense.start_s.tobytes()


def test_nodes_of_a_device_are_in_the_order_of_its_program():
    case = Case("zb-h1", 2, 3, 2, "ring", "pairs", True, "int8", 1)
    tasks = case.tasks()
    whole = tasks.graph
    expected = [
        (p, r, step.action)
        for p in range(2)
        for r in range(2)
        for step in programs_of(case.plan, case.schedule).of(p, r)
    ]
    found = zip(whole.position.tolist(), whole.replica.tolist(), whole.action.tolist(), strict=True)
    assert [(p, r, whole.actions[a]) for p, r, a in found] == expected
    messages = np.flatnonzero(whole.partner >= 0)
    assert (whole.partner[whole.partner[messages]] == messages).all()
    assert (whole.role[messages] != whole.role[whole.partner[messages]]).all()
    assert (tasks.here[messages] == tasks.there[whole.partner[messages]]).all()
    assert all(
        whole.computations[whole.computation[i]][2] is not Kind.SEND_F for i in np.flatnonzero(whole.computation >= 0)
    )


@given(cases, st.sampled_from([0.25, 2.0, 1024.0]))
@settings(max_examples=20, deadline=None)
def test_a_world_that_is_slower_throughout_takes_as_much_longer(case, factor):
    """Exactly: factors that are powers of two change no digit."""
    tasks, links = case.tasks(), case.links
    slow = replace(tasks, compute_s=tasks.compute_s * factor).simulate(links.scaled(factor, 1 / factor))
    assert (slow.end_s == factor * tasks.simulate(links).end_s).all()


def test_compiled_kernels_return_no_array():
    """Making one for the caller runs Python; an interrupt there would end in a SystemError of numba's."""
    compilation.start().wait()
    for kernel in compilation.compiled_kernels.values():
        for signature in kernel.nopython_signatures:
            assert isinstance(signature.return_type, numba.types.Integer | numba.types.NoneType)
