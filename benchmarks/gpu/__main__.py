"""All that waits for a GPU, as one programme that writes a report: ``python benchmarks gpu``, or ``make gpu``.

Each step is a process of its own with a limit; one that fails or runs over is recorded with a one-line reason, and the
others go on. The report, ``report.json`` and ``report.md``, is written after each step; Ctrl-C keeps what is there.
Steps that are run later join the report of the same machine and commit. ``--rehearse`` runs all that can run in small
sizes on the CPU, which proves the programme and says nothing about a GPU. Exits with 1 where a goal was missed, or a
step failed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).parents[2]))

from child import Interruption, measure_here, run_step
from report import Report, StepRecord
from steps import STEPS

FOLDER = Path(__file__).parents[2] / "build" / "gpu-report"


def chosen(_context: click.Context, _parameter: click.Parameter, value: str) -> list[str]:
    """Names of steps from a list with commas. Raises BadParameter for one that is none."""
    names = [name.strip() for name in value.split(",") if name.strip()] or list(STEPS)
    if unknown := [name for name in names if name not in STEPS]:
        raise click.BadParameter(f"there is no step {', '.join(unknown)}; wanted some of {', '.join(STEPS)}")
    return [name for name in STEPS if name in names]


@click.command(help=__doc__)
@click.option("--steps", "names", default="", callback=chosen, help="Names with commas between them; all by default.")
@click.option(
    "--minutes", default=25.0, show_default=True, type=click.FloatRange(min=0), help="For all steps together."
)
@click.option("--rehearse", is_flag=True, help="Small sizes on the CPU: no figure of a GPU.")
@click.option("--folder", default=FOLDER, type=click.Path(path_type=Path, file_okay=False), help="Of the report.")
@click.option("--list", "lists", is_flag=True, help="Name the steps and their limits, and run none.")
@click.option(
    "--here", is_flag=True, hidden=True, help="Run the one step in this process; its parent reads its figures."
)
def main(names: Sequence[str], minutes: float, rehearse: bool, folder: Path, lists: bool, here: bool) -> None:
    if lists:
        for step in STEPS.values():
            print(f"{step.name:18}{step.minutes:5.1f} min  {step.title}")
        return
    folder = folder.resolve()
    if here:
        sys.exit(measure_here(STEPS[names[0]], folder, rehearse))
    folder.mkdir(parents=True, exist_ok=True)
    report = Report.opened(folder, rehearse, list(STEPS))
    ends_s = time.monotonic() + 60 * minutes
    print(report.machine_line, flush=True)
    with Interruption() as interruption:
        for number, name in enumerate(names, 1):
            step = STEPS[name]
            left_s = ends_s - time.monotonic()
            print(f"[{number}/{len(names)}] {step.title}", flush=True)
            if left_s > 0:
                record = run_step(step, folder, rehearse, min(60 * step.minutes, left_s), interruption)
            else:
                record = StepRecord(reason=f"the {minutes:g} minutes were over; --steps {name} runs it alone")
            report.keep(name, record)
            if record.reason:
                print(f"    {record.state}: {record.reason}", flush=True)
            if interruption.came:
                print("interrupted; the report has what was measured", flush=True)
                break
    print(f"{report.summary}\n{folder / 'report.md'}", flush=True)
    sys.exit(0 if report.is_good else 1)


if __name__ == "__main__":
    main()
