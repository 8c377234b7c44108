"""Pipelines with different numbers of micro-batches: closed forms, what they hold, and where their counts are kept."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import Case, cases, equal, even, plan_of, schedule_of

from dtfm_lab.costs.memory import activation_memory
from dtfm_lab.domain.errors import ScheduleError, TraceError
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Kind
from dtfm_lab.domain.units import GiB
from dtfm_lab.simulation.engine import simulate_iteration
from dtfm_lab.simulation.measured_predecessors import with_predecessors
from dtfm_lab.simulation.memory import memory, remedies
from dtfm_lab.simulation.schedules import build, peak_activations, schedules
from dtfm_lab.simulation.simulate import simulate

counts = st.lists(st.integers(1, 12), min_size=1, max_size=5).map(tuple)
seconds = st.floats(0.1, 10)


def speeds_of(n: int, seed: int) -> np.ndarray:
    """Micro-batches a second of n devices."""
    return np.random.default_rng(seed).uniform(0.2, 5, n)


@given(counts, st.integers(0, 999), seconds, st.sampled_from(["gpipe", "1f1b", "zb-h1"]))
def test_one_stage_takes_what_its_slowest_share_takes_and_the_way_there_and_back(shares, seed, latency_s, name):
    """max n_r / v_r; gradients go to all peers at once, and averages come back, each a latency later."""
    n, speeds = len(shares), speeds_of(len(shares), seed)
    plan = plan_of(1, max(shares), n, counts=shares, synchronisation="sharded-at-once")
    profile = [row._replace(seconds=row.seconds / speeds[row.replica]) for row in equal(plan, 0.25, 0.75)]
    schedule = schedules[name](1, max(shares))
    found = simulate_iteration(plan, schedule, profile, even(n, latency_s))
    assert found.makespan_s == pytest.approx(max(shares / speeds) + 2 * latency_s * (n > 1))


@given(counts, st.integers(1, 4), seconds, seconds)
def test_on_free_links_an_iteration_is_as_long_as_the_longest_pipeline_alone(shares, n_stages, forward_s, backward_s):
    plan = plan_of(n_stages, max(shares), len(shares), counts=shares)
    found = simulate_iteration(
        plan, schedules["1f1b"](n_stages, max(shares)), equal(plan, forward_s, backward_s), even(n_stages * len(shares))
    )
    assert found.makespan_s == pytest.approx((max(shares) + n_stages - 1) * (forward_s + backward_s))
    graph = found.tasks.graph
    last_pass = np.isin([action.kind for action in graph.actions], [Kind.BACKWARD])[graph.action]
    for replica, count in enumerate(shares):
        ended_s = found.end_s[last_pass & (graph.replica == replica)].max()
        assert ended_s == pytest.approx((count + n_stages - 1) * (forward_s + backward_s))


@given(cases)
def test_all_micro_batches_of_the_batch_pass_every_stage_once(case: Case):
    plan, schedule = case.plan, case.schedule
    trace = simulate(plan, schedule, queueing=case.queueing)
    assert trace.context.plan.microbatch_counts == case.counts
    assert sum(case.counts) == plan.job.global_batch
    for stage in range(schedule.n_stages):
        forwards = [a.kind is Kind.FORWARD and a.stage == stage for a in trace.actions]
        done = np.array(forwards)[trace.action]
        assert done.sum() == plan.job.global_batch
        assert np.bincount(trace.replica[done], minlength=case.n_replicas).tolist() == list(case.counts)
    again = simulate(plan, schedule, queueing=case.queueing, like=trace)
    assert again.start_s.tolist() == trace.start_s.tolist()


@given(counts, st.sampled_from(["gpipe", "1f1b", "zb-h1", "interleaved-1f1b", "adaptive-1f1b"]), st.integers(0, 999))
def test_equal_counts_that_are_spelled_out_change_nothing(shares, name, seed):
    n_stages, n_replicas = 1 + seed % 4, len(shares)
    schedule = schedule_of(name, n_stages, max(shares), seed)
    sizes = n_stages, schedule.n_microbatches, n_replicas
    counts_ = (schedule.n_microbatches,) * n_replicas
    spelled, left = (plan_of(*sizes, n_layers=schedule.n_stages, d_model=3, counts=each) for each in (counts_, None))
    one, other = (simulate(plan, schedule) for plan in (spelled, left))
    assert one.context == other.context
    assert one.context.plan.microbatches_per_replica == ()
    for column in ("replica", "action", "start_s", "end_s", "after"):
        assert getattr(one, column).tobytes() == getattr(other, column).tobytes()
    assert memory(spelled, schedule).peak_bytes.tolist() == memory(left, schedule).peak_bytes.tolist()


# memory


def with_memory(plan: Plan, *memory_bytes: float) -> Plan:
    """The plan on devices that have so much."""
    devices = (
        replace(device, memory_bytes=float(n)) for device, n in zip(plan.topology.devices, memory_bytes, strict=True)
    )
    return replace(plan, topology=replace(plan.topology, devices=tuple(devices)))


@given(counts, st.integers(1, 5), st.integers(0, 999))
def test_a_pipeline_of_few_micro_batches_holds_no_more_than_these(shares, n_stages, seed):
    """Of w forwards ahead min(w + 1, n) activations, by the order of passes and over any trace."""
    rng = np.random.default_rng(seed)
    warmups = tuple(sorted(rng.integers(0, max(shares) + 1, n_stages).tolist(), reverse=True))
    fields = {"schedule": "adaptive-1f1b", "warmups": warmups}
    plan = plan_of(n_stages, max(shares), len(shares), counts=shares, d_model=4, **fields)
    kept = activation_memory(plan.job, n_stages).kept
    for report in (memory(plan), memory(plan, trace=simulate(plan))):
        most = np.zeros(n_stages * len(shares), dtype=np.int64)
        np.maximum.at(most, report.levels.device, report.levels.activations_bytes)
        for stage, replica in itertools.product(range(n_stages), range(len(shares))):
            held = most[stage * len(shares) + replica]
            assert held == min(warmups[stage] + 1, shares[replica]) * kept[stage]


def test_a_device_that_can_hold_its_whole_share_limits_no_other():
    plan = plan_of(2, 8, 2, counts=(8, 1), d_model=8)
    needs = memory(plan, "gpipe").peak_bytes
    limits = np.maximum(needs, [[GiB, 0], [GiB, 0]])  # pipeline 1 has room for its one micro-batch
    tight = with_memory(plan, *limits.ravel())
    links = even(4, latency_s=30.0)
    profile = equal(plan, 1, 2)
    assert build(tight, "adaptive-1f1b", profile, links) == build(plan, "adaptive-1f1b", profile, links)
    assert max(peak_activations(build(tight, "adaptive-1f1b", profile, links))) > 2
    even_shares = replace(tight, job=tight.job.with_fields(global_batch=16))
    assert max(peak_activations(build(even_shares, "adaptive-1f1b", equal(plan, 1, 2), links))) <= 2


def test_smaller_micro_batches_that_would_fit_keep_the_shares():
    plan = plan_of(1, 6, 2, counts=(6, 2), d_model=8)
    job = replace(plan.job, global_batch=16, microbatch=2)
    report = memory(replace(plan, job=job), "1f1b")
    tight = with_memory(replace(plan, job=job), *[report.peak_bytes.max() - 1] * 2)
    found = [remedy for remedy in remedies(tight, "1f1b") if "micro-batches of 1" in remedy.how]
    assert {remedy.after.plan.job.microbatch_counts for remedy in found} == {(12, 4)}
    assert job.with_fields(microbatch=1).microbatch_counts == (12, 4)
    assert job.with_fields(microbatch=4).microbatch_counts == (3, 1)
    assert job.with_fields(microbatch=8).microbatch_counts == (1, 1), "6 and 2 of two sequences are none of eight"


# warm-ups of the job, and what looks at a plan again


def far_apart(**fields: object) -> Plan:
    """Two pipelines of three stages, 7 and 3 micro-batches, on slow links."""
    n = 6
    topology = Topology.from_matrices(np.full((n, n), 0.05), np.full((n, n), 1e-3))
    return plan_of(3, 7, 2, topology, counts=(7, 3), d_model=4, schedule="adaptive-1f1b", **fields)


def test_the_warmups_of_the_job_are_those_of_its_trace_and_its_memory():
    given_, chosen = far_apart(warmups=(5, 4, 0)), far_apart()
    wanted = schedules["adaptive-1f1b"](3, 7, warmups=(5, 4, 0))
    assert simulate(given_).context.plan.orders == wanted.orders
    assert memory(given_).peak_bytes.tolist() == memory(given_, wanted).peak_bytes.tolist()
    assert simulate(chosen).iteration_s <= simulate(given_).iteration_s
    assert simulate(given_, "1f1b").context.plan.orders == schedules["1f1b"](3, 7).orders
    with pytest.raises(ScheduleError, match="device 1 warms up with 4 forwards, device 0 with 1"):
        simulate(far_apart(warmups=(1, 4, 0)))


def test_a_trace_of_other_shares_is_of_another_plan():
    plan = far_apart()
    trace = simulate(plan)
    other = replace(plan, job=replace(plan.job, microbatches_per_replica=(3, 7)))
    with pytest.raises(TraceError, match=r"ran with microbatch_counts \(7, 3\), this plan's job has \(3, 7\)"):
        simulate(other, like=trace)
    with pytest.raises(TraceError, match=r"ran with n_microbatches 7, this plan's job has 5"):
        simulate(replace(plan, job=replace(plan.job, microbatches_per_replica=(5, 5))), like=trace)
    with pytest.raises(TraceError, match=r"holds no 0F3 of pipeline 1; wanted"):
        with_predecessors(trace, other, trace.context.recorded_schedule)
    for bad in ((7,), (7, 0), (6, 3), (8, 2)):
        plan = replace(trace.context.plan, microbatches_per_replica=bad)
        with pytest.raises(TraceError, match="wanted a count for each of 2 replicas, from 1 to 7, the largest"):
            replace(trace, context=replace(trace.context, plan=plan))
