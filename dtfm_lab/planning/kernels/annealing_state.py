"""The state of both annealers: one placement and its sums, so that a move need not recompute all of them."""

from typing import NamedTuple

import numpy as np

from dtfm_lab.domain.compiling import compiled
from dtfm_lab.domain.units import FloatArray, IntArray

SIMILAR_SHARE = 0.3
"""Share of swaps with one of the devices that are most similar in the network."""


class AnnealingState(NamedTuple):
    """A row of all N devices on S stages of D replicas, at position stage x D + replica, then the idle ones."""

    n_stages: int
    n_replicas: int
    group_s: FloatArray
    """(N, N) pair costs in a group."""
    hop_s: FloatArray
    """(N, N) pair costs over a hop."""
    classes: IntArray
    """(N,) class of each device; swapping two devices of one class changes nothing."""
    similar: IntArray
    """(N, K) most similar other devices of each: swapping two of these changes the cost little."""
    row: IntArray
    """(N,) device at each position."""
    place: IntArray
    """(N,) position of each device."""
    sums_s: FloatArray
    """(S, D) sum of each placed device's costs to its partners."""
    slowest_s: FloatArray
    """(S,) largest of these sums in each group."""
    links_s: FloatArray
    """(S - 1, D) cost of each pipeline's link over each hop."""
    worst_s: FloatArray
    """(S - 1,) largest link cost of each hop."""
    reals: FloatArray
    """(D + 4, D) scratch."""
    integers: IntArray
    """(4, D) scratch."""


def annealing_state(
    group_s: FloatArray, hop_s: FloatArray, classes: IntArray, similar: IntArray, n_stages: int, n_replicas: int
) -> AnnealingState:
    """The devices in the order of their numbers; the caller sets ``row``, the ``recompute`` functions the rest."""
    s, d, n_hops = n_stages, n_replicas, max(n_stages - 1, 1)
    row = np.arange(len(hop_s))
    sums = np.zeros((s, d)), np.zeros(s), np.zeros((n_hops, d)), np.zeros(n_hops)
    scratch = np.zeros((d + 4, d)), np.zeros((4, d), dtype=np.int64)
    return AnnealingState(s, d, group_s, hop_s, classes, similar, row, row.copy(), *sums, *scratch)


@compiled
def swap(state: AnnealingState, p: int, q: int) -> None:
    """Exchange the devices at positions p and q; the caller updates sums and links."""
    a, b = state.row[p], state.row[q]
    state.row[p], state.row[q] = b, a
    state.place[a], state.place[b] = q, p


@compiled
def recompute_places(state: AnnealingState) -> None:
    """Recompute the positions from the row."""
    for p in range(len(state.row)):
        state.place[state.row[p]] = p


@compiled
def recompute_groups(state: AnnealingState) -> None:
    """Recompute sums and slowest members from the row."""
    d = state.n_replicas
    for s in range(state.n_stages):
        state.slowest_s[s] = 0.0
        for i in range(d):
            device, total_s = state.row[s * d + i], 0.0
            for j in range(d):
                if j != i:
                    total_s += state.group_s[device, state.row[s * d + j]]
            state.sums_s[s, i] = total_s
            state.slowest_s[s] = max(state.slowest_s[s], total_s)


@compiled
def recompute_links(state: AnnealingState) -> None:
    """Recompute links and worst links from the row, whose columns are pipelines."""
    d = state.n_replicas
    for s in range(state.n_stages - 1):
        state.worst_s[s] = 0.0
        for i in range(d):
            cost_s = state.hop_s[state.row[s * d + i], state.row[(s + 1) * d + i]]
            state.links_s[s, i] = cost_s
            state.worst_s[s] = max(state.worst_s[s], cost_s)


@compiled
def exchanged_sums(state: AnnealingState, s: int, i: int, t: int, j: int) -> None:
    """Fill scratch with the groups' sums as if the devices at (s, i) and (t, j) were exchanged.

    ``reals[D + 2]`` and ``reals[D + 3]`` become the sums of groups s and t; ``t == S`` is the idle devices.
    """
    d = state.n_replicas
    a, b = state.row[s * d + i], state.row[t * d + j]
    _sums_after(state, s, i, a, b, d + 2)
    if t < state.n_stages:
        _sums_after(state, t, j, b, a, d + 3)


@compiled
def _sums_after(state: AnnealingState, s: int, i: int, gone: int, new: int, at: int) -> None:
    d = state.n_replicas
    total_s = 0.0
    for q in range(d):
        if q != i:
            partner = state.row[s * d + q]
            cost_s = state.group_s[new, partner]
            state.reals[at, q] = state.sums_s[s, q] - state.group_s[gone, partner] + cost_s
            total_s += cost_s
    state.reals[at, i] = total_s


@compiled
def slowest_except(state: AnnealingState, s: int, t: int) -> float:
    """Cost of the slowest of all groups other than s and t."""
    found_s = 0.0
    for g in range(state.n_stages):
        if g != s and g != t and state.slowest_s[g] > found_s:
            found_s = state.slowest_s[g]
    return found_s


@compiled
def set_sums(state: AnnealingState, s: int, at: int, slowest_s: float) -> None:
    """Set the sums of group s to those in scratch row ``at``."""
    state.sums_s[s] = state.reals[at]
    state.slowest_s[s] = slowest_s
