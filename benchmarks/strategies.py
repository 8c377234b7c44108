"""Seconds in which all systems are modelled on each bundled network, in one process.

CPU seconds are those of an idle machine, of which others take no share; searches stop after seconds of the clock.
"""

from __future__ import annotations

import time

import click

import dtfm_lab as lab
from dtfm_lab.systems import Budget, outcome_of
from dtfm_lab.systems.choosing import chosen

GOAL_S = 10.0
"""Of any network."""


@click.command(help=__doc__)
@click.option("--job", default="gpt3-xl", show_default=True)
@click.option("--seconds", default=2.0, show_default=True, help="Of each system's search.")
@click.option("--networks", default="", help="Comma-separated; all by default.")
def main(job: str, seconds: float, networks: str) -> None:
    work, budget, slowest = lab.load_job(job), Budget(seconds=seconds), 0.0
    lab.strategies("lecture-hall", job, seconds=0.1)  # compiles what is compiled once
    for name in networks.split(",") if networks else lab.topology_names():
        topology, began, cpu_began = lab.load_topology(name), time.perf_counter(), time.process_time()
        found = [outcome_of(system, topology, work, budget) for system in chosen(None)]
        took_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu_began
        slowest = max(slowest, took_s)
        longest = sorted(found, key=lambda one: -one.seconds)[:4]
        parts = ", ".join(f"{one.name} {one.seconds:.2f}" for one in longest)
        print(f"{name:14s} {len(topology):4d} devices {took_s:6.2f} s, {cpu_s:6.2f} s of CPU: {parts}")
    print(f"slowest {slowest:.1f} s; goal {GOAL_S:.0f} s")


if __name__ == "__main__":
    main()
