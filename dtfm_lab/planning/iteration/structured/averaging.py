"""Seconds in which the replicas of each stage of a layout average their gradients, in closed form."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dtfm_lab.domain.network import Topology
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
    """Regions' first replicas gather, exchange shards, and send the average on; None where there is one region."""
    links, rows = layout.links, []
    for row, hosts in zip(layout.grid.tolist(), layout.hosts.tolist(), strict=True):
        members = by_key((topology.devices[d].region or f" {d}", i) for i, d in enumerate(row))
        if len(members) == 1 or len(members) == len(row):
            return None
        leaders = [row[one[0]] for one in members.values()]
        gather = gather_late = 0.0
        for one in members.values():
            inner = one[1:]
            if not inner:
                continue
            here = row[one[0]]
            each = np.array([1.0 / links.bandwidth_bytes_per_s[row[i], here] for i in inner])
            if layout.shares_cards:  # what comes from other hosts comes in by one card, one after the other
                far = np.array([hosts[i] != hosts[one[0]] for i in inner])
                gather = max(gather, float((each * far).sum()), float((each * ~far).max(initial=0.0)))
            else:
                gather = max(gather, float(each.max()))
            gather_late = max(gather_late, max(float(links.latency_s[row[i], here]) for i in inner))
        apart = np.array(leaders)
        between = np.where(apart[:, None] == apart, 0.0, 1.0 / links.bandwidth_bytes_per_s[np.ix_(apart, apart)])
        summed = between.sum(axis=1).max() if layout.shares_cards else between.max()
        late = float(links.latency_s[np.ix_(apart, apart)].max())
        rows.append((2 * gather_late + 2 * late, gather + summed / len(apart), gather + summed / len(apart)))
    return Average("hierarchical", *np.array(rows).T)
