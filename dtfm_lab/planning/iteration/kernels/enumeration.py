"""Minimum seconds of an iteration on a given grid of devices, over all cuts, micro-batch counts and orders of passes.

A device of stage s processes n micro-batches. F, I and W are the seconds of a forward, of a backward to the inputs and
of a backward to the weights. In any order of passes:

- ``start``: its first forward follows the first forwards of the stages before it, and their messages.
- ``tail``: its last backward is followed by the averaging that waits for it, replayed on the group's own links.
- ``back``: its last I is followed by messages, backwards and the averaging of the stages before it.
- ``trip``: between the F and the I of a micro-batch lies the way to the last stage and back. Memory limits how many
  micro-batches may be on this way at once. It also limits how many forwards precede the first I.
- A link carries n messages one after another, between the passes that make the first and use the last.

All of these are linear in n. So the maximum number of micro-batches that a pipeline processes in T seconds is the
minimum of a few quotients. T is refuted if the pipelines together process fewer than the batch has. Without a cut of
the model, a stage costs as much as the cheapest blocks that it may have. A cut is tried stage by stage, and given up as
soon as T is refuted.

The first part of this module computes the minimum costs of stages on a grid: passes, memory, links and averaging.
"""

from typing import NamedTuple

import numpy as np

from dtfm_lab.domain.compiling import compiled
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.iteration.kernels.averaging import average
from dtfm_lab.planning.iteration.kernels.tables import HOP, LATENCY, Tables, moving_s

FLOP, PARAMETERS, HELD, FROZEN, AGAIN = range(5)
"""Rows of ``Least.layer``."""
DOWN, DOWN_LATE, UP, UP_LATE = range(4)
"""Rows of ``Grid.links``: seconds for which a message occupies the link to the next stage (DOWN) or back (UP), and the
latencies."""


class Least(NamedTuple):
    """Minimum costs of plans of one micro-batch size, checkpointing and shape. L blocks, N devices."""

    speed: FloatArray
    """(N,) FLOP/s of each device."""
    memory: FloatArray
    """(N,) bytes that a job may use on each device."""
    layer: FloatArray
    """(5, L + 1) prefix sums over blocks: FLOP of a micro-batch's forward, parameters, bytes of activations, bytes of
    frozen weights, FLOP that a backward repeats."""
    window: FloatArray
    """(3, 5, L + 1) sums of the five rows of ``layer`` over 0 to L consecutive blocks: the first ones, the cheapest
    ones and the last ones."""
    extra: FloatArray
    """(2, 5) the five numbers of ``layer`` for the embedding and for the head."""
    least_blocks: IntArray
    most_blocks: IntArray
    """(S,) maximum blocks of each stage. ``least_blocks``, (S,), are the minimum."""
    most_held: FloatArray
    """(S,) maximum micro-batches that a stage holds at once under the schedule; infinite without such a limit."""
    input_bytes: FloatArray
    """(2,) bytes of one micro-batch's input to the first stage and to any other. With recomputation, stages keep only
    this. Infinite without recomputation."""
    backward: float
    """FLOP of a backward divided by FLOP of a forward, without the forward that the backward repeats."""
    weight: float
    """FLOP of a separate backward to the weights divided by FLOP of a forward; 0 if backwards are whole."""
    weight_after: float
    """Share of the backward to the weights that surely follows the last backward to the inputs: 0 or 1."""
    averages: bool
    """True if the bound counts the averaging: it follows the passes, in a way that the kernels know."""
    most_microbatches: float
    """Maximum number of micro-batches of a pipeline."""


class Grid(NamedTuple):
    """A grid of devices and its costs from ``fill_costs``, or K grids with one more dimension in front."""

    devices: IntArray
    """(S, R) devices; (K, S * R), flattened, for several grids."""
    links: FloatArray
    """(4, S, R) rows DOWN, DOWN_LATE, UP and UP_LATE."""
    least_s: FloatArray
    """(2, S, R) minimum seconds of a forward and of a backward to the inputs."""
    tail_s: FloatArray
    """(S, R, L + 1) minimum seconds from the end of a stage's passes to the end of the iteration, by its number of
    blocks."""


class DevicePasses(NamedTuple):
    """What one micro-batch costs a device of a stage."""

    forward_s: float
    input_s: float
    """Seconds of a backward to the inputs."""
    weight_s: float
    """Seconds of a backward to the weights."""
    places: float
    """Maximum number of micro-batches that the device holds at once; 0 if the stage does not fit."""


class WayThrough(NamedTuple):
    """Seconds that the rest of a pipeline takes before, between and after one device's passes."""

    start_s: float
    """Time before the device's first forward."""
    trip_s: float
    """Time between the forward and the backward to the inputs of one micro-batch; 0 for the last stage."""
    tail_s: float
    """Time after the device's last backward."""
    back_s: float
    """Time after the device's last backward to the inputs."""
    down_s: float
    up_s: float
    """Time for which a message occupies the link from the next stage. ``down_s`` is for the link to it."""


@compiled
def stage_least(least: Least, s: int, n: int, k: int, at: int) -> tuple[float, float, float, float, float]:
    """Return FLOP of a forward, FLOP that a backward repeats, parameters, bytes of activations and bytes of frozen
    weights of stage s of n.

    The stage has k blocks from ``at`` on. If ``at`` is negative, return minima over any k consecutive blocks.
    """
    role = 0 if s == 0 else (2 if s == n - 1 else 1)
    found = np.empty(5)
    for i in range(5):
        found[i] = least.window[role, i, k] if at < 0 else least.layer[i, at + k] - least.layer[i, at]
        if s == 0:
            found[i] += least.extra[0, i]
        if s == n - 1:
            found[i] += least.extra[1, i]
    return found[FLOP], found[AGAIN], found[PARAMETERS], found[HELD], found[FROZEN]


@compiled
def seconds_of(
    tables: Tables, least: Least, flop: float, again: float, device: int, n_messages: int
) -> tuple[float, float, float]:
    """Return a device's seconds of a forward, a backward to the inputs and a backward to the weights of one
    micro-batch. The first two include coding ``n_messages`` messages."""
    # the smallest message that any boundary sends, because the bound must hold for every cut
    speed, coding_s = least.speed[device], tables.passes.coding_s[tables.passes.least] * n_messages
    forward_s = flop / speed
    return (
        forward_s + coding_s,
        (least.backward - least.weight) * forward_s + again / speed + coding_s,
        least.weight * forward_s,
    )


@compiled
def places_of(tables: Tables, least: Least, s: int, n: int, static: float, held: float, device: int) -> float:
    """Return the number of micro-batches that a device of stage s can hold at once, in addition to its static bytes; 0
    if the stage does not fit."""
    inputs = least.input_bytes[0 if s == 0 else 1]
    free = least.memory[device] - static
    if free < held + tables.passes.hop_bytes[tables.passes.least] * ((s > 0) + (s < n - 1)):
        return 0.0
    return float(min(max(np.floor(free / max(min(inputs, held), 1.0)), 1.0), least.most_held[s]))


@compiled
def fill_costs(tables: Tables, least: Least, grids: Grid) -> None:
    """Fill the costs of K flattened grids. Their arrays must hold zeros."""
    for k in range(len(grids.devices)):
        link, once_s, after_s = grids.links[k], grids.least_s[k], grids.tail_s[k]
        grid = grids.devices[k].reshape(link.shape[1:])
        n, n_replicas = grid.shape
        tied_s = np.zeros((n, n_replicas))
        every = tables.synchronise_every
        hop = HOP + tables.passes.hop[tables.passes.least]
        behind = every == 1 and not tables.splits_states  # with split states the exchange comes before averaging
        for r in range(n_replicas):
            for s in range(n):
                flop, again, _, _, _ = stage_least(least, s, n, least.least_blocks[s], -1)
                f, i, _ = seconds_of(tables, least, flop, again, grid[s, r], (s > 0) + (s < n - 1))
                once_s[0, s, r], once_s[1, s, r] = f, i
                if s < n - 1:
                    d, e = grid[s, r], grid[s + 1, r]
                    link[DOWN, s, r], link[UP, s, r] = tables.link[hop, d, e], tables.link[hop, e, d]
                    link[DOWN_LATE, s, r] = tables.link[LATENCY, d, e]
                    link[UP_LATE, s, r] = tables.link[LATENCY, e, d]
            if n > 1 and tables.tied_parameters > 0.0:
                n_bytes = tables.tied_parameters * tables.gradient.plain
                d, e = grid[0, r], grid[n - 1, r]
                tied_s[0, r] = moving_s(tables, d, e, n_bytes) + tables.link[LATENCY, d, e]
                tied_s[n - 1, r] = moving_s(tables, e, d, n_bytes) + tables.link[LATENCY, e, d]
        done, last_s = np.zeros(n_replicas), np.zeros(n_replicas)
        for s in range(n):
            for n_blocks in range(least.least_blocks[s], least.most_blocks[s] + 1):
                _, _, parameters, _, _ = stage_least(least, s, n, n_blocks, -1)
                together_s = 0.0
                for r in range(-1 if least.averages else n_replicas, n_replicas):
                    # The end of averaging is the maximum over replicas of when each is done plus its own tail.
                    # So a replica that is done only after all others would have averaged decides alone.
                    done[:] = 0.0
                    if r >= 0:
                        done[r] = together_s
                    average(tables, grid[s], parameters, done, last_s)
                    end_s = 0.0
                    for j in range(n_replicas):
                        end_s = max(end_s, done[j] + max(last_s[j], tied_s[s, j] if behind else 0.0))
                    if r < 0:
                        together_s = end_s
                    else:
                        after_s[s, r, n_blocks] = (end_s - together_s) / every
                for r in range(n_replicas):
                    after_s[s, r, n_blocks] = max(after_s[s, r, n_blocks], tied_s[s, r])


START, BACK, CAPACITY = range(3)
"""Rows of the array ``way`` in ``least_of_cuts``: limits that the stages before a stage set for it.

- START: minimum seconds before the stage's first forward
- BACK: minimum seconds after the stage's last backward to the inputs
- CAPACITY: maximum micro-batches of the pipeline
"""


@compiled
def fill_bounds(tables: Tables, least: Least, grids: Grid, low_s: float, high_s: float, found_s: FloatArray) -> None:
    """Fill ``found_s``, (K,): seconds that no plan on each of K grids beats, whatever its cut.

    They are at least ``low_s``, a bound known for all of them. They are infinite where no plan takes less than
    ``high_s``.
    """
    links = grids.links
    most = np.empty(links.shape[2], np.int64)
    for i in range(len(links)):
        devices = grids.devices[i].reshape(links.shape[2:])
        grid = Grid(devices, links[i], grids.least_s[i], grids.tail_s[i])
        if not _fits_blocks(tables, least, grid, high_s, most):
            found_s[i] = np.inf
            continue
        low, high = low_s, high_s
        # a coarse width is enough: the grids with the lowest bounds are tried again with every cut
        while high - low > 1e-3 * low:
            # the upper end may be infinite, so doubling narrows it down first
            middle = 0.5 * (low + high) if high < 4 * low else 2 * low
            if _fits_blocks(tables, least, grid, middle, most):
                high = middle
            else:
                low = middle
        found_s[i] = low


@compiled
def least_of_cuts(tables: Tables, least: Least, grid: Grid, high_s: float, most_nodes: int) -> tuple[float, bool]:
    """Return the lowest bound in seconds over the cuts of the model on an (S, R) grid, at most ``high_s``, and True if
    all cuts were tried.

    The search ends after ``most_nodes`` nodes. A node gives one more stage its blocks.
    """
    n, n_replicas = grid.devices.shape
    n_blocks = least.window.shape[2] - 1
    most = np.empty(n, np.int64)
    if not _fits_blocks(tables, least, grid, high_s, most):
        return high_s, True
    later_least, later_most = np.zeros(n, np.int64), np.zeros(n, np.int64)
    for s in range(n - 2, -1, -1):
        later_least[s] = later_least[s + 1] + least.least_blocks[s + 1]
        later_most[s] = later_most[s + 1] + most[s + 1]
    at, blocks = np.zeros(n + 1, np.int64), np.zeros(n, np.int64)
    way = np.zeros((3, n + 1, n_replicas))
    way[CAPACITY, 0] = least.most_microbatches
    blocks[0] = least.least_blocks[0] - 1
    s, nodes = 0, 0
    while s >= 0:
        # at least the blocks that the later stages cannot hold
        blocks[s] = max(blocks[s] + 1, n_blocks - at[s] - later_most[s])
        if blocks[s] > most[s] or at[s] + blocks[s] + later_least[s] > n_blocks:
            s -= 1
            continue
        nodes += 1
        if nodes > most_nodes:
            return high_s, False
        at[s + 1] = at[s] + blocks[s]
        if not _goes_on(tables, least, grid, high_s, s, at, way):
            continue
        if s < n - 1:
            s += 1
            blocks[s] = least.least_blocks[s] - 1
            continue
        low, high = 0.0, high_s
        if _cut_possible(tables, least, grid, at, way, high):
            while high - low > 1e-11 * high:
                middle = 0.5 * (low + high)
                if _cut_possible(tables, least, grid, at, way, middle):
                    high = middle
                else:
                    low = middle
            # the shorter limit refutes the cuts that follow sooner
            high_s = low
    return high_s, True


@compiled
def _passes_of(
    tables: Tables, least: Least, s: int, n: int, stage: tuple[float, float, float, float, float], device: int
) -> DevicePasses:
    """Return what one micro-batch costs a device of stage s of n. ``stage`` comes from ``stage_least``."""
    # Not a part of _most, which is too large to be inlined: passing tables to it makes bounds twice as slow.
    flop, again, parameters, held, frozen = stage
    static = parameters * tables.static_bytes + frozen
    f, i, w = seconds_of(tables, least, flop, again, device, (s > 0) + (s < n - 1))
    return DevicePasses(f, i, w, places_of(tables, least, s, n, static, held, device))


@compiled
def _most(limit_s: float, most: float, passes: DevicePasses, weight_after: float, way: WayThrough) -> float:
    """Return the maximum number of micro-batches that a device processes within ``limit_s``, at most ``most``.
    ``weight_after`` is as in ``Least``."""
    f, i, w, places = passes
    start_s, trip_s, tail_s, back_s, down_s, up_s = way
    if places < 1.0:
        return 0.0
    free = limit_s - start_s
    n = min(most, (free - tail_s) / (f + i + w), (free - back_s) / (f + i))
    if trip_s > 0.0:
        waited = free - f - trip_s
        n = min(n, (waited - tail_s) / (i + w), (waited - back_s) / i)
        if places < most:
            n = min(n, (waited + places * f - tail_s) / (f + i + w), (waited + places * f - back_s) / (f + i))
            n = min(n, places * (free - max(tail_s, back_s)) / (f + i + trip_s))
        over = waited - i - max(weight_after * w + tail_s, back_s)
        if down_s > 0.0:
            n = min(n, (over + down_s) / down_s)
        if up_s > 0.0:
            n = min(n, (over + up_s) / up_s)
    # rounded up, because rounding must not refute a plan that is possible
    return float(np.floor(n * (1 + 1e-11) + 1e-11))


@compiled
def _fits_blocks(tables: Tables, least: Least, grid: Grid, limit_s: float, most: IntArray) -> bool:
    """Fill ``most``, (S,), with the maximum blocks of each stage within ``limit_s``. Return True if they hold the whole
    model.

    If a stage cannot have even its minimum of blocks, return False and leave the rest of ``most`` as it is.
    """
    n, n_replicas = grid.devices.shape
    links, least_s, tail_s = grid.links, grid.least_s, grid.tail_s
    n_blocks, total = least.window.shape[2] - 1, 0
    start_s, back_s, trip_s = np.zeros((n, n_replicas)), np.zeros((n, n_replicas)), np.zeros((n, n_replicas))
    for r in range(n_replicas):
        for s in range(1, n):
            f, i = least_s[0, s - 1, r], least_s[1, s - 1, r]
            start_s[s, r] = start_s[s - 1, r] + f + links[DOWN, s - 1, r] + links[DOWN_LATE, s - 1, r]
            after = max(tail_s[s - 1, r, least.least_blocks[s - 1]], back_s[s - 1, r])
            back_s[s, r] = links[UP, s - 1, r] + links[UP_LATE, s - 1, r] + i + after
            t = n - 1 - s
            trip_s[t, r] = links[:, t, r].sum() + least_s[0, t + 1, r] + least_s[1, t + 1, r] + trip_s[t + 1, r]
    for s in range(n):
        low, high = least.least_blocks[s] - 1, least.most_blocks[s]
        while low < high:
            k = (low + high + 1) // 2
            stage, passed = stage_least(least, s, n, k, -1), 0.0
            for r in range(n_replicas):
                passes = _passes_of(tables, least, s, n, stage, grid.devices[s, r])
                around = start_s[s, r], trip_s[s, r], tail_s[s, r, k], back_s[s, r]
                way = WayThrough(*around, links[DOWN, s, r], links[UP, s, r])
                passed += _most(limit_s, least.most_microbatches, passes, least.weight_after, way)
            if passed >= tables.passes.n_microbatches:
                low = k
            else:
                high = k - 1
        if low < least.least_blocks[s]:
            return False
        most[s] = low
        total += low
    return bool(total >= n_blocks)


@compiled
def _goes_on(tables: Tables, least: Least, grid: Grid, limit_s: float, s: int, at: IntArray, way: FloatArray) -> bool:
    """Return False if stage s cannot process all micro-batches within ``limit_s``, given the stages before it.

    ``at`` has the first block of each stage up to s + 1. Fills ``way`` for stage s + 1.
    """
    n, n_replicas = grid.devices.shape
    links, least_s, tail_s = grid.links, grid.least_s, grid.tail_s
    n_blocks = least.window.shape[2] - 1
    k = at[s + 1] - at[s]
    stage = stage_least(least, s, n, k, at[s])
    rest_flop = least.layer[FLOP, n_blocks] - least.layer[FLOP, at[s + 1]] + least.extra[1, FLOP]
    total = 0.0
    for r in range(n_replicas):
        passes = _passes_of(tables, least, s, n, stage, grid.devices[s, r])
        trip_s, passes_s, fastest = 0.0, 0.0, 0.0
        for t in range(s, n - 1):
            trip_s += links[:, t, r].sum()
            passes_s += least_s[0, t + 1, r] + least_s[1, t + 1, r]
            fastest = max(fastest, least.speed[grid.devices[t + 1, r]])
        if s < n - 1:
            # however they are cut, the rest of the blocks take at least as long as on the fastest device that follows
            trip_s += max(passes_s, (1.0 + least.backward - least.weight) * rest_flop / fastest)
        start_s, back_s, tail = way[START, s, r], way[BACK, s, r], tail_s[s, r, k]
        through = WayThrough(start_s, trip_s, tail, back_s, links[DOWN, s, r], links[UP, s, r])
        passed = _most(limit_s, way[CAPACITY, s, r], passes, least.weight_after, through)
        if passed < 1:
            return False
        total += passed
        way[CAPACITY, s + 1, r] = passed
        way[START, s + 1, r] = start_s + passes.forward_s + links[DOWN, s, r] + links[DOWN_LATE, s, r]
        after_s = max(least.weight_after * passes.weight_s + tail, back_s)
        way[BACK, s + 1, r] = links[UP, s, r] + links[UP_LATE, s, r] + passes.input_s + after_s
    return bool(total >= tables.passes.n_microbatches)


@compiled
def _cut_possible(tables: Tables, least: Least, grid: Grid, at: IntArray, way: FloatArray, limit_s: float) -> bool:
    """Return False if the stages of a complete cut cannot process all micro-batches within ``limit_s``. Its ``way``
    must be filled."""
    n, n_replicas = grid.devices.shape
    links, tail_s = grid.links, grid.tail_s
    total = 0.0
    for r in range(n_replicas):
        most, trip_s = least.most_microbatches, 0.0
        for s in range(n - 1, -1, -1):
            k = at[s + 1] - at[s]
            passes = _passes_of(tables, least, s, n, stage_least(least, s, n, k, at[s]), grid.devices[s, r])
            around = way[START, s, r], trip_s, tail_s[s, r, k], way[BACK, s, r]
            most = _most(
                limit_s, most, passes, least.weight_after, WayThrough(*around, links[DOWN, s, r], links[UP, s, r])
            )
            if s > 0:
                trip_s += passes.forward_s + passes.input_s + links[:, s - 1, r].sum()
        if most < 1:
            return False
        total += most
    return bool(total >= tables.passes.n_microbatches)
