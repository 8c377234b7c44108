"""A placement by hand: priced as given, or refused in one line."""

import pytest
from planning_networks import network

import dtfm_lab as lab
from dtfm_lab.domain.errors import PlanError, TopologyError, UnknownName
from dtfm_lab.domain.job import JOBS, Job
from dtfm_lab.files import load_job, load_topology
from dtfm_lab.planning import evaluate

TOPOLOGY = network("jittered", 6, 1)
JOB = Job.from_bytes(2, 3, 1e8, 2e8)


def test_stages_keep_their_order_and_members():
    plan = evaluate(TOPOLOGY, JOB, stages=[[3, 4, 5], ["device-0", "device-1", "device-2"]])
    assert [set(row) for row in plan.placement.devices.tolist()] == [{3, 4, 5}, {0, 1, 2}]
    assert plan.planner == "given"
    assert plan.lower_bound_s <= plan.cost.total_s


def test_a_rank_map_gives_its_own_plan_back():
    plan = evaluate(TOPOLOGY, JOB, rank_map=[5, 2, 0, 1, 4, 3])
    assert plan.rank_map == [5, 2, 0, 1, 4, 3]
    assert plan.pipelines == [["device-2", "device-3"], ["device-1", "device-5"], ["device-4", "device-0"]]


def test_a_rank_map_is_priced_as_it_pairs():
    best = evaluate(TOPOLOGY, JOB, stages=[[0, 1, 2], [3, 4, 5]])
    costs = [evaluate(TOPOLOGY, JOB, rank_map=ranks).cost.total_s for ranks in ([0, 2, 4, 1, 3, 5], [0, 2, 4, 3, 5, 1])]
    assert min(costs) >= best.cost.total_s
    assert evaluate(TOPOLOGY, JOB, rank_map=best.rank_map).cost.total_s == best.cost.total_s


def test_a_rank_map_may_leave_devices_idle():
    plan = evaluate(TOPOLOGY, JOB, rank_map=[0, None, 1, 2, 3, None])
    assert plan.idle_devices == (1, 5)
    assert (plan.job.n_stages, plan.job.n_replicas) == (2, 2)


def test_groups_find_their_best_order():
    groups = [[0, 1], [2, 3], [4, 5]]
    job = Job.from_bytes(3, 2, 1e8, 2e8)
    orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2]]
    best = min(evaluate(TOPOLOGY, job, stages=[groups[g] for g in order]).cost.total_s for order in orders)
    assert evaluate(TOPOLOGY, job, groups=groups).cost.total_s == pytest.approx(best)


def test_the_job_takes_the_shape_of_the_placement():
    plan = evaluate(TOPOLOGY, JOB, stages=[[0], [1], [2]])
    assert (plan.job.n_stages, plan.job.n_replicas, plan.idle_devices) == (3, 1, (3, 4, 5))
    assert evaluate(TOPOLOGY, JOBS["tiny"], stages=[[0, 1, 2], [3, 4, 5]]).job.microbatch_counts == (3, 3, 2)


def test_in_its_own_shape_a_job_keeps_its_cut_its_warmups_and_the_shares_of_its_pipelines():
    fields = {"blocks_per_stage": (3, 5), "warmups": (4, 1), "microbatches_per_replica": (5, 2, 1)}
    job = JOBS["tiny"].with_fields(n_stages=2, n_replicas=3, schedule="adaptive-1f1b", **fields)
    groups = [[2, 1, 4], [3, 5, 0]]
    for given in ({"rank_map": [5, 2, 0, 1, 4, 3]}, {"stages": groups}, {"groups": groups}):
        assert evaluate(TOPOLOGY, job, **given).job is job
    assert evaluate(TOPOLOGY, job, stages=groups).placement.devices[0].tolist() == groups[0]
    other = evaluate(TOPOLOGY, job, stages=[[2, 1], [3, 5]]).job
    assert (other.microbatch_counts, other.blocks_per_stage, other.warmups) == ((4, 4), (3, 5), (4, 1))


def test_a_placement_gives_an_open_job_its_shape():
    free = JOBS["gpt3-xl"]
    made = evaluate(TOPOLOGY, free, stages=[[0, 1], [2, 3]]).job
    assert (made.n_stages, made.n_replicas, made.microbatch, made.microbatch_counts) == (2, 2, 1, (512, 512))
    assert evaluate(TOPOLOGY, free.with_fields(n_stages=3), rank_map=[5, 2, 0, 1, 4, 3]).job.n_replicas == 2
    with pytest.raises(PlanError, match="leaves its stages open, and a rank map does not state them; wanted"):
        evaluate(TOPOLOGY, free, rank_map=[5, 2, 0, 1, 4, 3])


def test_what_an_open_job_is_settled_with_keeps_the_forwards_ahead_that_it_names():
    shape = {"n_stages": 2, "n_replicas": 1, "microbatch": 1, "global_batch": 4}
    job = lab.load_job("gpt3-xl", **shape, schedule="adaptive-1f1b", warmups=(3, 1))
    assert evaluate(TOPOLOGY, job, stages=[[0], [1]]).job.warmups == (3, 1)
    start = evaluate(TOPOLOGY, job, stages=[[2], [3]])
    for how in ({}, {"start": start}):
        assert lab.plan(TOPOLOGY, job, objective="iteration", steps=1, **how).job.warmups == (3, 1)


def test_the_communication_cost_counts_the_pipeline_of_most_micro_batches():
    """It has one size for all, as the paper has."""
    job = JOBS["tiny"].with_fields(n_stages=2, n_replicas=3)
    costs = {
        shares: evaluate(TOPOLOGY, job.with_fields(microbatches_per_replica=shares), rank_map=[0, 1, 2, 3, 4, 5]).cost
        for shares in ((4, 2, 2), (1, 4, 3), (6, 1, 1))
    }
    assert costs[4, 2, 2].hop_s.tolist() == costs[1, 4, 3].hop_s.tolist()
    assert costs[6, 1, 1].hop_s > costs[4, 2, 2].hop_s
    assert costs[6, 1, 1].group_s.tolist() == costs[4, 2, 2].group_s.tolist()


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({}, PlanError, "nothing given"),
        ({"stages": [[0]], "groups": [[0]]}, PlanError, "stages and groups given"),
        ({"stages": []}, PlanError, "groups of no devices"),
        ({"stages": [[0, 1], [2]]}, PlanError, "groups of 2, 1 devices; wanted equal sizes"),
        ({"stages": [[], []]}, PlanError, "groups of 0, 0 devices"),
        ({"stages": [[0, 6]]}, TopologyError, "device 6 is out of range; .* 0 to 5"),
        ({"stages": [[0, -1]]}, TopologyError, "device -1 is out of range"),
        ({"stages": [[0, 1.5]]}, TopologyError, "device 1.5 is not an index"),
        ({"groups": [[0, 1], [1, 2]]}, PlanError, "device 1 is placed twice"),
        ({"stages": [["device-0", "device-10"]]}, UnknownName, "no device named 'device-10'"),
        ({"rank_map": [0, 1]}, PlanError, "rank map of 2 entries; .* 6 devices"),
        ({"rank_map": [None] * 6}, PlanError, "rank map of 0 ranks"),
        ({"rank_map": [0, 1, 2, None, None, None]}, PlanError, "3 ranks; wanted a multiple of the job's 2 stages"),
        ({"rank_map": [0, 1, 2, 2, None, None]}, PlanError, "rank 2 is given to devices 2 and 3"),
        ({"rank_map": [0, 1, 2, 4, None, None]}, PlanError, "lacks rank 3; wanted 0 to 3"),
        ({"rank_map": [0, "1", None, None, None, None]}, PlanError, "rank '1' of device 1 is not a whole number"),
    ],
)
def test_what_cannot_be_priced_is_refused_in_one_line(given, error, says):
    with pytest.raises(error, match=says):
        evaluate(TOPOLOGY, JOB, **given)


def test_a_plan_as_a_table_has_a_row_for_each_device_with_the_work_it_does():
    topology, job = load_topology("raspberry-pi"), load_job("tiny", n_stages=3, n_replicas=2, global_batch=14)
    placed = evaluate(topology, job, stages=[[0, 7], [1, 2], [3, 4]])
    table = placed.to_frame()
    assert table["device"].tolist() == [*(name for group in placed.stages for name in group), "cluster-5", "cluster-6"]
    assert table["blocks"].tolist()[:6] == [3, 3, 3, 3, 2, 2]
    assert table["microbatches"].tolist() == [4, 3, 4, 3, 4, 3, 0, 0]
    assert table["flop"].sum() == pytest.approx(placed.job.flop)
    assert table["work_share"].sum() == pytest.approx(1)
    assert table["stage"].isna().tolist() == [False] * 6 + [True] * 2
    assert table["parameters"].tolist()[:6:2] == list(placed.job.stage_parameters)
    for row in table.itertuples():
        device = topology.devices[topology.index(row.device)]
        found = row.region, row.gpu, row.peak_flop_per_s, row.memory_bytes, row.price_per_hour
        wanted = device.region, device.gpu, device.peak_flop_per_s, device.memory_bytes, device.price_per_hour
        assert found == wanted


def test_a_plan_of_message_sizes_alone_as_a_table_has_no_blocks_and_no_flop():
    topology, job = load_topology("lecture-hall"), Job.from_bytes(3, 2, 1, 1)
    table = evaluate(topology, job, stages=[[0, 1], [2, 3], [4, 5]]).to_frame()
    assert table[["blocks", "parameters", "flop", "work_share"]].isna().all(axis=None)
    assert table["microbatches"].tolist() == [1] * 6 + [0] * 2


UNEVEN = {"n_stages": 2, "n_replicas": 2, "global_batch": 20, "microbatch": 2, "schedule": "interleaved-1f1b"}


@pytest.mark.parametrize("objective", ["communication", "iteration"])
@pytest.mark.parametrize("planner", ["evolutionary", "dtfm"])
def test_a_plan_that_its_schedule_does_not_allow_to_simulate_says_why(objective, planner, caplog):
    job, why = load_job("tiny", **UNEVEN), "5 micro-batches on 2 devices do not divide into 2 rounds"
    how = {"objective": objective, "planner": planner, "steps": 1}
    if objective == "iteration":
        with pytest.raises(PlanError, match=why):
            lab.plan("lecture-hall", job, **how)
    else:
        assert lab.plan("lecture-hall", job, **how).iteration_s is None
        assert why in caplog.text


def test_a_misspelt_schedule_is_refused_before_the_search():
    job = load_job("tiny", schedule="interleaved")
    for objective in ("communication", "iteration"):
        with pytest.raises(UnknownName, match="did you mean 'interleaved-1f1b'"):
            lab.plan("lecture-hall", job, objective=objective, steps=1)
