"""What happened in a run, as lines with the wall seconds at which it did. It contains no widget."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from dtfm_lab.domain.trace import Fault
from dtfm_lab.domain.units import format_s
from dtfm_lab.runtime.client import run_report
from dtfm_lab.runtime.client.record import RunRecord

MOST_LINES = 200
"""Lines that are kept; of more, the first ones are dropped."""


@dataclass
class Happening:
    """One line."""

    at_s: float
    """Wall seconds since the run was started."""
    text: str
    subject: str = ""
    """The device that the text begins with, where something is wrong with it."""
    key: str = ""
    """A newer line with the same key replaces the last line, where that has it too; empty for none."""


class Happenings:
    """Reads a run at every call of ``look``; ``add`` appends what the run does not record."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self.lines: list[Happening] = []
        self._began_s = now_s()
        self._n_done = self._n_faults = 0
        self._noted: tuple[str, ...] = ()

    def begin(self) -> None:
        """Remove all lines and count seconds from now."""
        self.__init__(self._now_s)  # type: ignore[misc]

    def add(self, text: str, subject: str = "", key: str = "") -> None:
        if key and self.lines and self.lines[-1].key == key:
            self.lines.pop()
        self.lines = [*self.lines, Happening(self._now_s() - self._began_s, text, subject, key)][-MOST_LINES:]

    def look(self, run: RunRecord) -> None:
        """Append what has happened since the last call."""
        if run.status == "starting":
            self.add(run_report.describe_progress(run), key="starting")
        elif run.status == "profiling":
            done, total = run.profiled
            self.add(
                f"profiling {min(done + 1, total)} of {max(1, total)}: what computations cost here", key="profiling"
            )
        for fault in run.faults[self._n_faults :]:
            took, goes_on = describe(fault)
            self.add(took, fault.device)
            self.add(goes_on)
        self._n_faults = len(run.faults)
        for note in run.notes:
            if note not in self._noted:
                self.add(note)
        self._noted = run.notes
        done = run.spec.first_iteration + len(run.losses)
        if done != self._n_done and run.losses:
            first = self._n_done == 0
            self._n_done = done
            self.add(f"iteration {done - 1}, loss {run.losses[-1]:.2f}", key="" if first else "iteration")


def describe(fault: Fault) -> tuple[str, str]:
    """Return what befell a device and what replaced it, without its name, and that the run goes on."""
    instead = "" if fault.how == run_report.CAME_BACK else "; another worker takes its place"
    return (
        f"{fault.how} in iteration {fault.iteration}{instead}, with the state from {fault.state_from}",
        f"training goes on, {format_s(fault.lost_s)} lost",
    )
