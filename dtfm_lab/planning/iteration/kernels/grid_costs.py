"""What the stages of a plan on a given grid of devices cost at the least: passes, memory, links and averaging."""

from typing import NamedTuple

import numpy as np

from dtfm_lab.domain.compiling import compiled
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.iteration.kernels.averaging import average
from dtfm_lab.planning.iteration.kernels.tables import HOP, LATENCY, Tables, moving_s

FLOP, PARAMETERS, HELD, AGAIN = range(4)
"""Rows of ``Least.layer``."""
DOWN, DOWN_LATE, UP, UP_LATE = range(4)
"""Rows of a grid's links: seconds for which messages occupy those to the next stage and back, and their latencies."""


class Least(NamedTuple):
    """The least that plans of one micro-batch size, checkpointing and shape cost; L blocks, N devices."""

    speed: FloatArray
    """(N,) FLOP/s."""
    memory: FloatArray
    """(N,) bytes."""
    layer: FloatArray
    """(4, L + 1) prefix sums over blocks: FLOP of a micro-batch's forward, parameters, bytes held, FLOP repeated."""
    window: FloatArray
    """(3, 4, L + 1) the same of the first, of the cheapest and of the last so many blocks."""
    extra: FloatArray
    """(2, 4) the same of the embedding and of the head."""
    least_blocks: IntArray
    most_blocks: IntArray
    """(S,) of each stage."""
    most_held: FloatArray
    """(S,) micro-batches that the schedule lets a stage hold at once."""
    input_bytes: FloatArray
    """(2,) bytes of the input of the first stage and of others, all that stages keep which recompute; else infinite."""
    weight: float
    """Forwards that the gradient of the weights takes by itself; 0 where backwards are whole."""
    weight_after: float
    """The same, as far as it surely follows the last gradient of the inputs."""
    averages: bool
    """Whether the averaging is known and follows the passes."""
    most_microbatches: float
    """Of a pipeline."""


class Grid(NamedTuple):
    """A grid of devices, or K of them with one dimension more in front, and what ``fill_costs`` finds for it."""

    devices: IntArray
    """(S, R); of several grids (K, S * R), flattened."""
    links: FloatArray
    """(4, S, R) rows DOWN, DOWN_LATE, UP and UP_LATE."""
    least_s: FloatArray
    """(2, S, R) seconds of the least forward and backward."""
    tail_s: FloatArray
    """(S, R, L + 1) seconds from the end of a stage's passes to the end of all, by its number of blocks."""


@compiled
def stage_least(least: Least, s: int, n: int, k: int, at: int) -> tuple[float, float, float, float]:
    """FLOP of a forward, FLOP repeated, parameters and bytes held of stage s of n with k blocks from ``at`` on.

    The least of any so many where ``at`` is negative.
    """
    role = 0 if s == 0 else (2 if s == n - 1 else 1)
    found = np.empty(4)
    for i in range(4):
        found[i] = least.window[role, i, k] if at < 0 else least.layer[i, at + k] - least.layer[i, at]
        if s == 0:
            found[i] += least.extra[0, i]
        if s == n - 1:
            found[i] += least.extra[1, i]
    return found[FLOP], found[AGAIN], found[PARAMETERS], found[HELD]


@compiled
def seconds_of(
    tables: Tables, least: Least, flop: float, again: float, device: int, n_messages: int
) -> tuple[float, float, float]:
    """Seconds of a forward, a backward to the inputs and one to the weights."""
    speed, coding_s = least.speed[device], tables.passes.coding_s * n_messages
    forward_s = flop / speed
    return (
        forward_s + coding_s,
        (2.0 - least.weight) * forward_s + again / speed + coding_s,
        least.weight * forward_s,
    )


@compiled
def places_of(tables: Tables, least: Least, s: int, n: int, parameters: float, held: float, device: int) -> float:
    """Micro-batches that a device of stage s holds at once; 0 where the stage does not fit."""
    inputs = least.input_bytes[0 if s == 0 else 1]
    free = least.memory[device] - parameters * tables.static_bytes
    if free < held + tables.passes.hop_bytes * ((s > 0) + (s < n - 1)):
        return 0.0
    return float(min(max(np.floor(free / max(min(inputs, held), 1.0)), 1.0), least.most_held[s]))


@compiled
def fill_costs(tables: Tables, least: Least, grids: Grid) -> None:
    """Fill the costs of K flattened grids, zeros before."""
    for k in range(len(grids.devices)):
        link, once_s, after_s = grids.links[k], grids.least_s[k], grids.tail_s[k]
        grid = grids.devices[k].reshape(link.shape[1:])
        n, n_replicas = grid.shape
        tied_s = np.zeros((n, n_replicas))
        every = tables.synchronise_every
        behind = every == 1 and tables.returned_element_bytes == 0.0  # with split states it is exchanged before
        for r in range(n_replicas):
            for s in range(n):
                flop, again, _, _ = stage_least(least, s, n, least.least_blocks[s], -1)
                f, i, _ = seconds_of(tables, least, flop, again, grid[s, r], (s > 0) + (s < n - 1))
                once_s[0, s, r], once_s[1, s, r] = f, i
                if s < n - 1:
                    d, e = grid[s, r], grid[s + 1, r]
                    link[DOWN, s, r], link[UP, s, r] = tables.link[HOP, d, e], tables.link[HOP, e, d]
                    link[DOWN_LATE, s, r] = tables.link[LATENCY, d, e]
                    link[UP_LATE, s, r] = tables.link[LATENCY, e, d]
            if n > 1 and tables.tied_parameters > 0.0:
                n_bytes = tables.tied_parameters * tables.gradient_element_bytes
                d, e = grid[0, r], grid[n - 1, r]
                tied_s[0, r] = moving_s(tables, d, e, n_bytes) + tables.link[LATENCY, d, e]
                tied_s[n - 1, r] = moving_s(tables, e, d, n_bytes) + tables.link[LATENCY, e, d]
        done, last_s = np.zeros(n_replicas), np.zeros(n_replicas)
        for s in range(n):
            for n_blocks in range(least.least_blocks[s], least.most_blocks[s] + 1):
                _, _, parameters, _ = stage_least(least, s, n, n_blocks, -1)
                together_s = 0.0
                for r in range(-1 if least.averages else n_replicas, n_replicas):
                    # The end of averaging is a maximum over replicas of when each is done plus its own tail:
                    # one that is done as late as all of them take together decides alone.
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
