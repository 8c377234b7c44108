"""The paper's own search, compiled, as the baseline: how fast it is, that it is the paper's, and who beats it.

Three parts, all in one run, against named opponents:

speed         one evaluation and one offspring of ``dtfm`` against the same written plainly (``plain.py``)
trajectories  ``dtfm`` and ``hybrid`` against the public code's own runs, at equal numbers of evaluations
duel          ``evolutionary`` against ``dtfm`` on irregular networks (``instances.py``), at equal CPU seconds

CPU seconds are those of this process, its threads included.
"""

from __future__ import annotations

import functools
import itertools
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import click
import numpy as np
from instances import instances
from plain import Matching, bottleneck_by_networkx, bottleneck_by_scipy, cost, crossover, improved

import dtfm_lab as lab
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.planning.cost import lower_bound_s, pair_costs
from dtfm_lab.planning.kernels import partition, random_numbers
from dtfm_lab.planning.planners.dtfm import GENES, POPULATION
from dtfm_lab.planning.search import PlanStep, search

CASES = ("datacenter", "spot", "universities", "regional", "worldwide")
PUBLIC = Path(__file__).parents[2] / "tests" / "data" / "public_search.json"
AT = (101, 301, 1001, 5000)
"""Evaluations at which trajectories are compared. The public record is the best so far after the 1st,
51st, ... 4,951st candidate and after the last: 101 entries for 5,000 candidates, and entry 0 costs as
much as one random partition does."""
WARM_STEPS = 3
"""Steps of each planner that compile every kernel before anything is timed."""


@click.command(help=__doc__)
@click.option("--seconds", default=5.0, show_default=True, help="CPU seconds of each planner on each network.")
@click.option("--seeds", default=20, show_default=True, help="Runs of the trajectories, each of 5,000 evaluations.")
@click.option("--seed", default=0, show_default=True, help="Seed of the duel.")
@click.option("--only", type=click.Choice(["speed", "trajectories", "duel"]), help="One part alone.")
def main(seconds: float, seeds: int, seed: int, only: str | None) -> None:
    if only in (None, "speed"):
        speed()
    if only in (None, "trajectories"):
        trajectories(seeds)
    if only in (None, "duel"):
        duel(seconds, seed)


def speed() -> None:
    """64 devices, 8 x 8, random partitions of the jittered cities."""
    instance = next(i for i in instances() if i.name == "cities 64: 8 x 8")
    pair, job = pair_costs(instance.topology, instance.job), instance.job
    size = np.full(job.n_stages, job.n_replicas)
    rng = np.random.default_rng(0)
    population = np.array([rng.permutation(np.repeat(np.arange(job.n_stages), size)) for _ in range(POPULATION)])
    prices = partition.pricing(pair.group_s, pair.hop_s, job.n_stages, job.n_replicas, job.n_stages)
    local_search = partition.cyclic_search(pair.hop_s, pair.group_s, job.n_stages, job.n_replicas, False)
    state, child = random_numbers.seeded(rng), population[0].copy()
    points = np.zeros(len(child) + len(size), dtype=np.int64)

    def compiled_offspring() -> None:
        partition.reproduce(prices, local_search, population, GENES, size, state, points, child)

    def plain_evaluation(by: Matching) -> None:
        cost(next(turn), pair.group_s, pair.hop_s, by)

    def plain_offspring(by: Matching) -> None:
        donor, recipient = rng.integers(POPULATION, size=2)
        made = crossover(population[donor], population[recipient], GENES, rng)
        cost(improved(made, pair.hop_s), pair.group_s, pair.hop_s, by)

    for one in population[:10]:
        ours = one.copy()
        partition.improve(local_search, ours)
        assert (ours == improved(one, pair.hop_s)).all()
        for matching in (bottleneck_by_scipy, bottleneck_by_networkx):
            assert np.isclose(cost(one, pair.group_s, pair.hop_s, matching), partition.price(prices, one), 1e-9, 0)

    print(f"{instance.name}, random partitions in turn; costs equal to 1e-9, local optima alike")
    print(f"{'':34}{'plain':>12}{'compiled':>14}{'ratio':>9}")
    turn = itertools.cycle(population)  # the same partition again and again would train the branch predictor
    compiled_offspring()
    evaluation_s = cpu_s(lambda: partition.price(prices, next(turn)), 5000)
    offspring_s = cpu_s(compiled_offspring, 5000)
    for name, by in (("scipy", bottleneck_by_scipy), ("networkx", bottleneck_by_networkx)):
        plain_s = cpu_s(functools.partial(plain_evaluation, by), 50)
        _speed_row(f"one evaluation, plain with {name}", plain_s, evaluation_s)
        _speed_row(f"one offspring, plain with {name}", cpu_s(functools.partial(plain_offspring, by), 50), offspring_s)


def _speed_row(what: str, plain_s: float, compiled_s: float) -> None:
    print(f"{what:34}{plain_s * 1e3:>9.2f} ms{compiled_s * 1e6:>11.1f} us{plain_s / compiled_s:>8.0f}x")


def cpu_s(work: Callable[[], object], rounds: int) -> float:
    """Seconds of one round, the median of five batches."""
    batches = []
    for _ in range(5):
        began = time.process_time()
        for _ in range(max(1, rounds // 5)):
            work()
        batches.append((time.process_time() - began) / max(1, rounds // 5))
    return float(np.median(batches))


def trajectories(n_seeds: int) -> None:
    """Median over the runs of the best cost so far in seconds, after so many evaluations."""
    public = json.loads(PUBLIC.read_text())["runs"]
    job = lab.load_job("dtfm-gpt3-xl")
    print(
        f"\n{'median of the best, s':34}"
        + "".join(f"{f'at {at:,}':>12}" for at in AT)
        + f"{'runs':>8}{'range at the end':>24}"
    )
    for k, case in enumerate(CASES):
        topology = lab.load_topology(case)
        rows = {
            planner: [_best_at(topology, job, planner, seed) for seed in range(n_seeds)]
            for planner in ("dtfm", "hybrid")
        }
        rows["public code"] = [
            [run["best_so_far_s"][-(-(at - 1) // 50)] for at in AT] for run in public if run["case"] == k
        ]
        for name, runs in rows.items():
            last = [run[-1] for run in runs]
            print(
                f"{case + ', ' + name:34}"
                + "".join(f"{value:>12.4f}" for value in np.median(runs, axis=0))
                + f"{len(runs):>8}{f'{min(last):.4f} to {max(last):.4f}':>24}",
                flush=True,
            )


def _best_at(topology: Topology, job: Job, planner: str, seed: int) -> list[float]:
    """Best cost after each number of evaluations in AT; the last one counts where a proven best ends the search."""
    best = dict.fromkeys(AT, np.inf)
    for step in search(topology, job, planner, seed=seed, steps=AT[-1] - POPULATION + 1):
        for at in AT:
            if at >= step.evaluations:
                best[at] = step.best_s
    return list(best.values())


def duel(seconds: float, seed: int) -> None:
    """Ratios of the costs found; below 1, ``evolutionary`` found the cheaper placement."""
    print(
        f"\n{f'{seconds:g} CPU seconds each, seed {seed}':34}{'dtfm':>12}{'evolutionary':>14}{'ratio':>9}{'bound':>12}"
    )
    ratios: dict[str, float] = {}
    for instance in instances():
        if not ratios:
            for planner in ("dtfm", "evolutionary"):
                for _ in search(instance.topology, instance.job, planner, steps=WARM_STEPS):
                    pass
        lower_bound_s(instance.topology, instance.job)  # cached, so that neither planner spends time on it
        theirs, ours = (
            best_within(instance.topology, instance.job, planner, seconds, seed) for planner in ("dtfm", "evolutionary")
        )
        ratios[instance.name] = ours.best_s / theirs.best_s
        print(
            f"{instance.name:34}{theirs.best_s:>12.4f}{ours.best_s:>14.4f}{ratios[instance.name]:>9.4f}"
            f"{max(theirs.bound_s, ours.bound_s):>12.4f}",
            flush=True,
        )
    summary(ratios)


def summary(ratios: dict[str, float]) -> None:
    values: Sequence[float] = list(ratios.values())
    worst = max(ratios, key=lambda name: ratios[name])
    print(
        f"geometric mean of {len(values)} ratios {np.exp(np.mean(np.log(values))):.4f}; "
        f"worst {ratios[worst]:.4f} ({worst}); {sum(value <= 1 + 1e-9 for value in values)} of them 1 or less"
    )


def best_within(topology: Topology, job: Job, planner: str, seconds: float, seed: int) -> PlanStep:
    """The last step of a search of so many CPU seconds, and of at least one step."""
    began = time.process_time()
    steps = search(topology, job, planner, seed=seed, steps=2**62)
    last = next(steps)
    while time.process_time() - began < seconds:
        if (step := next(steps, None)) is None:  # proven best
            break
        last = step
    return last


if __name__ == "__main__":
    main()
