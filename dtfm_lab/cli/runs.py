"""Commands about real runs: run a plan, and compare traces or plans."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from dtfm_lab import files, lab
from dtfm_lab.cli.options import (
    RUN,
    cli,
    file_option,
    gathered,
    json_option,
    output_option,
    plan_argument,
    schedule_option,
)
from dtfm_lab.cli.plans import report_difference
from dtfm_lab.cli.terminal import err, out, run_progress
from dtfm_lab.cli.traces import report_comparison, report_trace
from dtfm_lab.domain.errors import LabError
from dtfm_lab.files.traces import save_losses
from dtfm_lab.runtime.client import run_report
from dtfm_lab.runtime.client.run import Run

FAULT = re.compile(r"(kill|pause|resume|slow)\s+(.+?)\s+at\s+(\d+)(?:\s+by\s+(\S+))?")
FAULT_HELP = 'A fault to inject, such as "kill ada at 2" or "slow ada at 2 by 3"; repeat for more.'
FAULT_WANTED = 'wanted such as "kill ada at 2", pause or resume, or "slow ada at 2 by 3"'


@dataclass
class Disturbance:
    """A fault to inject: a command for one device at the start of an iteration."""

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
    """Apply the faults that are due. A fault at iteration i is due when iteration i - 1 is done. One at the first
    iteration is due when the profile has been taken."""
    begins = {"profile": run.spec.first_iteration, "iteration": event.get("iteration", 0) + 1}.get(event["event"])
    for fault in faults:
        if fault.iteration == begins and not fault.done and run.running:
            fault.done = True
            fault.apply(run)


def shape(text: str) -> int | tuple[int, ...]:
    """Return the option ``workers`` from text: a number of workers (``8``), or stages x pipelines (``4x2``)."""
    if re.fullmatch(r"\d+(x\d+)?", text) is None:
        raise LabError(f"workers is {text!r}; wanted a count such as 8, or stages and pipelines such as 4x2")
    counts = tuple(map(int, text.split("x")))
    return counts if len(counts) > 1 else counts[0]


workers_option = click.option(
    "--workers",
    callback=lambda _context, _option, text: None if text is None else shape(text),
    help="Run only part of PLAN: N workers, or STAGESxPIPELINES such as 4x2. By default, a plan of up to 32 workers "
    "runs whole, and a larger one with 8 workers.",
)


@cli.command()
@plan_argument
@schedule_option
@gathered(RUN, into="options")
@workers_option
@click.option("--fault", "faults", multiple=True, help=FAULT_HELP)
@file_option("--losses", help="Write the losses to this CSV file.")
@output_option
@json_option
def run(
    plan_file: str,
    schedule: str | None,
    options: dict[str, Any],
    workers: int | tuple[int, ...] | None,
    faults: tuple[str, ...],
    losses: str | None,
    output: str | None,
    as_json: bool,
) -> None:
    """Train PLAN for real on this machine.

    Starts one torch worker for each stage and replica. Unless the clock is real, messages take as long as the network's
    links say. Prints the measured trace and the losses.

    \b
        dtfm-lab run plan.json --iterations 10 -o measured.json
        dtfm-lab run plan.json --workers 4x2 --fault "kill ada at 2"
    """
    disturbances = [Disturbance.read(text) for text in faults]  # first, so that a typo costs no start of workers
    whole = files.load_plan(plan_file)
    # Only a warning: the workers hold the model in this machine's memory, not in the specified devices'.
    if (lacking := lab.memory(whole, schedule).advice) and not as_json:
        err.print(f"the specified devices would be out of memory: {lacking}")
    run = lab.start(whole, schedule, workers=workers, **options)
    try:
        for fault in disturbances:
            fault.check(run)
        with run_progress(run, quiet=as_json) as show:

            def progress(event: dict[str, Any]) -> None:
                disturb(run, disturbances, event)
                show(event)

            trace = run.wait(progress)
    finally:
        # Also after Ctrl-C or an error, because workers are separate processes and would continue.
        run.stop()
    report_trace(trace, output, as_json)
    if losses is not None:
        save_losses(trace, losses)
    if run.text is not None and not as_json:
        out.print("".join(run_report.generated_text(run)))


@cli.command()
@click.argument("predicted", type=click.Path())
@click.argument("measured", type=click.Path())
@click.option(
    "--refit",
    "plan_file",
    metavar="PLAN",
    type=click.Path(),
    help="Fit the links and computation times of this plan to the measurement.",
)
@file_option("-o", "--output", help="Write the refitted network to this file.")
@json_option
def compare(predicted: str, measured: str, plan_file: str | None, output: str | None, as_json: bool) -> None:
    """Compare a PREDICTED trace with a MEASURED one, or two plans.

    For traces, shows which links and devices cause the prediction's error, and since when. For plans, shows what moved
    from the first to the second, and what that cost.

    \b
        dtfm-lab compare predicted.json measured.json --refit plan.json -o refitted.yaml
        dtfm-lab compare before.json after.json
    """
    first, where = files.read_mapping(Path(predicted)), Path(predicted).name
    if "dtfm_plan" in first:
        if plan_file is not None or output is not None:
            raise click.UsageError("--refit and -o are for traces; wanted two plans without them")
        return report_difference(files.plan_from_mapping(first, where=where), measured, as_json)
    if output is not None and plan_file is None:
        raise click.UsageError("-o writes the refitted network; wanted --refit PLAN with it")
    comparison = lab.compare(files.trace_from_mapping(first, where=where), files.load_trace(measured))
    refitted = None if plan_file is None else comparison.refit(files.load_plan(plan_file), lab.simulate)
    if refitted is not None and output is not None:
        files.save_topology(refitted.topology, output)
    report_comparison(comparison, refitted, as_json)
