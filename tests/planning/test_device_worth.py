"""The worth of a device: cost without it less cost with it serving, against exhaustive search and by law."""

import itertools

import numpy as np
import pytest
from bound_networks import reference
from planning_networks import network, optimum_s

from dtfm_lab.domain.errors import PlanError, UnknownName
from dtfm_lab.domain.job import JOBS, Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.files import load_topology
from dtfm_lab.lab import worth
from dtfm_lab.planning import evaluate, explain, plan, planners, stream_worth, worth_table

TERRIBLE = 19


def terrible32(n_replicas: int) -> tuple[Topology, Job]:
    topology, job, _ = reference("terrible32")
    return topology, Job.from_bytes(4, n_replicas, job.gradient_bytes, job.hop_bytes)


@pytest.mark.slow
def test_a_terrible_device_stays_idle_and_is_named_harmful():
    topology, job = terrible32(7)
    best = plan(topology, job, steps=10)
    assert TERRIBLE in best.idle_devices
    table = worth(best, steps=1)
    last = table.iloc[-1]
    assert (last["device"], last["verdict"]) == (topology.names[TERRIBLE], "harms")
    assert last["worth_s"] < -100
    assert table["stage"].isna().sum() == 4
    assert (table.loc[table["stage"].notna(), "verdict"] == "helps").all()


def test_where_every_device_serves_the_question_is_asked_of_one_replica_fewer_and_that_is_said(caplog):
    topology, job = terrible32(8)
    with caplog.at_level("WARNING"):
        table = worth(plan(topology, job, steps=2), steps=1)
    assert table.attrs["note"] == "all 32 devices serve in 4 x 8, which cannot do without one: worths are for 4 x 7"
    assert table.attrs["note"] in caplog.text
    assert set(zip(table["n_stages"], table["n_replicas"], strict=True)) == {(4, 7)}
    assert table["device"].iloc[-1] == topology.names[TERRIBLE]
    assert table["worth_s"].iloc[-1] < -100


@pytest.mark.parametrize(("kind", "seed"), [("jittered", 0), ("geometric", 0), ("clustered", 2), ("asymmetric", 3)])
def test_on_small_networks_a_worth_is_near_the_exact_one(kind, seed):
    topology, job = network(kind, 7, seed), Job.from_bytes(3, 2, 1e8, 2e8)
    best_s = optimum_s(topology, job)
    rows = list(stream_worth(plan(topology, job, steps=20), steps=5))
    assert [row.device for row in rows] == list(topology.names)
    for device, row in enumerate(rows):
        exact_s = optimum_s(topology.subset([d for d in range(7) if d != device]), job)
        assert exact_s * (1 - 1e-9) <= row.without.cost.total_s <= exact_s * 1.01
        assert row.serving.cost.total_s >= best_s * (1 - 1e-9)
        if row.role is not None:
            assert row.serving.cost.total_s <= best_s * 1.01


@pytest.mark.parametrize("kind", ["jittered", "geometric"])
def test_doing_without_costs_no_more_than_filling_the_hole_from_the_bench(kind):
    topology, job = network(kind, 12, 6), Job.from_bytes(3, 3, 1e8, 2e8)
    for row in stream_worth(plan(topology, job, steps=3), steps=1):
        if row.role is not None:
            places = explain(row.serving).places(row.device)
            bench = places[places["stage"].isna()].iloc[0]
            assert row.without.cost.total_s <= bench["cost_after_s"] * (1 + 1e-9)
            assert explain(row.without).is_local_optimum


def test_every_plan_of_a_row_is_one_with_or_without_the_device():
    topology, job = network("geometric", 9, 4), Job.from_bytes(2, 3, 1e8, 2e8)
    for row in stream_worth(plan(topology, job, steps=5), steps=2):
        serving = [name for group in row.serving.stages for name in group]
        assert row.device in serving
        without = [name for group in row.without.stages for name in group]
        assert row.device not in without
        assert row.worth_s == row.without.cost.total_s - row.serving.cost.total_s
        if row.role is not None:
            stage, replica = row.role
            assert row.serving.stages[stage][replica] == row.device


def test_where_all_links_are_alike_nobody_makes_a_difference():
    topology, job = network("even", 8, 0), Job.from_bytes(2, 3, 1e8, 2e8)
    assert set(worth(plan(topology, job, steps=1), steps=1)["verdict"]) == {"makes no difference"}


def test_the_same_seed_and_steps_give_the_same_table():
    topology, job = network("jittered", 9, 2), Job.from_bytes(2, 4, 1e8, 2e8)
    first = plan(topology, job, steps=2)
    assert worth(first, steps=1).attrs["note"] == ""
    assert set(worth(first, steps=1)["n_replicas"]) == {first.job.n_replicas}
    assert worth(first, steps=2, seed=3).equals(worth(first, steps=2, seed=3))


@pytest.mark.parametrize(("shape", "asked"), [((2, 4), (2, 3)), ((4, 2), (4, 1)), ((8, 1), (7, 1))])
def test_a_smaller_job_is_one_that_its_batch_allows(shape, asked):
    topology = load_topology("lecture-hall")
    whole = evaluate(topology, JOBS["tiny"], stages=np.arange(8).reshape(shape))
    table = worth_table([next(stream_worth(whole, steps=1))])
    assert (table["n_stages"].iloc[0], table["n_replicas"].iloc[0]) == asked


def test_an_interrupt_keeps_the_rows_so_far(registered_planners):
    topology, job = network("jittered", 9, 2), Job.from_bytes(2, 4, 1e8, 2e8)
    begin = plan(topology, job, steps=1)
    searches = itertools.count()

    def interrupted(problem, rng):
        if next(searches) == 3:
            raise KeyboardInterrupt
        yield from planners["random"](problem, rng)

    registered_planners.register("interrupted")(interrupted)
    assert 2 <= len(worth(begin, planner="interrupted", steps=1)) < 9
    searches = itertools.count(3)
    with pytest.raises(KeyboardInterrupt):
        worth(begin, planner="interrupted", steps=1)


def test_a_table_of_no_rows_has_its_columns():
    assert {"device", "stage", "worth_s", "verdict"} <= set(worth_table([]))


def test_what_cannot_be_asked_is_refused_at_once():
    topology, job = network("even", 4, 0), Job.from_bytes(2, 2, 1, 1)
    whole = evaluate(topology, job, stages=[[0, 1], [2, 3]])
    with pytest.raises(PlanError, match="steps is 0"):
        stream_worth(whole, steps=0)
    with pytest.raises(UnknownName, match="no planner named 'evolutionery'"):
        stream_worth(whole, "evolutionery")
    alone = evaluate(topology.subset([0]), job, stages=[[0]])
    with pytest.raises(PlanError, match="allows no smaller shape; wanted a job that can do without a device"):
        stream_worth(alone, steps=1)
