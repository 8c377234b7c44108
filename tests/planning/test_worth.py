"""The worth of devices: against planning without a device, exhaustive search, and by law."""

import itertools
import json
import math

import numpy as np
import pytest
from planning_networks import network as bare_network
from planning_networks import optimum_s

import dtfm_lab as lab
from dtfm_lab.domain.errors import PlanError, UnknownName
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Device, Topology
from dtfm_lab.domain.units import plain_rows
from dtfm_lab.planning import evaluate, explain, plan, planners, search, stream_worth, worth_table
from dtfm_lab.planning.explain.worth import shares_with

FOR_SECONDS = {"objective": "iteration", "improve_bound": False}
"""A worth takes no bound."""


def network(gpus, gbps=20.0, seed=0):
    """Devices with links of their own, so that no two are alike, and the prices of the table."""
    rng = np.random.default_rng(seed)
    n = len(gpus)
    devices = tuple(Device(name=f"{gpu}-{i}", gpu=gpu, region="here") for i, gpu in enumerate(gpus))
    latency, bandwidth = rng.uniform(1e-4, 2e-4, (n, n)), gbps * 1e9 / 8 * rng.uniform(0.9, 1.1, (n, n))
    return Topology(devices, latency, bandwidth).with_typical_prices()


@pytest.fixture(scope="module")
def job():
    return lab.load_job("gpt3-xl", global_batch=32)


@pytest.fixture(scope="module")
def planned(job):
    return plan(network(["A100", "A100", "H100", "Raspberry Pi"]), job, steps=4, **FOR_SECONDS)


@pytest.fixture(scope="module")
def rows(planned):
    return list(stream_worth(planned, steps=2))


def test_every_device_has_a_worth_in_seconds_of_the_iteration(planned, rows):
    assert [row.device for row in rows] == list(planned.topology.names)
    table = worth_table(rows)
    assert table.attrs["seconds"] == "of an iteration"
    assert table["worth_s"].to_numpy() == pytest.approx((table["without_s"] - table["serving_s"]).to_numpy())
    for row in rows:
        for each in (row.serving, row.without):
            assert lab.simulate(each).iteration_s == each.iteration_s
            assert lab.memory(each).fits


def test_a_device_serves_in_one_plan_of_its_row_and_not_in_the_other(rows):
    for row in rows:
        assert any(row.device in group for group in row.serving.stages)
        assert not any(row.device in group for group in row.without.stages)


def test_the_fastest_device_is_worth_most_and_a_very_slow_one_harms(rows):
    table = worth_table(rows)
    assert table["device"].iloc[0] == "H100-2"
    assert table["verdict"].iloc[0] == "helps"
    last = table.iloc[-1]
    assert (last["device"], last["verdict"]) == ("Raspberry Pi-3", "harms")
    assert last["serving_s"] > 10 * last["without_s"]
    assert last["sentence"].startswith("without Raspberry Pi-3 ")


def test_a_worth_is_that_of_planning_without_the_device(planned, rows, job):
    rest = planned.topology.subset(["A100-0", "A100-1", "Raspberry Pi-3"])
    *_, last = search(rest, job, steps=6, seed=1, **FOR_SECONDS)
    assert rows[2].without.iteration_s == pytest.approx(last.plan.iteration_s, rel=0.05)


def test_equal_devices_are_worth_the_same_and_idle_ones_of_their_kind_nothing(job):
    links = np.full((5, 5), 1.0)
    devices = tuple(Device(name=f"a{i}", gpu="A100") for i in range(5))
    equal = Topology(devices, links * 1e-3, links * 1e8)
    best = plan(equal, job.with_fields(n_stages=2, n_replicas=2), steps=2, **FOR_SECONDS)
    for row in stream_worth(best, steps=1):
        assert row.worth_s >= -1e-9 * row.serving.iteration_s
        if row.without.idle_devices or len(row.without.topology) == 5:
            assert not any(row.device in group for group in row.without.stages)
    assert len({round(row.worth_s, 9) for row in stream_worth(best, steps=1)}) == 1


def test_a_device_without_which_nothing_fits_is_needed(job):
    topology = network(["A100", "Raspberry Pi"])
    alone = plan(topology, job, objective="iteration", steps=1)
    row = next(iter(stream_worth(alone, steps=1)))
    assert (row.verdict, row.without) == ("needed", None)
    assert row.sentence == "without A100-0 no plan fits"
    assert math.isnan(row.worth_s)
    json.dumps(plain_rows(worth_table([row])), allow_nan=False)


def test_the_same_seed_and_steps_give_the_same_worths(planned, rows):
    assert worth_table(stream_worth(planned, steps=2)).equals(worth_table(rows))


def test_ctrl_c_keeps_the_rows_so_far(planned):
    def interrupt(row):
        raise KeyboardInterrupt

    assert len(explain(planned).worth(steps=1, progress=interrupt)) == 1


def test_an_interrupted_search_ends_the_table(registered_planners):
    begin = plan(bare_network("jittered", 9, 2), Job.from_bytes(2, 4, 1e8, 2e8), steps=1)
    searches = itertools.count()

    def interrupted(problem, rng):
        if next(searches) == 3:
            raise KeyboardInterrupt
        yield from planners["random"](problem, rng)

    registered_planners.register("interrupted")(interrupted)
    assert 2 <= len(explain(begin).worth(planner="interrupted", steps=1)) < 9
    searches = itertools.count(3)
    with pytest.raises(KeyboardInterrupt):
        explain(begin).worth(planner="interrupted", steps=1)


@pytest.mark.parametrize(("kind", "seed"), [("jittered", 0), ("clustered", 2), ("asymmetric", 3)])
def test_of_a_job_of_message_sizes_a_worth_is_near_the_exact_one(kind, seed):
    topology, job = bare_network(kind, 7, seed), Job.from_bytes(3, 2, 1e8, 2e8)
    best_s = optimum_s(topology, job)
    rows = list(stream_worth(plan(topology, job, steps=20), steps=5))
    assert worth_table(rows).attrs["seconds"] == "of the communication cost"
    assert [row.device for row in rows] == list(topology.names)
    for device, row in enumerate(rows):
        exact_s = optimum_s(topology.subset([d for d in range(7) if d != device]), job)
        assert exact_s * (1 - 1e-9) <= row.without.cost.total_s <= exact_s * 1.01
        assert row.serving.cost.total_s >= best_s * (1 - 1e-9)
        assert row.worth_s == row.without.cost.total_s - row.serving.cost.total_s
        assert row.device in [name for group in row.serving.stages for name in group]
        assert row.device not in [name for group in row.without.stages for name in group]
        if row.role is not None:
            assert row.serving.cost.total_s <= best_s * 1.01
            places = explain(row.serving).places(row.device)
            in_its_place = places[places["stage"].isna()].iloc[0]
            assert row.without.cost.total_s <= in_its_place["cost_after_s"] * (1 + 1e-9)


def test_a_shape_that_uses_every_device_needs_each_and_links_that_are_alike_need_none():
    topology = bare_network("even", 8, 0)
    of = {n: plan(topology, Job.from_bytes(2, n, 1e8, 2e8), steps=1) for n in (3, 4)}
    assert set(explain(of[4]).worth(steps=1)["verdict"]) == {"needed"}
    assert set(explain(of[3]).worth(steps=1)["verdict"]) == {"makes no difference"}


def test_a_plan_for_the_communication_cost_with_a_model_is_asked_for_seconds(planned, job):
    by_messages = evaluate(planned.topology, planned.job, stages=planned.stages)
    assert next(stream_worth(by_messages, steps=1)).serving.objective == "iteration"


def test_what_cannot_be_asked_is_refused_before_the_first_row(planned):
    with pytest.raises(PlanError, match="steps is 0"):
        stream_worth(planned, steps=0)
    with pytest.raises(UnknownName, match="no planner named 'evolutionery'"):
        stream_worth(planned, "evolutionery", steps=1)
    with pytest.raises(UnknownName, match="no option named 'step'; did you mean 'steps'"):
        explain(planned).worth(step=1)
    assert {"device", "stage", "worth_s", "verdict"} <= set(worth_table([]))


@pytest.mark.parametrize(("counts", "replica", "count"), [((8, 8), 0, 3), ((5, 1, 1), 2, 2), ((4, 4, 4), 1, 100)])
def test_shares_keep_the_batch_and_leave_every_pipeline_one(counts, replica, count):
    shares = shares_with(counts, replica, count)
    assert sum(shares) == sum(counts)
    assert min(shares) >= 1
    assert shares[replica] == min(count, sum(counts) - len(counts) + 1)


def test_a_device_that_is_alone_is_worth_the_whole_training():
    one = Topology.from_matrices([[0.0]], [[1.0]], names=["ada"])
    plan = lab.plan(one, lab.load_job("tiny", n_stages=None, n_replicas=None), steps=1)
    (row,) = lab.explain(plan).worth(steps=1).itertuples()
    assert (row.device, row.verdict) == ("ada", "needed")
    assert row.sentence == "without ada no plan fits"
