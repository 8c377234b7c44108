"""How many micro-batches a device passes within a time, over its best neighbours: the inner loop of the bound.

The laws that each line rests on are in ``refutation``.
"""

import numpy as np

from dtfm_lab.domain.compiling import compiled
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.iteration.bounds.classes import ClassPassCosts
from dtfm_lab.planning.iteration.kernels.tables import AT_ONCE, HIERARCHICAL, NOTHING, RING, SHARDED

SURELY, SLACK = 1 + 2e-12, 2e-9
"""By which the most that is ever possible is rounded up, so that no way is left out for a rounding error."""


@compiled
def line_up(
    key_s: FloatArray, count: IntArray, near: IntArray, line: FloatArray, sums: FloatArray, at: IntArray
) -> None:
    """Line up all peers on either side by their seconds, nearest first.

    Fills (2, N + 3) seconds of each and sums of all before it, far peers in row 0 and near ones in row 1, infinite
    beyond the last; and (C,) the place of the first of each class.
    """
    line[:], sums[:] = np.inf, np.inf
    sums[:, 0] = 0.0
    n = np.zeros(2, dtype=np.int64)
    for c in np.argsort(key_s):
        row = near[c]
        at[c] = n[row]
        for _ in range(count[c]):
            line[row, n[row]] = key_s[c]
            sums[row, n[row] + 1] = sums[row, n[row]] + key_s[c]
            n[row] += 1


@compiled
def averaging_s(
    how: int,
    n_of_side: IntArray,
    a: int,
    b: int,
    near: IntArray,
    line: FloatArray,
    sums: FloatArray,
    at: IntArray,
    floor_s: float,
) -> float:
    """Least seconds from a device's last pass to the end of averaging with so many far and so many near peers.

    ``line``, ``sums`` and ``at`` are those of ``line_up``. Neighbours of classes a and b (-1: none) are no peers.
    """
    if how == NOTHING or n_of_side[0] + n_of_side[1] == 0:
        return 0.0
    if how in (RING, HIERARCHICAL):
        return floor_s
    total, worst = 0.0, 0.0
    for row in range(2):
        n = n_of_side[row]
        if n == 0:
            continue
        worst = max(worst, line[row, n - 1])
        takes_a, takes_b = False, False  # whether a neighbour stands among the nearest, and another peer in its place
        for _ in range(2):
            m = n + takes_a + takes_b
            takes_a = a >= 0 and near[a] == row and at[a] < m
            takes_b = b >= 0 and near[b] == row and at[b] + (a == b) < m
        total += sums[row, n + takes_a + takes_b]
        if takes_a:
            total -= line[row, at[a]]
        if takes_b:
            total -= line[row, at[b]]
    if worst == np.inf or total == np.inf or np.isnan(total):
        return np.inf
    if how == SHARDED:
        return total
    return worst if how == AT_ONCE else min(worst, floor_s)


@compiled
def fill_capacities(
    limit_s: float,
    n_stages: int,
    n_microbatches: float,
    how: int,
    nics: bool,
    waits: bool,
    turns: bool,
    tied_before: bool,
    role: IntArray,
    costs: ClassPassCosts,
    before_hops: IntArray,
    least_hop_s: float,
    count: IntArray,
    neighbours: IntArray,
    of_neighbour: FloatArray,
    pair_s: FloatArray,
    floor_s: FloatArray,
    tied_s: FloatArray,
    side: IntArray,
    on_side: IntArray,
    n_replicas: int,
    crossing: float,
    upper: FloatArray,
    capacity: FloatArray,
) -> None:
    """Fill (Q, I, 2, C) ``capacity``: whole micro-batches of a device of class c in a stage of kind q.

    The stage's group has ``on_side[i]`` devices on side 0 of the cut; the device's pipeline stays on its side (0) or
    crosses the cut (1).

    Parameters
    ----------
    waits, turns
        Whether a device waits for the arrival of what it sends, and whether the directions of a pair take turns.
    tied_before
        Whether the ends of a pipeline exchange their embedding before they average: they do not wait for themselves.
    before_hops, least_hop_s
        (Q,) messages on the way to the stage, -1 for one from each other stage; the least of any two devices.
    neighbours, of_neighbour
        (C, J) class of a possible neighbour, -1 for the best of all others; (C, J, 5) seconds for which a message
        occupies the link from it and to it, latency from it and to it, and whether it is on the same side.
    pair_s, floor_s, tied_s
        (Q, C, C) the messages of averaging with a peer, latency included; (2, Q, C) for ``averaging_s``, of groups on
        one side and on both; (C, 2) exchange of a tied embedding on the same side, and anywhere.
    upper
        (Q, C) micro-batches that a device cannot exceed in any case.
    """
    (
        fits,
        in_flight,
        forward_s,
        input_s,
        weight_s,
        slower_s,
        hidden_s,
        chain_s,
        before_s,
        before_back_s,
        next_s,
        rest_s,
    ) = costs
    n_kinds, n_classes = fits.shape
    line, sums = np.empty((2, count.sum() + 3)), np.empty((2, count.sum() + 4))
    at, n_of_side = np.zeros(n_classes, dtype=np.int64), np.zeros(2, dtype=np.int64)
    tail_s = np.empty(len(on_side))  # the least of averaging, whoever the neighbours are
    crossing = np.floor(crossing * SURELY + SLACK)
    for q in range(n_kinds):
        first, last = role[q] == 0 or role[q] == 3, role[q] >= 2
        hops = n_stages - 1 if before_hops[q] < 0 else before_hops[q]
        for c in range(n_classes):
            f, i_s, w = forward_s[q, c], input_s[q, c], weight_s[q, c]
            if not fits[q, c] or upper[q, c] < 1 or f + i_s + w > limit_s * (1 + SLACK):
                continue
            others = count.copy()
            others[c] -= 1
            near = (side == side[c]).astype(np.int64)
            if how != NOTHING:
                line_up(pair_s[q, c], others, near, line, sums, at)
            once = chain_s[q, c]
            for x in range(len(on_side)):
                n_of_side[1] = (on_side[x] if side[c] == 0 else n_replicas - on_side[x]) - 1
                n_of_side[0] = n_replicas - 1 - n_of_side[1]
                tail_s[x] = np.inf
                if n_of_side[1] >= 0:
                    both = 1 if n_of_side[0] > 0 else 0
                    tail_s[x] = averaging_s(how, n_of_side, -1, -1, near, line, sums, at, floor_s[both, q, c])
                    if hidden_s[q, c] > 0 and tail_s[x] < np.inf:
                        tail_s[x] = 0.0
            for j in range(neighbours.shape[1]):
                if first and j > 0:
                    break
                a = -1 if first else neighbours[c, j]
                from_a, to_a, wait_from_a, wait_to_a = of_neighbour[c, j, :4]
                if not first and (from_a == np.inf or (a >= 0 and others[a] < 1)):
                    continue
                start, up = 0.0, 0.0
                if not first:
                    start = before_s[q] + from_a + wait_from_a + (hops - 1) * least_hop_s
                    up = before_back_s[q] + to_a + wait_to_a + (hops - 1) * least_hop_s
                ahead = limit_s - start
                sent_up_s = to_a + wait_to_a if waits and not first else 0.0
                least_s = f + i_s + w + sent_up_s
                most_ever = min(n_microbatches, upper[q, c], (ahead - up + sent_up_s) / (least_s - w))
                if not first:
                    most_ever = min(most_ever, (ahead - once - up) / max(from_a, to_a) + 1)
                near_a = first or of_neighbour[c, j, 4] > 0
                betters = False  # whether any neighbour b could, beside this a
                for x in range(len(on_side)):
                    if tail_s[x] <= limit_s:
                        most = np.floor(min(most_ever, (ahead - tail_s[x]) / least_s) * SURELY + SLACK)
                        if capacity[q, x, 1, c] < min(most, crossing) or (near_a and capacity[q, x, 0, c] < most):
                            betters = True
                if not betters:
                    continue
                for i in range(neighbours.shape[1]):
                    if last and i > 0:
                        break
                    b = -1 if last else neighbours[c, i]
                    from_b, to_b, wait_from_b, wait_to_b = of_neighbour[c, i, :4]
                    if not last and (from_b == np.inf or (b >= 0 and others[b] < 1 + (a == b))):
                        continue
                    trip, idle = 0.0, 0.0
                    sent_down_s = to_b + wait_to_b if waits and not last else 0.0
                    own_s = least_s + sent_down_s
                    if not last:
                        trip = to_b + wait_to_b + from_b + wait_from_b
                        trip += max(next_s, rest_s[q] + 2 * (n_stages - 2) * least_hop_s if first else 0.0)
                        if in_flight[q, c] > 0:
                            idle = max(0.0, trip - (in_flight[q, c] - 1) * f - in_flight[q, c] * sent_down_s)
                    most_ever = min(n_microbatches, upper[q, c])
                    most_ever = min(most_ever, (ahead - up - idle + sent_up_s) / (own_s - w))
                    if not last:
                        free = ahead - once - up - next_s - wait_from_b - wait_to_b
                        most_ever = min(most_ever, (free - from_b) / to_b, (free - to_b) / from_b)
                    if not first:
                        most_ever = min(most_ever, (ahead - once - up) / max(from_a, to_a) + 1)
                    stays = near_a and (last or of_neighbour[c, i, 4] > 0)
                    for x in range(len(on_side)):
                        if tail_s[x] > limit_s:
                            continue
                        most = np.floor(min(most_ever, (ahead - tail_s[x] - idle) / own_s) * SURELY + SLACK)
                        if capacity[q, x, 1, c] >= min(most, crossing) and (not stays or capacity[q, x, 0, c] >= most):
                            continue
                        n_near = (on_side[x] if side[c] == 0 else n_replicas - on_side[x]) - 1
                        n_of_side[0], n_of_side[1] = n_replicas - 1 - n_near, n_near
                        both = 1 if n_of_side[0] > 0 else 0
                        tail = averaging_s(how, n_of_side, a, b, near, line, sums, at, floor_s[both, q, c])
                        each_s = own_s + both * slower_s[q, c]
                        if hidden_s[q, c] > 0:
                            tail = max(tail - hidden_s[q, c] - both * slower_s[q, c] - sent_up_s, 0.0)
                        if tail > limit_s:
                            continue
                        for crosses in range(0 if stays else 1, 2):
                            end = tail
                            if role[q] == 0 or role[q] == 2:
                                end = max(end, tied_s[c, crosses]) if tied_before else end + tied_s[c, crosses]
                            after = max(end + w, up)
                            window = limit_s - start - once
                            most = min(n_microbatches, upper[q, c])
                            if crosses == 1:
                                most = min(most, crossing)
                            if not last:
                                free = window - after - next_s - wait_from_b - wait_to_b
                                most = min(most, (free - from_b) / to_b, (free - to_b) / from_b)
                                if in_flight[q, c] > 0:
                                    most = min(most, in_flight[q, c] * (limit_s - start - end) / (f + i_s + w + trip))
                                if turns and waits:
                                    both_s = to_b + wait_to_b + from_b + wait_from_b
                                    most = min(most, (window - after) / both_s)
                            if not first:
                                most = min(most, (window - after) / from_a + 1, (window - up) / to_a + 1)
                            if nics and not first and not last:
                                window = limit_s - start + from_a
                                most = min(most, window / (from_a + from_b), window / (to_a + to_b))
                            most = min(most, (limit_s - start - end - idle) / each_s)
                            most = min(most, (limit_s - start - up - idle + sent_up_s) / (own_s - w))
                            whole = np.floor(most * (1 + 1e-12) + 1e-9)  # no more than SURELY and SLACK allow
                            if whole >= 1 and whole > capacity[q, x, crosses, c]:
                                capacity[q, x, crosses, c] = whole


@compiled
def together(best: FloatArray, count: IntArray, side: IntArray, on_side: IntArray, n_replicas: int) -> FloatArray:
    """(Q, I) micro-batches that the best devices of both sides pass together, of (Q, I, C) ``best`` ones of a device;
    -inf where a side has too few devices that pass any. Other arguments as for ``fill_capacities``."""
    total = np.zeros(best.shape[:2])
    for q in range(best.shape[0]):
        for x in range(best.shape[1]):
            here, there = on_side[x], n_replicas - on_side[x]
            for c in np.argsort(-best[q, x]):
                each = best[q, x, c]
                if each <= 0 or here + there == 0:
                    break
                taken = min(count[c], here if side[c] == 0 else there)
                if side[c] == 0:
                    here -= taken
                else:
                    there -= taken
                total[q, x] += taken * each
            if here + there > 0:
                total[q, x] = -np.inf
    return total
