"""Pipelines with different numbers of micro-batches are compared, explained and fitted as any others are."""

from dataclasses import replace

import numpy as np
import pytest
from measured_traces import lecture_hall_plan, measured, with_factor

from dtfm_lab.compare import compare
from dtfm_lab.compare.dependencies import dependencies_of, programs_of
from dtfm_lab.domain.errors import TraceError
from dtfm_lab.domain.plan import cut_subplan, subplan_for
from dtfm_lab.domain.schedule import Kind
from dtfm_lab.simulation import engine
from dtfm_lab.simulation.measured_predecessors import with_predecessors
from dtfm_lab.simulation.simulate import simulate

SHARES = (6, 2)
SCHEDULES = ["gpipe", "1f1b", "zb-h1", "adaptive-1f1b"]


def plan_of(**fields):
    return lecture_hall_plan(microbatches_per_replica=SHARES, **fields)


@pytest.mark.parametrize("synchronisation", ["sharded", "ring", "hierarchical", "central"])
@pytest.mark.parametrize("queueing", ["pairs", "cards"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_trace_tells_the_programs_and_what_each_action_waited_for(schedule, queueing, synchronisation):
    plan = plan_of(synchronisation=synchronisation, synchronise_every=2)
    ran = measured(plan, schedule, queueing=queueing, iterations=2)
    for synchronise in (False, True):
        programs = programs_of(ran, synchronise=synchronise)
        wanted = engine.programs_of(plan, ran.context.recorded_schedule, synchronise=synchronise)
        assert programs.microbatch_counts == SHARES
        assert (programs.pipelines, programs.tails) == (wanted.pipelines, wanted.tails)
        dependencies_of(ran, synchronise=synchronise)
    if queueing == "cards":
        return
    found = with_predecessors(ran, plan, ran.context.recorded_schedule)
    assert found.after is not None
    assert (found.after >= -1).all()
    path = found.critical_path()
    assert path["end_s"].iloc[-1] == pytest.approx(found.iteration_ends_s[found.typical_iteration])
    predicted = simulate(plan, ran.context.recorded_schedule, queueing=queueing)
    table = found.bubble
    assert table["busy_s"].to_numpy() == pytest.approx(predicted.bubble["busy_s"].to_numpy())


@pytest.mark.parametrize("queueing", ["pairs", "cards"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_row_has_its_prediction_and_without_noise_no_error(schedule, queueing):
    plan = plan_of()
    found = compare(simulate(plan, schedule, queueing=queueing), measured(plan, schedule, queueing=queueing))
    assert np.abs(found.rows["end_s_error"]).max() < 1e-9
    assert found.verdict == "on average an iteration is as long as predicted"
    forwards = found.rows[(found.rows["kind"] == Kind.FORWARD.value) & (found.rows["stage"] == 0)]
    assert forwards.groupby("replica").size().tolist() == [5 * n for n in SHARES]


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_a_slowed_device_of_the_long_pipeline_is_named_first(schedule):
    plan = plan_of()
    found = compare(simulate(plan, schedule), measured(plan, schedule, slow={(2, 0): 2.0}, noise=0.01))
    first = found.suspects.iloc[0]
    assert (first["of"], first["name"]) == ("device", plan.device_names[2][0])
    assert first["ratio"] == pytest.approx(2.0, rel=0.05)


def test_a_fit_finds_what_is_off_in_a_short_pipeline():
    plan = plan_of()
    source, target = plan.device_names[1][1], plan.device_names[2][1]
    truth = with_factor(plan.topology, source, target, bandwidth=0.5, latency=3.0)
    ran = measured(plan, truth=truth, slow={(0, 1): 1.5})
    found = compare(simulate(plan, "1f1b"), ran).refit(plan, simulate)
    assert abs(found.error) < 1e-6
    assert set(found.off["name"]) == {f"{source} -> {target}", plan.device_names[0][1]}
    part, kept = subplan_for(plan, (2, 2))
    context = replace(measured(part).context, rehearsed=kept)
    rehearsed = replace(measured(part, slow={(1, 1): 3.0}), context=context)
    assert rehearsed.context.microbatch_counts == SHARES
    assert abs(compare(simulate(plan, like=rehearsed), rehearsed).refit(plan, simulate).error) < 1e-6
    assert cut_subplan(plan, kept).job.microbatch_counts == SHARES


def test_traces_of_other_shares_are_not_compared():
    ran = measured(plan_of())
    for fields, found in (({}, "4"), ({"microbatches_per_replica": (2, 6)}, "2 to 6")):
        other = simulate(lecture_hall_plan(**fields), "1f1b")
        with pytest.raises(TraceError, match=f"ran {found} micro-batches a pipeline, measured 2 to 6; wanted"):
            compare(other, ran)
