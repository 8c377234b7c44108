"""What binds the bound on a plan's seconds, as a table."""

import pandas as pd

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.plan import Plan
from dtfm_lab.planning.iteration.incremental_bound import SCHEDULES
from dtfm_lab.planning.iteration.problem import IterationProblem


def bound_bindings(plan: Plan) -> pd.DataFrame:
    """A row for each resource of which twice as much would lower the bound by 3 % or more, most binding first.

    Columns: ``resource``, such as compute (A100), memory, latency or links between regions; of synchronisation none at
    all instead of twice as much. ``share``: the bound would be no more than this share of what it is. The bound is for
    the plan's micro-batch and recomputation, with everything else open. It takes some seconds for a large network.
    Raises PlanError for a plan without ``iteration_lower_bound_s``.
    """
    from dtfm_lab.planning.iteration.bounds import bindings

    if plan.iteration_lower_bound_s is None:
        raise PlanError(f"plan by {plan.planner} has no bound on its seconds; wanted one by iteration or price")
    job = plan.job.with_fields(n_stages=None, n_replicas=None, schedule=None, blocks_per_stage=None)
    problem = IterationProblem.of(plan.topology, job, plan.queueing, efficiency=plan.efficiency)
    rows = [(each.resource, each.share) for each in bindings(problem, plan.iteration_lower_bound_s, SCHEDULES)]
    return pd.DataFrame(rows, columns=["resource", "share"])
