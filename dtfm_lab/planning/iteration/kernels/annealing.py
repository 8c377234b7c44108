"""Simulated annealing of whole plans: devices, pairing, order, cut, micro-batches and warm-ups.

Source: Kirkpatrick, Gelatt and Vecchi, *Optimization by simulated annealing* (1983), with the rule of Metropolis et al.
(1953). A move changes one thing, prices only what that affects, and keeps the change or takes it back. A population, as
in the search for the communication cost, would be slower. A child of two plans shares too little with either, so all of
it would have to be priced.
"""

from typing import NamedTuple

import numpy as np

from dtfm_lab.costs.seconds import CENTRAL, HIERARCHICAL, RING
from dtfm_lab.domain.compiling import compiled
from dtfm_lab.planning.background_tasks import Flag
from dtfm_lab.planning.iteration.kernels.pricing import PENALTY, lacking, objective, seconds_of, take_counts
from dtfm_lab.planning.iteration.kernels.state import (
    CRITICAL,
    LACKING,
    READY,
    TOTAL,
    SearchState,
    copy_parts,
    copy_state,
    falling,
    limit_warmups,
    refresh,
    refresh_group,
    refresh_pipeline,
    warm_up,
)
from dtfm_lab.planning.iteration.kernels.tables import ALIKE, CLUSTER, HOP, Tables
from dtfm_lab.planning.kernels.random_numbers import RandomState, below, uniform

SWAP, IDLE, NEAR, TAILS, BLOCK, STAGES, CLUSTERS, WARMUPS, COUNTS = range(9)
"""Kinds of moves.

- SWAP: exchange two placed devices
- IDLE: exchange a placed device with an idle one
- NEAR: exchange a placed device with one that is near one of its neighbours in the plan
- TAILS: exchange the devices of two pipelines from some stage on
- BLOCK: move a block to another stage, or several if some boundaries send less than others
- STAGES: exchange two whole stages, or move one to another place in the pipeline
- CLUSTERS: exchange the devices of two clusters
- WARMUPS: change warm-ups
- COUNTS: move micro-batches to another pipeline
"""
ALIKE_TRIES = 4
"""Number of tries to find a second device that differs from the first. Chosen by hand: if most devices are alike, more
tries would take longer than a move."""
COARSE = 0.5
"""Probability that a move by the estimate must be a STAGES or CLUSTERS move, at the start. It falls to zero within the
first quarter. Other moves are drawn from all kinds. Chosen by hand."""
SMOOTHING = 0.1
"""Weight of the average pipeline's seconds, relative to the slowest pipeline's. It gives a direction on plateaus.
Chosen by hand."""
WINDOWED_TAILS = 0.3
"""Share of TAILS moves that may stop before the last stage. Chosen by hand."""
ONE_MICROBATCH = 0.6
"""Share of COUNTS moves that move a single micro-batch. Chosen by hand."""
LARGEST_PART = 8
"""A COUNTS move takes at most about 1 / LARGEST_PART of the average micro-batches of a pipeline. Chosen by hand."""
FAR_BLOCKS = 0.5
"""Share of BLOCK moves that may move several blocks, if some boundaries send less than others. Chosen by hand."""
ON_CRITICAL = 0.4
"""Share of device moves by the estimate whose first device is the one at which its pipeline's slowest cycle begins.
That cycle sets the pipeline's seconds. Chosen by hand."""


class FixedFields(NamedTuple):
    """Which fields of a plan annealing may not change."""

    fixed_counts: bool
    """True if the micro-batches of each pipeline are fixed."""
    fixed_blocks: bool
    """True if the blocks of each stage are fixed."""
    fixed_warmups: bool
    """True if the schedule or the job sets the warm-up forwards of each stage."""


@compiled
def anneal(
    tables: Tables,
    trial: SearchState,
    now: SearchState,
    best: SearchState,
    fixed_fields: FixedFields,
    exact: bool,
    factor: float,
    hot: float,
    cold: float,
    n_moves: int,
    random: RandomState,
    cancelled: Flag,
) -> tuple[float, float]:
    """Anneal from ``trial``: try ``n_moves`` moves, or fewer once ``cancelled`` is set.

    The temperature falls from ``hot`` to ``cold``. Both are shares of the objective. Unless ``factor`` is 0 or warm-ups
    are fixed, they are first set to ``factor`` times a steady pipeline's (``warm_up``). With ``exact``, the replay
    prices moves, and only COUNTS moves change the micro-batches. Otherwise the estimate prices them, and micro-batches
    that are not fixed are shared out again after every move.

    ``best`` becomes the best valid plan seen. If none is valid, it becomes the plan with the lowest penalised
    objective. Returns its objective, as estimated or replayed, and how far it exceeds memory and limits (``lacking``).
    """
    # One long loop: split into functions, even inlined ones, it is a sixth slower, as each counts references to arrays.
    n, r = trial.grid.shape
    n_devices = len(trial.row)
    seconds, mean_s = 0.0, 0.0
    # warm-ups, memory and micro-batches depend on each other: two rounds settle them, and the third prices the plan
    rounds = 3 if not exact or factor > 0.0 else 1
    for i in range(rounds):
        last = i == rounds - 1
        refresh(tables, trial, exact)
        for s in range(0 if exact else n):
            refresh_group(tables, trial, s)
        if not last and factor > 0.0 and not fixed_fields.fixed_warmups:
            if i == 0:
                warm_up(tables, trial, factor)
            else:
                limit_warmups(tables, trial)
        seconds, mean_s = seconds_of(tables, trial, exact, last or fixed_fields.fixed_counts)
        if not last and not exact and not fixed_fields.fixed_counts:
            take_counts(tables, trial)
    copy_state(trial, now)
    copy_state(trial, best)
    lacks = lacking(tables, trial, seconds)
    best_value, best_lacks = objective(tables, trial, seconds), lacks
    best_price = best_value * (1.0 + PENALTY * best_lacks)
    value = objective(tables, trial, (seconds + SMOOTHING * mean_s) / (1 + SMOOTHING)) * (1.0 + PENALTY * lacks)
    temperature, cooling = hot, (cold / hot) ** (1.0 / max(n_moves, 1))
    # these averages depend on the order of a group's replicas
    ordered = (
        tables.synchronisation == RING or tables.synchronisation == HIERARCHICAL or tables.synchronisation == CENTRAL
    )
    # a root or a leader holds other bytes than the members, so every move refreshes the whole state
    differs = ordered and tables.synchronisation != RING
    for move in range(n_moves):
        if cancelled[0]:
            break
        temperature *= cooling
        # accept with probability exp(-change / temperature): draw u first and solve for the highest value to accept
        limit = value * (1.0 - temperature * np.log(1.0 - uniform(random)))
        coarse = not exact and uniform(random) < COARSE * (1.0 - 4.0 * move / n_moves)
        kind = _draw_kind(random, n, r, n_devices, fixed_fields, exact, coarse)
        whole, p, q, r1, r2, g1, g2 = False, -1, -1, -1, -1, -1, -1
        if kind <= NEAR:
            p = _draw_position(random, now, n, r, exact)
            if kind == NEAR:
                q = _near_neighbour(tables, trial, random, p)
            for _try in range(0 if kind == NEAR else ALIKE_TRIES):
                q = below(random, n * r) if kind == SWAP else n * r + below(random, n_devices - n * r)
                if tables.device[ALIKE, trial.row[p]] != tables.device[ALIKE, trial.row[q]]:
                    break
            if p == q or tables.device[ALIKE, trial.row[p]] == tables.device[ALIKE, trial.row[q]]:
                continue
            trial.row[p], trial.row[q] = trial.row[q], trial.row[p]
            r1, g1 = p % r, p // r
            if q < n * r:
                r2, g2 = q % r, q // r
                if r1 == r2:
                    r2 = -1
                if g1 == g2:
                    g2 = -1
                    # a swap within a group changes its averaging only if the order of the replicas counts
                    g1 = g1 if ordered else -1
        elif kind == TAILS:
            r1, r2 = below(random, r), below(random, r - 1)
            r2 += r2 >= r1
            p, q = 1 + below(random, n - 1), n
            if uniform(random) < WINDOWED_TAILS:
                q = min(n, p + 1 + below(random, n - p))
            _swap_tails(trial, r1, r2, p, q)
            # both pipelines are copied whole when the move is kept or taken back
            p = -1
            whole = ordered
        elif kind == COUNTS:
            r1, r2 = below(random, r), below(random, r - 1)
            r2 += r2 >= r1
            if trial.microbatch_counts[r1] < 2:
                continue
            many = 1 + below(
                random,
                max(1, min(trial.microbatch_counts[r1] - 1, 1 + tables.passes.n_microbatches // (LARGEST_PART * r))),
            )
            many = 1 if uniform(random) < ONE_MICROBATCH else many
            trial.microbatch_counts[r1] -= many
            trial.microbatch_counts[r2] += many
        else:
            whole = True
            if kind == BLOCK:
                p, q = below(random, n), below(random, n - 1)
                q += q >= p
                least = 1
                if p == 0:  # only the embedding may be left, or only the head
                    least -= tables.passes.alone[0]
                elif p == n - 1:
                    least -= tables.passes.alone[1]
                if trial.blocks[p] <= least:
                    continue
                many = 1
                # the next boundary with small messages may be far away
                if len(tables.link) > HOP + 1 and uniform(random) < FAR_BLOCKS:
                    many += below(random, trial.blocks[p] - least)
                trial.blocks[p] -= many
                trial.blocks[q] += many
            elif kind == STAGES:
                _move_stages(trial, random, fixed_fields.fixed_blocks)
            elif kind == CLUSTERS:
                _swap_clusters(tables, trial, random)
            else:
                _change_warmups(tables, trial, random)

        if whole or differs:
            whole = True
            first_group, last_group = 0, n if ordered or kind in (STAGES, CLUSTERS) else 0
            if kind == BLOCK and not ordered:
                first_group, last_group = min(p, q), max(p, q) + 1
            refresh(tables, trial, exact)
            for s in range(0 if exact else first_group, 0 if exact else last_group):
                refresh_group(tables, trial, s)
        else:
            for i in (r1, r2):
                if i >= 0:
                    refresh_pipeline(tables, trial, i, exact)
            for i in (g1, g2):
                if i >= 0 and not exact:
                    refresh_group(tables, trial, i)
        seconds, mean_s = seconds_of(tables, trial, exact, fixed_fields.fixed_counts)
        lacks = lacking(tables, trial, seconds)
        smooth = objective(tables, trial, (seconds + SMOOTHING * mean_s) / (1 + SMOOTHING))
        new_value = smooth * (1.0 + PENALTY * lacks)
        if new_value <= limit:
            value = new_value
            if not exact and not fixed_fields.fixed_counts:
                if take_counts(tables, trial):
                    lacks = lacking(tables, trial, seconds)
                    value = smooth * (1.0 + PENALTY * lacks)
                # the counts of any pipeline may have changed, not only of those that the move touched
                for i in range(r):
                    now.microbatch_counts[i] = trial.microbatch_counts[i]
                    now.pipe[TOTAL, i] = trial.pipe[TOTAL, i]
                    for s in range(n):
                        now.cell[READY, i, s] = trial.cell[READY, i, s]
                        now.cell[LACKING, i, s] = trial.cell[LACKING, i, s]
            if whole:
                copy_state(trial, now)
            else:
                copy_parts(trial, now, p, q, r1, r2, g1, g2)
            pure = objective(tables, trial, seconds)
            price = pure * (1.0 + PENALTY * lacks)
            if (lacks == 0.0 and (best_lacks > 0.0 or pure < best_value)) or (
                lacks > 0.0 and best_lacks > 0.0 and price < best_price
            ):
                best_value, best_lacks, best_price = pure, lacks, price
                copy_state(trial, best)
        elif whole:
            copy_state(now, trial)
        else:
            copy_parts(now, trial, p, q, r1, r2, g1, g2)
    return best_value, best_lacks


@compiled
def _draw_kind(
    random: RandomState, n: int, r: int, n_devices: int, fixed_fields: FixedFields, exact: bool, coarse: bool
) -> int:
    """Draw a kind of move that this shape allows."""
    while True:
        u = uniform(random)
        # restrict u to the interval of STAGES and CLUSTERS
        if coarse:
            u = 0.78 + 0.09 * u
        if u < 0.24:
            if n * r > 1:
                return SWAP
        elif u < 0.36:
            if n_devices > n * r:
                return IDLE
        elif u < 0.58:
            if n_devices > 2 and n * r > 1:
                return NEAR
        elif u < 0.66:
            if n > 1 and r > 1:
                return TAILS
        elif u < 0.78:
            if n > 1 and not fixed_fields.fixed_blocks:
                return BLOCK
        elif u < 0.84:
            if n > 1:
                return STAGES
        elif u < 0.87:
            if n_devices > 3:
                return CLUSTERS
        elif u < 0.92:
            if not fixed_fields.fixed_warmups and n > 1:
                return WARMUPS
        elif r > 1 and exact and not fixed_fields.fixed_counts:
            return COUNTS
        coarse = False
        if n_devices == 1 or (n * r == 1 and n_devices == 1):
            return SWAP


@compiled
def _draw_position(random: RandomState, state: SearchState, n: int, r: int, exact: bool) -> int:
    """Draw the position of a placed device in the row.

    With the estimate and probability ``ON_CRITICAL``, it is the device at which the slowest cycle of its pipeline
    begins.
    """
    i = below(random, r)
    if not exact and uniform(random) < ON_CRITICAL:
        return int(state.pipe[CRITICAL, i]) * r + i
    return below(random, n) * r + i


@compiled
def _near_neighbour(tables: Tables, state: SearchState, random: RandomState, p: int) -> int:
    """Draw the position of a device near one of the neighbours of the device at position p. A neighbour is a member of
    its group, or comes directly before or after it in its pipeline."""
    n, r = state.grid.shape
    s, i = p // r, p % r
    u = uniform(random)
    if n == 1 or (r > 1 and u < 0.4):
        i = below(random, r)
    elif s == 0 or (s < n - 1 and u < 0.7):
        s += 1
    else:
        s -= 1
    beside = state.grid[s, i]
    # the square favours the nearest devices
    most = tables.near.shape[1]
    found = tables.near[beside, int(most * uniform(random) ** 2)]
    for q in range(len(state.row)):
        if state.row[q] == found:
            return q
    return p


@compiled
def _swap_clusters(tables: Tables, state: SearchState, random: RandomState) -> None:
    """Exchange the devices of two clusters in the order of the row, as many as the smaller cluster has."""
    size = len(state.row)
    a = tables.device[CLUSTER, state.row[below(random, state.grid.size)]]
    b = tables.device[CLUSTER, state.row[below(random, size)]]
    if a == b:
        return
    of_a, of_b = np.empty(size, np.int64), np.empty(size, np.int64)
    n_a, n_b = 0, 0
    for i in range(size):
        cluster = tables.device[CLUSTER, state.row[i]]
        if cluster == a:
            of_a[n_a] = i
            n_a += 1
        elif cluster == b:
            of_b[n_b] = i
            n_b += 1
    for k in range(min(n_a, n_b)):
        i, j = of_a[k], of_b[k]
        state.row[i], state.row[j] = state.row[j], state.row[i]


@compiled
def _swap_tails(state: SearchState, i: int, j: int, first: int, last: int) -> None:
    for s in range(first, last):
        state.grid[s, i], state.grid[s, j] = state.grid[s, j], state.grid[s, i]


@compiled
def _move_stages(state: SearchState, random: RandomState, fixed_blocks: bool) -> None:
    """Exchange two stages, with or without their blocks, or move one to another place."""
    n = state.grid.shape[0]
    p, q = below(random, n), below(random, n - 1)
    q += q >= p
    together = not fixed_blocks and uniform(random) < 0.5
    if uniform(random) < 0.5:
        _swap_stages(state, p, q, together)
        return
    step = 1 if q > p else -1
    for s in range(p, q, step):
        _swap_stages(state, s, s + step, together)


@compiled
def _swap_stages(state: SearchState, p: int, q: int, together: bool) -> None:
    for i in range(state.grid.shape[1]):
        state.grid[p, i], state.grid[q, i] = state.grid[q, i], state.grid[p, i]
    if together and min(state.blocks[p], state.blocks[q]) > 0:  # no stage in the middle may be empty
        state.blocks[p], state.blocks[q] = state.blocks[q], state.blocks[p]


@compiled
def _change_warmups(tables: Tables, state: SearchState, random: RandomState) -> None:
    """Set all warm-ups to a random multiple of a steady pipeline's (``warm_up``), or change one stage's a little."""
    if uniform(random) < 0.5:
        warm_up(tables, state, np.exp(uniform(random) * 2.2 - 0.5))
        return
    s = below(random, len(state.warmups))
    change = 1 + below(random, 1 + state.warmups[s] // 3)
    falling(state.warmups, s, state.warmups[s] + (change if uniform(random) < 0.5 else -change))
    if uniform(random) < 0.8:
        limit_warmups(tables, state)
