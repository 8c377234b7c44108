"""The command ``run``: its options, the faults that it was asked for, and what it prints in the end."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import click

from dtfm_lab import files, lab
from dtfm_lab.cli.options import file_option, schedule_option
from dtfm_lab.cli.run_display import showing
from dtfm_lab.cli.tell import err, out
from dtfm_lab.cli.tell_trace import deliver_trace
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.network import QUEUEING
from dtfm_lab.files.losses import save_losses
from dtfm_lab.runtime.client import run_report
from dtfm_lab.runtime.client.run import Run
from dtfm_lab.runtime.protocol.run_options import RUN_CLOCKS, RUNS_ON

FAULT = re.compile(r"(kill|pause|resume|slow)\s+(.+?)\s+at\s+(\d+)(?:\s+by\s+(\S+))?")
FAULT_WANTED = 'wanted such as "kill ada at 2", pause or resume, or "slow ada at 2 by 3"'


@dataclass
class Disturbance:
    """Something that is done to a device when an iteration begins."""

    command: str
    device: str
    iteration: int
    factor: float | None = None
    done: bool = False

    @classmethod
    def read(cls, text: str) -> Disturbance:
        match = FAULT.fullmatch(text.strip())
        if match is None:
            raise LabError(f"fault {text!r} is not understood; {FAULT_WANTED}")
        command, device, iteration, factor = match.groups()
        if factor is not None and command != "slow":
            raise LabError(f"fault {text!r} has a factor, which only slow takes; {FAULT_WANTED}")
        try:
            times = None if factor is None else float(factor)
        except ValueError:
            raise LabError(f"fault {text!r} has factor {factor!r}; wanted a number") from None
        return cls(command, device, int(iteration), times)

    def check(self, run: Run) -> None:
        first, n = run.spec.first_iteration, run.spec.iterations
        if not first <= self.iteration < first + n:
            raise LabError(
                f"fault of {self.device} at iteration {self.iteration}; wanted {first} to {first + n - 1}, which run"
            )
        run.rank_of(self.device)
        if self.factor is not None:
            run.check_factor(self.factor)

    def apply(self, run: Run) -> None:
        options = {} if self.factor is None else {"factor": self.factor}
        getattr(run, self.command)(self.device, **options)


def disturb(run: Run, faults: list[Disturbance], event: dict[str, Any]) -> None:
    """Do what is due: a fault of iteration i when i - 1 is whole, or when the first begins."""
    begins = {"profile": run.spec.first_iteration, "iteration": event.get("iteration", 0) + 1}.get(event["event"])
    for fault in faults:
        if fault.iteration == begins and not fault.done and run.running:
            fault.done = True
            fault.apply(run)


def shape(text: str) -> int | tuple[int, ...]:
    """``8``, or ``4x2``: stages and pipelines."""
    if re.fullmatch(r"\d+(x\d+)?", text) is None:
        raise LabError(f"workers is {text!r}; wanted a count such as 8, or stages and pipelines such as 4x2")
    counts = tuple(map(int, text.split("x")))
    return counts if len(counts) > 1 else counts[0]


def run_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """How a plan is run, as keywords of ``lab.start``; and the faults, as Disturbances."""

    @schedule_option
    @click.option("--clock", default="virtual", show_default=True, help=f"One of {', '.join(RUN_CLOCKS)}.")
    @click.option("--iterations", type=int, help="20 otherwise, 5 on the paced clock.")
    @click.option("--seed", type=int, default=0, show_default=True)
    @click.option("--text", type=click.Path(), help="Train on the bytes of this file.")
    @click.option("--time-scale", type=float, help="Paced clock: wall seconds per second; chosen by itself otherwise.")
    @click.option("--queueing", default="pairs", show_default=True, help=f"One of {', '.join(QUEUEING)}.")
    @click.option("--workers", help="Run a part of PLAN on so many, or on 4x2: stages x pipelines.")
    @click.option("--stand-in", help="Train this model instead; messages keep the job's sizes.")
    @click.option("--emulated", help="Emulate the links of this network, by name or file, not the plan's.")
    @click.option("--runs-on", default="cpu", show_default=True, help=f"One of {', '.join(RUNS_ON)}.")
    @click.option("--checkpoint", "checkpoint_folder", type=click.Path(), help="Leave checkpoints in this folder.")
    @click.option("--checkpoint-every", type=int, default=0, help="Iterations; only after the last otherwise.")
    @click.option("--resume", "resume_from", type=click.Path(), help="Go on from the checkpoint in this folder.")
    @click.option("--evaluate-every", type=int, default=0, help="Iterations between looks at the held-out text.")
    @click.option("--sample", "sample_bytes", type=int, default=0, help="Let the model write so many bytes at the end.")
    @click.option("--fault", "faults", multiple=True, help='Such as "kill ada at 2"; may be given several times.')
    @file_option("--losses", say="Write the losses to this CSV file.")
    @wraps(command)
    def with_nouns(*, faults: tuple[str, ...], workers: str | None, **options: Any) -> Any:
        options["workers"] = None if workers is None else shape(workers)
        return command(faults=[Disturbance.read(text) for text in faults], **options)

    return with_nouns


def run_and_tell(
    plan_file: str, faults: list[Disturbance], losses: str | None, output: str | None, as_json: bool, **options: Any
) -> None:
    """Run, show it while it goes, deliver the trace; in a terminal what the model wrote, too."""
    whole = files.load_plan(plan_file)
    if (lacking := lab.advice(whole, options["schedule"])) and not as_json:
        err.print(f"the drawn devices would be out of memory: {lacking}")
    run = lab.start(whole, **options)
    try:
        for fault in faults:
            fault.check(run)
        with showing(run, quiet=as_json) as show:

            def progress(event: dict[str, Any]) -> None:
                disturb(run, faults, event)
                show(event)

            trace = run.wait(progress)
    finally:
        run.stop()
    deliver_trace(trace, output, as_json)
    if losses is not None:
        save_losses(trace, losses)
    if run.text is not None and not as_json:
        out.print("".join(run_report.generated_text(run)))
