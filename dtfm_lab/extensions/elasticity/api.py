"""Hours of a fleet that changes: what a policy makes of them, and what foresight would."""

from dtfm_lab.extensions.elasticity import policies as _registered  # noqa: F401  registers them
from dtfm_lab.extensions.elasticity.bound import foresight, most_samples
from dtfm_lab.extensions.elasticity.planned import PlannedFleet
from dtfm_lab.extensions.elasticity.policy import Fleet, Policy, ReconfigurationCosts, policies, policy_of
from dtfm_lab.extensions.elasticity.replay import replay
from dtfm_lab.extensions.elasticity.table import TableFleet

__all__ = [
    "Fleet",
    "PlannedFleet",
    "Policy",
    "ReconfigurationCosts",
    "TableFleet",
    "foresight",
    "most_samples",
    "policies",
    "policy_of",
    "replay",
]
