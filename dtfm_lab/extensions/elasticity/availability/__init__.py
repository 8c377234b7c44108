"""Which devices are there when: events, read or drawn from rates.

An Availability holds names and, for each event, when which of them comes or leaves.
"""

from dtfm_lab.extensions.elasticity.availability.availability import Availability, Change, in_turns
from dtfm_lab.extensions.elasticity.availability.rates import DAY_S, LONGEST_S, Rates

__all__ = ["DAY_S", "LONGEST_S", "Availability", "Change", "Rates", "in_turns"]
