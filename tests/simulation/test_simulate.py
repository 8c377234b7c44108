"""Virtual time: closed forms where there are some, the table of ``domain.schedule`` everywhere."""

import itertools
from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtfm_lab.domain.errors import JobError, ScheduleError, TraceError, UnknownName
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.links import OutgoingLinks
from dtfm_lab.domain.messages import message_bytes
from dtfm_lab.domain.model import BACKWARD_PER_FORWARD, gpt
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import COMPUTE, RECEIVES, SENDS, SYNCHRONISATION, Action, Kind, Schedule, lower, needs
from dtfm_lab.domain.topology import Topology
from dtfm_lab.domain.trace import ComputeTime, Span
from dtfm_lab.planning.evaluate import evaluate
from dtfm_lab.simulation.durations import analytic, from_profile
from dtfm_lab.simulation.schedules import schedules
from dtfm_lab.simulation.simulate import play, simulate

names = st.sampled_from(["gpipe", "1f1b"])
seeds = st.integers(0, 10_000)
sizes = st.tuples(st.integers(1, 5), st.integers(1, 7), st.integers(1, 3))
"""stages, micro-batches, replicas"""
seconds = st.floats(0.1, 10)


def plan_of(n_stages: int, n_microbatches: int, n_replicas: int = 1, topology: Topology | None = None) -> Plan:
    """Device index = stage x replicas + replica; one micro-batch is 2 bytes a hop."""
    model = gpt(n_layers=n_stages, d_model=1, n_heads=1, seq_len=1, vocab_size=1)
    job = Job(
        model=model,
        n_stages=n_stages,
        n_replicas=n_replicas,
        global_batch=n_replicas * n_microbatches,
        microbatch=1,
        given_gradient_bytes=0.0,
        given_hop_bytes=0.0,
    )
    n = n_stages * n_replicas
    topology = topology or Topology.from_matrices(np.zeros((n, n)), np.ones((n, n)))
    ranks = [(d % n_replicas) * n_stages + d // n_replicas for d in range(n)]
    return evaluate(topology, job, rank_map=ranks)


def uneven(n: int, seed: int) -> Topology:
    """Asymmetric, of times and message sizes that matter beside computations of a second."""
    rng = np.random.default_rng(seed)
    return Topology.from_matrices(1e3 * rng.random((n, n)), 8e-9 * rng.uniform(0.5, 50, (n, n)))


def links_of(topology: Topology) -> list[OutgoingLinks]:
    return [OutgoingLinks(*pair) for pair in zip(topology.latency_s, topology.bandwidth_bytes_per_s, strict=True)]


def links_like(plan: Plan, latency_s: float = 0.0, bandwidth_bytes_per_s: float = np.inf) -> list[OutgoingLinks]:
    n = len(plan.topology)
    return [OutgoingLinks([latency_s] * n, [bandwidth_bytes_per_s] * n) for _ in range(n)]


def equal(forward_s: float, backward_s: float):
    """The same on every device; averaging and stepping take nothing."""
    time_of = {Kind.FORWARD: forward_s, Kind.BACKWARD: backward_s}
    return lambda replica, action: time_of.get(action.kind, 0.0)


def random_durations(seed: int):
    """A fixed time for every action of every replica."""
    drawn: dict[tuple[int, Action], float] = {}
    rng = np.random.default_rng(seed)

    def duration(replica: int, action: Action) -> float:
        return drawn.setdefault((replica, action), float(rng.random()))

    return duration


def played(plan: Plan, name: str, duration, links: list[OutgoingLinks]) -> list[Span]:
    return play(plan, schedules[name](plan.job.n_stages, plan.job.n_microbatches), duration, links)


def makespan(spans: list[Span]) -> float:
    return max(span.end_s for span in spans)


@given(st.integers(1, 8), st.integers(1, 12), seconds, seconds, names)
@settings(max_examples=50, deadline=None)
def test_on_free_links_both_schedules_take_the_textbook_time(n_stages, n_microbatches, forward_s, backward_s, name):
    plan = plan_of(n_stages, n_microbatches)
    spans = played(plan, name, equal(forward_s, backward_s), links_like(plan))
    assert makespan(spans) == pytest.approx((n_microbatches + n_stages - 1) * (forward_s + backward_s))


@pytest.mark.parametrize(
    ("n_microbatches", "name", "iteration_s"),
    [(16, "1f1b", 93.0), (16, "gpipe", 77.4), (64, "1f1b", 287.4), (64, "gpipe", 221.4)],
)
def test_slow_links_make_1f1b_lose_to_gpipe(n_microbatches, name, iteration_s):
    """Eight stages, a hop of 0.6 forwards: 1F1B waits for a round trip with every micro-batch, GPipe does not."""
    plan = plan_of(8, n_microbatches)
    assert makespan(played(plan, name, equal(1, 2), links_like(plan, latency_s=0.6))) == pytest.approx(iteration_s)


@pytest.mark.parametrize("name", sorted(schedules))
def test_a_hop_delays_as_much_by_its_latency_as_by_its_bytes_while_it_does_not_queue(name):
    plan = plan_of(8, 16)
    far = played(plan, name, equal(1, 2), links_like(plan, latency_s=0.6))
    narrow = played(plan, name, equal(1, 2), links_like(plan, bandwidth_bytes_per_s=plan.job.activation_bytes / 0.6))
    assert makespan(narrow) == pytest.approx(makespan(far))


@given(st.integers(2, 6), st.integers(1, 10), st.floats(1, 20))
@settings(max_examples=30, deadline=None)
def test_a_link_slower_than_the_computation_is_the_clock_of_gpipe(n_stages, n_microbatches, hop_s):
    """Messages queue: the last of them leaves M hops after the first is ready, and crosses the other links."""
    plan = plan_of(n_stages, n_microbatches)
    links = links_like(plan, bandwidth_bytes_per_s=plan.job.activation_bytes / hop_s)
    one_way_s = n_stages + (n_stages - 1 + n_microbatches - 1) * hop_s
    assert makespan(played(plan, "gpipe", equal(1, 1), links)) == pytest.approx(2 * one_way_s)


@given(sizes, names, seeds)
@settings(max_examples=40, deadline=None)
def test_no_schedule_deadlocks_loses_or_repeats_an_action(size, name, seed):
    n_stages, n_microbatches, n_replicas = size
    topology = uneven(n_stages * n_replicas, seed)
    plan = plan_of(n_stages, n_microbatches, n_replicas, topology)
    spans = played(plan, name, random_durations(seed), links_of(topology))
    program = lower(schedules[name](n_stages, n_microbatches), n_replicas)
    wanted = Counter((replica, action) for replica in range(n_replicas) for action in program)
    assert Counter((span.replica, span.action) for span in spans) == wanted


@given(sizes, names, seeds)
@settings(max_examples=40, deadline=None)
def test_every_action_starts_and_ends_as_the_table_says(size, name, seed):
    n_stages, n_microbatches, n_replicas = size
    topology, duration = uneven(n_stages * n_replicas, seed), random_durations(seed)
    plan = plan_of(n_stages, n_microbatches, n_replicas, topology)
    spans = played(plan, name, duration, links_of(topology))
    at = {(span.replica, span.action): span for span in spans}
    grid = plan.placement.devices

    def ready_s(span: Span) -> float:
        wanted = needs(span.action, n_stages, n_microbatches, n_replicas)
        return max((at[span.replica, need].end_s for need in wanted), default=0.0)

    for replica in range(n_replicas):
        for program in lower(schedules[name](n_stages, n_microbatches), n_replicas).programs:
            free_s, turn_s, link_free_s = 0.0, 0.0, defaultdict(float)
            for action in program:
                span = at[replica, action]
                if action.kind in COMPUTE:
                    assert span.start_s == max(free_s, ready_s(span))
                    assert span.end_s == span.start_s + duration(replica, action)
                    free_s = span.end_s
                elif action.kind in SENDS:
                    stage, other = action.other_end(replica, n_replicas)
                    here, there = grid[action.stage, replica], grid[stage, other]
                    turn = turn_s if action.kind in SYNCHRONISATION else 0.0
                    assert span.start_s == max(ready_s(span), link_free_s[there], turn)
                    n_bytes = message_bytes(plan.job, action)
                    assert span.end_s == pytest.approx(
                        span.start_s + n_bytes / topology.bandwidth_bytes_per_s[here, there]
                    )
                    link_free_s[there] = span.end_s
                    received, latency_s = at[other, action.counterpart()], topology.latency_s[here, there]
                    assert received.start_s == pytest.approx(span.start_s + latency_s)
                    assert received.end_s == pytest.approx(span.end_s + latency_s)
                    turn_s = received.end_s if action.kind in SYNCHRONISATION else turn_s


@given(sizes, names, seeds)
@settings(max_examples=30, deadline=None)
def test_messages_of_one_directed_pair_never_overlap_and_no_transfer_precedes_its_producer(size, name, seed):
    n_stages, n_microbatches, n_replicas = size
    topology = uneven(n_stages * n_replicas, seed)
    plan = plan_of(n_stages, n_microbatches, n_replicas, topology)
    spans = played(plan, name, random_durations(seed), links_of(topology))
    at = {(span.replica, span.action): span for span in spans}
    on_link = defaultdict(list)
    for span in spans:
        if span.action.kind in SENDS:
            target = span.action.other_end(span.replica, n_replicas)
            on_link[span.action.stage, span.replica, *target].append((span.start_s, span.end_s))
        if span.action.kind not in RECEIVES:
            for need in needs(span.action, n_stages, n_microbatches, n_replicas):
                assert span.start_s >= at[span.replica, need].end_s
    for messages in on_link.values():
        messages.sort()
        assert all(later[0] >= earlier[1] for earlier, later in itertools.pairwise(messages))


@given(sizes, names, seeds, st.floats(0.01, 5))
@settings(max_examples=40, deadline=None)
def test_the_makespan_never_falls_when_a_duration_grows(size, name, seed, longer_s):
    n_stages, n_microbatches, n_replicas = size
    topology, duration = uneven(n_stages * n_replicas, seed), random_durations(seed)
    plan = plan_of(n_stages, n_microbatches, n_replicas, topology)
    before = played(plan, name, duration, links_of(topology))
    computed = [span for span in before if span.action.kind in COMPUTE]
    slow = computed[seed % len(computed)]

    def slower(replica: int, action: Action) -> float:
        return duration(replica, action) + longer_s * ((replica, action) == (slow.replica, slow.action))

    after = {(span.replica, span.action): span.end_s for span in played(plan, name, slower, links_of(topology))}
    assert all(after[span.replica, span.action] >= span.end_s for span in before)
    assert makespan(before) <= max(after.values()) <= makespan(before) + longer_s + 1e-9


@given(sizes, names, seeds, st.sampled_from(["latency", "bandwidth"]))
@settings(max_examples=30, deadline=None)
def test_the_makespan_never_falls_when_a_link_gets_worse(size, name, seed, what):
    n_stages, n_microbatches, n_replicas = size
    n = n_stages * n_replicas
    topology = uneven(n, seed)
    factor = np.random.default_rng(seed).uniform(1, 3, (n, n))
    worse = Topology(
        topology.devices,
        topology.latency_s * (factor if what == "latency" else 1),
        topology.bandwidth_bytes_per_s / (factor if what == "bandwidth" else 1),
    )
    plan, duration = plan_of(n_stages, n_microbatches, n_replicas, topology), random_durations(seed)
    before = makespan(played(plan, name, duration, links_of(topology)))
    assert makespan(played(plan, name, duration, links_of(worse))) >= before


@given(st.integers(2, 8), seeds, st.sampled_from(["homogeneous", "heterogeneous"]))
@settings(max_examples=40, deadline=None)
def test_synchronisation_alone_takes_equation_2(n_replicas, seed, kind):
    """Out and back to every peer in turn: nobody's second round begins after the slowest one's first is over."""
    rng = np.random.default_rng(seed)
    latency_ms, gbps = 100 * rng.random((n_replicas,) * 2), rng.uniform(0.1, 5, (n_replicas,) * 2)
    if kind == "homogeneous":
        latency_ms[:], gbps[:] = latency_ms[0, 1], gbps[0, 1]
    topology = Topology.from_matrices((latency_ms + latency_ms.T) / 2, (gbps + gbps.T) / 2)
    model = gpt(n_layers=2, d_model=1024, n_heads=1, seq_len=1, vocab_size=1000)
    job = Job(model=model, n_stages=1, n_replicas=n_replicas, global_batch=n_replicas, microbatch=1)
    plan = evaluate(topology, job, stages=[range(n_replicas)])

    shard_s = topology.latency_s + job.gradient_bytes / n_replicas / topology.bandwidth_bytes_per_s
    equation_2_s = 2 * (shard_s * ~np.eye(n_replicas, dtype=bool)).sum(axis=1).max()
    assert makespan(played(plan, "gpipe", equal(0, 0), links_of(topology))) == pytest.approx(equation_2_s)
    assert plan.cost.data_parallel_s == pytest.approx(equation_2_s)


@given(sizes, names, seeds)
@settings(max_examples=20, deadline=None)
def test_replicas_wait_for_each_other_only_to_synchronise(size, name, seed):
    """One replica's forwards and backwards are those of its pipeline alone."""
    n_stages, n_microbatches, n_replicas = size
    topology, duration = uneven(n_stages * n_replicas, seed), random_durations(seed)
    together = played(plan_of(n_stages, n_microbatches, n_replicas, topology), name, duration, links_of(topology))
    for replica in range(n_replicas):
        ours = topology.subset([stage * n_replicas + replica for stage in range(n_stages)])
        alone = played(
            plan_of(n_stages, n_microbatches, 1, ours), name, lambda _, a, r=replica: duration(r, a), links_of(ours)
        )
        times = {span.action: (span.start_s, span.end_s) for span in alone if span.action.kind is not Kind.STEP}
        found = {s.action: (s.start_s, s.end_s) for s in together if s.replica == replica and s.action in times}
        assert found == times


def test_a_cycle_of_waiting_is_refused_and_names_who_waits():
    """Stage 0 wants its first gradient before it sends the second micro-batch, stage 1 begins with the second."""
    forward, backward = Kind.FORWARD, Kind.BACKWARD
    first = tuple(Action(0, kind, m) for kind, m in ((forward, 0), (backward, 0), (forward, 1), (backward, 1)))
    last = tuple(Action(1, kind, m) for kind, m in ((forward, 1), (backward, 1), (forward, 0), (backward, 0)))
    plan = plan_of(2, 2)
    with pytest.raises(ScheduleError, match="schedule knot cannot finish: nobody ever sends what 0RECV_B0, 1RECV_F1"):
        play(plan, Schedule("knot", 2, (first, last)), equal(1, 1), links_like(plan))


# simulate: a plan in, a trace out


def small_plan(**device) -> Plan:
    model = gpt(n_layers=4, d_model=64, n_heads=4, seq_len=32, vocab_size=100)
    job = Job(model=model, n_stages=2, n_replicas=2, global_batch=8, microbatch=1)
    topology = Topology.from_matrices(np.full((5, 5), 2.0), np.full((5, 5), 0.1), **device)
    return evaluate(topology, job, stages=[[4, 0], [2, 1]])


@pytest.mark.parametrize("name", sorted(schedules))
def test_a_plan_is_simulated_with_its_devices_and_its_links_in_their_direction(name):
    plan = small_plan(peak_flop_per_s=1e9)
    drawn = uneven(5, seed=3)
    plan = replace(
        plan,
        topology=replace(
            plan.topology, latency_s=drawn.latency_s, bandwidth_bytes_per_s=1e6 * drawn.bandwidth_bytes_per_s
        ),
    )
    spans = played(plan, name, from_profile(analytic(plan)), links_of(plan.topology))
    assert sorted(simulate(plan, name).spans()) == sorted(spans)


@pytest.mark.parametrize("name", sorted(schedules))
def test_a_simulated_trace_says_what_it_predicts(name):
    plan = small_plan()
    trace = simulate(plan, name)
    context = trace.context
    assert (context.source, context.clock, context.links, context.schedule) == ("simulated", "model", "drawn", name)
    assert context.devices == tuple(map(tuple, plan.stages))
    assert (context.topology_fingerprint, context.n_microbatches) == (plan.topology.fingerprint, 4)
    assert len(trace) == 2 * sum(1 for _ in lower(schedules[name](2, 4), 2))
    assert trace.n_iterations == 1
    assert 0 < trace.compute_share < 1


def test_the_job_names_the_schedule_unless_the_caller_does():
    plan = small_plan()
    plan = replace(plan, job=replace(plan.job, schedule="1f1b"))
    assert simulate(plan).context.schedule == "1f1b"
    assert simulate(plan, "gpipe").context.schedule == "gpipe"


def test_the_same_plan_gives_the_same_trace():
    assert simulate(small_plan()).spans() == simulate(small_plan()).spans()


@given(st.floats(1.5, 100))
@settings(max_examples=10, deadline=None)
def test_k_times_the_peak_takes_a_kth_of_the_time_to_compute(k):
    slow, fast = analytic(small_plan(peak_flop_per_s=1e9)), analytic(small_plan(peak_flop_per_s=k * 1e9))
    assert [row.seconds for row in slow] == pytest.approx([k * row.seconds for row in fast])


def test_a_backward_takes_twice_its_forward_and_a_stage_as_long_as_its_layers():
    plan = small_plan(peak_flop_per_s=1e9)
    time_of = {row[:3]: row.seconds for row in analytic(plan, efficiency=0.5)}
    for stage, layers in enumerate(plan.job.stage_layers):
        for replica in range(2):
            forward_s = sum(layer.forward_flop for layer in layers) / 5e8
            assert time_of[stage, replica, Kind.FORWARD] == pytest.approx(forward_s)
            assert time_of[stage, replica, Kind.BACKWARD] == pytest.approx(BACKWARD_PER_FORWARD * forward_s)


def test_a_run_is_predicted_from_its_profile_and_never_from_its_spans():
    plan = small_plan()
    profile = tuple(row._replace(seconds=7.0) for row in analytic(plan))
    drawn = simulate(plan, "1f1b")
    ran = replace(drawn, context=replace(drawn.context, source="measured", clock="virtual", profile=profile))
    predicted = simulate(plan, like=ran)
    assert (predicted.context.source, predicted.context.clock) == ("simulated", "virtual")
    assert predicted.context.schedule == "1f1b"
    assert predicted.context.profile == profile
    for span in predicted.spans():
        if span.action.kind in COMPUTE:
            assert span.end_s - span.start_s == pytest.approx(7)


def test_a_run_that_goes_on_is_predicted_from_its_context():
    plan = small_plan()
    ran = simulate(plan, "1f1b")
    assert simulate(plan, like=ran.context).spans() == simulate(plan, like=ran).spans() == ran.spans()


def test_a_run_on_real_links_is_predicted_on_free_ones():
    plan = small_plan()
    ran = simulate(plan)
    real = simulate(plan, like=replace(ran, context=replace(ran.context, links="real")))
    assert all(span.start_s == span.end_s for span in real.spans() if span.action.kind not in COMPUTE)
    assert real.iteration_s < ran.iteration_s


def test_what_cannot_be_predicted_is_refused():
    plan = small_plan()
    ran = simulate(plan)
    with pytest.raises(JobError, match="holds message sizes only"):
        simulate(evaluate(plan.topology, Job.from_bytes(2, 2, 1, 1), stages=[[0, 1], [2, 3]]))
    with pytest.raises(UnknownName, match="no pipeline schedule named 'zero-bubble'"):
        simulate(plan, "zero-bubble")
    with pytest.raises(TraceError, match=r"this plan has .*; wanted the same"):
        simulate(evaluate(plan.topology, plan.job, stages=[[0, 1], [2, 3]]), like=ran)
    slower = replace(plan, topology=plan.topology.with_link(0, 1, latency_s=9.0))
    with pytest.raises(TraceError, match=f"ran on network {plan.topology.fingerprint} .*wanted the same"):
        simulate(slower, like=ran)
    with pytest.raises(TraceError, match="profile has no time for B on stage 1, replica 0; wanted one for every"):
        from_profile([ComputeTime(1, 0, Kind.FORWARD, 1.0)])(0, Action(1, Kind.BACKWARD, 0))
