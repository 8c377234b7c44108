"""Seconds in which the replicas of each stage of a layout average their gradients, in closed form."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dtfm_lab.domain.network import Links, Topology
from dtfm_lab.domain.units import FloatArray, IntArray, by_key
from dtfm_lab.planning.iteration.structured.layouts import Layout

MOST_BY_PAIRS = 64
"""Most replicas for which every pair's message is added up; with more, a ring is as good or better."""


@dataclass(frozen=True, eq=False)
class Average:
    """Averaging as bytes and latencies, so that any gradient on any stage is priced by one product. Each (S,)."""

    how: str
    latency_s: FloatArray
    """Seconds of latencies that follow each other, there and back."""
    there_s_per_byte: FloatArray
    """Seconds for each byte of a stage's gradient."""
    back_s_per_byte: FloatArray
    """Seconds for each byte of what comes back: averages, or parameters."""

    def seconds(self, gradient_bytes: FloatArray, back_bytes: FloatArray) -> FloatArray:
        """(S,) seconds if all replicas begin at once."""
        return self.latency_s + gradient_bytes * self.there_s_per_byte + back_bytes * self.back_s_per_byte


def averages(layout: Layout, topology: Topology, ways: tuple[str, ...]) -> list[Average]:
    """Return the ways to average that suit a layout, of those allowed; the only one allowed is kept, and priced as the
    most alike."""
    n_replicas = layout.grid.shape[1]
    if n_replicas == 1:
        nothing = np.zeros(layout.grid.shape[0])
        return [Average(ways[0], nothing, nothing, nothing)]
    found = []
    for how in ways:
        if how == "ring":
            found.append(ring(layout))
        elif how in ("sharded", "sharded-at-once"):
            if n_replicas <= MOST_BY_PAIRS or len(ways) == 1:
                found.append(_by_pairs(layout, how))
        elif (hierarchy := _hierarchical(layout, topology)) is not None:
            found.append(hierarchy)
    found = found or [ring(layout)]
    return [replace(one, how=ways[0]) for one in found] if len(ways) == 1 else found


def ring(layout: Layout, *, by_place: IntArray | None = None) -> Average:
    """Ring all-reduce: 2 (R - 1) rounds of 1/R of the bytes, each as slow as the slowest link of the ring.

    Rings that leave a host by its one card at the same time share that card. With ``by_place``, (N,) the order in which
    devices join a ring, rings go by that and not by the order of the replicas.
    """
    grid, links = layout.grid, layout.links
    hosts = layout.hosts
    if by_place is not None:
        order = np.argsort(by_place[grid], axis=1, kind="stable")
        grid, hosts = np.take_along_axis(grid, order, axis=1), np.take_along_axis(hosts, order, axis=1)
    after, host_after = np.roll(grid, -1, axis=1), np.roll(hosts, -1, axis=1)
    per_byte = 1.0 / links.bandwidth_bytes_per_s[grid, after]
    if layout.shares_cards:
        apart = hosts != host_after
        n = int(hosts.max()) + 1
        out, into = np.bincount(hosts[apart], minlength=n), np.bincount(host_after[apart], minlength=n)
        per_byte = per_byte * np.where(apart, np.maximum(out[hosts], into[host_after]), 1)
    n_replicas = grid.shape[1]
    rounds = n_replicas - 1
    latency = rounds * links.latency_s[grid, after].max(axis=1)
    each = rounds / n_replicas * per_byte.max(axis=1)
    return Average("ring", 2 * latency, each, each)


def _by_pairs(layout: Layout, how: str) -> Average:
    """Every replica sends a shard to every other one, one after the other or all at once, and its average back."""
    grid, links = layout.grid, layout.links
    n = grid.shape[1]
    a, b = grid[:, :, None], grid[:, None, :]
    per_byte = np.where(a == b, 0.0, 1.0 / links.bandwidth_bytes_per_s[a, b])
    latency = np.where(a == b, 0.0, links.latency_s[a, b])
    if how == "sharded":
        each, late = per_byte.sum(axis=2).max(axis=1) / n, latency.sum(axis=2).max(axis=1)
    else:
        each, late = per_byte.max(axis=(1, 2)) / n, latency.max(axis=(1, 2))
    if layout.shares_cards:
        hosts = layout.hosts
        apart = (hosts[:, :, None] != hosts[:, None, :]) * per_byte
        size = int(hosts.max()) + 1
        out = np.bincount(hosts.ravel(), apart.sum(axis=2).ravel(), size).max()
        into = np.bincount(hosts.ravel(), apart.sum(axis=1).ravel(), size).max()
        each = np.maximum(each, max(float(out), float(into)) / n)
    return Average(how, 2 * late, each, each)


def _hierarchical(layout: Layout, topology: Topology) -> Average | None:
    """Regions' first replicas gather, exchange shards, and send the average on; None where there is one region.

    All stages average at the same time, so that messages of several stages wait for a card that they share.
    """
    links, shared = layout.links, layout.shares_cards
    n_hosts = int(layout.hosts.max()) + 1
    gathers, exchanges = _Messages(links, n_hosts), _Messages(links, n_hosts)
    n_leaders = []
    for s, (row, hosts) in enumerate(zip(layout.grid.tolist(), layout.hosts.tolist(), strict=True)):
        members = by_key((topology.devices[d].region or f" {d}", i) for i, d in enumerate(row))
        if len(members) == 1 or len(members) == len(row):
            return None
        firsts = [one[0] for one in members.values()]
        for one in members.values():
            for i in one[1:]:
                gathers.add(s, row[i], row[one[0]], hosts[i], hosts[one[0]])
        for i in firsts:
            for j in firsts:
                if i != j:
                    exchanges.add(s, row[i], row[j], hosts[i], hosts[j])
        n_leaders.append(len(firsts))
    gather_s, gather_late_s = gathers.slowest(len(layout.grid), shared=shared)
    exchange_s, exchange_late_s = exchanges.slowest(len(layout.grid), shared=shared)
    each = gather_s + exchange_s / np.array(n_leaders)
    return Average("hierarchical", 2 * (gather_late_s + exchange_late_s), each, each)


class _Messages:
    """Messages of one byte that stages send at the same time."""

    def __init__(self, links: Links, n_hosts: int) -> None:
        self._links = links
        self._out, self._into = np.zeros(n_hosts), np.zeros(n_hosts)
        self._rows: list[tuple[int, float, float, int, int]] = []

    def add(self, stage: int, a: int, b: int, host_a: int, host_b: int) -> None:
        """A message from device ``a`` to device ``b``, on these hosts."""
        s_per_byte = float(1.0 / self._links.bandwidth_bytes_per_s[a, b])
        self._rows.append((stage, s_per_byte, float(self._links.latency_s[a, b]), host_a, host_b))
        if host_a != host_b:
            self._out[host_a] += s_per_byte
            self._into[host_b] += s_per_byte

    def slowest(self, n_stages: int, *, shared: bool) -> tuple[FloatArray, FloatArray]:
        """(S,) seconds a byte, and latency, of each stage's last message; ``shared`` where hosts have one card."""
        seconds, late = np.zeros(n_stages), np.zeros(n_stages)
        for stage, s_per_byte, latency_s, host_a, host_b in self._rows:
            if shared and host_a != host_b:  # what goes through a card goes one after the other
                s_per_byte = max(self._out[host_a], self._into[host_b])
            seconds[stage], late[stage] = max(seconds[stage], s_per_byte), max(late[stage], latency_s)
        return seconds, late
