"""Missions of the capstone: a network of one's own, a plan near its bound, and a real run of it."""

from collections.abc import Sequence

import numpy as np

from dtfm_lab.compare import compare
from dtfm_lab.course.checks import (
    MissionsOf,
    fits,
    iteration_again_s,
    parts_of,
    predicted_before,
    ran_plan,
    require,
)
from dtfm_lab.course.mission import Given
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan, cut_subplan
from dtfm_lab.domain.trace import Trace
from dtfm_lab.files import load_topology, topology_names
from dtfm_lab.planning import plan as search_plan

lesson = MissionsOf("18_capstone")

LEAST_DEVICES = 6
UNEQUAL = 3.0
"""Least ratio of the fastest link to the slowest."""
LEAST_WORDS = 15
"""Words of a description that says where the numbers are from."""
NEAR_BOUND = 1.5
AT_MOST = 64
"""Most devices of a network whose bound is computed again within seconds."""


def own_network(network: Topology) -> None:
    """Raise NotYet unless a network is no bundled one, has devices enough, and links that differ."""
    n = len(network)
    require(n >= LEAST_DEVICES, f"it has {n} devices; wanted {LEAST_DEVICES} or more")
    require(n <= AT_MOST, f"it has {n} devices; wanted {AT_MOST} at most, so that its bound takes seconds")
    for name in topology_names():
        bundled = load_topology(name)
        if len(bundled) != n:
            continue
        between = ~np.eye(n, dtype=bool)
        apart = np.abs(np.log(network.bandwidth_bytes_per_s[between] / bundled.bandwidth_bytes_per_s[between]))
        late = np.abs(network.latency_s - bundled.latency_s).max()
        require(apart.max() > 0.01 or late > 1e-4, f"its links are those of {name}, which comes with the lab")
    bandwidth = network.bandwidth_bytes_per_s[~np.eye(n, dtype=bool)]
    ratio = float(bandwidth.max() / bandwidth.min())
    require(
        ratio >= UNEQUAL,
        f"its fastest link is {ratio:.2g} times its slowest; where all are alike, no placement is better than another: "
        f"wanted {UNEQUAL:g} times or more",
    )


@lesson.mission("capstone-network", takes=Topology)
def capstone_network(network: Topology, given: Given) -> str:
    own_network(network)
    require(len(network.regions) >= 2, f"it has {len(network.regions)} region; wanted two or more")
    without = [device.name for device in network.devices if not device.peak_flop_per_s and not device.gpu]
    require(not without, f"{', '.join(without[:3])} have neither a GPU nor a peak; wanted one")
    words = len(network.description.split())
    require(
        words >= LEAST_WORDS, f"its description has {words} words; wanted {LEAST_WORDS}: where are the numbers from?"
    )
    return f"{len(network)} devices in {len(network.regions)} regions. What follows is as true as these numbers."


@lesson.mission("capstone-plan", takes=Plan)
def capstone_plan(plan: Plan, given: Given) -> str:
    own_network(plan.topology)
    fits(plan)
    found_s = iteration_again_s(plan)
    open_job = plan.job.with_fields(
        n_stages=None, n_replicas=None, blocks_per_stage=None, microbatches_per_replica=None, warmups=None
    )
    bound_s = search_plan(plan.topology, open_job, objective="iteration", seed=0, steps=1).iteration_lower_bound_s
    assert bound_s is not None, "a search for seconds has a bound"
    require(
        found_s <= NEAR_BOUND * bound_s,
        f"it takes {found_s:.4g} s, {found_s / bound_s:.2f} times the bound of {bound_s:.4g} s; wanted "
        f"{NEAR_BOUND:g} times at most",
    )
    return f"{found_s:.4g} s: nobody, by whatever plan, is more than {found_s / bound_s:.2f} times faster here."


@lesson.mission("capstone-run", takes=(list, tuple))
def capstone_run(answer: Sequence[object], given: Given) -> str:
    wanted = "[plan, predicted, measured]: a Plan and two Traces"
    plan, predicted, measured = parts_of(answer, wanted, Plan, Trace, Trace)
    own_network(plan.topology)
    ran_plan(measured, cut_subplan(plan, measured.context.rehearsed), iterations=4)
    predicted_before(predicted, measured, plan)
    require(measured.context.clock == "virtual", "wanted the virtual clock, on which agreement is not by construction")
    error = compare(predicted, measured).iteration_error
    require(abs(error) < 0.1, f"it is off by {error:+.1%}; wanted less than 10 %. Whom does the comparison name?")
    part = measured.context.rehearsed
    ran = "all of it" if part is None else part.sentence
    return f"Off by {error:+.1%}, {ran}. What a rehearsal does not check: how fast the drawn devices are."
