"""Seconds of one pipeline's passes: exactly, by a recurrence (``play``), or estimated in closed form (``estimate``).

If every directed pair has its own link, no two pipelines share a link and messages of one link keep their order. The
simulator's event loop then reduces to a recurrence over micro-batches and stages. 1F1B, GPipe and all orders between
them differ only in the warm-ups w of each stage: w forwards, then a forward and a backward alternately, then the
remaining backwards. A pipeline of M micro-batches has at most M - 1 warm-ups.
"""

import numpy as np

from dtfm_lab.domain.compiling import compiled
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.iteration.kernels.tables import BEGIN, CODING, END, KIND, LATENCY, NEXT, SPEED, Tables


@compiled
def pass_seconds(tables: Tables, stage: FloatArray, s: int, device: int) -> tuple[float, float]:
    """Return a device's seconds of the forward and of the backward of one micro-batch in stage s. They include encoding
    and decoding messages, and gathering them inside a group of GPUs."""
    begin, end, kind = int(stage[BEGIN, s]), int(stage[END, s]), int(tables.device[KIND, device])
    speed, coding_s = tables.device[SPEED, device], stage[CODING, s]
    forward_s = tables.forward_s[kind, end] - tables.forward_s[kind, begin]
    backward_s = tables.backward_s[kind, end] - tables.backward_s[kind, begin]
    first, last = s == 0, s == stage.shape[1] - 1
    if first:
        forward_s += tables.ends_s[0, 0, kind]
        backward_s += tables.ends_s[0, 1, kind]
    if last:
        forward_s += tables.ends_s[1, 0, kind]
        backward_s += tables.ends_s[1, 1, kind]
    onward_s = 0.0 if first else tables.receive_s[kind, begin]
    back_s = 0.0 if last else tables.receive_s[kind, end]
    return forward_s / speed + onward_s + coding_s, backward_s / speed + back_s + coding_s


@compiled
def play(
    tables: Tables, grid: IntArray, r: int, stage: FloatArray, m: int, warmups: IntArray, ready: FloatArray
) -> float:
    """Fill ``ready``, (S,), with the seconds at which each stage of pipeline r ends its last backward.

    ``stage`` is ``SearchState.stage``, ``m`` the number of micro-batches. ``warmups`` (S,) never rise along the
    pipeline. Returns the time from which the link from the second stage to the first is free again.
    """
    n = grid.shape[0]
    warmup = np.empty(n, np.int64)
    forward_s, backward_s = np.empty(n), np.empty(n)
    down_s, up_s, down_late_s, up_late_s = np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n)
    for s in range(n):
        d = grid[s, r]
        warmup[s] = min(warmups[s], m - 1)
        forward_s[s], backward_s[s] = pass_seconds(tables, stage, s, d)
        if s < n - 1:
            e, hop = grid[s + 1, r], int(stage[NEXT, s])
            down_s[s], down_late_s[s] = tables.link[hop, d, e], tables.link[LATENCY, d, e]
            up_s[s + 1], up_late_s[s + 1] = tables.link[hop, e, d], tables.link[LATENCY, e, d]
    down_free_s, up_free_s, came_s = np.zeros(n), np.zeros(n), np.zeros(n)
    width = warmup[0] + 1  # number of micro-batches that may be on their way back
    back_s = np.zeros((n, width))
    for s in range(n):
        ready[s] = 0.0
    for turn in range(m + warmup[0]):
        if turn < m:
            for s in range(n):
                t = max(ready[s], came_s[s]) + forward_s[s]
                ready[s] = t
                if s < n - 1:
                    down_free_s[s] = max(t, down_free_s[s]) + down_s[s]
                    came_s[s + 1] = down_free_s[s] + down_late_s[s]
        for s in range(n - 1, -1, -1):
            # a stage with w warm-ups runs its j-th backward after its forward of turn j + w
            j = turn - warmup[s]
            if 0 <= j < m:
                t = ready[s]
                if s < n - 1:
                    t = max(t, back_s[s, j % width])
                t += backward_s[s]
                ready[s] = t
                if s:
                    up_free_s[s] = max(t, up_free_s[s]) + up_s[s]
                    back_s[s - 1, j % width] = up_free_s[s] + up_late_s[s]
    return up_free_s[1] if n > 1 else 0.0


@compiled
def estimate(
    tables: Tables,
    grid: IntArray,
    r: int,
    stage: FloatArray,
    m: int,
    warmups: IntArray,
    ready: FloatArray,
    scratch: FloatArray,
) -> tuple[float, float, int]:
    """Estimate the result of ``play`` in O(S^2) steps. It takes the maximum of the first micro-batch's path there and
    back, and of the slowest cycle of the event graph.

    A cycle goes down from stage s to t and back. Each turn of it completes warmups[s] - warmups[t] + 1 micro-batches.
    Returns the seconds of the pipeline, the seconds of each further micro-batch, and the stage at which the slowest
    cycle begins. ``ready`` is filled as by ``play``. ``scratch`` is (9, S).
    """
    n = grid.shape[0]
    work_s, backward_s, hops_s, busy_s, up_s = scratch[0], scratch[1], scratch[2], scratch[3], scratch[4]
    link, nics = tables.link, tables.nics
    whole_s = 0.0
    for s in range(n):
        d = grid[s, r]
        f, b = pass_seconds(tables, stage, s, d)
        work_s[s], backward_s[s] = f + b, b
        whole_s += f + b
        if s < n - 1:
            e, hop = grid[s + 1, r], int(stage[NEXT, s])
            there_s, back_s = link[hop, d, e], link[hop, e, d]
            up_s[s] = back_s + link[LATENCY, e, d]
            hops_s[s] = there_s + link[LATENCY, d, e] + up_s[s]
            # with one NIC per device both directions add up, otherwise the slower link decides
            busy_s[s] = there_s + back_s if nics else max(there_s, back_s)
            if nics and s > 0:
                busy_s[s] = max(busy_s[s], there_s + up_s[s - 1], back_s + hops_s[s - 1] - up_s[s - 1])
            whole_s += hops_s[s]
    # a stage's first forwards, and its last backwards, follow each other through the slowest stage or link above it
    fill_s, drain_s, first_s, last_s = scratch[5], scratch[6], scratch[7], scratch[8]
    filling_s, draining_s, loop_s = 0.0, 0.0, 0.0
    for s in range(n):
        if s:
            d, e, hop = grid[s - 1, r], grid[s, r], int(stage[NEXT, s - 1])
            filling_s, draining_s = max(filling_s, link[hop, d, e]), max(draining_s, link[hop, e, d])
            loop_s += hops_s[s - 1]
        filling_s, draining_s = max(filling_s, work_s[s] - backward_s[s]), max(draining_s, backward_s[s])
        loop_s += work_s[s]
        w = min(warmups[s], m - 1)
        fill_s[s], drain_s[s] = w * filling_s, w * draining_s
        first_s[s], last_s[s] = loop_s + fill_s[s], loop_s + drain_s[s]
    worst_s, each_s, at = whole_s, 0.0, 0
    for s in range(n - 2, -1, -1):
        first_s[s], last_s[s] = max(first_s[s], first_s[s + 1]), max(last_s[s], last_s[s + 1])
        linked_s = (m - 1) * busy_s[s] + max(first_s[s + 1], last_s[s + 1])
        if linked_s > worst_s:
            worst_s, each_s, at = linked_s, busy_s[s], s
    above_s = 0.0
    for s in range(n):
        deep = min(warmups[s], m - 1)
        loop_s, slowest_s = 0.0, 0.0
        returned_s = first_s[s] + last_s[s] - above_s
        for t in range(s, n):
            loop_s += work_s[t]
            slowest_s = max(slowest_s, work_s[t])
            shallow = min(warmups[t], m - 1)
            gain = deep - shallow + 1
            turns = (m - 1 - shallow) // gain
            left = m - 1 - shallow - turns * gain
            turned_s = fill_s[t] + turns * loop_s + left * (slowest_s if turns else work_s[t]) + last_s[t]
            if turned_s > worst_s:
                worst_s, each_s, at = turned_s, loop_s / gain, s
            if m - 1 > deep:
                turns = (m - 2 - deep) // gain
                left = m - 2 - deep - turns * gain
                turned_s = returned_s + turns * loop_s + left * (slowest_s if turns else work_s[s])
                if turned_s > worst_s:
                    worst_s, each_s, at = turned_s, loop_s / gain, s
            loop_s += hops_s[t] if t < n - 1 else 0.0
        above_s += work_s[s] + (hops_s[s] if s < n - 1 else 0.0)
    # whatever the slowest loop is, a micro-batch takes as long as the slowest stage
    for s in range(n):
        each_s = max(each_s, work_s[s])
    end_s = worst_s
    for s in range(n):
        ready[s] = end_s
        end_s -= backward_s[s] + (up_s[s] if s < n - 1 else 0.0)
    return worst_s, each_s, at
