"""Progress of a search, a table or a run in a terminal; it disappears at the end."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from dtfm_lab.cli.terminal import err
from dtfm_lab.domain.units import counted, format_s, format_share, money
from dtfm_lab.lab.arguments import SearchBudget
from dtfm_lab.planning import PlanStep
from dtfm_lab.planning.objectives import DEFAULT_SECONDS
from dtfm_lab.runtime.client import run_report
from dtfm_lab.runtime.client.record import RunRecord

FRAMES_PER_S = 8
BAR_WIDTH = 24
STYLES = {"lost": "bold red", "back": "green", "paused": "yellow"}
"""Styles of conditions; another condition looks like paused."""


@contextmanager
def search_progress(budget: SearchBudget, name: str | None = None) -> Iterator[Callable[[PlanStep], None]]:
    """Yield a function to call with every step; it shows the planner or a name, the spent budget and the best plan so
    far."""
    steps, seconds = budget.steps, budget.seconds
    if steps is None and seconds is None:
        seconds = DEFAULT_SECONDS
    with _progress_line(name or budget.planner, seconds if steps is None else steps) as update:

        def show(step: PlanStep) -> None:
            limit = f" of {seconds:g}" if seconds is not None else ""
            generations = f"{step.generation + 1} of {steps}" if steps is not None else str(step.generation + 1)
            update(
                completed=step.seconds if steps is None else step.generation + 1,
                status=f"generation {generations}  {_objective_words(step)}  "
                f"gap {format_share(step.gap)}  {step.seconds:.1f}{limit} s",
            )

        yield show


def _objective_words(step: PlanStep) -> str:
    if step.objective == "price":
        return f"{money(step.best_s)} a billion {step.job.counted}  bound {money(step.bound_s)}"
    what = "iteration" if step.objective == "iteration" else "communication cost"
    return f"{what} {format_s(step.best_s)}  bound {format_s(step.bound_s)}"


@contextmanager
def row_progress(
    name: str,
    described: Callable[[Any], str] = attrgetter("sentence"),
    noun: str = "",
    total: int | None = None,
    says_total: str = "total",
) -> Iterator[Callable[[Any], None]]:
    """Yield a function to call with every row of a table; it shows how many rows are done, and the last one.

    Their number is ``total``, or what each row says, by its attribute ``says_total``, or unknown. If rows are missing
    at the end, a line says that the command was stopped.
    """
    done = 0
    with _progress_line(name, total) as update:

        def show(row: Any) -> None:
            nonlocal done, total
            done, total = done + 1, getattr(row, says_total, None) if total is None else total
            count = f"{done}" if total is None else f"{done} of {total}"
            update(completed=done, total=total, status=f"{count}  {described(row)}")

        yield show
    if total is not None and done < total:
        err.print(f"stopped; {done} of {total} {noun} are told")


@contextmanager
def _progress_line(name: str, total: float | None) -> Iterator[Callable[..., None]]:
    """Yield a function that updates one line of progress, shown only in a terminal, with the values that changed."""
    title, status = (TextColumn(f"{{task.{what}}}", markup=False) for what in ("description", "fields[status]"))
    options: dict[str, Any] = {"transient": True, "refresh_per_second": FRAMES_PER_S, "disable": not err.is_interactive}
    with Progress(title, BarColumn(bar_width=12), status, console=err, **options) as progress:
        task = progress.add_task(name, total=total, status="")
        yield lambda **changes: progress.update(task, **changes)


@contextmanager
def run_progress(run: RunRecord, quiet: bool = False) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Yield a function to call with every event; it shows a table of the workers in a terminal, and lines elsewhere."""
    if quiet:
        yield lambda event: None
    elif not err.is_interactive:
        _print_line(run_report.describe_reductions(run.spec))
        yield lambda event: _print_line(run_line(run, event))
    else:
        _print_line(run_report.describe_reductions(run.spec))
        with Live(
            get_renderable=lambda: run_picture(run), console=err, refresh_per_second=FRAMES_PER_S, transient=True
        ):
            yield lambda event: _print_line(remark(run, event))


def run_line(run: RunRecord, event: dict[str, Any]) -> str:
    """The line that is printed for an event if there is no terminal; empty for most events."""
    match event["event"]:
        case "starting" | "waiting":
            return run_report.describe_progress(run)
        case "profile":
            return "; ".join(filter(None, ("profile taken", run_report.describe_pace(run))))
        case "iteration":
            return f"iteration {event['iteration']}: loss {event['loss']:.4f}"
        case "held_out":
            return f"after {counted(event['iteration'], 'iteration')}: {run_report.describe_losses(run)}"
    return remark(run, event)


def remark(run: RunRecord, event: dict[str, Any]) -> str:
    """The line that is printed for an event and stays on the screen; empty for most events."""
    match event["event"]:
        case "lost":
            return f"{event['device']} {event['how']} in iteration {event['iteration']}"
        case "recovered":
            return run_report.describe_fault(run.faults[-1])
        case "checkpoint":
            return run_report.describe_checkpoint(run)
        case "warning":
            return f"warning: {event['message']}"
    return ""


def run_picture(run: RunRecord) -> RenderableType:
    """The state of a run: its progress, and a line for each worker."""
    spec = run.spec
    head = Table.grid(padding=(0, 2))
    head.add_row(
        ProgressBar(total=spec.iterations, completed=len(run.losses), width=BAR_WIDTH),
        Text(f"{spec.schedule}, {spec.clock} clock: {run_report.describe_progress(run)}"),
    )
    summary = "\n".join(
        filter(
            None, (run_report.describe_losses(run), run_report.describe_pace(run), run_report.describe_lateness(run))
        )
    )
    table = Table("device", "stage", "replica", "state", "busy", "", box=None, padding=(0, 2, 0, 0))
    for row in run_report.device_rows(run):
        busy = row.busy or 0.0
        table.add_row(
            Text(row.device),
            row.stages,
            str(row.replica),
            Text(row.condition or "ok", STYLES.get(row.condition, "yellow") if row.condition else "dim"),
            "" if row.busy is None else format_share(busy, 0),
            ProgressBar(total=1.0, completed=busy, width=BAR_WIDTH // 2),
        )
    return Group(head, Text(summary, no_wrap=False, overflow="fold"), table)


def _print_line(text: str) -> None:
    if text:
        err.print(text)
