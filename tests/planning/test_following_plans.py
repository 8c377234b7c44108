"""A plan that follows a change of its network: what stays, what moves, and when that pays."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from planning_networks import network

import dtfm_lab as lab
from dtfm_lab.domain.errors import JobError, LabError, PlanError, UnknownName
from dtfm_lab.domain.job import Job, gpt
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.planning import Replan, evaluate, moves, plan
from dtfm_lab.planning.adapting import starting_plans
from dtfm_lab.planning.replanning import value_of
from dtfm_lab.simulation.memory import memory

MODEL = gpt(name="eight", n_layers=8, d_model=64, n_heads=2, seq_len=16, vocab_size=100)
JOB = Job(model=MODEL, n_stages=None, n_replicas=None, global_batch=8, microbatch=1, checkpointing="none")
LAPTOP = {"gpu": "laptop", "peak_flop_per_s": 1e9}


def laptops(n: int, seed: int) -> Topology:
    """Slow devices on jittered links, so that computing counts, too."""
    of = network("jittered", n, seed)
    return Topology.from_matrices(1e3 * of.latency_s, 8e-9 * of.bandwidth_bytes_per_s, name=of.name, **LAPTOP)


def planned(n: int, seed: int, **fields: object) -> Plan:
    return plan(laptops(n, seed), JOB.with_fields(**fields), objective="iteration", steps=2, improve_bound=False)


@pytest.fixture(scope="module")
def whole() -> Plan:
    """Three stages of two on seven devices, so that one is idle."""
    return planned(7, 0, n_stages=3, n_replicas=2)


def worth(found: Plan, before: Plan, horizon_s: float) -> float:
    return value_of(found) * (1 + moves(before, found).move_s / horizon_s)


def test_without_a_change_the_plan_is_the_same_and_nothing_moves(whole):
    for found in (lab.replan(whole), lab.replan(whole, changed=replace(whole.topology, name="again"))):
        assert found.plan is whole
        assert (len(found.moves), found.move_s, found.pays_after_s) == (0, 0.0, None)
        assert found.sentence.startswith("The plan stays: 3 x 2, ")


def test_an_idle_device_is_not_missed(whole):
    (idle,) = whole.idle_devices
    found = lab.replan(whole, lost=[whole.topology.names[idle]])
    assert found.stay is not None
    assert found.stay.stages == whole.stages
    assert found.stay.iteration_s == pytest.approx(whole.iteration_s, rel=1e-12)
    assert worth(found.plan, whole, found.horizon_s) <= whole.iteration_s * (1 + 1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_found_is_a_plan_of_who_is_left_and_no_worse_than_filling_the_holes(whole, seed):
    rng = np.random.default_rng(seed)
    lost = [str(name) for name in rng.choice(whole.topology.names, seed % 3 + 1, replace=False)]
    found = lab.replan(whole, lost=lost, seed=seed)
    assert set(found.plan.topology.names) == set(whole.topology.names) - set(lost)
    assert memory(found.plan).fits
    assert found.plan.iteration_s == pytest.approx(lab.simulate(found.plan).iteration_s, rel=1e-9)
    assert found.move_s == moves(whole, found.plan).move_s
    if found.stay is not None:
        assert found.stay_moves is not None
        assert worth(found.plan, whole, found.horizon_s) <= worth(found.stay, whole, found.horizon_s) * (1 + 1e-9)
    again = lab.replan(whole, lost=lost, seed=seed)
    assert (again.plan.stages, again.plan.job) == (found.plan.stages, found.plan.job)


def test_both_plans_have_done_as_much_when_the_new_one_is_said_to_pay(whole):
    found = with_seconds(lab.replan(whole), (5.0, 2.0), (10.0, 1.0))
    assert found.pays_after_s == pytest.approx(15.0)  # (15 - 5) / 2 = (15 - 10) / 1 iterations
    assert "ahead after 15 s of only filling the holes (2 s)" in found.sentence
    assert with_seconds(lab.replan(whole), (5.0, 2.0), (5.0, 1.0)).pays_after_s == 0.0


def with_seconds(found: Replan, stay: tuple[float, float], new: tuple[float, float]) -> Replan:
    """The same with other seconds of the moves and of an iteration, of staying and of the new plan."""

    def taking(seconds: float) -> object:
        one = found.moves
        columns = {what: np.zeros(1, dtype=np.int64) for what in ("sender", "receiver", "stage", "n_bytes")}
        return replace(one, **columns, start_s=np.zeros(1), end_s=np.array([seconds]))

    return replace(
        found,
        plan=found.plan.changed(iteration_s=new[1]),
        stay=found.plan.changed(iteration_s=stay[1]),
        moves=taking(new[0]),
        stay_moves=taking(stay[0]),
    )


@pytest.mark.parametrize("seed", range(3))
def test_no_plan_of_few_devices_is_worth_much_more(seed):
    """Within 2 % of all placements with even cuts and shares, whose order of passes is 1F1B."""
    before = planned(5, seed)
    lost = before.stages[0][:1]
    horizon_s = 20 * before.iteration_s
    found = lab.replan(before, lost=lost, horizon_s=horizon_s)
    there = found.plan.topology
    least = np.inf
    for n_stages, n_replicas in [(1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (4, 1)]:
        job = JOB.with_fields(n_stages=n_stages, n_replicas=n_replicas, schedule="1f1b")
        for order in itertools.permutations(range(4), n_stages * n_replicas):
            grid = np.array(order).reshape(n_stages, n_replicas)
            if (np.diff(grid[0]) > 0).all():
                one = evaluate(there, job, rank_map=rank_map(grid, 4))
                one = one.changed(objective="iteration", iteration_s=lab.simulate(one).iteration_s)
                least = min(least, worth(one, before, horizon_s))
    assert worth(found.plan, before, horizon_s) <= 1.02 * least


def rank_map(grid: np.ndarray, n: int) -> list[int | None]:
    ranks: list[int | None] = [None] * n
    for (stage, replica), device in np.ndenumerate(grid):
        ranks[device] = replica * len(grid) + stage
    return ranks


def test_the_shorter_the_horizon_the_less_moves(whole):
    slow = whole.topology.scaled(bandwidth=0.5)
    stays, goes = (lab.replan(whole, changed=slow, horizon_s=horizon_s) for horizon_s in (1e-6, 1e9))
    assert stays.move_s == 0.0
    assert value_of(goes.plan) <= value_of(stays.plan) * (1 + 1e-9)


def test_a_plan_that_moves_nothing_is_taken_where_a_faster_one_would_not_pay():
    before = planned(8, 4, n_stages=2, n_replicas=3)
    lost = [before.stages[0][0]]
    found = lab.replan(before, lost=lost, horizon_s=1e-6)
    assert found.move_s == 0.0
    if found.stay is not None and value_of(found.plan) > value_of(found.stay):
        assert "would not pay for its move of" in found.sentence
    assert value_of(lab.replan(before, lost=lost, horizon_s=1e9).plan) <= value_of(found.plan) * (1 + 1e-9)


def test_a_plan_for_dollars_is_followed_by_one_and_told_in_dollars():
    there = replace(laptops(7, 0), devices=tuple(replace(d, price_per_hour=1.0) for d in laptops(7, 0).devices))
    before = plan(there, JOB, objective="price", steps=1, improve_bound=False)
    found = lab.replan(before, lost=before.stages[0][:1])
    assert found.plan.objective == "price"
    assert "$ a billion tokens" in found.sentence


def test_devices_that_come_are_put_to_work():
    there = laptops(8, 1)
    small = there.subset(there.names[:4])
    before = plan(small, JOB, objective="iteration", steps=2, improve_bound=False)
    found = lab.replan(before, joined=there)
    assert set(found.plan.topology.names) == set(there.names)
    by_name = lab.replan(before, joined=[there.names[4]], changed=there)
    assert set(by_name.plan.topology.names) == set(there.names[:5])
    assert value_of(found.plan) <= value_of(before)


def test_holes_are_filled_out_of_a_pipeline_that_is_given_up_before_anybody_learns_a_stage():
    there = laptops(6, 2)
    before = evaluate(there, JOB.with_fields(n_stages=2, n_replicas=3), stages=[[0, 1, 2], [3, 4, 5]])
    names = there.names
    rest = there.subset([name for name in names if name not in (before.stages[0][0], before.stages[1][1])])
    first, *_ = starting_plans(before, rest)
    assert first.placement.devices.shape == (2, 2)
    assert len(moves(before, first)) == 0


def test_a_stage_that_is_lost_with_all_its_replicas_comes_from_a_checkpoint():
    before = planned(6, 3, n_stages=2, n_replicas=2, model=replace(MODEL, tied=False))
    found = lab.replan(before, lost=before.stages[1])
    assert found.moves.from_checkpoint.any()
    assert "from a checkpoint, so all devices go back to its step" in found.sentence
    one = lab.replan(before, lost=before.stages[1][:1])
    assert not one.moves.from_checkpoint.any()


def test_a_pinned_shape_stays_while_there_are_devices_for_it(whole):
    assert lab.replan(whole, lost=[whole.stages[0][0]]).plan.placement.devices.shape == (3, 2)
    fewer = lab.replan(whole, lost=[*whole.stages[0][:1], whole.topology.names[whole.idle_devices[0]]])
    assert fewer.stay is None
    assert fewer.pays_after_s == 0.0
    assert fewer.plan.placement.devices.size <= 5


def test_a_plan_for_the_communication_cost_is_followed_by_one():
    before = lab.plan(network("geometric", 9, 0), JOB.with_fields(n_stages=2, n_replicas=4), objective="communication")
    found = lab.replan(before, lost=[before.stages[0][0]])
    assert (found.plan.objective, found.plan.placement.devices.shape) == ("communication", (2, 4))
    assert worth(found.plan, before, found.horizon_s) <= worth(found.stay, before, found.horizon_s) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"lost": ["Tokyo"]}, UnknownName, "no device of this plan's network named 'Tokyo'"),
        ({"lost": "Tokyo"}, PlanError, "lost is 'Tokyo'; wanted a list of names"),
        ({"lost": [3]}, PlanError, "wanted a list of names"),
        ({"joined": ["Tokyo"]}, PlanError, "joined names 'Tokyo', which jittered-7-0 does not have; wanted a Topology"),
        ({"changed": "worldwide"}, PlanError, "changed is 'worldwide'; wanted a Topology"),
        ({"changed": network("even", 2, 0)}, PlanError, "lacks device-2, which is not lost"),
        ({"horizon_s": 0}, PlanError, "horizon_s is 0; wanted seconds above 0"),
        ({"seconds": -1, "lost": ["device-0"]}, PlanError, "seconds is -1; wanted a number above 0"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(whole, change, error, says):
    with pytest.raises(error, match=says):
        lab.replan(whole, **change)


def test_a_network_of_which_nobody_is_left_and_a_job_without_a_model_are_refused(whole):
    with pytest.raises(PlanError, match="no device of jittered-7-0 is left"):
        lab.replan(whole, lost=whole.topology.names)
    name = whole.topology.names[0]
    with pytest.raises(PlanError, match=f"{name} is both lost and joined"):
        lab.replan(whole, lost=[name], joined=[name])
    with pytest.raises(LabError, match="wanted one, and names in joined"):
        lab.replan(whole, joined=whole.topology, changed=whole.topology)
    sizes = evaluate(whole.topology, Job.from_bytes(2, 2, 1e9, 1e8), stages=[[0, 1], [2, 3]])
    with pytest.raises(JobError, match="message sizes only"):
        lab.replan(sizes, lost=[name])
