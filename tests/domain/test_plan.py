"""A placement as rank map, stages, pipelines and coarsened graph: one grid, read in four ways."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import CostBreakdown, Placement, Plan


def made(grid, n_devices=7, group_s=(1.0, 3.0), hop_s=(0.5,), lower_bound_s=2.8) -> Plan:
    n_stages, _n_replicas = np.shape(grid)
    cost = CostBreakdown(group_s=np.array(group_s), hop_s=np.array(hop_s), weights_s=np.zeros((n_stages, n_stages)))
    return Plan(
        topology=Topology.from_matrices(np.ones((n_devices, n_devices)), np.ones((n_devices, n_devices))),
        job=Job.from_bytes(2, 3, 1, 1),
        placement=Placement(np.array(grid)),
        cost=cost,
        lower_bound_s=lower_bound_s,
        planner="given",
    )


def test_the_cost_is_the_slowest_group_plus_every_hop():
    plan = made([[0, 1, 2], [3, 4, 5]])
    assert plan.cost.total_s == 3.5
    assert plan.gap == pytest.approx(0.2)


def test_a_plan_leaves_nothing_to_a_planner():
    plan = made([[0, 1, 2], [3, 4, 5]])
    opened = plan.changed(job=plan.job.freed("sharding", "synchronisation", "overlap"))
    assert opened.job == plan.job


@given(st.permutations(range(7)))
def test_stages_pipelines_and_rank_map_tell_the_same_placement(order):
    grid = np.array(order[:6]).reshape(2, 3)
    plan = made(grid)
    assert plan.stages == [[f"device-{d}" for d in row] for row in grid]
    assert plan.pipelines == [list(column) for column in zip(*plan.stages, strict=True)]
    for device, rank in enumerate(plan.rank_map):
        if rank is None:
            assert plan.idle_devices == (device,)
        else:
            assert grid[rank % 2, rank // 2] == device


def test_the_coarsened_graph_shows_groups_path_and_matching():
    graph = made([[0, 1, 2], [3, 4, 5]]).coarse_graph()
    assert graph.nodes[1] == {"devices": ["device-3", "device-4", "device-5"], "cost_s": 3.0}
    assert graph.edges[0, 1]["on_path"]
    assert graph.edges[0, 1]["cost_s"] == 0.5
    assert [pair[:2] for pair in graph.edges[0, 1]["matching"]] == [
        (f"device-{i}", f"device-{i + 3}") for i in range(3)
    ]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Placement(np.array([[0, 1], [1, 2]])), "device 1 is placed twice; wanted each device at most once"),
        (lambda: Placement(np.array([0, 1])), r"shape \(2,\); wanted \(stages, replicas\)"),
        (lambda: made([[0, 1], [2, 3], [4, 5]]), "placement of 3 x 2; job wants 2 x 3"),
        (lambda: made([[0, 1, 2], [3, 4, 7]]), "names device 7, but matrices has 7"),
        (lambda: Placement(np.array([[-1, 0]])), "device -1"),
    ],
    ids=["twice", "a row", "another shape", "too few devices", "below none"],
)
def test_a_placement_that_does_not_fit_is_refused(make, says):
    with pytest.raises(PlanError, match=says):
        make()


@pytest.mark.parametrize(
    ("bound_s", "says"),
    [
        (None, ""),
        (0.0, ""),
        (30.0, "no plan that its search allowed is faster"),
        (25.0, "at most 1.20 times faster with any plan that its search allowed"),
        (0.3, "the lower bound of any plan that its search allowed, 300 ms, is loose"),
        (0.02, "the lower bound of any plan that its search allowed, 20 ms, is loose"),
    ],
)
def test_a_plan_says_what_its_bound_leaves_and_no_ratio_that_tells_nothing(bound_s, says):
    plan = made([[0, 1, 2], [3, 4, 5]]).changed(iteration_s=30.0, iteration_lower_bound_s=bound_s)
    assert plan.speed_up_words == says
    told = "at most 1.00 times faster with any plan that its search allowed" if bound_s == 30.0 else says
    assert (f"({told})" in repr(plan)) == bool(says)
