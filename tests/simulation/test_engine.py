"""The event loop: the same as asking the links one by one, nothing lost, nothing early, and what slack means."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import Case, cases, equal, node_of, passes_of, plan_of
from slow_interpreter import interpret

from dtfm_lab.domain.errors import ScheduleError
from dtfm_lab.domain.links import QUEUEING, Links
from dtfm_lab.domain.schedule import PASSES, SENDS, Kind, Schedule
from dtfm_lab.domain.synchronisation import synchronisations
from dtfm_lab.simulation import engine
from dtfm_lab.simulation.engine import Played, play, programs_of
from dtfm_lab.simulation.kernels import choice, events
from dtfm_lab.simulation.kernels.events import COMPUTATION, RECEIVE, SEND
from dtfm_lab.simulation.schedules import schedules

seeds = st.integers(0, 10_000)
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


# in a fixed order


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


# stuck


KNOTS = {
    # stage 0 wants its first gradient before it sends the second micro-batch, stage 1 begins with the second
    "two devices": ["0F0 0B0 0F1 0B1", "1F1 1B1 1F0 1B0"],
    "three devices": ["0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1", "2F1 2B1 2F0 2B0"],
    "interleaved": ["0F0 2F0 2B0 0B0", "3F0 1F0 3B0 1B0"],
    "interleaved backwards": ["0F0 2F0 0B0 2B0", "1F0 3F0 3B0 1B0"],
    "split": ["0F0 0I0 0W0 0F1 0I1 0W1", "1F1 1I1 1W1 1F0 1I0 1W0"],
}


@pytest.mark.parametrize("what", KNOTS)
@pytest.mark.parametrize("n_replicas", [1, 3])
def test_a_circle_of_waiting_is_refused_and_written_out_in_one_line(what, n_replicas):
    schedule = Schedule.from_orders("knot", KNOTS[what])
    plan = plan_of(schedule.n_devices, schedule.n_microbatches, n_replicas, n_layers=schedule.n_stages)
    links = Links.free(len(plan.topology))
    with pytest.raises(ScheduleError, match=r"schedule knot cannot finish: .*, in a circle") as refused:
        play(plan, schedule, equal(plan, 1, 1, schedule.n_stages), links)
    said = str(refused.value)
    assert "\n" not in said
    circle = said.removeprefix("schedule knot cannot finish: ").removesuffix(", in a circle").split(" waits for ")
    assert circle[0] == circle[-1]
    programs = [program.split() for program in schedule.orders]
    for waiting, wanted in itertools.pairwise(circle):
        same = [p for p in programs if waiting in p and wanted in p]
        neighbours = abs(int(waiting[0]) - int(wanted[0])) == 1 and waiting[-1] == wanted[-1]
        assert neighbours or same[0].index(wanted) < same[0].index(waiting)


def test_the_circle_of_the_smallest_knot():
    plan = plan_of(2, 2)
    with pytest.raises(ScheduleError, match="cannot finish: ") as refused:
        play(plan, Schedule.from_orders("knot", KNOTS["two devices"]), equal(plan, 1, 1), Links.free(2))
    circle = str(refused.value).partition(": ")[2].split(" waits for ")
    assert Counter(circle) >= Counter(["1F1", "0F1", "0B0", "1B0"])


def test_a_long_circle_is_cut_short():
    n = 30
    forwards, backwards = " ".join(f"0F{m}" for m in range(n)), " ".join(f"0B{m}" for m in range(n))
    orders = [" ".join(f"{k}{action[1:]}" for action in (forwards + " " + backwards).split()) for k in range(n)]
    last = f"{n - 1}F0 {n - 1}B0 " + " ".join(f"{n - 1}F{m} {n - 1}B{m}" for m in range(1, n))
    orders[-1], orders[0] = last, "0F0 0B0 " + " ".join(f"0F{m} 0B{m}" for m in range(1, n))
    plan = plan_of(n, n)
    with pytest.raises(ScheduleError, match=r" and \d+ more, in a circle") as refused:
        play(plan, Schedule.from_orders("knot", orders), equal(plan, 1, 1), Links.free(n))
    assert len(str(refused.value)) < 300


# the structure itself


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
