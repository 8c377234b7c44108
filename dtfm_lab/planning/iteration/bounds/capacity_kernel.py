"""How many micro-batches a device passes within a time, over its best neighbours: the inner loop of the bound.

The laws that each line rests on are in ``capacities``.
"""

import numpy as np

from dtfm_lab.domain.compiling import compiled
from dtfm_lab.domain.units import FloatArray, IntArray

IN_TURN, AT_ONCE, CENTRAL, RING, REGIONS, NOTHING = range(6)


@compiled
def averaging_s(
    how: int,
    n_near: int,
    n_far: int,
    a: int,
    b: int,
    near: IntArray,
    count: IntArray,
    once_s: FloatArray,
    there_and_back_s: FloatArray,
    order: IntArray,
    order_back: IntArray,
    floor_s: float,
) -> float:
    """Least seconds from a device's last pass to the end of averaging with so many near and so many far peers.

    (C,) seconds of messages to a device of each class; ``order`` sorts them, ``order_back`` the sums of both ways.
    Neighbours of classes a and b (-1: none) are no peers.
    """
    if how == NOTHING or n_near + n_far == 0:
        return 0.0
    if how in (RING, REGIONS):
        return floor_s
    left = np.array([n_far, n_near])
    total, worst = 0.0, 0.0
    ranked = order_back if how == AT_ONCE else order
    for j in range(len(ranked)):
        c = ranked[j]
        room = count[c] - (c == a) - (c == b)
        taken = min(room, left[near[c]])
        if taken > 0:
            left[near[c]] -= taken
            total += taken * once_s[c]
            worst = max(worst, there_and_back_s[c] if how == AT_ONCE else once_s[c])
        if left[0] + left[1] == 0:
            break
    if left[0] + left[1] > 0:
        return np.inf
    if how == IN_TURN:
        return 2 * total
    return worst if how == AT_ONCE else min(worst, floor_s)


@compiled
def fill_capacities(
    limit_s: float,
    n_stages: int,
    n_microbatches: float,
    how: int,
    cards: bool,
    role: IntArray,
    fits: FloatArray,
    in_flight: FloatArray,
    forward_s: FloatArray,
    input_s: FloatArray,
    weight_s: FloatArray,
    chain_s: FloatArray,
    before_s: FloatArray,
    before_back_s: FloatArray,
    before_hops: IntArray,
    next_s: float,
    least_hop_s: float,
    rest_s: FloatArray,
    count: IntArray,
    neighbours: IntArray,
    of_neighbour: FloatArray,
    once_s: FloatArray,
    floor_s: FloatArray,
    tied_s: FloatArray,
    side: IntArray,
    on_side: IntArray,
    n_replicas: int,
    crossing: float,
    capacity: FloatArray,
) -> None:
    """Fill (Q, I, 2, C) ``capacity``: whole micro-batches of a device of class c in a stage of kind q.

    The stage's group has ``on_side[i]`` devices on side 0 of the cut; the device's pipeline stays on its side (0) or
    crosses the cut (1).

    Parameters
    ----------
    fits, in_flight
        (Q, C) whether a stage fits; most micro-batches that it holds at once, 0 where unknown.
    forward_s, input_s, weight_s, chain_s
        (Q, C) of a micro-batch: forward, backward to the inputs, backward to the weights; the least pair of forward
        and backward to the inputs that makes or uses up a message.
    before_s, before_back_s, before_hops
        (Q,) on the way to the stage and back.
    next_s, least_hop_s
        The least forward and backward of a next stage; the least message between any two devices.
    rest_s
        (Q,) the least forward and backward of all other stages.
    neighbours, of_neighbour
        (C, J) class of a possible neighbour, -1 for the best of all others; (C, J, 5) seconds for which a message
        occupies the link from it and to it, latency from it and to it, and whether it is on the same side.
    once_s, floor_s, tied_s
        (Q, C, C) a message of averaging, latency included; (Q, C) for ``averaging_s``; (C, 2) exchange of a tied
        embedding on the same side, and anywhere.
    """
    n_kinds, n_classes = fits.shape
    for q in range(n_kinds):
        first, last = role[q] == 0 or role[q] == 3, role[q] >= 2
        hops = n_stages - 1 if before_hops[q] < 0 else before_hops[q]
        for c in range(n_classes):
            if not fits[q, c]:
                continue
            others = count.copy()
            others[c] -= 1
            near = (side == side[c]).astype(np.int64)
            back_s = once_s[q, c] + once_s[q, :, c]
            order, order_back = np.argsort(once_s[q, c]), np.argsort(back_s)
            f, i_s, w = forward_s[q, c], input_s[q, c], weight_s[q, c]
            for x in range(len(on_side)):
                n_near = (on_side[x] if side[c] == 0 else n_replicas - on_side[x]) - 1
                if n_near < 0:
                    continue
                n_far = n_replicas - 1 - n_near
                for j in range(neighbours.shape[1]):
                    if first and j > 0:
                        break
                    a = -1 if first else neighbours[c, j]
                    if not first and of_neighbour[c, j, 0] == np.inf:
                        continue
                    for i in range(neighbours.shape[1]):
                        if last and i > 0:
                            break
                        b = -1 if last else neighbours[c, i]
                        if not last and of_neighbour[c, i, 0] == np.inf:
                            continue
                        if a >= 0 and (others[a] < 1 or (a == b and others[a] < 2)):
                            continue
                        if b >= 0 and others[b] < 1:
                            continue
                        tail = averaging_s(
                            how,
                            n_near,
                            n_far,
                            a,
                            b,
                            near,
                            others,
                            once_s[q, c],
                            back_s,
                            order,
                            order_back,
                            floor_s[q, c],
                        )
                        if tail > limit_s:
                            continue
                        stays = (first or of_neighbour[c, j, 4] > 0) and (last or of_neighbour[c, i, 4] > 0)
                        for crosses in range(2):
                            if crosses == 0 and not stays:
                                continue
                            end = tail
                            if role[q] == 0 or role[q] == 2:
                                end += tied_s[c, crosses]
                            start, up = 0.0, 0.0
                            if not first:
                                start = before_s[q] + of_neighbour[c, j, 0] + of_neighbour[c, j, 2]
                                up = before_back_s[q] + of_neighbour[c, j, 1] + of_neighbour[c, j, 3]
                                start += (hops - 1) * least_hop_s
                                up += (hops - 1) * least_hop_s
                            after = max(end + w, up)
                            idle = 0.0
                            most = n_microbatches
                            once = chain_s[q, c]
                            if not last:
                                there = of_neighbour[c, i, 1] + of_neighbour[c, i, 3]
                                back = of_neighbour[c, i, 0] + of_neighbour[c, i, 2]
                                trip = there + back + next_s
                                if first:
                                    trip = max(trip, there + back + rest_s[q] + 2 * (n_stages - 2) * least_hop_s)
                                window = limit_s - start - once - after
                                free = window - next_s - of_neighbour[c, i, 2] - of_neighbour[c, i, 3]
                                most = min(most, (free - of_neighbour[c, i, 0]) / of_neighbour[c, i, 1])
                                most = min(most, (free - of_neighbour[c, i, 1]) / of_neighbour[c, i, 0])
                                if in_flight[q, c] > 0:
                                    round_trip = f + i_s + w + trip
                                    most = min(most, in_flight[q, c] * (limit_s - start - end) / round_trip)
                                    idle = max(0.0, trip - (in_flight[q, c] - 1) * f)
                            if not first:
                                window = limit_s - start - once
                                most = min(most, (window - after) / of_neighbour[c, j, 0] + 1)
                                most = min(most, (window - up) / of_neighbour[c, j, 1] + 1)
                            if cards and not first and not last:
                                window = limit_s - start + of_neighbour[c, j, 0]
                                most = min(most, window / (of_neighbour[c, j, 0] + of_neighbour[c, i, 0]))
                                most = min(most, window / (of_neighbour[c, j, 1] + of_neighbour[c, i, 1]))
                            most = min(most, (limit_s - start - end - idle) / (f + i_s + w))
                            most = min(most, (limit_s - start - up - idle) / (f + i_s))
                            if crosses == 1:
                                most = min(most, crossing)
                            whole = np.floor(most * (1 + 1e-12) + 1e-9)
                            if whole >= 1 and whole > capacity[q, x, crosses, c]:
                                capacity[q, x, crosses, c] = whole
