"""A small, slow genetic algorithm to watch: twenty random placements, one frame per generation.

It is for teaching. Like every planner, it prices placements by equations 1 to 4, but it does not pair the pipelines
again. It has no clustered placements to begin with and no full local search, so that its progress is visible.

An offspring replaces its worse parent if it is at least as good. The communication cost only counts the slowest member
of a group and the slowest pair of a hop, so most changes do not affect it. Placements are therefore first ranked by a
power mean, in which all members and pairs count. Its exponent rises from 2, so the slow ones count more and more. At
the end, the cost itself decides. A twin of an existing placement is dropped. The best placement so far is remembered.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from operator import attrgetter
from typing import TypeAlias

import numpy as np

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.registry import listed
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.cost import PairCosts, pair_costs, total_costs
from dtfm_lab.planning.problem import Individual, PopulationFrame
from dtfm_lab.planning.search import require_fit
from dtfm_lab.planning.teaching_operators import (
    CROSSOVER_SHARE,
    MUTATIONS,
    Ground,
    Made,
    crossover,
    places_of,
)

POPULATION = 20
"""Number of placements: few enough to be shown all at once."""
TRIES = 8
"""Number of children that one operator makes. The best becomes the offspring."""
DEVICES_AN_OFFSPRING = 5
"""Each generation makes one offspring per this number of devices, so that a small network is not solved at once."""
EXPONENTS = (2.0, 64.0)
"""First and last exponent of the power mean, before the cost alone decides."""
TIE = 4.0
"""Exponent of the power mean that ranks placements of equal cost at the end."""
FEW_DEVICES = 16
"""Up to this number of devices, two placements are twins if every device is in the same stage in both.

On larger networks, placements of the same rank are twins. Otherwise copies with identical devices exchanged would soon
fill the population.
"""
MOST_GENERATIONS = 600
"""Default maximum number of generations."""
SEED = 4
"""Seed of the lab's first teaching search. With it, the best placement on the network of eight laptops is not among the
random ones at the start."""
PACE_S = 0.36
"""Default seconds that a frame stays on screen when the search is watched."""


def teach(
    topology: Topology,
    job: Job,
    rng: np.random.Generator,
    *,
    most_generations: int = MOST_GENERATIONS,
) -> Iterator[PopulationFrame]:
    """Yield frames of a teaching search in the job's shape, or in the most square one if the job names none. The search
    ends when its best placement has not improved for long, or after ``most_generations``.

    Equal arguments and seeds yield equal frames. Raises PlanError if the job does not fit the network.
    """
    if not job.shaped:
        job = job.fitted(len(topology))
    require_fit(topology, job)
    pair = pair_costs(topology, job)
    place_of, places = places_of(topology, pair)
    ground = Ground(
        pair=pair,
        n_stages=job.n_stages,
        n_replicas=job.n_replicas,
        bound_s=0.0,
        place_of=place_of,
        places=places,
        names=tuple(topology.names),
    )
    return _frames(ground, rng, most_generations)


def power_costs(grid: IntArray, pair: PairCosts, exponent: float) -> FloatArray:
    """Return (...) seconds of (..., S, D) grids, with power means instead of the slowest member and the slowest pair.

    With an exponent of 1, all members and pairs count the same. The larger the exponent, the closer the result to the
    communication cost.
    """
    members_s = pair.group_s[grid[..., :, None], grid[..., None, :]].sum(axis=-1)
    pairs_s = pair.hop_s[grid[..., :-1, :], grid[..., 1:, :]]
    groups = _power_mean(members_s.reshape(*grid.shape[:-2], -1), exponent)
    return np.asarray(groups + _power_mean(pairs_s, exponent).sum(axis=-1))


def _power_mean(values: FloatArray, exponent: float) -> FloatArray:
    largest = values.max(axis=-1)
    scale = np.where(largest > 0, largest, 1.0)  # divided by the largest first, so that no power overflows
    return np.asarray(largest * ((values / scale[..., None]) ** exponent).mean(axis=-1) ** (1 / exponent))


_Rank: TypeAlias = tuple[float, float]
"""The seconds by which placements are compared: the first number decides, the second breaks ties."""


class _Survival:
    """Prices placements and ranks them by the rule of one generation.

    Before generation ``settling``, power means of their seconds decide (``power_costs``). From then on, the
    communication cost decides.
    """

    def __init__(self, ground: Ground, generation: int, settling: int) -> None:
        low, high = EXPONENTS
        self._ground = ground
        # geometric: each generation sharpens the comparison by the same factor
        self.exponent = low * (high / low) ** (generation / settling) if generation < settling else np.inf

    def price(self, rows: IntArray) -> tuple[FloatArray, list[_Rank]]:
        """Return (n,) communication costs in seconds of (n, N) rows, and their ranks."""
        grids = rows[:, : self._ground.n_tasklets].reshape(-1, self._ground.n_stages, self._ground.n_replicas)
        cost_s, settles = total_costs(grids, self._ground.pair), np.isfinite(self.exponent)
        power_s = power_costs(grids, self._ground.pair, self.exponent if settles else TIE)
        columns = (power_s, cost_s) if settles else (cost_s, power_s)
        return cost_s, list(zip(*(column.tolist() for column in columns), strict=True))


def _frames(ground: Ground, rng: np.random.Generator, most_generations: int) -> Iterator[PopulationFrame]:
    n = ground.n_devices
    n_offspring = max(1, round(n / DEVICES_AN_OFFSPRING))
    settling, patience = n + 14 * ground.n_stages, max(30, min(2 * n, 60))
    rows = np.array([rng.permutation(n) for _ in range(POPULATION)])
    cost_s, ranks = _Survival(ground, 0, settling).price(rows)
    people = [
        Individual(
            number=number,
            grid=ground.grid(row).copy(),
            cost_s=float(cost),
            operator="chance",
            words="a random placement",
        )
        for number, (row, cost) in enumerate(zip(rows, cost_s, strict=True))
    ]
    best, found_in, evaluations, born = min(people, key=attrgetter("cost_s")), 0, POPULATION, POPULATION
    for generation in range(most_generations + 1):
        survival = _Survival(ground, generation, settling)
        if generation:
            # the exponent has risen, so the old ranks no longer hold
            _, ranks = survival.price(rows)
            for _ in range(n_offspring):
                child, row, rank, worse, tried = _offspring(ground, survival, rows, ranks, people, rng)
                evaluations += tried
                if rank > ranks[worse] or _is_twin(ground, row, rank, rows, ranks):
                    continue
                child = replace(child, number=born, generation=generation)
                born += 1
                rows[worse], ranks[worse], people[worse] = row, rank, child
                # a gain within rounding must not postpone the end of the search
                if child.cost_s < best.cost_s * (1 - 1e-9):
                    best, found_in = child, generation
        yield PopulationFrame(
            generation=generation,
            individuals=tuple(sorted(people, key=attrgetter("cost_s"))),
            best=best,
            median_s=float(np.median([one.cost_s for one in people])),
            diversity=diversity(np.array([one.grid for one in people]), n),
            made_by=dict(Counter(one.operator for one in people).most_common()),
            evaluations=evaluations,
            rule=_rule(survival.exponent),
        )
        if generation > max(found_in, settling) + patience:
            return


def _offspring(
    ground: Ground,
    survival: _Survival,
    rows: IntArray,
    ranks: list[_Rank],
    people: list[Individual],
    rng: np.random.Generator,
) -> tuple[Individual, IntArray, _Rank, int, int]:
    """Return the best of up to ``TRIES`` children that one operator makes.

    Returns the child, its row and rank, the index of its worse parent, and the number of children.
    """
    parent, other = (min((int(i) for i in rng.integers(len(rows), size=2)), key=ranks.__getitem__) for _ in range(2))
    mated = bool(rng.random() < CROSSOVER_SHARE) and parent != other and len(ground.places) > 1
    parents = [parent, other] if mated else [parent]
    if mated:
        operator, made = "crossover", list[Made]()
        for _ in range(TRIES):
            row, places = crossover(ground, rows[parent], rows[other], rng)
            words = f"{listed(places, 3)} as in {people[other].number}, the rest as in {people[parent].number}"
            made.append(Made(row, words))
    else:
        shares = np.array([share for _, _, share in MUTATIONS])
        operator, mutate, _ = MUTATIONS[int(rng.choice(len(MUTATIONS), p=shares / shares.sum()))]
        tries = (mutate(ground, rows[parent], rng) for _ in range(TRIES))
        made = [one for one in tries if one is not None] or [Made(rows[parent], "nothing to change")]
    tried = np.array([one.row for one in made])
    cost_s, tried_ranks = survival.price(tried)
    at = min(range(len(made)), key=tried_ranks.__getitem__)
    child = Individual(
        number=0,
        grid=ground.grid(tried[at]).copy(),
        cost_s=float(cost_s[at]),
        operator=operator,
        words=made[at].words,
        parents=tuple(people[one].childless for one in parents),
    )
    return child, tried[at], tried_ranks[at], max(parents, key=ranks.__getitem__), len(made)


def _is_twin(ground: Ground, row: IntArray, rank: _Rank, rows: IntArray, ranks: list[_Rank]) -> bool:
    """Return True if the population already has a twin of the row. See ``FEW_DEVICES``."""
    if len(row) > FEW_DEVICES:
        return any(np.allclose(rank, other, rtol=1e-9, atol=0.0) for other in ranks)
    stage_at = np.minimum(np.arange(len(row)) // ground.n_replicas, ground.n_stages)
    stage_of = np.empty_like(row)
    stage_of[row] = stage_at
    return bool((stage_of[rows] == stage_at).all(axis=1).any())


def _rule(exponent: float) -> str:
    """Return a sentence on when a child replaces its parent. ``exponent`` is the power mean's; inf if costs decide."""
    if not np.isfinite(exponent):
        return "A child replaces its worse parent if it costs no more."
    return (
        "A child replaces its worse parent if it is at least as good. So far all members and pairs count, slow "
        f"ones more (power {exponent:.{int(exponent < 10)}f})."
    )


def diversity(grids: IntArray, n_devices: int) -> float:
    """Return the fraction of ``n_devices`` that are in different stages in two of the (P, S, D) grids, averaged over
    all pairs."""
    n, n_stages, _ = grids.shape
    if n < 2:
        return 0.0
    counts = np.zeros((n_devices, n_stages + 1))
    for stage in range(n_stages):
        np.add.at(counts[:, stage], grids[:, stage].ravel(), 1.0)
    counts[:, n_stages] = n - counts.sum(axis=1)  # idle
    alike = (counts * (counts - 1)).sum() / (n * (n - 1))
    return float(1 - alike / n_devices)
