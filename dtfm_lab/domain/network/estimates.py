"""A network on the ends of what its estimated bandwidths may be, so that no conclusion depends on one in silence."""

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dtfm_lab.domain.network.estimate import INSIDE, BandwidthEstimate
from dtfm_lab.domain.network.topology import Topology

NEAR = 1e-9
"""Share by which a link's bandwidth may differ from its estimate's: that of a file, in Gbit/s."""
ENDS = {True: "as fast as they may be", False: "as slow as they may be"}
"""What the links are at either end of their estimates, for ``at_their_ends(most=...)``."""
MOST_SHOWN = 4
"""Most estimates that a note names."""


def estimated(topology: Topology) -> tuple[BandwidthEstimate, ...]:
    """The estimates that some link of the network still has."""
    return tuple(estimate for estimate in topology.estimates if _links(topology, estimate).any())


def estimates_of(topology: Topology) -> str:
    """The estimated links of a network, each with its range; empty where all are measured or stated."""
    found = [str(one) for one in estimated(topology)]
    more = f" and {len(found) - MOST_SHOWN} more" if len(found) > MOST_SHOWN else ""
    return f"Nobody measured these links: {', '.join(found[:MOST_SHOWN])}{more}" if found else ""


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


def _links(topology: Topology, estimate: BandwidthEstimate) -> npt.NDArray[np.bool_]:
    """(N, N) whether a link is one of those that an estimate is of."""
    hosts = np.array([device.host or f"\0{i}" for i, device in enumerate(topology.devices)])
    is_inside = hosts[:, None] == hosts[None, :]
    alike = np.isclose(topology.bandwidth_bytes_per_s, estimate.bandwidth_bytes_per_s, rtol=NEAR, atol=0)
    found: npt.NDArray[np.bool_] = alike & (is_inside if estimate.where == INSIDE else ~is_inside)
    return found
