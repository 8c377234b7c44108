"""Bandwidths that nobody measured, and how far each may be off: so that no conclusion depends on one in silence."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dtfm_lab.domain.errors import TopologyError
from dtfm_lab.domain.network.device import as_number, shortened
from dtfm_lab.domain.units import to_gbps

if TYPE_CHECKING:
    from dtfm_lab.domain.network.topology import Topology

WHERE = INSIDE, BETWEEN = ("inside hosts", "between hosts")
"""Links between two devices of a host, and all others."""

NEAR = 1e-9
"""Share by which a link's bandwidth may differ from its estimate's: that of a file, in Gbit/s."""


@dataclass(frozen=True)
class Estimate:
    """A rule's bandwidth for links that nothing tells. A link that has another one by now is no estimate any more.

    Raises TopologyError for numbers out of order.
    """

    where: str
    """One of ``WHERE``."""
    bandwidth_bytes_per_s: float
    """What the rule says, and such links have."""
    least_bytes_per_s: float
    """The least that it may be, as machines of the kind are built and sold."""
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


def estimated(topology: Topology) -> tuple[Estimate, ...]:
    """The estimates that some link of the network still has."""
    return tuple(estimate for estimate in topology.estimates if _links(topology, estimate).any())


def at_their_ends(topology: Topology, *, most: bool) -> Topology:
    """The network with all estimated links as fast, or as slow, as they may be, those inside a group of GPUs too."""
    bandwidth, devices = topology.bandwidth_bytes_per_s.copy(), topology.devices
    for estimate in topology.estimates:
        end = estimate.most_bytes_per_s if most else estimate.least_bytes_per_s
        bandwidth[_links(topology, estimate)] = end
        if estimate.where == INSIDE:
            rate = estimate.bandwidth_bytes_per_s
            devices = tuple(
                replace(device, inner_bandwidth_bytes_per_s=end)
                if math.isclose(device.inner_bandwidth_bytes_per_s, rate, rel_tol=NEAR)
                else device
                for device in devices
            )
    return replace(topology, devices=devices, bandwidth_bytes_per_s=bandwidth, estimates=())


def _links(topology: Topology, estimate: Estimate) -> npt.NDArray[np.bool_]:
    """(N, N) whether a link is one of those that an estimate is of."""
    hosts = np.array([device.host or f"\0{i}" for i, device in enumerate(topology.devices)])
    is_inside = hosts[:, None] == hosts[None, :]
    alike = np.isclose(topology.bandwidth_bytes_per_s, estimate.bandwidth_bytes_per_s, rtol=NEAR, atol=0)
    found: npt.NDArray[np.bool_] = alike & (is_inside if estimate.where == INSIDE else ~is_inside)
    return found
