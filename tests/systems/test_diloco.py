"""Workers that average rarely: laws of what they send, and the figures that their authors published."""

import pytest

import dtfm_lab as lab
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.trace import Trace
from dtfm_lab.planning import evaluate
from dtfm_lab.published.systems import intellect_1, streaming_diloco
from dtfm_lab.simulation import simulate
from dtfm_lab.systems import Budget, outcome_of, work_of
from dtfm_lab.systems.modelled.diloco import DiLoCo
from dtfm_lab.systems.modelled.streaming_diloco import StreamingDiLoCo

WORLDWIDE, UNEQUAL = lab.load_topology("worldwide"), lab.load_topology("fat-node")
JOB = lab.load_job("gpt3-xl")
SMALL = lab.load_job("tiny")


def averaging_s(trace: Trace) -> float:
    """Seconds that averages add to an iteration, over one that does not average."""
    return trace.iteration_s - float(trace.iteration_ends_s.min())


@pytest.mark.parametrize("system", [DiLoCo(), StreamingDiLoCo()])
def test_no_worker_leaves_its_region(system):
    for plan in system.plans(WORLDWIDE, work_of(JOB), Budget()):
        for pipeline in plan.placement.devices.T:
            assert len({WORLDWIDE.devices[device].region for device in pipeline}) == 1


@pytest.mark.parametrize("every", [2, 10, 500])
def test_what_averaging_costs_is_one_hth_of_data_parallelisms(every):
    two = Topology.from_matrices([[0, 1], [1, 0]], [[1, 1], [1, 1]])
    shape = work_of(SMALL).with_fields(n_stages=1, n_replicas=2, microbatch=1, dtype="fp16")
    local = evaluate(two, DiLoCo(every=every).trained(shape), stages=[[0, 1]])
    together = local.changed(job=local.job.with_fields(synchronise_every=1))
    alone_s = float(simulate(local).iteration_ends_s.min())
    whole_s = simulate(together).iteration_s - alone_s
    assert averaging_s(simulate(local)) == pytest.approx(whole_s / every)


def test_fragments_beside_iterations_are_never_slower_than_one_average_of_as_many_bytes():
    streamed = StreamingDiLoCo(every=100, precision="fp16")
    at_once = DiLoCo(every=100, precision="fp16")
    for plan in streamed.plans(WORLDWIDE, work_of(JOB), Budget()):
        whole = plan.changed(job=at_once.trained(plan.job).with_fields(fragments=1, fragment_delay=0))
        assert simulate(plan).iteration_s <= simulate(whole).iteration_s * (1 + 1e-9)


@pytest.mark.parametrize(("every", "delay"), [(100, 1), (100, 5), (101, 5), (30, 0), (7, 3)])
def test_whole_numbers_of_fragments_divide_what_is_kept_of_h(every, delay):
    job = StreamingDiLoCo(every=every, delay=delay).trained(work_of(JOB))
    assert job.synchronise_every % (job.fragments * max(delay, 1)) == 0
    assert every - max(delay, 1) < job.synchronise_every <= every


def test_a_fragment_of_three_layers_is_met_where_it_divides_h():
    assert StreamingDiLoCo(every=96).trained(work_of(JOB)).fragments == JOB.modelled().n_blocks // 3


@pytest.mark.parametrize(("precision", "n_bytes"), [("fp32", 4), ("fp16", 2)])
def test_averages_have_the_precision_that_is_said(precision, n_bytes):
    job = DiLoCo(precision=precision).trained(work_of(JOB)).with_fields(n_stages=1, n_replicas=2, microbatch=1)
    assert job.stage_gradient_bytes[0] == n_bytes * job.stage_parameters[0]


def test_islands_of_slow_devices_may_be_left_out():
    outcome = outcome_of(DiLoCo(), UNEQUAL, JOB)
    assert {UNEQUAL.devices[device].region for device in outcome.plan.placement.devices.flat} == {"fat"}


def test_a_worker_alone_has_nobody_to_average_with():
    one = WORLDWIDE.subset([0])
    assert "two or more" in outcome_of(DiLoCo(), one, JOB).reason


def test_a_fragment_that_arrives_after_its_next_average_is_refused():
    with pytest.raises(LabError, match="at most 10"):
        StreamingDiLoCo(every=10, delay=11)


def test_no_interval_of_one_iteration_is_taken():
    with pytest.raises(LabError, match="every"):
        DiLoCo(every=1)


def test_table_4_of_streaming_diloco_lies_in_its_band():
    step_s = streaming_diloco.MODELS["1B"][2]
    job = streaming_diloco.job_of("1B", "DiLoCo")
    assert (job.synchronise_every, job.gradient_compression) == (100, "fp16")
    for wanted, published in ((0.5, 1.4), (0.9, 13.3), (0.99, 86.8)):
        assert streaming_diloco.needed_gbps(job, step_s, wanted) == pytest.approx(published, rel=0.3)


def test_intellect_1_computes_as_much_of_the_time_as_it_reported():
    for row in intellect_1.intellect_1():
        assert row.inside


@pytest.mark.parametrize("system", [DiLoCo(every=4), StreamingDiLoCo(every=8)])
def test_what_plans_are_left_out_by_is_never_more_than_their_seconds(system):
    budget = Budget()
    for plan in system.plans(WORLDWIDE, work_of(JOB), budget):
        assert system.least_s(plan, budget) <= system.trace(plan, budget).iteration_s * (1 + 1e-9)
