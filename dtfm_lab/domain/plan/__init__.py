"""Plans: which device serves which stage and replica, and what that costs.

A planner makes a Plan. ``subplan_for`` and ``cut_subplan`` turn a part of it into a separate plan.
"""

from dtfm_lab.domain.plan.plan import CostBreakdown, Placement, Plan
from dtfm_lab.domain.plan.subplan import check_same_plan, cut_subplan, largest_shape, subplan_for
