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

from dtfm_lab.domain.network import QUEUEING
from dtfm_lab.domain.schedule import PASSES, SENDS, Kind, synchronisations
from dtfm_lab.simulation import engine
from dtfm_lab.simulation.engine import Played, programs_of
from dtfm_lab.simulation.kernels import choice, events
from dtfm_lab.simulation.kernels.events import COMPUTATION, RECEIVE, SEND
from dtfm_lab.simulation.schedules import schedules

EVERY = list(itertools.product(sorted(schedules), sorted(synchronisations), QUEUEING))


def same_as_asking_the_links(case: Case, *, synchronise: bool = True) -> None:
    scene = case.scene(synchronise=synchronise)
    played = scene.play(case.links)
    nodes = node_of(scene)
    seconds = {node: float(scene.compute_s[i]) for node, i in nodes.items()}
    times = interpret(case.plan, scene.structure.programs, case.links, seconds)
    assert times.keys() == nodes.keys()
    for node, i in nodes.items():
        assert times[node] == pytest.approx((played.start_s[i], played.end_s[i]), rel=1e-9, abs=1e-12)


@given(cases, st.booleans())
@settings(max_examples=60, deadline=None)
def test_every_row_is_as_the_links_of_a_real_run_would_have_it(case, synchronise):
    same_as_asking_the_links(case, synchronise=synchronise)


@pytest.mark.parametrize(("name", "synchronisation", "queueing"), EVERY)
def test_no_schedule_and_no_way_to_average_is_left_out_of_that(name, synchronisation, queueing):
    same_as_asking_the_links(Case(name, 3, 6, 4, synchronisation, queueing, True, "int8", 7))


@given(cases)
@settings(max_examples=15, deadline=None)
def test_compiled_and_plain_kernels_give_the_same_bits(case):
    assert choice.begin().wait(120)
    compiled = choice._kernels
    assert set(compiled) == {"play_events", "longest_from"}
    scene = case.scene()
    found = []
    for kernels in (compiled, vars(events)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(engine, "kernel", lambda name, n, kernels=kernels: kernels[name])
            played = scene.play(case.links)
            found.append([getattr(played, c) for c in ("start_s", "end_s", "after", "before", "order", "slack_s")])
    for one, other in zip(*found, strict=True):
        assert one.tobytes() == other.tobytes()


@given(cases, st.booleans())
@settings(max_examples=60, deadline=None)
def test_no_schedule_deadlocks_loses_or_repeats_an_action(case, synchronise):
    scene = case.scene(synchronise=synchronise)
    played = scene.play(case.links)
    nodes = node_of(scene)
    assert sorted(played.order.tolist()) == sorted(nodes.values())
    assert len(nodes) == len(scene.structure)
    programs = scene.structure.programs
    wanted = {
        (r, step.action) for p in range(case.n_stages) for r in range(case.n_replicas) for step in programs.of(p, r)
    }
    assert nodes.keys() == wanted
    for replica in range(case.n_replicas):
        assert {a for r, a in nodes if r == replica and a.kind in PASSES} == passes_of(case.schedule)


@given(cases)
@settings(max_examples=60, deadline=None)
def test_nothing_starts_before_what_it_needs_has_ended(case):
    played = case.played()
    programs, nodes = played.scene.structure.programs, node_of(played.scene)
    latency_s, bandwidth, grid = case.links.latency_s, case.links.bandwidth_bytes_per_s, case.plan.placement.devices
    for position, replica in itertools.product(range(case.n_stages), range(case.n_replicas)):
        steps = programs.of(position, replica)
        at = [nodes[replica, step.action] for step in steps]
        computed = [i for i in at if played.scene.structure.role[i] == COMPUTATION]
        assert all(played.start_s[b] >= played.end_s[a] for a, b in itertools.pairwise(computed))
        for i, step in zip(at, steps, strict=True):
            assert played.end_s[i] >= played.start_s[i] >= 0
            assert all(played.start_s[i] >= played.end_s[at[need]] for need in step.needs)
            if step.action.kind in SENDS:
                stage, other = step.action.other_end(replica, case.n_replicas)
                j = nodes[other, step.action.counterpart()]
                pair = grid[position, replica], grid[stage % case.n_stages, other]
                assert played.start_s[j] >= played.start_s[i] + latency_s[pair] - 1e-12
                assert played.end_s[j] >= played.end_s[i] + latency_s[pair] - 1e-9
                seconds = played.scene.n_bytes[i] / bandwidth[pair]
                assert played.duration_s[i] == played.duration_s[j] == pytest.approx(seconds)


def busy_times(played: Played, queueing: str) -> dict[object, list[tuple[float, float]]]:
    """Of each directed pair; with cards, of each card out and each card in."""
    scene, busy = played.scene, defaultdict(list)
    for i in np.flatnonzero(scene.structure.role != COMPUTATION):
        sends = scene.structure.role[i] == SEND
        if queueing == "cards":
            busy[bool(sends), int(scene.here[i])].append((played.start_s[i], played.end_s[i]))
        elif sends:
            busy[int(scene.here[i]), int(scene.there[i])].append((played.start_s[i], played.end_s[i]))
    return busy


@given(cases)
@settings(max_examples=60, deadline=None)
def test_no_two_messages_are_on_a_link_or_a_card_at_once(case):
    for messages in busy_times(case.played(), case.queueing).values():
        assert all(later[0] >= earlier[1] for earlier, later in itertools.pairwise(sorted(messages)))


@given(cases)
@settings(max_examples=30, deadline=None)
def test_what_is_ready_first_is_served_first(case):
    """A send is before another on its link or card exactly where its content was ready before."""
    played = case.played()
    whole, served = played.scene.structure, played.before
    source = np.repeat(np.arange(len(whole)), np.diff(whole.next_from))
    ready_s = np.zeros(len(whole))
    np.maximum.at(ready_s, whole.next_node, played.end_s[source])
    later = np.flatnonzero((served >= 0) & (whole.role == SEND))
    assert (ready_s[served[later]] <= ready_s[later]).all()
    received = np.flatnonzero((served >= 0) & (whole.role == RECEIVE))
    first_byte_s = played.start_s[whole.partner] + played.latency_s[whole.partner]
    assert (first_byte_s[served[received]] <= first_byte_s[received]).all()


@given(cases)
@settings(max_examples=20, deadline=None)
def test_replicas_wait_for_each_other_only_to_synchronise(case):
    """On links of their own, one replica's passes are those of its pipeline alone, whatever the others do."""
    case = replace(case, queueing="pairs")
    together, alone = case.played(), case.scene(synchronise=False)
    nodes, theirs = node_of(together.scene), node_of(alone)
    there = np.array([nodes[node] for node, _ in sorted(theirs.items(), key=lambda item: item[1])])
    apart = replace(alone, compute_s=together.scene.compute_s[there]).play(case.links)
    for (_, action), i in theirs.items():
        if action.kind in PASSES:
            assert apart.start_s[i] == together.start_s[there[i]]


@given(cases)
@settings(max_examples=20, deadline=None)
def test_equal_inputs_give_equal_times_bit_by_bit(case):
    one, other = case.played(), case.played()
    assert one.start_s.tobytes() == other.start_s.tobytes()
    assert one.order.tobytes() == other.order.tobytes()


@pytest.mark.parametrize("queueing", QUEUEING)
def test_a_network_too_large_for_a_table_of_pairs_queues_alike(monkeypatch, queueing):
    case = Case("1f1b", 3, 5, 3, "sharded-at-once", queueing, True, "none", 3)
    dense = case.played()
    monkeypatch.setattr(engine, "DENSE_DEVICES", 0)
    assert case.played().start_s.tobytes() == dense.start_s.tobytes()


def test_nodes_of_a_device_are_in_the_order_of_its_program():
    case = Case("zb-h1", 2, 3, 2, "ring", "pairs", True, "int8", 1)
    scene = case.scene()
    whole = scene.structure
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
    assert (scene.here[messages] == scene.there[whole.partner[messages]]).all()
    assert all(whole.works[whole.work[i]][2] is not Kind.SEND_F for i in np.flatnonzero(whole.work >= 0))


@given(cases, st.sampled_from([0.25, 2.0, 1024.0]))
@settings(max_examples=20, deadline=None)
def test_a_world_that_is_slower_throughout_takes_as_much_longer(case, factor):
    """Exactly: factors that are powers of two change no digit."""
    scene, links = case.scene(), case.links
    slow = replace(scene, compute_s=scene.compute_s * factor).play(links.scaled(factor, 1 / factor))
    assert (slow.end_s == factor * scene.play(links).end_s).all()


def test_compiled_kernels_return_no_array():
    """Making one for the caller runs Python; an interrupt there would end in a SystemError of numba's."""
    choice.begin().wait()
    for kernel in choice._kernels.values():
        for signature in kernel.nopython_signatures:
            assert isinstance(signature.return_type, numba.types.Integer | numba.types.NoneType)
