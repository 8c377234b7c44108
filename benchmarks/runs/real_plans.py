"""The plan for seconds against the plan for communication cost, both run on the paced clock, on five small networks.

A plan is found for each network by each of the two objectives, predicted by ``lab.simulate(plan)``, from FLOP, peaks
and links alone, and run by real workers on the paced clock, one plan after the other: time is slowed down until this
machine keeps up with the specified devices, devices and links together. ``ratio`` is the seconds of the plan for
communication over those of the plan for the iteration. Passes are padded to the specified device's time, so what a run
adds is order, dependencies, links, transport, and the optimiser's steps and sums, which the prediction counts as 0.
Workers train a small model; durations and messages are those of the job's own. ``stretched`` counts computations longer
than on the specified device, ``late`` and ``overran`` what was not in time in the whole run.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import click
import numpy as np
from machine import machine_line

import dtfm_lab as lab
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.trace import Trace
from dtfm_lab.domain.units import FloatArray

WITHIN = 0.05
"""Relative difference between measured and predicted ratio that is wanted."""
STAND_IN = "stand-in"
"""The model that is trained, small enough that eight workers share two cores."""
OBJECTIVES = ("communication", "iteration")
NAME_WIDTH = 44
HEAD = f"{'':{NAME_WIDTH}}{'shape':>8}{'micro-batches':>26}{'idle':>6}{'predicted':>11}{'measured':>11}"


@dataclass(frozen=True)
class Case:
    """A network and a job on it."""

    topology: Topology
    job: Job
    time_scale: float | None = None
    """Wall seconds a second; where None the clock chooses, and may stretch steps and sums on a busy machine."""


def linked(sizes: Sequence[int], inside: tuple[float, float], across: tuple[float, float]) -> tuple[FloatArray, ...]:
    """Latencies (ms) and bandwidths (Gbit/s) of regions of so many devices."""
    region = np.repeat(np.arange(len(sizes)), sizes)
    same = region[:, None] == region
    return tuple(np.where(same, near, far) for near, far in zip(inside, across, strict=True))


def homes(n: int, seed: int) -> tuple[FloatArray, ...]:
    """Latencies (ms) and bandwidths (Gbit/s) between home lines; a message is as fast as its sender's uplink."""
    rng = np.random.default_rng(seed)
    place, uplink_gbps = rng.uniform(0, 60, (n, 2)), rng.choice([0.02, 0.04, 0.5], n)
    latency_ms = 20 + np.linalg.norm(place[:, None] - place, axis=2)
    return latency_ms, np.broadcast_to(uplink_gbps[:, None], (n, n)).copy()


def cases() -> list[Case]:
    """Five networks of at most eight devices."""
    tiny = lab.load_job("tiny").with_fields(n_stages=None, n_replicas=None, microbatch=2, global_batch=32)
    large = lab.load_job("gpt3-xl", global_batch=32, recompute=True)
    medium = lab.load_job("gpt3-xl", name="gpt2-medium", model="gpt2-medium", global_batch=60, recompute=True)
    whole = medium.with_fields(n_stages=1)
    mixed = ["A100", "A100", "V100", "V100", "RTX 4090", "RTX 4090", "T4", "T4"]
    unlike = ["A100", "RTX 4090", "V100", "T4", "T4"]
    slow_last = ["laptop"] * 7 + ["straggler"]
    sides = ["left"] * 4 + ["right"] * 4
    straggler = [0.05] * 7 + [0.004]
    at_home = [0.1, 0.1, 0.05, 0.05, 0.05, 0.03, 0.03, 0.02]
    one_site = (0.0, 1.0)  # there is no link across

    def on(name: str, links: tuple[FloatArray, ...], kinds: Sequence[str], **devices: object) -> Topology:
        names = [f"{kind.replace(' ', '-')}-{i}" for i, kind in enumerate(kinds)]
        return Topology.from_matrices(*links, name=name, names=names, **{"gpu": "laptop"} | devices)

    return [
        Case(on("mixed GPUs", linked([8], (0.05, 10), one_site), mixed, gpu=mixed), large),
        Case(on("two regions, a thin line", linked([4, 4], (0.05, 10), (40, 0.5)), sides, gpu="V100"), large),
        Case(on("a terrible straggler", linked([8], (1, 1), one_site), slow_last, peak_tflops=straggler), tiny),
        Case(on("volunteers at home", homes(8, seed=0), ["home"] * 8, peak_tflops=at_home), tiny),
        Case(on("unlike speeds, data parallel", linked([5], (0.02, 100), one_site), unlike, gpu=unlike), whole, 20.0),
    ]


@click.command(help=__doc__)
@click.option("--iterations", default=2, show_default=True, help="Of each run.")
@click.option("--seconds", default=5.0, show_default=True, help="Of each search for a plan.")
@click.option("--only", default="", help="Networks whose name contains this.")
def main(iterations: int, seconds: float, only: str) -> None:
    print(machine_line())
    met = [one(case, iterations, seconds) for case in cases() if only in case.topology.name]
    faster, near = (sum(column) for column in zip(*met, strict=True))
    print(f"\nthe plan for the iteration is the faster one: {faster} of {len(met)}; goal all")
    print(f"measured ratio within {WITHIN:.0%} of the predicted one: {near} of {len(met)}; goal all")
    print(machine_line())


def one(case: Case, iterations: int, seconds: float) -> tuple[bool, bool]:
    """Whether the plan for the iteration was faster, and whether the measured ratio was near the predicted one."""
    print(f"\n{case.topology.name}: {len(case.topology)} devices, {case.job.name}\n{HEAD}{'scale':>9}  late, overran")
    predicted_s, measured_s = [], []
    for objective in OBJECTIVES:
        plan = lab.plan(case.topology, case.job, objective=objective, seed=0, seconds=seconds)
        predicted_s.append(lab.simulate(plan).iteration_s)
        began_s = time.monotonic()
        measured = lab.run(plan, clock="paced", iterations=iterations, stand_in=STAND_IN, time_scale=case.time_scale)
        measured_s.append(measured.iteration_s)
        print_run(objective, plan, predicted_s[-1], measured, time.monotonic() - began_s)
    predicted, found = (seconds[0] / seconds[1] for seconds in (predicted_s, measured_s))
    off = found / predicted - 1
    faster, near = measured_s[1] < measured_s[0], abs(off) <= WITHIN
    said = f"ratio predicted {predicted:.3f}, measured {found:.3f}, {off:+.1%}"
    print(
        f"{said}; faster: {'pass' if faster else 'FAIL'}; within {WITHIN:.0%}: {'pass' if near else 'FAIL'}", flush=True
    )
    return faster, near


def print_run(objective: str, plan: Plan, predicted_s: float, measured: Trace, took_s: float) -> None:
    job, ran = plan.job, measured.context
    name = f"  by {objective}, {ran.schedule}"
    shape = f"{job.n_stages} x {job.n_replicas}"
    counts = "+".join(map(str, job.microbatch_counts)) + f" of {job.microbatch}"
    seconds = f"{predicted_s:>11.4f}{measured.iteration_s:>11.4f}{ran.time_scale:>9.3g}"
    late = f"  {ran.late_messages}, {ran.overruns}" + (f", {ran.stretched} stretched" if ran.stretched else "")
    print(f"{name:{NAME_WIDTH}}{shape:>8}{counts:>26}{len(plan.idle_devices):>6}{seconds}{late}; took {took_s:.0f} s")
    pipelines = "; ".join(" ".join(names) for names in plan.pipelines)
    print(f"      layers {'+'.join(map(str, plan.layers or ()))}; pipelines {pipelines}", flush=True)


if __name__ == "__main__":
    main()
