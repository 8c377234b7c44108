"""A network with its estimated bandwidths at either end of their range, to show which conclusions depend on them."""

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dtfm_lab.domain.network.estimate import INSIDE, BandwidthEstimate
from dtfm_lab.domain.network.topology import Topology

NEAR = 1e-9
"""Relative difference up to which a link still counts as estimated. Files store bandwidth in Gbit/s, which rounds."""
ENDS = {True: "as fast as they may be", False: "as slow as they may be"}
"""Words for both ends of the range, by the argument ``most`` of ``at_their_ends``."""
MOST_SHOWN = 4
"""Maximum number of estimates that a note lists."""


def estimated(topology: Topology) -> tuple[BandwidthEstimate, ...]:
    """Return the estimates that still apply to some link of the network."""
    return tuple(estimate for estimate in topology.estimates if _links(topology, estimate).any())


def estimates_of(topology: Topology) -> str:
    """Describe the estimated links of a network with their ranges; empty if every link is measured or stated."""
    found = [str(one) for one in estimated(topology)]
    more = f" and {len(found) - MOST_SHOWN} more" if len(found) > MOST_SHOWN else ""
    return f"These links were not measured: {', '.join(found[:MOST_SHOWN])}{more}" if found else ""


def at_their_ends(topology: Topology, *, most: bool) -> Topology:
    """Return the network with all estimated links at the fast (``most``) or the slow end of their range.

    This includes links inside groups of GPUs.
    """
    bandwidth, devices = topology.bandwidth_bytes_per_s.copy(), topology.devices
    for estimate in topology.estimates:
        end = estimate.most_bytes_per_s if most else estimate.least_bytes_per_s
        bandwidth[_links(topology, estimate)] = end
        # Links inside a group of GPUs are not in the matrices.
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
    """Return (N, N) True for the links that an estimate applies to."""
    hosts = np.array([device.host or f"\0{i}" for i, device in enumerate(topology.devices)])
    is_inside = hosts[:, None] == hosts[None, :]
    alike = np.isclose(topology.bandwidth_bytes_per_s, estimate.bandwidth_bytes_per_s, rtol=NEAR, atol=0)
    found: npt.NDArray[np.bool_] = alike & (is_inside if estimate.where == INSIDE else ~is_inside)
    return found
