"""The activity of each device of a run, and its faults, from the run's events. It contains no widget."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from dtfm_lab.domain.schedule import COMPUTE, RECEIVES, SENDS, Action
from dtfm_lab.domain.trace import Fault
from dtfm_lab.runtime.client import run_report
from dtfm_lab.runtime.client.record import RunRecord, slower

KILL, PAUSE, RESUME, SLOW = "kill", "pause", "resume", "slow"
LONG_S = 0.5
"""Seconds of waiting for one device after which that device is named."""


@dataclass(frozen=True)
class DeviceActivity:
    """The state of one device, as its tile shows it; the field names are those of the page."""

    condition: str
    """One of slow, paused, killed, lost (and not yet replaced) and recovered; empty for none of these."""
    said: str
    """The condition in words, with seconds."""
    does: str
    """One of computing, sending and waiting; empty where it is unknown."""
    waits_for: str
    """The device that it has been waiting for longer than ``LONG_S``; else empty."""
    iteration: int
    """The iteration that runs; -1 before the first."""
    busy: float | None
    """Share of the last whole iteration spent computing, in steps of 0.01."""
    may: tuple[str, ...]
    """What can be done to it: kill, pause, resume, slow."""


@dataclass
class _WorkerPosition:
    """How far one worker is in its program: the position and replica of its device, and its next action."""

    position: int
    replica: int
    at: int = 0
    """Index of the first action that has no span yet."""
    does: tuple[str, str] = ("", "")
    since_s: float = 0.0


class ActivityMonitor:
    """Reads a run at every call of ``look``; ``disturbed`` adds what a person did, which the run does not record."""

    def __init__(self, run: RunRecord, now_s: Callable[[], float] = time.monotonic) -> None:
        self._run, self._now_s = run, now_s
        self._places = {run.spec.device_name(s, r): _WorkerPosition(s, r) for s, r in run.spec.workers}
        self._ordered: dict[tuple[str, bool], list[Action]] = {}
        self._killed: dict[str, int] = {}
        """Number of earlier faults, by killed device."""
        self._conditions: dict[str, tuple[str, float]] = {}
        """The condition of each device, and since when it has had it."""
        self._busy: tuple[int, dict[str, float]] = (-1, {})
        """An iteration, and the busy share of each device in the iteration before it."""
        self._done: dict[str, set[Action]] = {}
        self._seen: tuple[int, int] = (-1, -1)
        """The iteration, and the number of faults, that ``_done`` is of."""
        self._n_spans = 0

    def disturbed(self, device: str, what: str) -> None:
        """Record what a person has just done to a device."""
        if what == KILL:
            self._killed[device] = len(self._faults_of(device))

    def look(self) -> dict[str, DeviceActivity]:
        """Return the activity of every device, by name."""
        run, now_s = self._run, self._now_s()
        running, iteration = run.running, run.last_whole + 1
        self._take_spans(iteration)
        if self._busy[0] != iteration:
            self._busy = iteration, run.busy()
        last = run.spec.first_iteration + run.spec.iterations - 1
        known = running and run.status == "running" and not run.spec.replays and iteration <= last
        found = {}
        for name, place in self._places.items():
            condition = self._condition(name, running=running)
            does, waits_for = ("", "")
            if known and condition not in ("paused", "killed", "lost"):
                does, waits_for = self._does(name, place, now_s)
            busy = self._busy[1].get(name)
            found[name] = DeviceActivity(
                condition=condition,
                said=self._describe_condition(name, condition, now_s if running else None),
                does=does,
                waits_for=waits_for,
                iteration=min(iteration, last) if run.status not in ("starting", "profiling") else -1,
                busy=None if busy is None else round(busy, 2),
                may=self._may(name, condition) if running else (),
            )
        return found

    def _take_spans(self, iteration: int) -> None:
        run = self._run
        now, spans = (iteration, len(run.faults)), run.spans_of(iteration)
        if self._seen != now or len(spans) < self._n_spans:  # after a loss the iteration starts again
            self._seen, self._n_spans = now, 0
            self._done = {name: set() for name in self._places}
            for place in self._places.values():
                place.at = 0
        for span in spans[self._n_spans :]:
            self._done[run.spec.device_name(span.action.stage, span.replica)].add(span.action)
        self._n_spans = len(spans)

    def _does(self, name: str, place: _WorkerPosition, now_s: float) -> tuple[str, str]:
        """Return what the worker does, and the device that it waits for.

        A worker runs computations and receives in order, so it is at the first one that has no span yet.
        """
        spec, done = self._run.spec, self._done[name]
        actions = self._actions_in_order(name, place)
        while place.at < len(actions) and actions[place.at] in done:
            place.at += 1
        if place.at == len(actions):
            does = "waiting", ""
        elif (action := actions[place.at]).kind in COMPUTE:
            does = "computing", ""
        elif action.kind in SENDS:
            does = "sending", ""
        else:
            other = action.other_end(place.replica, spec.plan.job.n_replicas)
            does = "waiting", spec.device_name(*other)
        if does != place.does:
            place.does, place.since_s = does, now_s
        return does[0], does[1] if now_s - place.since_s >= LONG_S else ""

    def _actions_in_order(self, name: str, place: _WorkerPosition) -> list[Action]:
        """Return computations and receives in order, then the sends, which run beside them."""
        spec = self._run.spec
        synchronises = spec.synchronises(self._seen[0])
        if (name, synchronises) not in self._ordered:
            actions = [
                step.action for step in spec.programs(synchronise=synchronises).of(place.position, place.replica)
            ]
            blocking = [action for action in actions if action.kind in COMPUTE or action.kind in RECEIVES]
            self._ordered[name, synchronises] = blocking + [action for action in actions if action.kind in SENDS]
        return self._ordered[name, synchronises]

    def _condition(self, name: str, *, running: bool) -> str:
        reported = dict(self._run.conditions).get(name, "")
        if name in self._killed:
            if running and reported != "lost" and len(self._faults_of(name)) == self._killed[name]:
                return "killed"
            del self._killed[name]
        if reported in ("lost", "paused"):
            return reported
        if reported == "back":
            return "recovered"
        return "slow" if reported else ""

    def _describe_condition(self, name: str, condition: str, now_s: float | None) -> str:
        """Return the condition in words; ``now_s`` is None once the run is over, when durations are left out."""
        before, since_s = self._conditions.get(name, ("", 0.0))
        if now_s is not None and before != condition:
            self._conditions[name] = condition, (since_s := now_s)
        lasted = "" if now_s is None else f", {_seconds(now_s - since_s)}"
        faults = self._faults_of(name)
        match condition:
            case "killed" | "paused":
                return f"{condition}{lasted}"
            case "lost":
                return f"being replaced{lasted}" if now_s is not None else "lost"
            case "recovered":
                return "".join(map(run_report.describe_recovery, faults[-1:])) or condition  # the fault may come later
            case "slow":
                how_slow = slower(self._run.slowdowns.get(name, 1.0))
                return "; ".join([how_slow, *map(run_report.describe_recovery, faults[-1:])])
        return ""

    def _may(self, name: str, condition: str) -> tuple[str, ...]:
        slowed = self._run.slowdowns.get(name, 1.0) > 1
        goes_on = (RESUME,) if slowed or condition == "paused" else ()
        if condition in ("killed", "lost"):
            return goes_on
        return (KILL, *(() if condition == "paused" else (PAUSE,)), *goes_on, SLOW)

    def _faults_of(self, name: str) -> list[Fault]:
        return [fault for fault in self._run.faults if fault.device == name]


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
