"""AMP, a planner of model-parallel training (not mixed precision): GPT-2 on 16 T4s, in grids of tensor, data and
pipeline parallelism. Iterations as its authors measured and predicted them.

Each iteration is predicted in three ways. The first knows the devices, and the links as AMP counts them. The second
also knows AMP's profile. In the profile a forward of one sequence takes as long on one GPU as on four that share each
layer. So the host's kernel launches are the limit (``block_launch_s``). (AMP multiplies the profile by the sequences of
a micro-batch, and by 3 for the backward.) The third way also fits the speed of links inside a host.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from dtfm_lab.costs.efficiency import GUESS_SPREAD
from dtfm_lab.domain.job import Job, gpt
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import from_gbps
from dtfm_lab.extensions.published.row import DATA, Evidence, Row, assumptions, numbers
from dtfm_lab.extensions.published.sources import published
from dtfm_lab.extensions.published.units import hosts_of, interval_of, listed_plan
from dtfm_lab.simulation import simulate
from dtfm_lab.simulation.simulate import iteration_seconds

NUMBERS = "amp_homogeneous.csv"
GPUS = 16
PER_HOST = 4
"""GPUs per host."""
BLOCKS = range(2, 26)
"""Indices of the transformer blocks among the 30 layers into which AMP divides the model."""
COUNTED_GBPS = 50.0
"""Gbit/s of links inside a host, and of links between hosts, as AMP counts them."""
TRIED_GBPS = (10.0, 12.5, 16.0, 20.0, 25.0, 31.5, 40.0, 50.0)
"""Gbit/s that are tried for the links inside a host: preferred numbers in steps of about a quarter."""
LAUNCHES = 2.0
"""Minimum time of a block's forward and backward, as a multiple of the profiled forward. The backward launches as many
kernels as the forward."""
FAILED = "inf"
PROFILED = ", AMP's profile"
"""End of the names of rows whose prediction knows AMP's profile."""
OWN_LINKS = ", AMP's profile and fitted links"
"""End of the names of rows whose prediction also fits the speed of links inside a host."""
ASSUMED = assumptions()["amp"]


class Sustained(NamedTuple):
    """The share of their peak that T4s sustain. It is below the lab's guess, because a T4 is limited to 70 W."""

    factor: float = 24 / 65
    """TFLOP/s that fp16 products of 4,096 x 4,096 x 4,096 sustain, divided by the data sheet's peak. The clock falls
    until the GPU draws 70 W (forums.developer.nvidia.com, "About GPU peak performance", 264462)."""
    spread: float = GUESS_SPREAD

    def __float__(self) -> float:
        return self.factor


SUSTAINED = Sustained()


@cache
def profile() -> dict[int, list[float]]:
    """Return the forward seconds of one sequence in each of AMP's 30 layers on T4s, by the number of GPUs that share a
    layer."""
    text = (DATA / NUMBERS).read_text(encoding="utf-8")
    found = re.findall(r"gpt2_G4_(\d): ([\d. ]+)", text)
    return {int(gpus): [float(seconds) for seconds in column.split()] for gpus, column in found}


@dataclass(frozen=True)
class AmpTrial:
    """One measured configuration: a line of the measurements."""

    line: dict[str, str]

    def __getitem__(self, name: str) -> int:
        return int(self.line[name])

    @property
    def stages(self) -> list[range]:
        """The layers of each stage, as indices among AMP's 30."""
        cut = [int(first) for first in self.line["cut"].split()]
        return [range(first, end) for first, end in pairwise(cut)]

    @property
    def grid(self) -> str:
        return f"TP {self['tp']} DP {self['dp']} PP {self['pp']}, micro-batch {self['microbatch']}"


def trials() -> list[AmpTrial]:
    """Return the trials that ran."""
    return [AmpTrial(line) for line in numbers(NUMBERS) if line["measured"] != FAILED]


def plan_of(trial: AmpTrial, inside_gbps: float = COUNTED_GBPS, *, profiled: bool = True) -> Plan:
    """Return the plan of a trial, in DeepSpeed's rank order."""
    model = gpt(name="gpt2-medium", n_layers=24, d_model=1024, n_heads=16, seq_len=1024, vocab_size=52256)
    launch_s = LAUNCHES * float(np.mean(profile()[trial["tp"]][BLOCKS.start : BLOCKS.stop]))
    job = Job(
        name="amp",
        model=model,
        tensor_parallel=trial["tp"] if trial["tp"] > 1 else None,
        n_stages=trial["pp"],
        n_replicas=trial["dp"],
        global_batch=32,
        microbatch=trial["microbatch"],
        blocks_per_stage=tuple(sum(layer in BLOCKS for layer in stage) for stage in trial.stages),
        dtype="fp16",
        gradient_dtype="fp32",
        schedule="1f1b",
        transport="blocking",
        synchronisation="ring",
        attention="unfused",
        block_launch_s=launch_s if profiled else 0.0,
    )
    inside, between = from_gbps(inside_gbps), from_gbps(COUNTED_GBPS)
    hosts = hosts_of(GPUS, "T4", inside_bytes_per_s=inside, between_bytes_per_s=between, per_host=PER_HOST)
    return listed_plan(hosts, job)


def seconds(trial: AmpTrial, inside_gbps: float) -> float:
    """Return the seconds of an iteration, with AMP's profile."""
    return iteration_seconds(plan_of(trial, inside_gbps), efficiency=SUSTAINED)


def fitted_gbps(errors: np.ndarray) -> list[float]:
    """Return, for each trial, the bandwidth at which the other trials have the lowest mean error.

    ``errors`` is (trials, ``TRIED_GBPS``): the log of predicted over measured.
    """
    sums = np.abs(errors).sum(axis=0)
    # The trial's own error is subtracted, so that no trial is fitted to itself.
    return [TRIED_GBPS[int(np.argmin(sums - np.abs(own)))] for own in errors]


@published("amp")
def amp() -> Iterator[Row]:
    """Yield iterations, each predicted in the three ways, with AMP's own predictions."""
    measured = trials()
    for trial in measured:
        note = "no blind prediction: what a T4 sustains was looked up after these rows had missed"
        yield _simulated(trial, "", Evidence.TRANSFERRED, ASSUMED["alone"], note)
    for trial in measured:
        yield _simulated(trial, PROFILED, Evidence.PROFILED, (*ASSUMED["alone"], *ASSUMED["profiled"]))
    # Tried on a grid, because a link's speed does not enter as a factor.
    predicted_s = np.array([[seconds(trial, gbps) for gbps in TRIED_GBPS] for trial in measured])
    measured_s = np.array([float(trial.line["measured"]) for trial in measured])
    chosen = fitted_gbps(np.log(predicted_s / measured_s[:, None]))
    for trial, tried_s, gbps in zip(measured, predicted_s, chosen, strict=True):
        yield Row(
            **_said(trial, OWN_LINKS),
            predicted=tried_s[TRIED_GBPS.index(gbps)],
            evidence=Evidence.LEAVE_ONE_OUT,
            assumptions=(*ASSUMED["alone"], *ASSUMED["profiled"]),
            fitted=f"{gbps:g} Gbit/s inside a host, to the other {len(measured) - 1} rows",
        )


def _simulated(trial: AmpTrial, how: str, evidence: Evidence, assumed: tuple[str, ...], note: str = "") -> Row:
    """Return the row of a trial on the links that AMP counts."""
    trace = simulate(plan_of(trial, profiled=bool(how)), efficiency=SUSTAINED)
    interval = interval_of("iteration", trace.iteration_s, trace)
    said = _said(trial, how) | {"evidence": evidence, "assumptions": assumed, "interval": interval, "note": note}
    return Row(predicted=trace.iteration_s, **said)


def _said(trial: AmpTrial, how: str) -> dict[str, Any]:
    """Return the fields that all rows of a trial share."""
    return {
        "group": f"16 T4{how}",
        "setting": f"{trial.grid}{how}",
        "quantity": "iteration",
        "unit": "s",
        "published": float(trial.line["measured"]),
        "theirs": float(trial.line["predicted_by_amp"]),
    }
