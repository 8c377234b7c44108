"""The interval of a prediction: closed forms where one thing binds, the same as simulating again where two do."""

import copy
import pickle
from dataclasses import FrozenInstanceError, replace
from math import exp, hypot, inf, log
from statistics import NormalDist

import numpy as np
import pytest

import dtfm_lab as lab
from dtfm_lab.domain.errors import TopologyError, TraceError
from dtfm_lab.domain.schedule import Action, Kind
from dtfm_lab.domain.trace import RunContext, Trace, TracedPlan
from dtfm_lab.domain.trace.run_context import SWING
from dtfm_lab.domain.trace.trace import OF_A_MEDIAN, REPEAT_NOISE
from dtfm_lab.simulation.simulate import simulate

Z = NormalDist().inv_cdf(0.95)


def plan_on(gbps: float, **topology):
    links = np.full((4, 4), gbps)
    network = lab.Topology.from_matrices(np.full((4, 4), 1.0), links, gpu="T4", **topology)
    return lab.evaluate(network, lab.load_job("tiny", n_stages=2, n_replicas=2), stages=[[0, 1], [2, 3]])


def test_a_share_that_is_given_and_links_that_are_sure_leave_the_noise_of_a_measurement():
    trace = simulate(plan_on(1, link_spread=0), efficiency=0.4)
    assert trace.interval(0.9) == pytest.approx([trace.iteration_s * exp(sign * Z * REPEAT_NOISE) for sign in (-1, 1)])


@pytest.mark.parametrize("gbps", [0.01, 0.1, 1, 10])
def test_swings_are_what_a_slower_or_faster_plan_takes(gbps):
    plan = plan_on(gbps, link_spread=0.2)
    trace = simulate(plan)
    spread = trace.context.compute_spread[0][0]
    computing, sending = trace.context.swings
    for deviations, computed_s, sent_s in zip((-SWING, SWING), computing, sending, strict=True):
        slower = [row._replace(seconds=row.seconds * exp(deviations * spread)) for row in trace.context.profile]
        assert computed_s == pytest.approx(simulate(plan, trace.context.recorded_schedule, profile=slower).iteration_s)
        factor = exp(deviations * 0.2)
        far = plan.changed(topology=plan.topology.scaled(latency=factor, bandwidth=1 / factor))
        again = simulate(far, trace.context.recorded_schedule, profile=trace.context.profile)
        assert sent_s == pytest.approx(again.iteration_s)


@pytest.mark.parametrize("confidence", [0, 1, 90, "0.9", None, True])
def test_a_confidence_that_is_none_is_refused(confidence):
    with pytest.raises(TraceError, match="wanted more than 0 and less than 1"):
        simulate(plan_on(1)).interval(confidence)


def test_a_prediction_of_a_file_without_spreads_states_no_interval():
    trace = simulate(plan_on(1))
    assert replace(trace, context=replace(trace.context, swings=())).interval() == (0, inf)


def test_a_prediction_that_was_not_asked_for_its_interval_is_pickled_copied_and_saved_with_it(tmp_path):
    def predicted():
        return simulate(plan_on(0.05))

    first_s = predicted().interval(0.9)
    copies = pickle.loads(pickle.dumps(predicted())), copy.deepcopy(predicted())
    loaded = lab.load_trace(lab.save(predicted(), tmp_path / "trace.json"))
    for trace in (*copies, loaded):
        assert trace.interval(0.9) == first_s
        assert trace.context.swings == predicted().context.swings
        assert trace.context == predicted().context
    with pytest.raises(FrozenInstanceError):
        predicted().context.swings = ()


def test_the_uncertainty_of_two_sources_is_that_of_independent_ones():
    trace = simulate(plan_on(0.05))
    middle_s, context = trace.iteration_s, trace.context
    each = [log(swing[1] / middle_s) / SWING for swing in context.swings]
    assert min(each) > 0
    assert trace.interval(0.9)[1] == pytest.approx(middle_s * exp(Z * hypot(*each, REPEAT_NOISE)))


def test_the_interval_of_a_measurement_is_student_s_of_its_iterations():
    ends_s = np.array([1.0, 1.1, 0.9, 1.05, 0.95])
    context = RunContext(
        source="measured", clock="real", schedule="gpipe", links="real", plan=TracedPlan(devices=(("a",),))
    )
    zeros = np.zeros(5, dtype=np.int64)
    trace = Trace(context, (Action(0, Kind.FORWARD, 0),), np.arange(5), zeros, zeros, np.zeros(5), ends_s)
    half_s = 2.13185 * OF_A_MEDIAN * ends_s.std(ddof=1) / 5**0.5  # Student's t of 4 degrees of freedom
    assert trace.interval(0.9) == pytest.approx((1 - half_s, 1 + half_s), rel=1e-5)
    first = (column[:1] for column in (trace.iteration, trace.replica, trace.action, trace.start_s, trace.end_s))
    assert Trace(context, trace.actions, *first).interval() == (0, inf)


def test_how_sure_links_are_is_kept_in_files_and_changes_no_plan(tmp_path):
    sure, unsure = plan_on(1).topology, plan_on(1, link_spread=0.25).topology
    assert sure.fingerprint == unsure.fingerprint
    for ending in ("yaml", "json", "npz"):
        lab.save(unsure, tmp_path / f"network.{ending}")
        assert lab.load_topology(tmp_path / f"network.{ending}").link_spread == 0.25
    assert simulate(plan_on(1, link_spread=0.25)).iteration_s == simulate(plan_on(1)).iteration_s


@pytest.mark.parametrize("spread", [-0.1, 4, inf, "wide"])
def test_a_spread_that_is_none_is_refused(spread):
    with pytest.raises(TopologyError, match=r"link_spread is .*; wanted 0 to 3"):
        plan_on(1, link_spread=spread)
