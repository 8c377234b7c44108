"""Compute which devices are eligible under a budget, compiled. ``segment_feasibility`` defines and proves it."""

import numpy as np

from dtfm_lab.domain.compiling import compiled
from dtfm_lab.domain.units import BoolArray, FloatArray, IntArray


@compiled
def clear_unaffordable(
    group_s: FloatArray, nearest: IntArray, budget_s: float, n_replicas: int, eligible: BoolArray, allowed: BoolArray
) -> None:
    """Clear (N,) ``eligible`` devices and (N, N) ``allowed`` pairs that cannot be in any group within the budget.

    A pair can only share a group if D - 2 other devices are allowed with both. Repeats until nothing changes.

    Parameters
    ----------
    nearest
        (N, N - 1) all other devices, cheapest partner first.
    """
    n = len(group_s)
    changed = True
    # A cleared device cannot be a partner for others, so the loop continues until nothing changes.
    while changed:
        changed = False
        for i in range(n):
            if not eligible[i]:
                continue
            count, pays_s = 1, 0.0
            # Nearest first, so the sum is the least that its group can cost it.
            for j in nearest[i]:
                if count == n_replicas:
                    break
                if eligible[j] and allowed[i, j]:
                    count += 1
                    pays_s += group_s[i, j]
            if count < n_replicas or pays_s > budget_s:
                eligible[i] = False
                changed = True
        for i in range(n):
            if not eligible[i]:
                continue
            for j in nearest[i]:
                if not eligible[j] or not allowed[i, j]:
                    continue
                count, pays_s = 2, group_s[i, j]
                for k in nearest[i]:
                    if count >= n_replicas:
                        break
                    # The third device must be able to join both.
                    if k != j and eligible[k] and allowed[i, k] and allowed[j, k]:
                        count += 1
                        pays_s += group_s[i, k]
                if count < n_replicas or pays_s > budget_s:
                    allowed[i, j] = allowed[j, i] = False
                    changed = True


@compiled
def clear_ineligible(
    group_s: FloatArray,
    nearest: IntArray,
    hop_s: FloatArray,
    below_s: float,
    length: int,
    budget_s: float,
    n_replicas: int,
    allowed: BoolArray,
    eligible: BoolArray,
) -> None:
    """Clear ``eligible`` devices that cannot be in ``length`` consecutive stages with all hops below ``below_s``.

    Each member of a group there has its own path of ``length`` devices within ``length - 1`` hops, and these paths are
    disjoint. So a device and its partners, nearest first, can be at most as many as fit into the union of their
    neighbourhoods, at ``length`` devices each.
    """
    # Sets of devices as bits, because unions over words are cheap.
    n = len(group_s)
    n_words = (n + 63) // 64
    around = np.zeros((n, n_words), dtype=np.uint64)
    wider = np.zeros((n, n_words), dtype=np.uint64)
    union = np.zeros(n_words, dtype=np.uint64)
    changed = True
    while changed:
        changed = False
        around[:] = 0
        for i in range(n):
            if eligible[i]:
                around[i, i >> 6] = np.uint64(1) << np.uint64(i & 63)
        # After k rounds, everything that a path of k hops reaches.
        for _ in range(length - 1):
            grew = False
            for i in range(n):
                if not eligible[i]:
                    continue
                wider[i] = around[i]
                for j in range(n):
                    if eligible[j] and j != i and hop_s[i, j] < below_s:
                        for w in range(n_words):
                            wider[i, w] |= around[j, w]
                for w in range(n_words):
                    grew |= wider[i, w] != around[i, w]
            around, wider = wider, around
            if not grew:
                break
        for i in range(n):
            if not eligible[i]:
                continue
            size = 0
            for w in range(n_words):
                union[w] = around[i, w]
                size += _ones(union[w])
            count, pays_s = 1, 0.0
            for j in nearest[i]:
                if count == n_replicas or size < length:
                    break
                if not eligible[j] or not allowed[i, j]:
                    continue
                if size < length * n_replicas:
                    size = 0
                    for w in range(n_words):
                        union[w] |= around[j, w]
                        size += _ones(union[w])
                # Each replica's segment needs its own devices, so what all reach together must be enough.
                if (count + 1) * length <= size:
                    count += 1
                    pays_s += group_s[i, j]
            if size < length or count < n_replicas or pays_s > budget_s:
                eligible[i] = False
                changed = True


@compiled
def _ones(word: np.uint64) -> int:
    """Return the number of bits set, counted in parallel: pairs, nibbles, bytes, then their sum."""
    word -= (word >> np.uint64(1)) & np.uint64(0x5555555555555555)
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return int((word * np.uint64(0x0101010101010101)) >> np.uint64(56))
