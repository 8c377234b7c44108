"""Which device serves which stage and replica, and what that costs.

A Plan is made by a planner; ``rehearse`` cuts a part of it out as a plan of its own.
"""

from dtfm_lab.domain.plan.plan import CostBreakdown, Placement, Plan
from dtfm_lab.domain.plan.subplan import largest_shape, reduced, rehearse

__all__ = ["CostBreakdown", "Placement", "Plan", "largest_shape", "reduced", "rehearse", "sentence"]
