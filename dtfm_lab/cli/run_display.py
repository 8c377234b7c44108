"""What a terminal shows while a run goes on: a line a worker that goes when it is done; plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from dtfm_lab.cli.tell import err
from dtfm_lab.planning.explain.sentences import counted
from dtfm_lab.runtime.client import run_report
from dtfm_lab.runtime.client.record import Record

FRAMES_PER_S = 8
BAR_WIDTH = 24
STYLES = {"lost": "bold red", "back": "green", "paused": "yellow"}
"""of conditions; of others as of paused"""


@contextmanager
def showing(run: Record, quiet: bool = False) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Call it with every event of the run."""
    if quiet:
        yield lambda event: None
    elif not err.is_interactive:
        _say(run_report.describe_reductions(run.spec))
        yield lambda event: _say(line(run, event))
    else:
        _say(run_report.describe_reductions(run.spec))
        with Live(get_renderable=lambda: picture(run), console=err, refresh_per_second=FRAMES_PER_S, transient=True):
            yield lambda event: _say(remark(run, event))


def line(run: Record, event: dict[str, Any]) -> str:
    """What is said of an event where nothing moves; empty for most."""
    match event["event"]:
        case "starting":
            return run_report.describe_progress(run)
        case "profile":
            return "; ".join(filter(None, ("profile taken", run_report.describe_pace(run))))
        case "iteration":
            return f"iteration {event['iteration']}: loss {event['loss']:.4f}"
        case "held_out":
            return f"after {counted(event['iteration'], 'iteration')}: {run_report.describe_losses(run)}"
    return remark(run, event)


def remark(run: Record, event: dict[str, Any]) -> str:
    """What stays on the screen."""
    match event["event"]:
        case "lost":
            return f"{event['device']} {event['how']} in iteration {event['iteration']}"
        case "recovered":
            return run_report.describe_fault(run.faults[-1])
        case "checkpoint":
            return run_report.describe_checkpoint(run)
    return ""


def picture(run: Record) -> RenderableType:
    """The run as it is now."""
    spec = run.spec
    head = Table.grid(padding=(0, 2))
    head.add_row(
        ProgressBar(total=spec.iterations, completed=len(run.losses), width=BAR_WIDTH),
        Text(f"{spec.schedule}, {spec.clock} clock: {run_report.describe_progress(run)}"),
    )
    said = "\n".join(
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
            "" if row.busy is None else f"{busy:.0%}",
            ProgressBar(total=1.0, completed=busy, width=BAR_WIDTH // 2),
        )
    return Group(head, Text(said, no_wrap=False, overflow="fold"), table)


def _say(text: str) -> None:
    if text:
        err.print(text)
