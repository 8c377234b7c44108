"""Which devices are online when: events, read from a file or sampled from rates.

An Availability holds the names of devices, and for each event its time, its device, and whether the device arrives or
leaves.
"""

from dtfm_lab.extensions.elasticity.availability.availability import Availability, Change, in_turns
from dtfm_lab.extensions.elasticity.availability.rates import DAY_S, LONGEST_S, Rates

__all__ = ["DAY_S", "LONGEST_S", "Availability", "Change", "Rates", "in_turns"]
