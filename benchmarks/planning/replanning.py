"""Plans that follow a change, against planning afresh: seconds of an iteration, CPU seconds, and what moves.

On the world-wide network of the paper and on irregular ones of 48 to 80 unlike devices, random changes: devices that
go, a region that goes, devices that come, links that change. ``replan`` looks near the old plan; its opponent plans the
changed network afresh, for ten times as long and more, and is told nothing of the old plan. ``ratio`` is replan's
iteration over the opponent's; ``with moves`` the same with the seconds of the moves spread over an hour. Times are CPU
seconds of this process, as machines are shared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import click
import numpy as np
from mixed_networks import mixed_cases

import dtfm_lab as lab
from dtfm_lab import planning
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.planning.replanning import HORIZON_S, asked_of

IRREGULAR = (48, 80)
"""Fewest and most devices of the irregular networks."""
Change = tuple[str, Plan, Topology]
"""What happened, the plan before, and the network after."""


def planned(topology: Topology, job: Job, seconds: float, seed: int) -> Plan:
    """The best plan of so many CPU seconds of a search."""
    began = time.process_time()
    for step in planning.search(topology, job, objective="iteration", seconds=1e6, improve_bound=False, seed=seed):
        if time.process_time() - began - step.compiling_s > seconds:
            return step.plan
    return step.plan


def serving(plan: Plan, rng: np.random.Generator, n: int) -> list[str]:
    """The names of so many devices that serve."""
    return [str(name) for name in rng.choice(np.array(plan.stages).ravel(), n, replace=False)]


def loses_few(plan: Plan, rng: np.random.Generator) -> Change:
    lost = serving(plan, rng, int(rng.integers(1, 5)))
    return f"{len(lost)} go", plan, planning.network_after(plan, lost=lost)


def loses_region(plan: Plan, rng: np.random.Generator) -> Change:
    regions = sorted({d.region for d in plan.topology.devices})
    gone = str(rng.choice(regions))
    lost = [d.name for d in plan.topology.devices if d.region == gone][: len(plan.topology) // 4]
    return f"{len(lost)} of {gone or 'a place'} go", plan, planning.network_after(plan, lost=lost)


def links_change(plan: Plan, rng: np.random.Generator) -> Change:
    there = plan.topology
    regions = sorted({d.region for d in there.devices})
    of = np.array([regions.index(d.region) for d in there.devices])
    factor = np.exp(rng.normal(0.0, 0.7, (len(regions), len(regions))))
    factor = np.maximum(factor, factor.T)[np.ix_(of, of)]
    np.fill_diagonal(factor, 1.0)
    return "links change", plan, replace(there, bandwidth_bytes_per_s=there.bandwidth_bytes_per_s * factor)


def cases(name: str, topology: Topology, job: Job, rng: np.random.Generator, seconds: float) -> Iterator[Change]:
    """One change of each kind."""
    plan = planned(topology, job, seconds, seed=1)
    changes: tuple[Callable[[Plan, np.random.Generator], Change], ...] = (loses_few, loses_region, links_change)
    for change in changes:
        yield change(plan, rng)
    late = [str(n) for n in rng.choice(topology.names, int(rng.integers(2, 9)), replace=False)]
    small = topology.subset([n for n in topology.names if n not in late])
    yield f"{len(late)} come", planned(small, job, seconds, seed=1), topology


@click.command(help=__doc__)
@click.option("--seconds", default=5.0, show_default=True, help="CPU seconds of planning afresh, and of old plans.")
@click.option("--only", default="", help="Networks whose names contain this alone.")
@click.option("--seed", default=0, show_default=True, help="Seed of the changes.")
@click.option("--most", default=3, show_default=True, help="Networks at most.")
def main(seconds: float, only: str, seed: int, most: int) -> None:
    networks = [("worldwide", lab.load_topology("worldwide"), lab.load_job("gpt3-xl"))]
    sized = [c for c in mixed_cases() if IRREGULAR[0] <= len(c.topology) <= IRREGULAR[1]]
    networks += [(one.name, one.topology, one.job) for one in sized]
    networks = [one for one in networks if only in one[0]][:most]
    lab.replan(planned(networks[0][1], networks[0][2], 0.1, seed=0), lost=[])
    print(
        f"{'network':26}{'change':>18}{'afresh':>10}{'replan':>10}{'ratio':>8}{'with moves':>12}{'CPU':>9}{'moves':>10}"
    )
    ratios, times = [], []
    for name, topology, job in networks:
        rng = np.random.default_rng(seed)
        for what, plan, network in cases(name, topology, job, rng, seconds):
            began = time.process_time()
            found = planning.replan(plan, network)
            took_s = time.process_time() - began
            afresh = planned(network, asked_of(plan, len(network)), seconds, seed=2)
            value_s, other_s = found.plan.iteration_s or np.nan, afresh.iteration_s or np.nan
            spread = 1 + found.move_s / HORIZON_S, 1 + planning.moves(plan, afresh).move_s / HORIZON_S
            ratios.append(value_s / other_s)
            times.append(took_s)
            print(
                f"{name:26}{what:>18}{other_s:>8.4g} s{value_s:>8.4g} s{ratios[-1]:>8.3f}"
                f"{value_s * spread[0] / other_s / spread[1]:>12.3f}{took_s:>7.2f} s{found.move_s:>8.3g} s",
                flush=True,
            )
    print(f"ratio: median {np.median(ratios):.3f}, worst {max(ratios):.3f}; CPU seconds: median {np.median(times):.2f}")


if __name__ == "__main__":
    main()
