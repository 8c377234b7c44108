"""What both annealers keep of one placement, so that a move need not look at all of it again."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dtfm_lab.domain.compiling import compiled
from dtfm_lab.domain.units import FloatArray, IntArray


class Board(NamedTuple):
    """A row of all N devices on S stages of D replicas, position stage x D + replica, the bench behind."""

    n_stages: int
    n_replicas: int
    group_s: FloatArray
    """(N, N) pair costs in a group"""
    hop_s: FloatArray
    """(N, N) pair costs over a hop"""
    classes: IntArray
    """(N,) swapping two devices of one class changes nothing"""
    near: IntArray
    """(N, K) for each device, others that are placed like it: swapping the two is a small change"""
    row: IntArray
    """(N,) device at each position"""
    place: IntArray
    """(N,) position of each device"""
    sums_s: FloatArray
    """(S, D) what each placed device pays its partners"""
    slowest_s: FloatArray
    """(S,) the largest of them in each group"""
    links_s: FloatArray
    """(S - 1, D) each pipeline's link over each hop"""
    worst_s: FloatArray
    """(S - 1,) the worst link of each hop"""
    reals: FloatArray
    """(D + 4, D) scratch"""
    wholes: IntArray
    """(4, D) scratch"""


def board(
    group_s: FloatArray,
    hop_s: FloatArray,
    classes: IntArray,
    near: IntArray,
    n_stages: int,
    n_replicas: int,
    row: IntArray,
) -> Board:
    """Room for a placement; ``settle_groups`` and ``settle_links`` fill it."""
    s, d = n_stages, n_replicas
    hops = max(s - 1, 1)
    return Board(
        s,
        d,
        group_s,
        hop_s,
        classes,
        near,
        row.copy(),
        np.argsort(row),
        np.zeros((s, d)),
        np.zeros(s),
        np.zeros((hops, d)),
        np.zeros(hops),
        np.zeros((d + 4, d)),
        np.zeros((4, d), dtype=np.int64),
    )


@compiled
def swap(board: Board, p: int, q: int) -> None:
    """The devices at positions p and q change places; sums and links are the caller's."""
    a, b = board.row[p], board.row[q]
    board.row[p], board.row[q] = b, a
    board.place[a], board.place[b] = q, p


@compiled
def settle_places(board: Board) -> None:
    """Places anew, from the row."""
    for p in range(len(board.row)):
        board.place[board.row[p]] = p


@compiled
def settle_groups(board: Board) -> None:
    """Sums and slowest members anew, from the row."""
    d = board.n_replicas
    for s in range(board.n_stages):
        board.slowest_s[s] = 0.0
        for i in range(d):
            device, total_s = board.row[s * d + i], 0.0
            for j in range(d):
                if j != i:
                    total_s += board.group_s[device, board.row[s * d + j]]
            board.sums_s[s, i] = total_s
            board.slowest_s[s] = max(board.slowest_s[s], total_s)


@compiled
def settle_links(board: Board) -> None:
    """Links and worst links anew, as the columns of the row pair."""
    d = board.n_replicas
    for s in range(board.n_stages - 1):
        board.worst_s[s] = 0.0
        for i in range(d):
            cost_s = board.hop_s[board.row[s * d + i], board.row[(s + 1) * d + i]]
            board.links_s[s, i] = cost_s
            board.worst_s[s] = max(board.worst_s[s], cost_s)


@compiled
def exchange(board: Board, s: int, i: int, t: int, j: int) -> None:
    """Fill scratch with the groups' sums if the devices at (s, i) and (t, j) changed places.

    ``reals[D + 2]`` and ``reals[D + 3]`` become the sums of groups s and t, ``t == S`` being the bench.
    """
    d = board.n_replicas
    a, b = board.row[s * d + i], board.row[t * d + j]
    _arrive(board, s, i, a, b, d + 2)
    if t < board.n_stages:
        _arrive(board, t, j, b, a, d + 3)


@compiled
def _arrive(board: Board, s: int, i: int, gone: int, new: int, at: int) -> None:
    d = board.n_replicas
    total_s = 0.0
    for q in range(d):
        if q != i:
            partner = board.row[s * d + q]
            cost_s = board.group_s[new, partner]
            board.reals[at, q] = board.sums_s[s, q] - board.group_s[gone, partner] + cost_s
            total_s += cost_s
    board.reals[at, i] = total_s


@compiled
def slowest_but(board: Board, s: int, t: int) -> float:
    """The slowest of all groups other than s and t."""
    found_s = 0.0
    for g in range(board.n_stages):
        if g != s and g != t and board.slowest_s[g] > found_s:
            found_s = board.slowest_s[g]
    return found_s


@compiled
def keep(board: Board, s: int, at: int, slowest_s: float) -> None:
    """Take the sums in scratch row ``at`` for group s."""
    board.sums_s[s] = board.reals[at]
    board.slowest_s[s] = slowest_s
