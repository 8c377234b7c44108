"""What a terminal shows while a search runs: one line on standard error that goes when it is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.progress import BarColumn, Progress, TextColumn

from dtfm_lab.cli.tell import err
from dtfm_lab.domain.units import format_s
from dtfm_lab.planning import DeviceWorth, PlanStep
from dtfm_lab.planning.search import DEFAULT_SECONDS


@contextmanager
def search_progress(planner: str, steps: int | None, seconds: float | None) -> Iterator[Callable[[PlanStep], None]]:
    """The planner, how much of its budget is spent, and its best plan so far: call it with every step."""
    if steps is None and seconds is None:
        seconds = DEFAULT_SECONDS
    with _line() as progress:
        task = progress.add_task(planner, total=seconds if steps is None else steps, said="")

        def show(step: PlanStep) -> None:
            budget = f" of {seconds:g}" if seconds is not None else ""
            generations = f"{step.generation + 1} of {steps}" if steps is not None else str(step.generation + 1)
            progress.update(
                task,
                completed=step.seconds if steps is None else step.generation + 1,
                said=f"generation {generations}  cost {format_s(step.best_s)}  bound {format_s(step.bound_s)}  "
                f"gap {step.gap:.1%}  {step.seconds:.1f}{budget} s",
            )

        yield show


@contextmanager
def device_progress(n_devices: int) -> Iterator[Callable[[DeviceWorth], None]]:
    """How many devices are done, and the last: call it with every row."""
    with _line() as progress:
        task = progress.add_task("worth", total=n_devices, said="")

        def show(row: DeviceWorth) -> None:
            progress.advance(task)
            progress.update(task, said=f"{row.device} {row.verdict}, worth {format_s(row.worth_s)}")

        yield show


class Numbered(Protocol):
    """A row that knows how many there are."""

    @property
    def number(self) -> int: ...

    @property
    def total(self) -> int: ...


@contextmanager
def numbered_progress(name: str) -> Iterator[Callable[[Numbered, str], None]]:
    """How many rows are done, and what is said of the last: call it with every row."""
    with _line() as progress:
        task = progress.add_task(name, total=None, said="")

        def show(row: Numbered, said: str) -> None:
            progress.update(task, completed=row.number, total=row.total, said=f"{row.number} of {row.total}  {said}")

        yield show


def _line() -> Progress:
    name, said = (TextColumn(f"{{task.{what}}}", markup=False) for what in ("description", "fields[said]"))
    quiet = not err.is_interactive  # in a pipe or a log, not even its last newline
    bar = BarColumn(bar_width=12)
    return Progress(name, bar, said, console=err, transient=True, refresh_per_second=8, disable=quiet)
