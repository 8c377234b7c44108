"""Ten cuts of a ResNet-152 in two stages: their order as predicted, and as measured on the virtual clock.

What Parcae's authors ask of a planner for such models: which cut is faster. Each cut is trained for three iterations by
two workers; messages take what the link model says, 100 Mbit/s. ``calibrated`` predicts from what each run's workers
measured of themselves before the first iteration, ``timed`` from the seconds that the blocks took when the module was
looked at, ``from FLOP`` from their FLOP alone; these two at the speed that makes the middle cut right. Pairs are right
where both sides agree on which of two cuts is faster.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace

import click
import numpy as np
import torch
from scipy.optimize import brentq
from torch import nn

import dtfm_lab as lab
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.plan import Plan

BLOCKS = ((64, 3), (128, 8), (256, 36), (512, 3))
"""Width, and blocks of it: He et al. 2015, table 1."""
CUTS = (1, 3, 5, 8, 12, 18, 25, 35, 45, 48)
MIDDLE = CUTS.index(25)


class Bottleneck(nn.Module):
    def __init__(self, comes: int, width: int, stride: int) -> None:
        super().__init__()
        goes = 4 * width
        self.way = nn.Sequential(
            *(nn.Conv2d(comes, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
            *(nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
            *(nn.Conv2d(width, goes, 1, bias=False), nn.BatchNorm2d(goes)),
        )
        past = () if comes == goes else (nn.Conv2d(comes, goes, 1, stride, bias=False), nn.BatchNorm2d(goes))
        self.past = nn.Sequential(*past)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.way(x) + self.past(x))


class ResNet152(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.begin = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2)
        )
        blocks, comes = [], 64
        for width, n in BLOCKS:
            for at in range(n):
                blocks.append(Bottleneck(comes, width, 2 if at == 0 and width > 64 else 1))
                comes = 4 * width
        self.blocks, self.head = nn.ModuleList(blocks), nn.Linear(comes, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.begin(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((2, 3)))


def network(flop_per_s: float | None = None) -> lab.Topology:
    two = lab.Topology.from_matrices(np.full((2, 2), 5.0), np.full((2, 2), 0.1), gpu="A100")
    if flop_per_s is None:
        return two
    return replace(two, devices=tuple(replace(one, peak_flop_per_s=flop_per_s) for one in two.devices))


def cut(job: Job, at: int, topology: lab.Topology) -> Plan:
    job = job.with_fields(n_stages=2, n_replicas=1, microbatch=2, blocks_per_stage=(at, job.model.n_blocks - at))
    return lab.evaluate(topology, job.with_fields(schedule="1f1b"), stages=[[0], [1]])


def from_flop(job: Job, at: int, flop_per_s: float) -> float:
    return float(lab.simulate(cut(job, at, network(flop_per_s)), efficiency=1.0).iteration_s)


def alone(job: Job, measured: list[float]) -> list[float]:
    """The seconds of each cut from the job's FLOP, at the speed that makes the middle cut right."""
    speed = brentq(lambda s: from_flop(job, CUTS[MIDDLE], 10.0**s) - measured[MIDDLE], 8, 14)
    return [from_flop(job, at, 10.0**speed) for at in CUTS]


def right(predicted: Iterable[float], measured: Iterable[float]) -> str:
    """``44 of 45``: pairs of which the faster one was named."""
    pairs = list(itertools.combinations(list(zip(predicted, measured, strict=True)), 2))
    agree = sum((a[0] < b[0]) == (a[1] < b[1]) for a, b in pairs)
    return f"{agree} of {len(pairs)}"


@click.command(help=__doc__)
def main() -> None:
    torch.manual_seed(0)
    pictures, labels = torch.randn(40, 3, 64, 64), torch.randint(0, 1000, (40,))
    loss = nn.functional.cross_entropy
    given = {"example": (pictures, labels), "loss": loss, "global_batch": 8, "dtype": "fp32"}
    job, timed = (lab.load_job(module=ResNet152(), **given, timed=timed) for timed in (False, True))
    measured, calibrated = [], []
    print(
        "blocks before the cut   kB a picture   measured   calibrated          timed               from FLOP",
        flush=True,
    )
    for at in CUTS:
        plan = cut(job, at, network())
        trace = lab.start(plan, iterations=3, seed=0, clock="virtual").wait()
        measured.append(trace.iteration_s)
        calibrated.append(lab.simulate(plan, like=trace).iteration_s)
    by = {"calibrated": calibrated, "timed": alone(timed, measured), "from FLOP": alone(job, measured)}
    for row, (at, real) in enumerate(zip(CUTS, measured, strict=True)):
        crossing = job.model.layers[at - 1].output_elements * 4 / 1e3
        told = (f"{of[row]:8.2f} s {of[row] / real - 1:+6.1%}" for of in by.values())
        print(f"{at:12d} {crossing:20.0f} {real:10.2f} s {' '.join(told)}")
    print("pairs in the right order: " + ", ".join(f"{name} {right(of, measured)}" for name, of in by.items()))


if __name__ == "__main__":
    main()
