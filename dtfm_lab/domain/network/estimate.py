"""A bandwidth that was not measured, with the range that it may lie in."""

import math
from dataclasses import dataclass

from dtfm_lab.domain.errors import TopologyError
from dtfm_lab.domain.network.device import as_number, shortened
from dtfm_lab.domain.units import to_gbps

INSIDE = "inside hosts"
"""Links between two devices of one host."""
BETWEEN = "between hosts"
"""All other links."""
WHERE = (INSIDE, BETWEEN)
"""The two kinds of links."""


@dataclass(frozen=True)
class BandwidthEstimate:
    """A bandwidth that a rule assumes for links for which no source states one. A link whose bandwidth was changed is
    no longer an estimate.

    Raises TopologyError for an unknown ``where``, or if the numbers are not above 0 or out of order.
    """

    where: str
    """One of ``WHERE``."""
    bandwidth_bytes_per_s: float
    """Estimated bandwidth, according to the rule."""
    least_bytes_per_s: float
    """The lowest bandwidth that machines of this kind are sold with."""
    most_bytes_per_s: float

    def __post_init__(self) -> None:
        if self.where not in WHERE:
            raise TopologyError(f"an estimate is of links {shortened(self.where)}; wanted {' or '.join(WHERE)}")
        numbers = [
            as_number(one) for one in (self.least_bytes_per_s, self.bandwidth_bytes_per_s, self.most_bytes_per_s)
        ]
        given = [one for one in numbers if one is not None and 0 < one < math.inf]
        if len(given) < 3 or sorted(given) != given:
            raise TopologyError(
                f"an estimate of links {self.where} is {shortened(numbers)} bytes/s; wanted least, estimated and most, "
                "each above 0"
            )

    def __str__(self) -> str:
        ends = (f"{to_gbps(end):,.4g}" for end in (self.least_bytes_per_s, self.most_bytes_per_s))
        return f"{self.where} {to_gbps(self.bandwidth_bytes_per_s):,.4g} Gbit/s ({' to '.join(ends)})"
