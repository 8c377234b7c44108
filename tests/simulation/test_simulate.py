"""simulate: a plan in, a trace out, which says what it predicts; and what cannot be predicted is refused."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from plans import uneven

from dtfm_lab.costs.seconds import analytic
from dtfm_lab.domain.errors import JobError, ScheduleError, TraceError, UnknownName
from dtfm_lab.domain.job import Job, gpt
from dtfm_lab.domain.network import QUEUEING, Links, Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import COMPUTE, SENDS, SYNCHRONISATION, Kind, Schedule
from dtfm_lab.domain.trace import Span, Trace
from dtfm_lab.planning.evaluate import evaluate
from dtfm_lab.simulation.engine import programs_of, simulate_iteration
from dtfm_lab.simulation.memory import memory
from dtfm_lab.simulation.schedules import builtin, schedules
from dtfm_lab.simulation.simulate import iteration_seconds, simulate

BETWEEN_REPLICAS = set(SYNCHRONISATION) - {Kind.SEND_E, Kind.RECV_E}


def small_plan(**fields: object) -> Plan:
    """Two stages of two replicas on four of five devices, links and messages of about as long as a computation."""
    model = gpt(n_layers=4, d_model=64, n_heads=4, seq_len=32, vocab_size=100)
    job = Job(model=model, n_stages=2, n_replicas=2, global_batch=8, microbatch=1, **fields)
    drawn = uneven(5, seed=3)
    links = drawn.latency_s * 1e-6, drawn.bandwidth_bytes_per_s * 1e9
    devices = tuple(replace(d, gpu="mine", peak_flop_per_s=1e12) for d in drawn.devices)
    return evaluate(Topology(devices, *links), job, stages=[[4, 0], [2, 1]])


def profile_of(plan: Plan, name: str) -> tuple:
    schedule = schedules[name](2, 4)
    return analytic(plan, programs_of(plan, schedule))


def of_iteration(trace: Trace, iteration: int) -> Counter:
    return Counter(span.action.kind for span in trace.spans() if span.iteration == iteration)


@pytest.mark.parametrize("name", sorted(set(schedules) - {"adaptive-1f1b"}))
@pytest.mark.parametrize("queueing", QUEUEING)
def test_a_trace_has_every_row_that_was_played(name, queueing):
    plan = small_plan()
    simulated = simulate_iteration(
        plan, schedules[name](2, 4), profile_of(plan, name), Links.of(plan.topology, queueing)
    )
    whole = simulated.tasks.graph
    rows = zip(whole.replica.tolist(), whole.action.tolist(), simulated.start_s, simulated.end_s, strict=True)
    spans = [Span(0, r, whole.actions[a], start_s, end_s) for r, a, start_s, end_s in rows]
    assert sorted(simulate(plan, name, queueing=queueing).spans()) == sorted(spans)


@pytest.mark.parametrize("name", sorted(schedules))
def test_a_simulated_trace_says_what_it_predicts(name):
    plan = small_plan()
    trace = simulate(plan, name, queueing="nics")
    context = trace.context
    assert (context.source, context.clock, context.links, context.schedule) == ("simulated", "model", "specified", name)
    assert context.devices == tuple(map(tuple, plan.stages))
    assert (context.plan.topology_fingerprint, context.plan.n_microbatches) == (plan.topology.fingerprint, 4)
    assert (context.queueing, context.plan.synchronisation, context.synchronise_every) == ("nics", "sharded", 1)
    assert (context.plan.tokens, context.plan.flop) == (plan.job.tokens, plan.job.flop)
    assert Schedule.from_orders(name, context.plan.orders).stages_per_device == context.stages_per_device
    assert trace.n_iterations == 1
    assert 0 < trace.compute_share < 1


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("queueing", QUEUEING)
def test_the_rows_that_each_waited_for_survive_the_sorting(every, queueing):
    """Every chain over ``after`` is contiguous in time, within its own iteration."""
    trace = simulate(small_plan(synchronise_every=every), "1f1b", queueing=queueing)
    latency_s = small_plan().topology.latency_s
    after, actions = trace.after, [trace.actions[a] for a in trace.action]
    assert (trace.iteration[after[after >= 0]] == trace.iteration[after >= 0]).all()
    for row, before in enumerate(after):
        if before < 0:
            assert trace.start_s[row] == 0
        elif SENDS.get(actions[before].kind) is actions[row].kind:
            assert actions[before].counterpart() == actions[row]
            assert np.isclose(latency_s, trace.start_s[row] - trace.start_s[before]).any()
        else:
            assert trace.start_s[row] == trace.end_s[before]


def test_the_job_names_the_schedule_unless_the_caller_does():
    plan = small_plan(schedule="1f1b")
    assert simulate(plan).context.schedule == "1f1b"
    assert simulate(plan, "gpipe").context.schedule == "gpipe"
    mine = Schedule.from_orders("mine", simulate(plan, "gpipe").context.plan.orders)
    assert simulate(plan, mine).context.schedule == "mine"
    assert simulate(plan, mine).spans() == simulate(plan, "gpipe").spans()


CHOICES = [
    {},
    {"synchronise_every": 3},
    {"synchronise_every": 6, "fragments": 2, "fragment_delay": 1},
    {"transport": "batched"},
    {"sharding": "zero-2"},
    {"microbatches_per_replica": (5, 3)},
]


@pytest.mark.parametrize("schedule", sorted(schedules))
@pytest.mark.parametrize("fields", CHOICES, ids=str)
def test_the_seconds_alone_are_those_of_the_trace_bit_by_bit(schedule, fields):
    try:
        plan = small_plan(schedule=schedule, **fields)
    except JobError:
        pytest.skip("a job has no such choices together")
    for queueing, efficiency in itertools.product((None, *QUEUEING), (None, 0.4)):
        try:
            whole_s = simulate(plan, queueing=queueing, efficiency=efficiency).iteration_s
        except ScheduleError as error:
            with pytest.raises(ScheduleError, match=re.escape(str(error))):
                iteration_seconds(plan, queueing=queueing, efficiency=efficiency)
        else:
            assert iteration_seconds(plan, queueing=queueing, efficiency=efficiency) == whole_s


# local updates


@pytest.mark.parametrize("name", ["gpipe", "zb-h1", "interleaved-1f1b"])
@pytest.mark.parametrize("every", [2, 5])
def test_of_several_iterations_only_the_last_averages_and_their_mean_counts(name, every):
    trace = simulate(small_plan(synchronise_every=every), name)
    together = simulate(small_plan(), name)
    numbers = np.unique(trace.iteration)
    assert numbers[-1] == every - 1
    alone, last = of_iteration(trace, int(numbers[0])), of_iteration(trace, every - 1)
    assert not set(alone) & BETWEEN_REPLICAS
    assert last == of_iteration(together, 0) + Counter({Kind.REDUCE: 4}), "each device takes the averages over"
    assert alone[Kind.STEP] == last[Kind.STEP]
    assert (alone[Kind.SEND_E], alone[Kind.RECV_E]) == (last[Kind.SEND_E], last[Kind.RECV_E]) == (4, 4)
    alone_s, last_s = trace.iteration_ends_s[0], trace.iteration_ends_s[-1]
    assert last_s > alone_s
    assert trace.iteration_s == pytest.approx(((every - 1) * alone_s + last_s) / every)


# profiles and runs


def test_a_run_is_predicted_from_its_profile_and_never_from_its_spans():
    plan = small_plan()
    profile = tuple(row._replace(seconds=7.0) for row in profile_of(plan, "1f1b"))
    drawn = simulate(plan, "1f1b")
    ran = replace(drawn, context=replace(drawn.context, source="measured", clock="virtual", profile=profile))
    predicted = simulate(plan, like=ran)
    assert (predicted.context.source, predicted.context.clock) == ("simulated", "virtual")
    assert predicted.context.schedule == "1f1b"
    assert predicted.context.profile == profile
    for span in predicted.spans():
        if span.action.kind in COMPUTE:
            assert span.end_s - span.start_s == pytest.approx(7)


@pytest.mark.parametrize("name", sorted(schedules))
@pytest.mark.parametrize("every", [1, 2])
def test_a_run_that_goes_on_is_predicted_from_its_context(name, every):
    plan = small_plan(synchronise_every=every)
    ran = simulate(plan, name, queueing="nics")
    assert simulate(plan, like=ran.context).spans() == simulate(plan, like=ran).spans() == ran.spans()


def test_a_table_is_as_good_as_a_profile():
    plan = small_plan()
    profile = profile_of(plan, "gpipe")
    table = pd.DataFrame(profile)
    expected = simulate(plan, "gpipe").spans()
    assert simulate(plan, "gpipe", profile=profile).spans() == expected
    assert simulate(plan, "gpipe", profile=table).spans() == expected
    assert simulate(plan, "gpipe", profile=simulate(plan, "gpipe").profile_frame()).spans() == expected
    assert simulate(plan, "gpipe", profile=table.sample(frac=1, random_state=1)).spans() == expected
    by_name = table[["replica", "stage", "seconds", "kind"]]
    assert simulate(plan, "gpipe", profile=by_name).spans() == expected


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ((0, 0, "F"), "wanted stage, replica, kind and seconds"),
        ((0, 0, "X", 1.0), "wanted stage, replica, kind and seconds"),
        ((0, 0, "F", -1.0), "profile holds -1.0 s for F of stage 0; wanted 0 or more"),
        ((0, 0, "F", float("nan")), "profile holds nan s for F of stage 0; wanted 0 or more"),
        ((0, 0, "F", float("inf")), "profile holds inf s for F of stage 0; wanted 0 or more"),
    ],
)
def test_a_row_that_is_no_time_is_refused(row, says):
    with pytest.raises(TraceError, match=says):
        simulate(small_plan(), profile=[row])


def test_a_run_on_real_links_is_predicted_on_free_ones():
    plan = small_plan()
    ran = simulate(plan)
    real = simulate(plan, like=replace(ran, context=replace(ran.context, links="real")))
    assert all(span.start_s == span.end_s for span in real.spans() if span.action.kind not in COMPUTE)
    assert real.iteration_s < ran.iteration_s


# refusals


def test_what_cannot_be_predicted_is_refused():
    plan = small_plan()
    ran = simulate(plan)
    with pytest.raises(JobError, match="holds message sizes only"):
        simulate(evaluate(plan.topology, Job.from_bytes(2, 2, 1, 1), stages=[[0, 1], [2, 3]]))
    with pytest.raises(UnknownName, match="no pipeline schedule named 'zero-bubble'"):
        simulate(plan, "zero-bubble")
    with pytest.raises(UnknownName, match="no queueing named 'switches'; known: nics, pairs"):
        simulate(plan, queueing="switches")
    with pytest.raises(ScheduleError, match="schedule is 5; wanted a name or a Schedule"):
        simulate(plan, 5)
    with pytest.raises(TraceError, match="like is 'measured'; wanted a Trace of this plan"):
        simulate(plan, like="measured")
    with pytest.raises(TraceError, match="profile is 5; wanted rows of stage, replica, kind, seconds"):
        simulate(plan, profile=5)
    with pytest.raises(TraceError, match=r"this plan has .*; wanted the same"):
        simulate(evaluate(plan.topology, plan.job, stages=[[0, 1], [2, 3]]), like=ran)
    slower = replace(plan, topology=plan.topology.with_link(0, 1, latency_s=9.0))
    with pytest.raises(TraceError, match=f"ran on network {plan.topology.fingerprint} .*wanted the same"):
        simulate(slower, like=ran)


@pytest.mark.parametrize(("what", "value"), [("synchronisation", "ring"), ("synchronise_every", 3)])
def test_a_run_that_averaged_otherwise_is_refused(what, value):
    plan = small_plan()
    other = replace(plan, job=replace(plan.job, **{what: value}))
    with pytest.raises(TraceError, match=f"ran with {what} {value}, this plan's job has .*; wanted the same"):
        simulate(plan, like=simulate(other))


@pytest.mark.parametrize("name", sorted(schedules))
def test_too_many_micro_batches_are_refused_before_a_pass_is_made(name, monkeypatch):
    def never(*_: object, **__: object) -> None:
        raise AssertionError("a schedule was built")

    plan = small_plan()
    plan = plan.changed(job=plan.job.with_fields(global_batch=2_000_000, schedule=name))
    monkeypatch.setattr(builtin, "build_named", never)
    for use in (simulate, iteration_seconds, memory):
        with pytest.raises(
            ScheduleError, match=r"1,000,000 micro-batches on 2 stages x 2 replicas are .*wanted at most"
        ):
            use(plan)


def test_micro_batches_of_a_billion_replicas_are_counted_without_a_list_of_them():
    job = small_plan().job.with_fields(n_replicas=10**9, global_batch=10**9)
    assert (job.n_microbatches, job.with_fields(global_batch=10**9, n_replicas=10**9 - 1).n_microbatches) == (1, 2)
