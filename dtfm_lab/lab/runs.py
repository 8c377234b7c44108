"""What does happen: real runs, what they are measured against, and what is left to explain."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

from pandas import DataFrame

from dtfm_lab.compare import Comparison, Refit
from dtfm_lab.compare import compare as compare_traces
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.trace import Trace
from dtfm_lab.lab.nouns import AnySchedule, as_plan, as_schedule
from dtfm_lab.lab.predictions import simulate
from dtfm_lab.runtime.client import baselines as measured_baselines
from dtfm_lab.runtime.client import generation_client, launch, preload
from dtfm_lab.runtime.client.baselines import BaselineRun
from dtfm_lab.runtime.client.run import Run


def warm_up() -> None:
    """Begin to load torch in a process of its own, so that the first run starts at once; returns at once."""
    preload.warm_up()


def start(plan: Plan | str, schedule: AnySchedule | None = None, **options: Any) -> Run:
    """Start real workers on this machine and return at once: a live handle, whose ``wait`` gives what was measured.

    Options
    -------
    iterations=, seed=0, learning_rate=2e-3, text=
        What is trained, for how long (without: 20 iterations, 5 on the paced clock), and on which file; without one
        on the text that comes with the lab.
    clock="virtual", time_scale=, queueing="pairs", emulated=
        How seconds are counted: ``virtual``, ``paced`` (``time_scale`` wall seconds a second) or ``real``; links as
        independent ``pairs`` or, on the virtual clock, network ``cards``; of the plan's network, or of another one.
    workers=, stand_in=, runs_on="cpu"
        How much of the plan runs, a count or (stages, pipelines): without it all of a plan of up to 32 devices, and of
        a larger one as much as 8 workers can. What is trained in place of the job's model; without it a small model
        where the job's own cannot be trained here. What workers compute on.
    parameters_folder=, checkpoint_folder=, checkpoint_every=0, resume_from=
        Where trained parameters and checkpoints go, every so many iterations (0: after the last); where to go on from.
    evaluate_every=0, sample_bytes=0
        How often held-out text is looked at (0: after the last), and how much the trained model writes at the end.

    ``runtime.launch.start`` says more of each, and what is refused.
    """
    return launch.start(as_plan(plan), as_schedule(schedule), **options)


def run(
    plan: Plan | str,
    schedule: AnySchedule | None = None,
    *,
    progress: Callable[[dict[str, Any]], None] | None = None,
    **options: Any,
) -> Trace:
    """Run a plan for real on this machine and return what was measured; ``progress`` is called with every event.

    Options are those of ``start``: iterations=, clock="virtual" (or "paced", "real"), seed=0, learning_rate=2e-3,
    text=, time_scale=, workers=, stand_in=, queueing="pairs" (or "cards"), emulated=, runs_on="cpu",
    parameters_folder=, checkpoint_folder=, checkpoint_every=0, resume_from=, evaluate_every=0, sample_bytes=0.
    """
    return launch.start(as_plan(plan), as_schedule(schedule), **options).wait(progress)


def baselines(
    plan: Plan | str,
    schedule: AnySchedule | None = None,
    *,
    progress: Callable[[BaselineRun], None] | None = None,
    **options: Any,
) -> DataFrame:
    """The plan against a random placement, the order of the file, and data parallelism alone: each priced, predicted
    and run for real on the same emulated links, as a table.

    Options are those of ``start``, alike for all; ``seed`` is the random placement's, too. ``progress`` is called with
    every row; Ctrl-C keeps the rows so far.
    """
    rows: list[BaselineRun] = []
    try:
        for row in baseline_runs(plan, schedule, **options):
            rows.append(row)
            if progress is not None:
                progress(row)
    except KeyboardInterrupt:
        if not rows:
            raise
    return measured_baselines.baseline_table(rows)


def baseline_runs(plan: Plan | str, schedule: AnySchedule | None = None, **options: Any) -> Iterator[BaselineRun]:
    """The rows of ``baselines`` as they come, each with its plan, its prediction and its measurement."""
    return measured_baselines.baseline_runs(as_plan(plan), as_schedule(schedule), **options)


def write(
    checkpoint: str | os.PathLike[str],
    prompt: str = "",
    n_bytes: int = 200,
    *,
    seed: int = 0,
    temperature: float = 0.8,
) -> str:
    """What the model of a checkpoint writes after a prompt; of a folder of several, that of most iterations."""
    return generation_client.write(checkpoint, prompt, n_bytes, seed=seed, temperature=temperature)


def compare(predicted: Trace, measured: Trace) -> Comparison:
    """Errors by row, iteration, kind, stage, device and link; ``.suspects``, ``.drift``, and ``lab.refit``."""
    return compare_traces(predicted, measured)


def refit(comparison: Comparison, plan: Plan | str) -> Refit:
    """The links and computations that would have predicted what was measured, with intervals, and the error left:
    ``.table``, ``.sentence``, ``.topology``, ``.profile``."""
    return comparison.refit(as_plan(plan), simulate)
