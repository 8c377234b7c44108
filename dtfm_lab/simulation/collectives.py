"""Seconds of collectives: rings over the links of a group, in which every round waits for the slowest link.

A ring gathers, or scatters sums, in n - 1 rounds of 1/n of the bytes, and does both for an all-reduce (Patarasu and
Yuan 2009, "Bandwidth optimal all-reduce algorithms").
"""

from __future__ import annotations

import numpy as np

from dtfm_lab.domain.network import Links, Topology
from dtfm_lab.domain.units import IntArray


def ring_gather_s(n_bytes: float, n: int, bandwidth_bytes_per_s: float, latency_s: float) -> float:
    """Seconds in which n members with 1/n of ``n_bytes`` each give everyone all; also those of a reduce-scatter."""
    return (n - 1) * (latency_s + n_bytes / n / bandwidth_bytes_per_s) if n > 1 else 0.0


def ring_all_reduce_s(n_bytes: float, n: int, bandwidth_bytes_per_s: float, latency_s: float) -> float:
    """Seconds in which n members sum ``n_bytes`` each and all have the sum: a reduce-scatter and a gather."""
    return 2 * ring_gather_s(n_bytes, n, bandwidth_bytes_per_s, latency_s)


class GroupRings:
    """The rings of a plan's data-parallel groups, all in use at once.

    A ring visits regions and hosts one after the other, as collective libraries lay theirs, so it enters and leaves
    each of them once. Rings that leave a host by its one card share that card.
    """

    def __init__(self, topology: Topology, links: Links, groups: IntArray) -> None:
        """``groups`` is (S, R) devices, a row for each group."""
        self._links, self.n_members = links, groups.shape[1]
        place = {}
        for device in groups.ravel().tolist():
            of = topology.devices[device]
            host = of.host or f" {device}"
            place[device] = (topology.regions.index(of.region), host)
        self._rings = [np.array(sorted(row.tolist(), key=lambda device: place[device])) for row in groups]
        leaving = [links.queues(ring, np.roll(ring, -1))[0] for ring in self._rings]
        used, counts = np.unique(np.concatenate(leaving), return_counts=True)
        self._sharing = [counts[np.searchsorted(used, one)] for one in leaving]

    def gather_s(self, group: int, n_bytes: float) -> float:
        """Seconds in which the members of a group gather ``n_bytes``, or scatter a sum of as many."""
        if self.n_members == 1:
            return 0.0
        ring, sharing = self._rings[group], self._sharing[group]
        after = np.roll(ring, -1)
        moving_s = sharing * self._links.moving_s(ring, after, n_bytes / self.n_members)
        return float((self.n_members - 1) * (moving_s + self._links.latency_s[ring, after]).max())
