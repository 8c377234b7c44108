"""Step 4: model FLOP utilisation of one stage in bf16, a model of 1.3 billion parameters, without any emulation.

Floating-point operations are those of the lab's own model (6 a parameter and token, and attention as if it were not
causal, as in the PaLM paper), which a test compares with torch's counter. Utilisation is of the table's peak.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from figures import Figure, Setting
from machine_facts import table_row
from plain_training import PlainTraining, random_batch
from small import SMALL
from timing import device_name, seconds_of

import dtfm_lab as lab
from dtfm_lab.domain.job import Job

GOAL = 0.45
MICROBATCHES = {True: (8, 16), False: (8,)}
"""Sizes tried with and without torch.compile; the best counts."""


def training_flop(job: Job) -> float:
    """Of a step over the whole batch, the backward twice the forward."""
    return 3.0 * job.modelled().forward_flop * job.global_batch


def measure(setting: Setting) -> Iterator[Figure]:
    row = table_row(device_name(setting.runs_on))
    peak = None if row is None else row[1].peak.get("bf16")
    for compiles in (True, False):
        if compiles and setting.rehearses:
            continue  # torch.compile needs a C++ compiler on a CPU, and a minute
        best = 0.0
        for size in (1,) if setting.rehearses else MICROBATCHES[compiles]:
            try:
                seconds, flop = _one(setting, size, compiles)
            except torch.cuda.OutOfMemoryError:
                torch.cuda.empty_cache()
                yield Figure(name=f"micro-batch {size}", value="out of memory")
                continue
            best = max(best, flop / seconds)
            yield Figure(
                name=f"micro-batch {size}, {'torch.compile' if compiles else 'eager'}",
                value=flop / seconds / 1e12,
                unit="TFLOP/s of the model",
                note=f"{seconds:.4g} s a step with its optimiser's",
            )
        if best and peak:
            yield Figure(
                name=f"model FLOP utilisation, {'torch.compile' if compiles else 'eager'}",
                value=100 * best / peak,
                unit="%",
                goal=f"{GOAL:.0%} or more" if compiles else "",
                met=best / peak >= GOAL if compiles else None,
                note=f"of {peak / 1e12:g} TFLOP/s, {row[0] if row else ''} in bf16",
            )
        elif best and not setting.rehearses:
            yield Figure(name="model FLOP utilisation", value="not judged", note="the table has no row for this GPU")


def _one(setting: Setting, size: int, compiles: bool) -> tuple[float, float]:
    """Seconds of a step, and its FLOP."""
    model = SMALL if setting.rehearses else "gpt3-xl"
    job = lab.load_job("tiny", model=model, n_stages=1, n_replicas=1, global_batch=size, microbatch=size, dtype="bf16")
    torch.set_float32_matmul_precision("high")
    training = PlainTraining(job, setting.runs_on, compiles=compiles)
    batch = random_batch(job, setting.runs_on)
    repeats = 2 if setting.rehearses else 8
    return seconds_of(
        lambda: training.step(*batch), setting.runs_on, repeats, 1 if setting.rehearses else 3
    ), training_flop(job)
