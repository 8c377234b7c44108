"""What each device of a run does now, and what befell it: read off the run's events. No widget in here."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from dtfm_lab.domain.schedule import COMPUTE, RECEIVES, SENDS, Action
from dtfm_lab.domain.trace import Fault
from dtfm_lab.runtime.client import run_report
from dtfm_lab.runtime.client.record import Record, slower

KILL, PAUSE, RESUME, SLOW = "kill", "pause", "resume", "slow"
LONG_S = 0.5
"""a wait for one and the same device, from which on that device is named"""


@dataclass(frozen=True)
class DeviceActivity:
    """Of one device, as its tile shows it."""

    condition: str
    """empty where it is as it was; else slow, paused, killed, lost (and not yet replaced) or recovered"""
    said: str
    """the same in words, with seconds"""
    does: str
    """computing, sending, waiting; empty where nobody knows"""
    waits_for: str
    """the device it has waited for for a while"""
    iteration: int
    """-1 before the first"""
    busy: float | None
    """share of the last whole iteration, in steps of 0.01"""
    may: tuple[str, ...]
    """what can be done to it"""


@dataclass
class _Place:
    """One worker's way through its program."""

    position: int
    replica: int
    at: int = 0
    does: tuple[str, str] = ("", "")
    since_s: float = 0.0


class ActivityMonitor:
    """Looks at a run again and again; only ``disturbed`` tells it what the run does not say."""

    def __init__(self, run: Record, now_s: Callable[[], float] = time.monotonic) -> None:
        self._run, self._now_s = run, now_s
        self._places = {run.spec.device_name(s, r): _Place(s, r) for s, r in run.spec.workers}
        self._in_turn: dict[tuple[str, bool], list[Action]] = {}
        self._killed: dict[str, int] = {}
        """device -> how often it had been lost before"""
        self._stand_still: set[str] = set()
        """paused and not told to go on, though another may have taken their place since"""
        self._conditions: dict[str, tuple[str, float]] = {}
        self._busy: tuple[int, dict[str, float]] = (-1, {})
        self._done: dict[str, set[Action]] = {}
        self._seen: tuple[int, int] = (-1, -1)
        self._n_spans = 0

    def disturbed(self, device: str, what: str) -> None:
        """A person did this to it, just now."""
        match what:
            case "kill":
                self._killed[device] = len(self._faults_of(device))
            case "pause":
                self._stand_still.add(device)
            case "resume":
                self._stand_still.discard(device)

    def look(self) -> dict[str, DeviceActivity]:
        """All devices, by name."""
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
                said=self._said(name, condition, now_s if running else None),
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
        if self._seen != now or len(spans) < self._n_spans:  # a loss lets an iteration begin anew
            self._seen, self._n_spans = now, 0
            self._done = {name: set() for name in self._places}
            for place in self._places.values():
                place.at = 0
        for span in spans[self._n_spans :]:
            self._done[run.spec.device_name(span.action.stage, span.replica)].add(span.action)
        self._n_spans = len(spans)

    def _does(self, name: str, place: _Place, now_s: float) -> tuple[str, str]:
        """A worker plays computations and receives in turn; at the first that is not over it stands."""
        spec, done = self._run.spec, self._done[name]
        turn = self._turn(name, place)
        while place.at < len(turn) and turn[place.at] in done:
            place.at += 1
        if place.at == len(turn):
            does = "waiting", ""
        elif (action := turn[place.at]).kind in COMPUTE:
            does = "computing", ""
        elif action.kind in SENDS:
            does = "sending", ""
        else:
            other = action.other_end(place.replica, spec.plan.job.n_replicas)
            does = "waiting", spec.device_name(*other)
        if does != place.does:
            place.does, place.since_s = does, now_s
        return does[0], does[1] if now_s - place.since_s >= LONG_S else ""

    def _turn(self, name: str, place: _Place) -> list[Action]:
        """What holds a worker up, in order; its sends, which go out beside, come last."""
        spec = self._run.spec
        together = spec.synchronises(self._seen[0])
        if (name, together) not in self._in_turn:
            actions = [step.action for step in spec.programs(synchronise=together).of(place.position, place.replica)]
            holding = [action for action in actions if action.kind in COMPUTE or action.kind in RECEIVES]
            self._in_turn[name, together] = holding + [action for action in actions if action.kind in SENDS]
        return self._in_turn[name, together]

    def _condition(self, name: str, *, running: bool) -> str:
        said = dict(self._run.conditions).get(name, "")
        if name in self._killed:
            if running and said != "lost" and len(self._faults_of(name)) == self._killed[name]:
                return "killed"
            del self._killed[name]
        if said in ("lost", "paused"):
            return said
        if said == "back":
            return "recovered"
        return "slow" if said else ""

    def _said(self, name: str, condition: str, now_s: float | None) -> str:
        """``now_s`` is None once the run is over and nothing lasts any more."""
        before, since_s = self._conditions.get(name, ("", 0.0))
        if now_s is not None and before != condition:
            self._conditions[name] = condition, (since_s := now_s)
        lasted = "" if now_s is None else f", {_lasting(now_s - since_s)}"
        faults = self._faults_of(name)
        match condition:
            case "killed" | "paused":
                return f"{condition}{lasted}"
            case "lost":
                return f"being replaced{lasted}" if now_s is not None else "lost"
            case "recovered":
                # The run records the condition before the fault.
                return "".join(map(run_report.describe_recovery, faults[-1:])) or condition
            case "slow":
                said = slower(self._run.slowdowns.get(name, 1.0))
                return "; ".join([said, *map(run_report.describe_recovery, faults[-1:])])
        return ""

    def _may(self, name: str, condition: str) -> tuple[str, ...]:
        slowed = self._run.slowdowns.get(name, 1.0) > 1
        goes_on = (RESUME,) if slowed or condition == "paused" or name in self._stand_still else ()
        if condition in ("killed", "lost"):
            return goes_on
        return (KILL, *(() if condition == "paused" else (PAUSE,)), *goes_on, SLOW)

    def _faults_of(self, name: str) -> list[Fault]:
        return [fault for fault in self._run.faults if fault.device == name]


def _lasting(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
