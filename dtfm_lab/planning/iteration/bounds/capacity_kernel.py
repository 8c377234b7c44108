"""The inner loop of the bound: how many micro-batches one device can process within a time limit, at best.

The inequalities come from the module ``refutation``. A device's *neighbours* are the devices of the stages before and
after it in its pipeline. Every pair of classes is tried: one for the neighbour before (``Above``), one for the
neighbour after (``Below``). Taking the best link on each side separately would be simpler. But both links may lead to
the same device, so the bound would be looser.

Three checks skip combinations that cannot raise the number found so far:

- Even the shortest averaging ends too late.
- With this neighbour before the device, no neighbour after it could raise the number.
- With these two neighbours, no group of replicas could raise the number.
"""

from typing import NamedTuple

import numpy as np

from dtfm_lab.costs.seconds import AT_ONCE, HIERARCHICAL, NOTHING, RING, SHARDED
from dtfm_lab.domain.compiling import compiled, inlined
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.iteration.bounds.classes import ClassPassCosts

SURELY = 1 + 2e-12
"""Factor on an upper limit of micro-batches, before it is rounded down. It keeps rounding errors from ruling out a
possible plan. It is thousands of times the rounding error of a double, and below any difference that a plan could
show."""
SLACK = 2e-9
"""Micro-batches added to an upper limit after ``SURELY``, in case the limit is just below a whole number. Twice
``COUNTED_SLACK``."""
COUNTED = 1 + 1e-12
"""Factor on a capacity before it is rounded down, against rounding errors. It adds half of what ``SURELY`` adds, so no
capacity exceeds its upper limits."""
COUNTED_SLACK = 1e-9
"""Micro-batches added to a capacity after ``COUNTED``. A device that lacks only a billionth of a micro-batch counts as
processing it."""


class Rules(NamedTuple):
    """Settings of ``fill_capacities`` that hold for all devices."""

    limit_s: float
    """Seconds within which the iteration has to end."""
    n_stages: int
    n_replicas: int
    n_microbatches: float
    """Maximum number of micro-batches of a pipeline."""
    nics: bool
    """True if all messages of a device share one network interface."""
    waits: bool
    """True if a device computes nothing until each message that it sends has arrived."""
    turns: bool
    """True if only one of the two directions between two devices carries a message at a time."""
    least_hop_s: float
    """Seconds of a message between stages over the network's best link, including its latency."""


class Stages(NamedTuple):
    """Properties of the Q kinds of stages."""

    role: IntArray
    """(Q,) 0 first, 1 middle, 2 last, 3 sole."""
    before_hops: IntArray
    """(Q,) minimum number of messages on the way from the first stage to this one. -1 stands for S - 1, for the last of
    S stages."""
    costs: ClassPassCosts


class BestLinks(NamedTuple):
    """The possible pipeline neighbours of a device of each class, and the links to them."""

    neighbours: IntArray
    """(C, J) classes that are tried as a neighbour. -1 stands for all other classes on one side of the cut together,
    with the best links of any of them."""
    seconds: FloatArray
    """(C, J, 5) numbers for each neighbour. The first two are the seconds for which a message occupies the link from
    the neighbour, and the link to it. The latencies of these two links follow. The last number is 1 if the neighbour is
    on the same side of the cut, else 0."""


class BestAveraging(NamedTuple):
    """Minimum seconds of what follows the passes: averaging and the exchange of a tied embedding."""

    how: int
    pair_s: FloatArray
    """(Q, C, C) seconds of averaging messages with a peer, including latency."""
    floor_s: FloatArray
    """(2, Q, C) minimum seconds of averaging, whatever the peers. The first index is 0 for a group on one side of the
    cut, 1 for a group on both."""
    tied_s: FloatArray
    """(C, 2) seconds to exchange a tied embedding with a device on the same side of the cut, and with any device."""
    tied_before: bool
    """True if the ends of a pipeline exchange their embedding before they average. The bound then counts only the
    longer of the two."""


class Cut(NamedTuple):
    """A cut of the network into two sides, 0 and 1. Without a cut, everything is on side 0."""

    side: IntArray
    """(C,) side of each class."""
    on_side: IntArray
    """(I,) numbers of devices on side 0 that a group of replicas is tried with."""
    crossing: float
    """Maximum number of micro-batches of a pipeline that crosses the cut."""


class StagePasses(NamedTuple):
    """What a micro-batch costs a device of one class in a stage of one kind, and the device's limits.

    ``first`` and ``last`` are True if the stage is the first or the last of its pipeline. Other fields without a
    docstring are as in ``ClassPassCosts``.
    """

    first: bool
    last: bool
    f: float
    """Seconds of a forward."""
    i: float
    """Seconds of a backward to the inputs."""
    w: float
    """Seconds of a backward to the weights."""
    most: float
    """Maximum number of micro-batches, whatever the neighbours."""
    in_flight: float
    slower_s: float
    hidden_s: float
    chain_s: float
    next_s: float
    rest_s: float


class Above(NamedTuple):
    """The neighbour before a device, and the path between the first stage and the device.

    ``from_s`` and ``to_s`` are the seconds for which a message occupies the link from the neighbour and to it. ``near``
    is True if the neighbour is on the device's side of the cut.
    """

    from_s: float
    to_s: float
    start: float
    """Minimum seconds before the device's first forward can begin."""
    up: float
    """Minimum seconds from the device's last backward to the end of the first stage's last backward."""
    sent_s: float
    """Seconds for which the device waits for each message to this neighbour; 0 if it need not wait."""
    near: bool


class Below(NamedTuple):
    """The neighbour after a device: the links to and from it, and the round trip over them.

    ``wait_from_s`` and ``wait_to_s`` are the latencies of the links from and to this neighbour. Other fields without a
    docstring are as in ``Above``.
    """

    from_s: float
    to_s: float
    wait_from_s: float
    wait_to_s: float
    trip_s: float
    """Minimum seconds from the end of a forward to the beginning of its backward."""
    idle_s: float
    """Minimum seconds for which the device is idle during its first round trip, because its memory holds too few
    micro-batches to fill the wait with other forwards. 0 if it holds enough."""
    sent_s: float
    near: bool


@compiled
def line_up(
    key_s: FloatArray, count: IntArray, near: IntArray, line: FloatArray, sums: FloatArray, at: IntArray
) -> None:
    """Sort a device's possible averaging peers on each side of the cut, the nearest first.

    ``key_s`` (C,) are the seconds of averaging messages with a peer of each class. ``near`` (C,) is 1 for classes on
    the device's side of the cut, else 0. Row 0 of the results is for peers on the other side of the cut, row 1 for
    peers on the same side. Fills three arrays:

    - ``line``, (2, N + 3): the seconds of each peer; infinite beyond the last
    - ``sums``, (2, N + 4): the sum of the seconds of all peers before each position
    - ``at``, (C,): the position of the first peer of each class
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
    """Return the minimum seconds from a device's last pass to the end of averaging.

    For a ring and for hierarchical averaging this is ``floor_s``. Otherwise it is infinite if there are too few peers.

    ``n_of_side`` has two numbers of peers: on the other side of the cut, and on the same side. ``a`` and ``b`` are the
    classes of the device's pipeline neighbours (-1 for none). Neighbours cannot be peers, so they are left out.
    ``line``, ``sums`` and ``at`` come from ``line_up``.
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
        takes_a, takes_b = False, False  # True if a neighbour is among the nearest, so another peer replaces it
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
    rules: Rules,
    stages: Stages,
    links: BestLinks,
    averaging: BestAveraging,
    cut: Cut,
    count: IntArray,
    upper: FloatArray,
    capacity: FloatArray,
) -> None:
    """Fill ``capacity``, (Q, I, 2, C): the maximum whole number of micro-batches that a device of class c can process
    in a stage of kind q.

    At index i of I, the stage's group has ``on_side[i]`` devices on side 0 of the cut. The third index is 0 if the
    device's pipeline stays on one side, 1 if it crosses the cut. ``count`` (C,) is the number of devices of each class,
    and ``upper`` (Q, C) an upper limit of a device's micro-batches.

    Only this function reads arrays. The helpers below take numbers, because passing an array counts a reference to it,
    which made these loops four times slower.
    """
    fits, in_flight, forward_s, input_s, weight_s, slower_s, hidden_s, chain_s = stages.costs[:8]
    before_s, before_back_s, next_s, rest_s = stages.costs[8:]
    role, before_hops, how = stages.role, stages.before_hops, averaging.how
    neighbours, seconds, side, on_side = links.neighbours, links.seconds, cut.side, cut.on_side
    pair_s, floor_s, tied_s = averaging.pair_s, averaging.floor_s, averaging.tied_s
    limit_s, n_replicas = rules.limit_s, rules.n_replicas
    n_kinds, n_classes = fits.shape
    line, sums = np.empty((2, count.sum() + 3)), np.empty((2, count.sum() + 4))
    at, n_of_side = np.zeros(n_classes, dtype=np.int64), np.zeros(2, dtype=np.int64)
    tail_s = np.empty(len(on_side))  # minimum averaging with any neighbours
    crossing = np.floor(cut.crossing * SURELY + SLACK)
    for q in range(n_kinds):
        first, last = role[q] == 0 or role[q] == 3, role[q] >= 2
        hops = rules.n_stages - 1 if before_hops[q] < 0 else before_hops[q]
        for c in range(n_classes):
            f, i_s, w = forward_s[q, c], input_s[q, c], weight_s[q, c]
            if not fits[q, c] or upper[q, c] < 1 or f + i_s + w > limit_s * (1 + SLACK):
                continue
            own = StagePasses(
                first, last, f, i_s, w, min(rules.n_microbatches, upper[q, c]), in_flight[q, c], slower_s[q, c],
                hidden_s[q, c], chain_s[q, c], next_s, rest_s[q],
            )  # fmt: skip
            others = count.copy()
            others[c] -= 1  # no device is its own peer
            near = (side == side[c]).astype(np.int64)
            if how != NOTHING:
                line_up(pair_s[q, c], others, near, line, sums, at)
            for x in range(len(on_side)):
                n_of_side[1] = (on_side[x] if side[c] == 0 else n_replicas - on_side[x]) - 1
                n_of_side[0] = n_replicas - 1 - n_of_side[1]
                tail_s[x] = np.inf
                if n_of_side[1] >= 0:
                    both = 1 if n_of_side[0] > 0 else 0
                    tail_s[x] = averaging_s(how, n_of_side, -1, -1, near, line, sums, at, floor_s[both, q, c])
                    # how much of it hides in the passes depends on the neighbours, so at this point it may be all
                    if own.hidden_s > 0 and tail_s[x] < np.inf:
                        tail_s[x] = 0.0
            for j in range(1 if first else neighbours.shape[1]):
                a = -1 if first else neighbours[c, j]
                from_a, to_a = seconds[c, j, 0], seconds[c, j, 1]
                wait_from_a, wait_to_a = seconds[c, j, 2], seconds[c, j, 3]
                if not first and (from_a == np.inf or (a >= 0 and others[a] < 1)):
                    continue
                above = Above(0.0, 0.0, 0.0, 0.0, 0.0, True)
                if not first:
                    start = before_s[q] + from_a + wait_from_a + (hops - 1) * rules.least_hop_s
                    up = before_back_s[q] + to_a + wait_to_a + (hops - 1) * rules.least_hop_s
                    sent_s = to_a + wait_to_a if rules.waits else 0.0
                    above = Above(from_a, to_a, start, up, sent_s, seconds[c, j, 4] > 0)
                # first pruning: could any neighbour after the device raise a capacity, with this one before it?
                most_ever, each_s = _most_above(own, above, limit_s)
                betters = False
                for x in range(len(on_side)):
                    if tail_s[x] <= limit_s:
                        most = np.floor(min(most_ever, (limit_s - above.start - tail_s[x]) / each_s) * SURELY + SLACK)
                        if capacity[q, x, 1, c] < min(most, crossing) or (above.near and capacity[q, x, 0, c] < most):
                            betters = True
                if not betters:
                    continue
                for k in range(1 if last else neighbours.shape[1]):
                    b = -1 if last else neighbours[c, k]
                    from_b = seconds[c, k, 0]
                    if not last and (from_b == np.inf or (b >= 0 and others[b] < 1 + (a == b))):
                        continue
                    below = _below(
                        rules, own, from_b, seconds[c, k, 1], seconds[c, k, 2], seconds[c, k, 3], seconds[c, k, 4] > 0
                    )
                    most_ever, own_s = _most_between(own, above, below, limit_s)
                    stays = above.near and below.near
                    for x in range(len(on_side)):
                        if tail_s[x] > limit_s:
                            continue
                        # second pruning: could these two neighbours raise it, with any peers?
                        left_s = limit_s - above.start - tail_s[x] - below.idle_s
                        most = np.floor(min(most_ever, left_s / own_s) * SURELY + SLACK)
                        if capacity[q, x, 1, c] >= min(most, crossing) and (not stays or capacity[q, x, 0, c] >= most):
                            continue
                        n_of_side[1] = (on_side[x] if side[c] == 0 else n_replicas - on_side[x]) - 1
                        n_of_side[0] = n_replicas - 1 - n_of_side[1]
                        both = 1 if n_of_side[0] > 0 else 0
                        tail = averaging_s(how, n_of_side, a, b, near, line, sums, at, floor_s[both, q, c])
                        each_s = own_s + both * own.slower_s
                        if own.hidden_s > 0:
                            tail = max(tail - own.hidden_s - both * own.slower_s - above.sent_s, 0.0)
                        if tail > limit_s:
                            continue
                        for crosses in range(0 if stays else 1, 2):
                            end = tail
                            if first != last:  # the two ends of a pipeline share the embedding
                                tied = tied_s[c, crosses]
                                end = max(end, tied) if averaging.tied_before else end + tied
                            most = min(own.most, crossing) if crosses == 1 else own.most
                            whole = _whole(rules, own, above, below, most, end, own_s, each_s)
                            if whole >= 1 and whole > capacity[q, x, crosses, c]:
                                capacity[q, x, crosses, c] = whole


@inlined
def _most_above(own: StagePasses, above: Above, limit_s: float) -> tuple[float, float]:
    """Return the maximum number of micro-batches, and the seconds that each takes the device.

    The neighbour before the device is given. The one after it may be any.
    """
    left_s = limit_s - above.start
    each_s = own.f + own.i + own.w + above.sent_s
    most = min(own.most, (left_s - above.up + above.sent_s) / (each_s - own.w))
    if not own.first:
        most = min(most, (left_s - own.chain_s - above.up) / max(above.from_s, above.to_s) + 1)
    return most, each_s


@inlined
def _below(
    rules: Rules, own: StagePasses, from_s: float, to_s: float, wait_from_s: float, wait_to_s: float, near: bool
) -> Below:
    """Return the neighbour after a device, given the seconds of the links between them. A last stage has no such
    neighbour: nothing is waited for, and it counts as near."""
    trip, idle, sent_s = 0.0, 0.0, 0.0
    if not own.last:
        sent_s = to_s + wait_to_s if rules.waits else 0.0
        trip = to_s + wait_to_s + from_s + wait_from_s
        trip += max(own.next_s, own.rest_s + 2 * (rules.n_stages - 2) * rules.least_hop_s if own.first else 0.0)
        if own.in_flight > 0:
            idle = max(0.0, trip - (own.in_flight - 1) * own.f - own.in_flight * sent_s)
    return Below(from_s, to_s, wait_from_s, wait_to_s, trip, idle, sent_s, own.last or near)


@inlined
def _most_between(own: StagePasses, above: Above, below: Below, limit_s: float) -> tuple[float, float]:
    """Return the maximum number of micro-batches with these two neighbours, and the seconds that each takes the device.
    Averaging counts as 0 s."""
    left_s = limit_s - above.start
    each_s = own.f + own.i + own.w + above.sent_s + below.sent_s
    most = min(own.most, (left_s - above.up - below.idle_s + above.sent_s) / (each_s - own.w))
    if not own.last:
        free = left_s - own.chain_s - above.up - own.next_s - below.wait_from_s - below.wait_to_s
        most = min(most, (free - below.from_s) / below.to_s, (free - below.to_s) / below.from_s)
    if not own.first:
        most = min(most, (left_s - own.chain_s - above.up) / max(above.from_s, above.to_s) + 1)
    return most, each_s


@inlined
def _whole(
    rules: Rules, own: StagePasses, above: Above, below: Below, most: float, end: float, own_s: float, each_s: float
) -> float:
    """Return the maximum whole number of micro-batches that a device can process with these two neighbours, at most
    ``most``.

    ``end`` are the seconds after the last pass. ``own_s`` are the seconds that each micro-batch takes the device.
    ``each_s`` is the same, plus ``slower_s`` if the group is on both sides of the cut.
    """
    limit_s = rules.limit_s
    after, window = max(end + own.w, above.up), limit_s - above.start - own.chain_s
    if not own.last:
        free = window - after - own.next_s - below.wait_from_s - below.wait_to_s
        most = min(most, (free - below.from_s) / below.to_s, (free - below.to_s) / below.from_s)
        if own.in_flight > 0:  # the round trips have to fit between the first forward and the last backward
            trip_s = own.f + own.i + own.w + below.trip_s
            most = min(most, own.in_flight * (limit_s - above.start - end) / trip_s)
        if rules.turns and rules.waits:
            both_s = below.to_s + below.wait_to_s + below.from_s + below.wait_from_s
            most = min(most, (window - after) / both_s)
    if not own.first:
        most = min(most, (window - after) / above.from_s + 1, (window - above.up) / above.to_s + 1)
    if rules.nics and not own.first and not own.last:  # one interface for the messages of both neighbours
        window = limit_s - above.start + above.from_s
        most = min(most, window / (above.from_s + below.from_s), window / (above.to_s + below.to_s))
    most = min(most, (limit_s - above.start - end - below.idle_s) / each_s)
    most = min(most, (limit_s - above.start - above.up - below.idle_s + above.sent_s) / (own_s - own.w))
    return float(np.floor(most * COUNTED + COUNTED_SLACK))  # no more than SURELY and SLACK allow


@compiled
def together(best: FloatArray, count: IntArray, side: IntArray, on_side: IntArray, n_replicas: int) -> FloatArray:
    """Return (Q, I) the maximum micro-batches that the replicas of a stage process together.

    At index i of I, ``on_side[i]`` of the stage's devices are on side 0 of the cut and the others on side 1. ``best``
    is (Q, I, C), the micro-batches of one device of each class. The result is -inf if a side has too few devices that
    can process any. Other arguments are as for ``fill_capacities``.
    """
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
