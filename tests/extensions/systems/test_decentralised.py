"""Systems of slow and unequal networks, DT-FM, DiLoCo and this lab's own: laws, and what was published."""

from functools import cache
from itertools import islice

import numpy as np
import pytest

import dtfm_lab as lab
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import LEFT_TO_PLANNERS, gpt
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.trace import Trace
from dtfm_lab.extensions.systems.api import Budget, Outcome, outcome_of, variant, work_of
from dtfm_lab.extensions.systems.modelled.diloco import DiLoCoStrategy
from dtfm_lab.extensions.systems.modelled.dt_fm import DTFM, LEAST_GENERATIONS, DTFMRandom, random_ranks
from dtfm_lab.extensions.systems.modelled.sparse import DisTrO, SparseLoCo
from dtfm_lab.planning import evaluate
from dtfm_lab.planning import plan as searched_plan
from dtfm_lab.simulation import simulate
from dtfm_lab.simulation.memory import memory

BUDGET = Budget(steps=20)
SMALL = lab.load_job("tiny")
JOB_512 = lab.load_job("gpt3-xl", global_batch=512)


@cache
def scheduled() -> Outcome:
    """Return the outcome of DT-FM with its scheduler on the world-wide network, which two tests look at."""
    return outcome_of(DTFM(n_stages=8, planner="evolutionary"), lab.load_topology("worldwide"), JOB_512, BUDGET)


@pytest.mark.parametrize(
    ("network", "job", "shape"),
    [("worldwide", JOB_512, {"n_stages": 8}), ("universities", JOB_512, {"n_stages": 8}), ("lecture-hall", SMALL, {})],
    ids=["worldwide", "universities", "lecture-hall"],
)
def test_the_scheduler_is_never_slower_than_the_random_placement_of_median_seconds(network, job, shape):
    topology = lab.load_topology(network)
    system = DTFM(planner="evolutionary", **shape)
    found = scheduled() if network == "worldwide" else outcome_of(system, topology, job, BUDGET)
    drawn = outcome_of(DTFMRandom(**shape), topology, job, BUDGET)
    assert found.iteration_s <= drawn.iteration_s * (1 + 1e-9)


@pytest.mark.parametrize("network", ["universities", "lecture-hall"])
def test_a_short_time_cuts_no_search_off(network):
    topology, job = lab.load_topology(network), lab.load_job("gpt2-small")
    short, whole = (
        [plan.cost.total_s for plan in DTFM(microbatches="given").plans(topology, job, budget)]
        for budget in (Budget(seconds=1e-3), Budget(steps=LEAST_GENERATIONS))
    )
    assert short == whole


def test_random_placements_are_those_of_its_scripts():
    first, second, _ = (np.argsort(one).tolist() for one in random_ranks(64, 3, 0))
    assert first[:10] == [0, 2, 32, 33, 4, 10, 7, 45, 36, 8]  # rank_map of aws_run_gpt3_scheduled_1gpu_training.sh
    assert second[:10] == [0, 42, 36, 19, 15, 13, 55, 11, 1, 10]


def test_every_device_takes_part_and_the_pipeline_is_emptied_as_memory_asks():
    plan = outcome_of(DTFM(n_stages=8), lab.load_topology("worldwide"), JOB_512, BUDGET).plan
    assert plan.idle_devices == ()
    assert plan.job.schedule_name == "gpipe"
    assert memory(plan).fits
    twice = plan.changed(job=plan.job.with_fields(flush_every=2 * plan.job.flush_every))
    assert not memory(twice).fits


def test_the_plan_without_a_scheduler_is_the_median_of_its_draws():
    topology = lab.load_topology("regional")
    seconds = [outcome_of(DTFMRandom(n_stages=8, n_draws=1), topology, JOB_512, Budget(seed=seed)) for seed in range(3)]
    assert outcome_of(DTFMRandom(n_stages=8), topology, JOB_512).iteration_s == pytest.approx(
        float(np.median([one.iteration_s for one in seconds]))
    )


def test_its_plan_is_the_best_placement_of_its_own_cost():
    """The proven optimum of the paper's objective on the world-wide network, whatever the batch."""
    topology = lab.load_topology("worldwide")
    plan = scheduled().plan
    assert {frozenset(topology.devices[i].region for i in group) for group in plan.placement.devices.T.tolist()} == {
        frozenset({region}) for region in topology.regions
    }, "each pipeline stays in its region"
    assert lab.simulate(plan).iteration_s == pytest.approx(plan.iteration_s)


WORLDWIDE, UNEQUAL = lab.load_topology("worldwide"), lab.load_topology("fat-node")
JOB = lab.load_job("gpt3-xl")


def averaging_s(trace: Trace) -> float:
    """Seconds that averages add to an iteration, over one that does not average."""
    return trace.iteration_s - float(trace.iteration_ends_s.min())


@pytest.mark.parametrize("system", [DiLoCoStrategy(), DiLoCoStrategy(kind="streaming"), SparseLoCo(), DisTrO()])
def test_no_worker_leaves_its_region(system):
    for one in system.branches(WORLDWIDE, work_of(JOB), Budget()):
        for pipeline in one.grid.T:
            assert len({WORLDWIDE.devices[device].region for device in pipeline}) == 1


@pytest.mark.parametrize("every", [2, 10, 500])
def test_what_averaging_costs_is_one_hth_of_data_parallelisms(every):
    two = Topology.from_matrices([[0, 1], [1, 0]], [[1, 1], [1, 1]])
    shape = work_of(SMALL).with_fields(n_stages=1, n_replicas=2, microbatch=1, dtype="fp16")
    local = evaluate(two, DiLoCoStrategy(every=every).trained(shape), stages=[[0, 1]])
    together = local.changed(job=local.job.with_fields(synchronise_every=1))
    alone_s = float(simulate(local).iteration_ends_s.min())
    whole_s = simulate(together).iteration_s - alone_s
    assert averaging_s(simulate(local)) == pytest.approx(whole_s / every)


def test_fragments_beside_iterations_are_never_slower_than_one_average_of_as_many_bytes():
    streamed = DiLoCoStrategy(kind="streaming", every=100, precision="fp16")
    at_once = DiLoCoStrategy(every=100, precision="fp16")
    for plan in islice(streamed.plans(WORLDWIDE, work_of(JOB), Budget()), 0, None, 7):
        whole = plan.changed(job=at_once.trained(plan.job).with_fields(fragments=1, fragment_delay=0))
        assert simulate(plan).iteration_s <= simulate(whole).iteration_s * (1 + 1e-9)


@pytest.mark.parametrize(("every", "delay"), [(100, 1), (100, 5), (101, 5), (30, 0), (7, 3)])
def test_whole_numbers_of_fragments_divide_what_is_kept_of_h(every, delay):
    job = DiLoCoStrategy(kind="streaming", every=every, delay=delay).trained(work_of(JOB))
    assert job.synchronise_every % (job.fragments * max(delay, 1)) == 0
    assert every - max(delay, 1) < job.synchronise_every <= every


@pytest.mark.parametrize(("precision", "n_bytes"), [("fp32", 4), ("fp16", 2)])
def test_averages_have_the_precision_that_is_said(precision, n_bytes):
    job = DiLoCoStrategy(precision=precision).trained(work_of(JOB)).with_fields(n_stages=1, n_replicas=2, microbatch=1)
    assert job.stage_gradient_bytes[0] == n_bytes * job.stage_parameters[0]


def test_islands_of_slow_devices_may_be_left_out():
    outcome = outcome_of(DiLoCoStrategy(), UNEQUAL, JOB)
    assert {UNEQUAL.devices[device].region for device in outcome.plan.placement.devices.flat} == {"fat"}


def test_a_worker_alone_has_nobody_to_average_with():
    one = WORLDWIDE.subset([0])
    assert "two or more" in outcome_of(DiLoCoStrategy(), one, JOB).reason


def test_a_fragment_that_arrives_after_its_next_average_is_refused():
    with pytest.raises(LabError, match="at most 10"):
        DiLoCoStrategy(kind="streaming", every=10, delay=11)


STEPS = Budget(steps=2)


@cache
def ours_on(network: str) -> Outcome:
    return outcome_of(variant("dtfm-lab"), lab.load_topology(network), lab.load_job("small"), STEPS)


@pytest.mark.parametrize("network", ["lecture-hall", "raspberry-pi", "shared-nics"])
def test_it_is_no_slower_than_grids_and_data_parallelism_with_the_same_transport(network):
    topology, job = lab.load_topology(network), lab.load_job("small")
    ours = ours_on(network)
    for other in (variant("ddp"), variant("megatron", transport="overlapped", overlap=True)):
        theirs = outcome_of(other, topology, job, STEPS)
        assert theirs.iteration_s is None or ours.iteration_s <= theirs.iteration_s * (1 + 1e-9)


def test_it_is_the_plan_of_the_search_with_everything_open():
    topology, job = lab.load_topology("lecture-hall"), lab.load_job("small")
    ours = ours_on("lecture-hall")
    work = job.freed(*LEFT_TO_PLANNERS)
    searched = searched_plan(topology, work, objective="iteration", steps=2, improve_bound=False)
    assert ours.iteration_s == searched.iteration_s
    assert ours.considered == 1


def test_where_nothing_fits_whole_it_searches_plans_of_split_states():
    topology = lab.load_topology("datacenter").subset(range(4))
    wide = gpt(name="wide", n_layers=1, d_model=8192, n_heads=64, seq_len=512, vocab_size=50257)
    job = lab.Job(name="wide", model=wide, global_batch=8)
    ours = outcome_of(variant("dtfm-lab"), topology, job, Budget(steps=1))
    assert ours.found is not None, ours.reason
    assert ours.job.sharding != "none"


@pytest.mark.parametrize("efficiency", [0.05, 0.9])
def test_it_searches_for_the_efficiency_that_is_asked(efficiency):
    topology, job = lab.load_topology("lecture-hall"), lab.load_job("small")
    budget = Budget(steps=2, efficiency=efficiency)
    ours = outcome_of(variant("dtfm-lab"), topology, job, budget)
    assert ours.plan.topology is topology
    assert ours.iteration_s == lab.simulate(ours.plan, efficiency=efficiency).iteration_s
    for other in ("megatron", "ddp"):
        assert ours.iteration_s <= outcome_of(variant(other), topology, job, budget).iteration_s * (1 + 1e-9)
