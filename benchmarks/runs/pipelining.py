"""Our runtime against torch.distributed.pipelining's own: real clock, no emulated links, one pipeline on this machine.

The same stages, micro-batches, batches and AdamW in all; torch computes on one thread in every worker; torch's sends
over gloo, ours over its own sockets and, in runs of their own, over process groups (gloo, too). Runs alternate, and the
median over all iterations of all runs counts, without the first WARM_UP of each run. ``sockets``, ``groups`` and
``torch`` are milliseconds from the start of an iteration to the end of the last worker's step; the two ratios are to
``torch``, p25 and p75 the quartiles of the sockets' over sets of runs. ``whole`` is from one iteration's event to the
next, with sockets: it holds what the coordinator does in between, of which torch's loop has only a barrier. ``loss
error`` is the largest difference between the runs' losses.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import click
import numpy as np
from machine import machine_line

import dtfm_lab as lab
from dtfm_lab.domain.job import gpt
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.runtime.client import launch, preload
from dtfm_lab.runtime.client.preload import run_environment
from dtfm_lab.runtime.protocol.run_options import RunSpec
from dtfm_lab.simulation import build

OPPONENT = Path(__file__).parent / "_torch_pipelining.py"
WARM_UP = 3
"""First iterations of each run, which are not counted."""
GOAL = 1.15
MODELS = {
    "tiny": gpt(name="tiny", n_layers=8, d_model=128, n_heads=4, seq_len=64, vocab_size=256, tied=False),
    "wider": gpt(name="wider", n_layers=8, d_model=256, n_heads=8, seq_len=128, vocab_size=256, tied=False),
}


@dataclass
class Seconds:
    """Measured seconds of one case over all its runs."""

    ours: list[float] = field(default_factory=list)
    groups: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    torchs: list[float] = field(default_factory=list)
    worst_loss_error: float = 0.0


@click.command(help=__doc__)
@click.option("--workers", default=[2, 4], show_default=True, multiple=True, help="Stages; may be given again.")
@click.option("--schedule", "schedules", default=["gpipe", "1f1b"], show_default=True, multiple=True)
@click.option("--model", "models", default=["tiny"], show_default=True, multiple=True, type=click.Choice(list(MODELS)))
@click.option("--microbatches", default=8, show_default=True)
@click.option("--iterations", default=25, show_default=True, help="Of each run.")
@click.option("--runs", default=4, show_default=True, help="Of each of the three, in turns.")
def main(
    workers: list[int], schedules: list[str], models: list[str], microbatches: int, iterations: int, runs: int
) -> None:
    print(machine_line())
    columns = ["sockets", "groups", "torch", "s/torch", "p25", "p75", "g/torch", "whole", "loss error"]
    print(f"{'':28}" + "".join(f"{column:>12}" for column in columns))
    preload.warm_up()
    for model in models:
        for n in workers:
            for name in schedules:
                plan = pipeline(model, n, microbatches)
                found = Seconds()
                ratios = [one_of_each(plan, name, iterations, found) for _ in range(runs)]
                measured = (found.ours, found.groups, found.torchs, found.whole)
                ours, groups, theirs, whole = (np.median(each) for each in measured)
                low, high = np.percentile(ratios, [25, 75])
                ratio = ours / theirs
                shown = f"{1e3 * ours:>12.2f}{1e3 * groups:>12.2f}{1e3 * theirs:>12.2f}{ratio:>12.3f}{low:>12.3f}"
                shown += f"{high:>12.3f}{groups / theirs:>12.3f}{1e3 * whole:>12.2f}{found.worst_loss_error:>12.1e}"
                verdict = "" if ratio <= GOAL else f"   above the goal of {GOAL:g}"
                print(f"{f'{model}, {n} workers, {name}':28}{shown}{verdict}", flush=True)


def pipeline(model: str, n_stages: int, n_microbatches: int) -> Plan:
    """A plan of one replica; the links do not matter on the real clock."""
    ones = np.ones((n_stages, n_stages))
    topology = Topology.from_matrices(ones, ones, name="free", gpu="laptop", peak_flop_per_s=5e10)
    sizes = {"n_stages": n_stages, "n_replicas": 1, "global_batch": 2 * n_microbatches, "microbatch": 2}
    job = lab.load_job("tiny", model=MODELS[model], dtype="fp32", **sizes)
    return lab.evaluate(topology, job, stages=[[stage] for stage in range(n_stages)])


def one_of_each(plan: Plan, schedule: str, iterations: int, found: Seconds) -> float:
    """One run of each; the ratio of the medians of ours with sockets and torch's."""
    ours, whole, losses = by_us(plan, schedule, iterations, "sockets")
    groups, _, losses_of_groups = by_us(plan, schedule, iterations, "groups")
    theirs, wanted = by_torch(plan, schedule, iterations)
    found.ours += ours
    found.whole += whole
    found.groups += groups
    found.torchs += theirs
    error = np.abs(np.array([losses, losses_of_groups]) - wanted).max()
    found.worst_loss_error = max(found.worst_loss_error, float(error))
    return float(np.median(ours) / np.median(theirs))


def by_us(plan: Plan, schedule: str, iterations: int, carrier: str) -> tuple[list[float], list[float], list[float]]:
    """Seconds of iterations, seconds from the end of one to that of the next, and losses."""
    came_s: list[float] = []

    def note(event: dict[str, object]) -> None:
        if event["event"] == "iteration":
            came_s.append(time.monotonic())

    trace = launch.start(plan, schedule, iterations=iterations, clock="real", carrier=carrier).wait(note)
    return trace.iteration_ends_s[WARM_UP:].tolist(), np.diff(came_s)[WARM_UP:].tolist(), list(trace.context.losses)


def by_torch(plan: Plan, schedule: str, iterations: int) -> tuple[list[float], list[float]]:
    """Seconds of iterations, and losses."""
    built = build(plan, schedule)
    spec = RunSpec(plan=plan, schedule=schedule, orders=built.orders, iterations=iterations, clock="real")
    command = [sys.executable, str(OPPONENT)]
    ended = subprocess.run(
        command, input=spec.to_line(), env=run_environment(), capture_output=True, text=True, timeout=300
    )
    if ended.returncode:
        raise SystemExit(f"{OPPONENT.name} failed:\n{ended.stderr}")
    answer = json.loads(ended.stdout.splitlines()[-1])
    return answer["seconds"][WARM_UP:], answer["losses"]


if __name__ == "__main__":
    main()
