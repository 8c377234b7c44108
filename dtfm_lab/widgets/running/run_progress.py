"""A run's progress, time left and events, and the gaps that lost devices leave in its chart."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from dtfm_lab.domain.network import name_words
from dtfm_lab.domain.trace import Fault, Trace
from dtfm_lab.domain.units import counted, format_s
from dtfm_lab.files.traces import losses
from dtfm_lab.runtime.client import run_report
from dtfm_lab.runtime.client.record import Event, RunRecord
from dtfm_lab.widgets import markup
from dtfm_lab.widgets import quiet as w
from dtfm_lab.widgets.views.gantt import GanttView
from dtfm_lab.widgets.views.gantt.bars import gap_after, gaps_before

LOOKS = 40
"""Maximum number of recent observations (time, iterations done) from which the pace is computed."""
FEWEST_ITERATIONS = 2
"""Iterations that must be done before the time left is shown."""
MOST_LINES = 200
"""Maximum number of lines in the log. The oldest are dropped."""


class RunProgress:
    """A line such as ``3 of 8 iterations done, about 4 s left``."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._changes: deque[tuple[float, int]] = deque(maxlen=LOOKS)
        self.line = w.HTML()

    def begin(self) -> None:
        """Start over with another run."""
        self._changes.clear()
        self._write("starting")

    def show(self, run: RunRecord) -> None:
        done, total = len(run.losses), run.spec.iterations
        if not self._changes or self._changes[-1][1] != done:
            if self._changes and self._changes[-1][1] > done:
                self._changes.clear()  # after a fault iterations are repeated
            self._changes.append((self._now_s(), done))
        left_s = self.left_s(total) if run.status == "running" else None
        self._write(run_report.describe_progress(run) + ("" if left_s is None else f", about {_rounded(left_s)} left"))

    def stopping(self) -> None:
        """Show that the run is being stopped."""
        self._write("stopping")

    def left_s(self, total: int) -> float | None:
        """Return the wall seconds left at the pace of the last iterations. None until there is a pace."""
        if not self._changes:
            return None
        (first_s, first), (last_s, last) = self._changes[0], self._changes[-1]
        if last - first < FEWEST_ITERATIONS:
            return None
        pace_s = (last_s - first_s) / (last - first)
        return max(0.0, pace_s * (total - last) - (self._now_s() - last_s))

    def _write(self, text: str) -> None:
        self.line.value = markup.line(escape(text))


def _rounded(seconds: float) -> str:
    """Return seconds in coarse steps, so that the text does not flicker."""
    if seconds < 10:
        return format_s(float(f"{seconds:.1g}"))
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


@dataclass
class Happening:
    """One line of the log."""

    at_s: float
    """Wall seconds since the start of the run."""
    text: str
    subject: str = ""
    """The device that the line is about. Its name comes before the text. Empty for none."""
    key: str = ""
    """A new line replaces the last line if both have this key. If empty, it is added below."""


class Happenings:
    """The lines of text about what happens in a run. ``look`` adds what is new in the run's record, and ``add`` adds a
    line about anything else."""

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
            self.add(f"{run_report.describe_profiling(run)}: timing computations on this machine", key="profiling")
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
    """Return two lines of the log: what failed, to be shown after the device's name, and how many seconds were lost."""
    return (
        f"{fault.how} in iteration {fault.iteration}; a replacement takes over, with the state from {fault.state_from}",
        f"training continues, {format_s(fault.lost_s)} lost",
    )


def note_of(run: RunRecord) -> str:
    """Return what a run is doing other than training, for the headline: ``recovering ada``. Empty for nothing."""
    lost = [name for name, condition in run.conditions.items() if condition == "lost"]
    if lost:
        return f"recovering {name_words(lost)}"
    if gone := [name for name, condition in run.conditions.items() if condition == "gone"]:
        return f"waiting for a plan without {name_words(gone)}"
    last = run.spec.first_iteration + run.spec.iterations
    is_testing = run.status == "running" and run.last_whole + 1 >= last
    return "testing the trained model on held-out text" if is_testing else ""


def story_of(run: RunRecord) -> str:
    """Return the run's last event for the headline, a new plan or a lost device. Empty before any.

    ``ada was killed by SIGKILL in iteration 3: its copy took over in 0.6 s, with the state of claude``
    """
    newest = run.replans[-1] if run.replans else {}
    if "lost_s" in newest and not any(fault.iteration >= newest["iteration"] for fault in run.faults):
        replanned = followed(newest)
        return replanned[0].upper() + replanned[1:]
    if not run.faults:
        return ""
    last, before = run.faults[-1], len(run.faults) - 1
    more = f"; {counted(before, 'earlier fault')}" if before else ""
    took = f"its copy took over in {format_s(last.lost_s)}, with the state of {last.state_from}"
    return f"{last.device} {last.how} in iteration {last.iteration}: {took}{more}"


def followed(replanned: Event) -> str:
    """Return a line of the log on a switch to another plan: workers kept and started, iterations to repeat, seconds
    lost."""
    went_on = counted(replanned["kept"], "worker")
    started = f", {replanned['started']} started" if replanned["started"] else ""
    again = f"; {counted(replanned['undone'], 'iteration')} to repeat" if replanned["undone"] else ""
    lost = format_s(replanned["lost_s"])
    return f"a new plan from iteration {replanned['iteration']} on: {went_on} continued{started}{again}, {lost} lost"


def listed(lines: Sequence[Happening]) -> str:
    """Return the log as HTML, with the newest line last and in view."""
    rows = "".join(f"<li><time>{_wall(line.at_s)}</time><span>{_named(line)}</span></li>" for line in lines)
    empty = "" if rows else "<p>Nothing yet: press Run. Workers start, are profiled and train for real.</p>"
    return f'{empty}<div class="dtfm-log" role="log" aria-label="What happened" tabindex="0"><ol>{rows}</ol></div>'


def _wall(seconds: float) -> str:
    return f"{seconds:.{1 if seconds < 100 else 0}f} s"


def _named(line: Happening) -> str:
    return f"<b>{escape(line.subject)}</b> {escape(line.text)}" if line.subject else escape(line.text)


SHOWN_S = 4.0
"""Minimum seconds to show a restarted iteration. A fast one would be over before it is seen."""


class LossGaps:
    """Draws gaps into a run's chart, which show how long each lost device was missing.

    Call ``iteration`` and ``draw`` at every look at the run.
    """

    def __init__(self, chart: GanttView, now_s: Callable[[], float] = time.monotonic) -> None:
        self._chart, self._now_s = chart, now_s
        self._since_s: dict[str, float] = {}
        """{lost device: when it was lost}, in seconds of ``now_s``. Only devices that are lost now."""
        self._n_faults = 0
        self._held, self._until_s = -1, 0.0
        """The iteration that was last restarted, and the time in seconds until which it is shown."""

    def iteration(self, run: RunRecord, newest: int) -> int:
        """Return the iteration to show: the newest one, or for a while the one that was restarted."""
        if len(run.faults) > self._n_faults:
            self._n_faults = len(run.faults)
            self._held, self._until_s = run.faults[-1].iteration, self._now_s() + SHOWN_S
        return min(self._held, newest) if self._now_s() < self._until_s else newest

    def draw(self, run: RunRecord, iteration: int) -> None:
        """Draw the gaps into the chart, which shows this iteration."""
        chart, now_s = self._chart, self._now_s()
        lost = [name for name, condition in list(run.conditions.items()) if condition == "lost"]
        self._since_s = {name: self._since_s.get(name, now_s) for name in lost}
        whole_s = float(chart.predicted.end.max(initial=0.0))
        before = gaps_before(run.faults, iteration, whole_s, run.time_scale)
        chart.gaps = [gap for gap in before if gap["device"] not in lost] + [
            gap_after(name, self._last_s(name), now_s - since_s, whole_s, run.time_scale)
            for name, since_s in self._since_s.items()
        ]

    def _last_s(self, device: str) -> float:
        """Return when the last measured bar of a device ends. 0 before any."""
        bars = self._chart.measured
        own = [bars.end[bars.row == row] for row, name in enumerate(self._chart.devices) if name == device]
        return max((float(ends.max(initial=0.0)) for ends in own), default=0.0)


def written_html(run: RunRecord, measured: Trace) -> str:
    """Return the trained model's sample text, if it has generated any, and a link that downloads the losses."""
    text = "" if run.text is None else markup.quotation(*run_report.generated_text(run))
    table = losses(measured).to_csv(index=False).encode()
    return text + markup.download("Losses as CSV", "losses.csv", table, "text/csv")
