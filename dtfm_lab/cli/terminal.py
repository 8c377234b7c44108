"""What the commands print on standard output and standard error: lines, tables, JSON, and progress in a terminal."""

import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NoReturn

import click
from pandas import DataFrame, isna
from rich.console import Console, ConsoleDimensions, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology, uneven_hosts
from dtfm_lab.domain.report import Part, ReportSection
from dtfm_lab.domain.report import Table as ReportTable
from dtfm_lab.domain.units import counted, format_bytes, format_s, format_share, money, signed_share
from dtfm_lab.lab.arguments import SearchBudget
from dtfm_lab.planning import PlanStep
from dtfm_lab.planning.search import DEFAULT_SECONDS
from dtfm_lab.runtime.client import run_report
from dtfm_lab.runtime.client.record import RunRecord

PIPE_WIDTH = 1000
"""Characters per line if the output is not a terminal and ``COLUMNS`` is not set. It is large, so that every row is one
line."""


class _Console(Console):
    """Prints text as given, because a device may be called [a]. A reader that closes the pipe (head) is not an
    error."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, soft_wrap=True, markup=False, **options)

    @property  # type: ignore[misc]  # rich's property also has a setter, which is not needed here
    def size(self) -> ConsoleDimensions:
        found = super().size
        return found if self.is_terminal or "COLUMNS" in os.environ else found._replace(width=PIPE_WIDTH)

    def on_broken_pipe(self) -> None:
        reader_left()


out = _Console()
err = _Console(stderr=True)


def reader_left() -> NoReturn:
    """Exit with status 0. What is still buffered goes to /dev/null instead of into the closed pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise SystemExit(0)


def print_json(value: dict[str, Any]) -> None:
    """Print one line of JSON. A number that is not finite, such as the loss of a diverged run, becomes null."""
    try:
        click.echo(json.dumps(_finite(value), allow_nan=False))
    except BrokenPipeError:
        reader_left()


def _finite(value: Any) -> Any:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {key: _finite(item) for key, item in value.items()}
        case list() | tuple():
            return [_finite(item) for item in value]
    return value


def print_notes(job: Job) -> None:
    """Print on standard error what was assumed when the job's model was read from a config.json."""
    for note in () if job.model is None else job.model.notes:
        err.print(note)


def print_host_notes(topology: Topology) -> None:
    """Print a note on standard error if the last host of a file's ``per_host`` has fewer GPUs than the others. It is
    only a note, because the network may be meant that way."""
    for note in uneven_hosts(topology.devices):
        err.print(f"note: {note}")


def print_rows(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table with these headings and cells, unchanged."""
    columns = [Column(each, overflow="fold", min_width=max(map(len, each.split()), default=0)) for each in head]
    table = Table(*columns, box=None)
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(str(cell)) for cell in row))
    out.print(table)


def print_table(frame: DataFrame, headings: Mapping[str, str] = MappingProxyType({})) -> None:
    """Print a table with units, and a dash for each missing value.

    ``headings`` replace the names of columns that say too little.
    """
    columns = [str(column) for column in frame.columns]
    head = [headings.get(column, _bare(column).replace("_", " ")) for column in columns]
    rows = frame.itertuples(index=False)
    print_rows(head, ([_in_units(*each) for each in zip(columns, row, strict=True)] for row in rows))


def print_reasons(worths: Iterable[str]) -> None:
    """Print why numbers are calibrated or guessed, each reason once. ``worths`` are texts such as ``guessed: why``.
    Texts without a reason are skipped."""
    for worth in dict.fromkeys(worths):
        if ": " in worth:
            out.print(worth)


def _bare(column: str) -> str:
    """Return the name of a column without its unit, because the cells show the unit."""
    return column if column.endswith("_per_s") else column.removesuffix("_s").removesuffix("_bytes")


def print_report(parts: Iterable[Part]) -> None:
    """Print a report: sections under their titles. Text between ``**`` is bold."""
    for part in parts:
        match part:
            case str():
                out.print(_styled(part))
            case ReportTable():
                print_rows(part.head, [[_styled(cell) for cell in row] for row in part.rows])
            case ReportSection():
                out.print(Text(f"\n{part.title}", style="bold"))
                print_report(part.parts)


def _styled(text: str) -> Text:
    """Return the text in which ``**words**`` are bold."""
    pieces = text.split("**")
    return Text.assemble(*((piece, "bold" if i % 2 else "") for i, piece in enumerate(pieces)))


SHARES = ("mfu", "share")
ERRORS = ("error", "relative_error")


def _in_units(column: str, value: Any) -> str:
    if isna(value):
        return "-"
    if isinstance(value, str):
        return value
    if column in SHARES:
        return format_share(value)
    if column in ERRORS:
        return signed_share(value, 2)
    if column.endswith("_bytes"):
        return format_bytes(float(value))
    if column.endswith("_per_s"):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    if column.endswith("_s"):
        return format_s(float(value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


FRAMES_PER_S = 8
BAR_WIDTH = 24
STYLES = {"lost": "bold red", "back": "green", "paused": "yellow"}
"""Text style of a device's condition. All other conditions, such as ``2 x slower``, look like paused."""


@contextmanager
def search_progress(budget: SearchBudget, name: str | None = None) -> Iterator[Callable[[PlanStep], None]]:
    """Yield a function to call with every search step. It shows the planner or ``name``, the budget spent, and the best
    plan's objective with its bound."""
    steps, seconds = budget.steps, budget.seconds
    if steps is None and seconds is None:
        seconds = DEFAULT_SECONDS
    total = seconds if steps is None else steps
    with _progress_line(name or budget.planner, total, "looking for a first plan") as update:

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
    """Yield a function to call with every row of a table. It shows the number of rows done, and the last one, as text
    from ``described``.

    The total number of rows is ``total``. If omitted, it is the attribute of each row that ``says_total`` names, or
    unknown. If rows are missing at the end, a line says that the command was stopped.
    ``noun`` names the rows in that line.
    """
    done = 0
    with _progress_line(name, total) as update:

        def show(row: Any) -> None:
            nonlocal done, total
            # Some totals are known only from the first row on, such as the number of points of a sweep.
            done, total = done + 1, getattr(row, says_total, None) if total is None else total
            count = f"{done}" if total is None else f"{done} of {total}"
            update(completed=done, total=total, status=f"{count}  {described(row)}")

        yield show
    if total is not None and done < total:
        err.print(f"stopped; {done} of {total} {noun} are shown")


@contextmanager
def waiting(name: str, why: str) -> Iterator[None]:
    """Show in a terminal what the command is waiting for, and for how long."""
    with _progress_line(name, None, why):
        yield


class _StatusColumn(ProgressColumn):
    """The status of a task. Before the first status, what the task waits for and for how long."""

    max_refresh = 1 / FRAMES_PER_S

    def render(self, task: Task) -> Text:
        status, why = task.fields["status"], task.fields["why"]
        return Text(status or (f"{why}  {task.elapsed or 0.0:.1f} s" if why else ""))


@contextmanager
def _progress_line(name: str, total: float | None, why: str = "") -> Iterator[Callable[..., None]]:
    """Yield a function that updates a progress line with changed values. The line is shown only in a terminal.

    Until the first call, the line shows ``why`` the user waits, and for how many seconds.
    """
    title = TextColumn("{task.description}", markup=False)
    options: dict[str, Any] = {"transient": True, "refresh_per_second": FRAMES_PER_S, "disable": not err.is_interactive}
    with Progress(title, BarColumn(bar_width=12), _StatusColumn(), console=err, **options) as progress:
        task = progress.add_task(name, total=total, status="", why=why)
        progress.refresh()
        yield lambda **changes: progress.update(task, **changes)


@contextmanager
def run_progress(run: RunRecord, quiet: bool = False) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Yield a function to call with every event. It shows a table of workers in a terminal, and lines elsewhere;
    nothing if ``quiet``."""
    if quiet:
        yield lambda event: None
        return
    _print_line(run_report.describe_reductions(run.spec))
    if not err.is_interactive:
        yield lambda event: _print_line(run_line(run, event))
        return
    # Transient: the picture disappears when the run ends, and the report replaces it.
    options: dict[str, Any] = {"console": err, "refresh_per_second": FRAMES_PER_S, "transient": True}
    # Drawn once per refresh, because events may come faster than a terminal can draw.
    with Live(get_renderable=lambda: run_picture(run), **options):
        yield lambda event: _print_line(remark(run, event))


def run_line(run: RunRecord, event: dict[str, Any]) -> str:
    """Return the line to print for an event outside a terminal. Empty for most events."""
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
    """Return the line to print for an event whether or not the output is a terminal. Empty for most events."""
    match event["event"]:
        case "lost":
            return f"{event['device']} {event['how']} in iteration {event['iteration']}"
        case "recovered":
            return run_report.describe_fault(run.faults[-1])
        case "checkpoint":
            return run_report.describe_checkpoint(run)
        case "warning" | "reconnected":
            return f"warning: {event['message']}"
    return ""


def run_picture(run: RunRecord) -> RenderableType:
    """Return the state of a run: its progress, and one line per worker."""
    spec = run.spec
    head = Table.grid(padding=(0, 2))
    head.add_row(
        ProgressBar(total=spec.iterations, completed=len(run.losses), width=BAR_WIDTH),
        Text(f"{spec.schedule}, {spec.clock} clock: {run_report.describe_progress(run)}"),
    )
    sentences = run_report.describe_losses(run), run_report.describe_pace(run), run_report.describe_lateness(run)
    summary = "\n".join(filter(None, sentences))
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
