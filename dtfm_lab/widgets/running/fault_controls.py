"""Controls to kill, pause or slow a run's devices, the condition of each device, and devices that leave the drawing."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.trace import Fault
from dtfm_lab.planning.moving import moves
from dtfm_lab.runtime.client import run_report
from dtfm_lab.runtime.client.launch import what_runs
from dtfm_lab.runtime.client.record import RunRecord, slower
from dtfm_lab.runtime.client.run import Run
from dtfm_lab.widgets.lab_state import Guard, LabState
from dtfm_lab.widgets.views.devices import DevicesView

KILL = "kill"
PAUSE = "pause"
RESUME = "resume"
SLOW = "slow"
TIMES_SLOWER = 2.0
ACTIONS = [
    {"do": do, "name": name, "says": says, "done": done}
    for do, name, says, done in (
        (KILL, "Kill", "End its worker (SIGKILL), like a power cut. A replacement takes over", "killed"),
        (PAUSE, "Pause", "Freeze its worker, like a host that stops answering", "paused"),
        (RESUME, "Resume", "Continue at full speed", "resumed"),
        (SLOW, f"Slow, x{TIMES_SLOWER:g}", f"Make it compute {TIMES_SLOWER:g} times slower than now", "slowed"),
    )
]
NOTHING_RUNS = "No run yet: press Run, then kill, pause or slow a device here"
IS_OVER = "The run is over: press Run again, then kill, pause or slow a device here"
IS_GONE = "Its worker is gone: a replacement takes over"
IS_MYSTERY = "Not during a mystery: it already has a fault"


class ConditionMonitor:
    """The condition of each device of a run. ``look`` reads the run.

    Call ``disturbed`` after each action of the user, because the run notices a kill only after a moment.
    """

    def __init__(self, run: RunRecord, now_s: Callable[[], float] = time.monotonic) -> None:
        self._run, self._now_s = run, now_s
        self._killed: dict[str, int] = {}
        """{killed device: number of its earlier faults}, until the run notices that the device was killed."""
        self._since: dict[str, tuple[str, float]] = {}
        """{device: (its condition, when that began)}, in seconds of ``now_s``."""
        self._busy: tuple[int, dict[str, float]] = (-1, {})
        """The last complete iteration, and the share of it that each device spent computing."""

    def disturbed(self, device: str, what: str) -> None:
        """Note what the user has just done to a device. Only a kill is kept, until the run notices it."""
        if what == KILL:
            self._killed[device] = len(self._faults_of(device))

    def look(self) -> dict[str, dict[str, Any]]:
        """Return the state of every device by name, as ``DevicesView.states`` has it."""
        run, now_s = self._run, self._now_s()
        # Summing all spans takes a while, and the shares only change with an iteration.
        if self._busy[0] != run.last_whole:
            self._busy = run.last_whole, run.busy()
        found = {}
        for name in run.ranks:
            condition, busy = self._condition(name), self._busy[1].get(name)
            found[name] = {
                "condition": condition,
                "said": self._describe_condition(name, condition, now_s if run.running else None),
                "busy": None if busy is None else round(busy, 2),
                "may": self._may(name, condition) if run.running else (),
            }
        return found

    def _condition(self, name: str) -> str:
        reported = self._run.conditions.get(name, "")
        if name in self._killed:
            # A kill takes a moment to be noticed; until then the run still reports the device as well.
            if self._run.running and reported != "lost" and len(self._faults_of(name)) == self._killed[name]:
                return "killed"
            del self._killed[name]
        if reported in ("", "lost", "gone", "paused"):
            return reported
        return "recovered" if reported == "back" else "slow"

    def _describe_condition(self, name: str, condition: str, now_s: float | None) -> str:
        """Return the condition in words. Once the run is over, pass None as ``now_s``, so that durations are left
        out."""
        before, since_s = self._since.get(name, ("", 0.0))
        if now_s is not None and before != condition:
            self._since[name] = condition, (since_s := now_s)
        lasted = "" if now_s is None else f", {_seconds(now_s - since_s)}"
        faults = self._faults_of(name)
        match condition:
            case "killed" | "paused":
                return f"{condition}{lasted}"
            case "gone":
                return f"left permanently{lasted}"
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
        if condition in ("killed", "lost", "gone"):
            return goes_on
        return (KILL, *(() if condition == "paused" else (PAUSE,)), *goes_on, SLOW)

    def _faults_of(self, name: str) -> list[Fault]:
        return [fault for fault in self._run.faults if fault.device == name]


class FaultControls:
    """A menu to disturb the devices of a run. Without a run, it shows the devices of ``lab_state.plan``."""

    def __init__(
        self, lab_state: LabState, report_error: Callable[[str], None], on_act: Callable[[str, str], None]
    ) -> None:
        """``on_act`` is called with a device and what was done to it."""
        self._lab_state, self._report_error, self._on_act = lab_state, report_error, on_act
        self._run: Run | None = None
        self._monitor: ConditionMonitor | None = None
        self._is_following, self._may_disturb = Guard(), True
        self.devices = DevicesView(self.act, actions=ACTIONS, hint=NOTHING_RUNS)
        self.devices.observe(lambda _: self._select(), "selected")
        lab_state.observe(lambda _: self._follow(), "selected")

    @property
    def may_disturb(self) -> bool:
        """False if the watched run is a mystery."""
        return self._may_disturb

    def offer(self, plan: Plan | None) -> None:
        """Show the devices of the part of a plan that a run would train, unless a run is in progress."""
        # Devices of a run in progress stay: the user may be disturbing them.
        if self._run is not None and self._run.running:
            return
        self._run = self._monitor = None
        if plan is None:
            self._draw([], "", NOTHING_RUNS)
            return
        try:
            plan, kept = what_runs(plan, None)
        except LabError:
            kept = None  # a job without a model; Run reports that
        regions = {device.name: device.region for device in plan.topology.devices}
        shown = [
            _device(name, stage, str(stage), replica, regions[name])
            for replica, names in enumerate(zip(*plan.device_names, strict=True))
            for stage, name in enumerate(names)
        ]
        self._draw(shown, "" if kept is None else f"of the plan, this machine runs {kept.sentence}", NOTHING_RUNS)

    def watch(self, run: Run, *, may_disturb: bool = True) -> None:
        """Show the devices of this run from now on. If ``may_disturb`` is False, no action is possible."""
        self._run, self._monitor = run, ConditionMonitor(run)
        spec = run.spec
        devices = spec.plan.topology.devices
        shown = [
            _device(device.name, position, ", ".join(map(str, spec.built.stages_of(position))), replica, device.region)
            for position, replica in spec.workers
            for device in [devices[spec.device(position, replica)]]
        ]
        self._may_disturb = may_disturb
        self._draw(shown, "", IS_GONE if may_disturb else IS_MYSTERY)
        self.show()

    def show(self) -> None:
        if self._run is None or self._monitor is None:
            return
        running = self._run.running
        self.devices.running = running and self._may_disturb
        self.devices.hint = IS_OVER if not running else IS_GONE if self._may_disturb else IS_MYSTERY
        self.devices.states = self._monitor.look()

    @property
    def conditions(self) -> dict[str, str]:
        """The condition of each device, see ``DevicesView.states``. Empty text if nothing has happened to it."""
        return {name: str(state["condition"]) for name, state in self.devices.states.items()}

    def act(self, device: str, do: str) -> None:
        """Kill, pause, resume or slow a device. A LabError is reported as one line."""
        if self._run is None or self._monitor is None:
            return
        if not self._may_disturb:
            self._report_error(IS_MYSTERY)
            return
        try:
            self._disturb(self._run, device, do)
        except LabError as error:
            self._report_error(str(error))
            return
        self._monitor.disturbed(device, do)
        self._on_act(device, do)
        self.show()

    def _disturb(self, run: Run, device: str, do: str) -> None:
        slower = run.slowdowns.get(device, 1.0)
        match do:
            case "kill":
                run.kill(device)
            case "pause":
                run.pause(device)
            case "slow":
                run.slow(device, slower * TIMES_SLOWER)
            case "resume":
                run.resume(device)
                # Resuming means well again, so the slowness goes as well.
                if slower > 1:
                    run.slow(device, 1.0)

    def _draw(self, devices: list[dict[str, object]], caption: str, hint: str) -> None:
        with self.devices.hold_sync():
            self.devices.devices, self.devices.caption, self.devices.hint = devices, caption, hint
            self.devices.running, self.devices.states = False, {}
        self._follow()

    def _select(self) -> None:
        if not self._is_following:
            self._lab_state.selected = tuple(self.devices.selected)

    def _follow(self) -> None:
        """Select the devices that are selected elsewhere, if they are shown here."""
        here = {device["name"] for device in self.devices.devices}
        with self._is_following:
            self.devices.selected = [name for name in self._lab_state.selected if name in here]


def _device(name: str, stage: int, stages: str, replica: int, region: str) -> dict[str, object]:
    return {"name": name, "stage": stage, "stages": stages, "pipeline": replica, "region": region}


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


class Departures:
    """Tells the run which devices have left the drawing, and sends it the first plan made for the remaining ones.

    When devices are added, the run also gets the first plan for the new network. Other edits do not change a run. If
    only a part of the plan runs, no edit does.
    """

    def __init__(self, lab_state: LabState, tell: Callable[[str, str], None], failed: Callable[[str], None]) -> None:
        """``tell(what, device)`` writes a line about what happened. ``failed`` reports an error."""
        self._lab_state, self._tell, self._failed = lab_state, tell, failed
        self._run: Run | None = None
        self._left: set[str] = set()
        """Devices that have left since the run last received a plan."""
        self._there: set[str] = set()
        """Devices in the network of the plan that the run last received."""
        lab_state.observe(lambda _: self._look(), "topology")
        lab_state.observe(lambda _: self._follow(), "plan")

    def watch(self, run: Run | None) -> None:
        """Follow this run from now on. None for a run that must not be disturbed."""
        topology = self._lab_state.topology
        self._run = None if run is None or run.spec.subplan is not None else run
        self._left, self._there = set(), set() if topology is None else set(topology.names)

    def _look(self) -> None:
        run, topology = self._run, self._lab_state.topology
        if run is None or topology is None or not run.running:
            return
        if topology.name != run.spec.plan.topology.name:
            self._run = None  # another network was opened, which does not affect the run's devices
            return
        # Each device leaves once, even if the network changes again before the next plan.
        for name in sorted(run.ranks.keys() - set(topology.names) - self._left):
            self._left.add(name)
            self._try(partial(run.leave, name))
            self._tell("left permanently: the run waits for a plan without it", name)

    def _follow(self) -> None:
        run, state = self._run, self._lab_state
        if run is None or state.plan is None or state.plan_is_stale or not run.running:
            return
        # A run does not move for the same devices in another placement.
        if (names := set(state.plan.topology.names)) == self._there:
            return
        self._there, self._left = names, set()
        self._try(partial(self._send, run))

    def _send(self, run: Run) -> None:
        plan, before = self._lab_state.chosen_plan, run.spec.plan
        assert plan is not None, "it was made"
        living = [name for group in before.stages for name in group if name in plan.topology.names]
        run.follow(plan, self._lab_state.schedule, pause_s=moves(before, plan, living).move_s)

    def _try(self, command: Callable[[], None]) -> None:
        try:
            command()
        except LabError as error:
            self._failed(str(error))
