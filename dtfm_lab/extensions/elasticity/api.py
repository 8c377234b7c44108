"""The parts of a replay: fleets, policies, and the bound of perfect foresight."""

from dtfm_lab.extensions.elasticity import policies as _registered  # noqa: F401  registers them
from dtfm_lab.extensions.elasticity.bound import foresight
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
    "policies",
    "policy_of",
    "replay",
]
