"""Step 2: one worker on the GPU, GPipe and 1F1B, its losses beside those of one plain process."""

from __future__ import annotations

from collections.abc import Iterator

from alone import CLOSE, largest_difference, losses_alone
from figures import Figure, Setting
from small import SMALL

import dtfm_lab as lab
from dtfm_lab.domain.job import gpt

MODEL = gpt(name="gpt-50m", n_layers=12, d_model=512, n_heads=8, seq_len=512, vocab_size=8192, tied=False)
"""Some 46 million parameters."""
WITHIN = 0.05


def measure(setting: Setting) -> Iterator[Figure]:
    sizes = {"n_stages": 1, "n_replicas": 1, "dtype": "fp32"}
    if setting.rehearses:
        job, iterations = lab.load_job("tiny", model=SMALL, **sizes, global_batch=4, microbatch=2), 3
    else:
        job, iterations = lab.load_job("tiny", model=MODEL, **sizes, global_batch=16, microbatch=4), 8
    plan = lab.plan(lab.load_topology("lecture-hall").subset([0]), job, steps=1, seed=0)
    traces = {
        schedule: lab.run(plan, schedule, clock="real", iterations=iterations, runs_on=setting.runs_on)
        for schedule in ("gpipe", "1f1b")
    }
    wanted = losses_alone(job, iterations, setting.runs_on)  # after the runs, which need the GPU's memory
    for schedule, trace in traces.items():
        difference = largest_difference(list(trace.context.losses), wanted)
        yield Figure(
            name=f"{schedule}, losses against one process",
            value=difference,
            unit="relative",
            goal=f"at most {CLOSE:g}",
            met=difference <= CLOSE,
            note=f"{iterations} steps, {job.modelled().parameters / 1e6:.0f} million parameters",
        )
        error = lab.compare(lab.simulate(plan, schedule, like=trace), trace).iteration_error
        yield Figure(
            name=f"{schedule}, predicted against measured",
            value=100 * error,
            unit="%",
            goal=f"within {WITHIN:.0%}",
            met=abs(error) <= WITHIN,
            note=f"real clock, {trace.iteration_s:.4g} s an iteration",
        )
