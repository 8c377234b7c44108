"""Seconds in which all systems are modelled on each bundled network, in one process; and whether random changes of a
system's plan within its own freedoms find a faster one.

CPU seconds are those of an idle machine, of which others take no share; searches stop after seconds of the clock.
"""

from __future__ import annotations

import time

import click
import numpy as np

import dtfm_lab as lab
from dtfm_lab import files
from dtfm_lab.extensions.systems.api import Budget, Outcome, outcome_of, work_of
from dtfm_lab.extensions.systems.bound import fits
from dtfm_lab.extensions.systems.choosing import chosen
from dtfm_lab.extensions.systems.strategy import Branch

GOAL_S = 10.0
"""Of any network."""
CHANGES = 200
CHANGED = ("megatron", "fsdp", "ddp")
"""Systems whose plans are grids; the others search, or rank by a closed form."""


@click.command(help=__doc__)
@click.option("--job", default="gpt3-xl", show_default=True)
@click.option("--seconds", default=2.0, show_default=True, help="Of each system's search.")
@click.option("--networks", default="", help="Comma-separated; all by default.")
@click.option("--changes", default=0, show_default=True, help="Random changes of each plan of a grid.")
def main(job: str, seconds: float, networks: str, changes: int) -> None:
    work, budget, slowest = lab.load_job(job), Budget(seconds=seconds), 0.0
    lab.strategies("lecture-hall", job, seconds=0.1)  # compiles what is compiled once
    for name in networks.split(",") if networks else files.topology_names():
        topology, began, cpu_began = lab.load_topology(name), time.perf_counter(), time.process_time()
        found = [outcome_of(system, topology, work, budget) for system in chosen(None)]
        took_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu_began
        slowest = max(slowest, took_s)
        longest = sorted(found, key=lambda one: -one.seconds)[:4]
        parts = ", ".join(f"{one.name} {one.seconds:.2f}" for one in longest)
        print(f"{name:14s} {len(topology):4d} devices {took_s:6.2f} s, {cpu_s:6.2f} s of CPU: {parts}")
        for one in found:
            print(f"    {one.name:20s} {one.sentence}; {one.choices}", flush=True)
            if changes and one.strategy.name in CHANGED and one.found is not None:
                print(f"        {improved(one, topology, work, changes)} of {changes} random changes are faster")
    print(f"slowest {slowest:.1f} s; goal {GOAL_S:.0f} s")


def improved(outcome: Outcome, topology: lab.Topology, job: lab.Job, changes: int = CHANGES, seed: int = 0) -> int:
    """Random changes of a plan, in a grid that its system allows, that fit and are faster: simulated, not bounded."""
    rng, strategy, budget = np.random.default_rng(seed), outcome.strategy, outcome.budget
    branches = [one for one in strategy.branches(topology, work_of(job), budget) if isinstance(one, Branch)]
    near = [one for one in branches if _differences(one, outcome) <= 1]
    faster = 0
    for _ in range(changes):
        among = near if near and rng.random() < 0.5 else branches
        plans = list(among[rng.integers(len(among))].plans())
        plan = plans[rng.integers(len(plans))].changed(queueing=budget.queueing)
        seconds = strategy.seconds(plan, budget)
        faster += seconds < (outcome.iteration_s or 0.0) * (1 - 1e-9) and fits(plan)
    return faster


def _differences(branch: Branch, outcome: Outcome) -> int:
    """In how many of devices, stages, replicas and micro-batch a branch differs from the plan."""
    job, grid = outcome.job, outcome.plan.placement.devices
    differs = [branch.job.n_stages != job.n_stages, branch.job.n_replicas != job.n_replicas]
    differs += [branch.job.microbatch != job.microbatch, set(branch.grid.flat) != set(grid.flat)]
    return sum(differs)


if __name__ == "__main__":
    main()
