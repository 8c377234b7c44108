"""Run a real training while devices come and go: workers leave and arrive as an availability says, and a policy decides
how the run continues.

The clock is paced: a second of the run takes ``time_scale`` wall seconds, so an hour may pass in a minute. Between
iterations, while orders go to the workers, the clock stops, because how long that takes depends on this machine. Every
set of online devices is planned before the first worker starts, by a replay of the same availability. The replay's
History is the prediction.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dtfm_lab.domain.errors import LabError, RunError, UnknownName
from dtfm_lab.domain.plan import Plan
from dtfm_lab.extensions.elasticity.api import Fleet, Policy, ReconfigurationCosts
from dtfm_lab.extensions.elasticity.availability import Availability
from dtfm_lab.extensions.elasticity.history import History, Operation
from dtfm_lab.extensions.elasticity.measured_history import Booked, Departure, measured_history, plan_of
from dtfm_lab.extensions.elasticity.moments import NOBODY, Moment, moments
from dtfm_lab.extensions.elasticity.policy import (
    FleetSoFar,
    PolicyEvent,
    Response,
    Situation,
    WorkKept,
)
from dtfm_lab.runtime.client.launch import start
from dtfm_lab.runtime.client.record import Event
from dtfm_lab.runtime.client.run import Run
from dtfm_lab.simulation.engine import check_shared

OWN = ("clock", "iterations", "checkpoint_folder", "checkpoint_every", "resume_from")
"""Options of a run that are set here, so the user must not give them."""
LATE = 0.05
"""The user is warned if more than this share of the computations take longer than the pace allows."""
ASKED_AT = {"iteration": PolicyEvent.STEP, "checkpoint": PolicyEvent.CHECKPOINT}
"""Events of the run at which a policy may want to be asked -> their names in ``Response.again``."""
SOON_S = 1e-3
"""Minimum seconds of the run until a policy is asked again at a time that it chose, so that time always advances."""
MOST_ITERATIONS = 10**6
"""Maximum number of iterations. The run ends long before, at the end of the availability."""


def refuse_unplayable(history: History) -> None:
    """Raise an error for a history that workers cannot play.

    Raises LabError if a step is a round of local steps, or if an operation has no plan. It also raises it if a device
    does the work of another stage as well, or if work is skipped. Raises JobError if peers would share work that cannot
    be shared.
    """
    # A step of such a policy is a round, which workers cannot count.
    if history.local_steps > 1:
        raise LabError(
            f"policy {history.policy} counts rounds of {history.local_steps} local steps; wanted another one"
        )
    for operation in history.operations:
        if operation.plan is None or operation.doubled or operation.skipping_share:
            raise LabError(
                f"policy {history.policy} makes a device do two stages, or skips one, which workers cannot do; wanted "
                "a policy that only uses plans, or shares lost work among the replicas of its stage, such as oobleck, "
                "varuna, torchft, swarm or recycle"
            )
        if operation.left:
            check_shared(operation.plan.job)


def run_hours(
    availability: Availability,
    fleet: Fleet,
    policy: Policy,
    costs: ReconfigurationCosts,
    *,
    name: str,
    progress: Callable[[Event], None] | None = None,
    **options: Any,
) -> History:
    """Start workers for the devices online, let them leave and arrive, and return the measured History.

    ``options`` are passed to ``start``. Raises LabError for an option in ``OWN`` other than ``clock="paced"``. Raises
    RunError if the run fails, or if there are never enough devices to start it. Errors of ``start`` pass through.
    """
    for option in OWN:
        if options.get(option) not in (None, "paced" if option == "clock" else None):
            raise LabError(f"{option} is {options[option]} with an availability, which sets it; wanted none")
    with tempfile.TemporaryDirectory(prefix="dtfm_lab-") as folder:
        hours = Hours(
            availability=availability,
            so_far=FleetSoFar(fleet, costs),
            policy=policy,
            name=name,
            progress=progress,
            options=options,
            folder=folder,
        )
        try:
            return hours.play()
        finally:
            # Before the run ends, so that its end is not taken for a failure.
            hours.is_ending = True
            if hours.run is not None:
                hours.run.stop()
                hours.heard.join()


@dataclass(kw_only=True)
class Hours(Booked):
    """The state of a played availability: devices online, the current operation, and what has been recorded."""

    so_far: FleetSoFar
    policy: Policy
    progress: Callable[[Event], None] | None
    options: dict[str, Any]
    folder: str
    run: Run | None = None
    operation: Operation | None = None
    """The operation of the policy's last answer: the current one, or during a pause the next one."""
    every_s: float = np.inf
    """Seconds of training between two checkpoints that the policy asks for now."""
    every: int = 0
    """Iterations between two checkpoints that the run was last set to. 0 for no checkpoints."""
    pause_until_s: float = 0.0
    later: tuple[float, Response] | None = None
    """If an operation is being prepared while work continues: the second of the run at which it is ready, and the
    policy's answer that contains it. None otherwise."""
    began_s: float = 0.0
    gaps_s: float = 0.0
    """Wall seconds so far in which the clock stood still between iterations."""
    scale: float = 1.0
    at_s: float = 0.0
    step_began_s: float = 0.0
    """Second of the run in which the latest iteration ended."""
    events: list[tuple[float, Event]] = field(default_factory=list)
    """Events, each with the monotonic wall time at which it arrived."""
    changed: threading.Condition = field(default_factory=threading.Condition)
    failure: BaseException | None = None
    is_ending: bool = False
    asked: PolicyEvent | None = None
    """An event that has happened and at which the policy wants to be asked. None once it has been asked."""
    again: PolicyEvent | float | None = None
    """When the policy wants to be asked again: at an event, or at a second of the run if it is a float."""
    heard: threading.Thread = field(default_factory=threading.Thread)

    def play(self) -> History:
        """Play the availability to its end and return the measured history. Raises RunError if there are never enough
        devices for a plan."""
        self.every_s = self.policy.every_s
        for moment in moments(self.availability, self.so_far.costs.start_s, self.so_far.costs.notice_s):
            self._wait_until(moment.time_s)
            self._change(moment)
        self._wait_until(self.availability.end_s)
        if self.run is None:
            raise RunError(f"{self.availability.name} never has enough devices for a plan; wanted other hours")
        self.is_ending = True
        self.run.stop()
        self.heard.join()
        self._warn_late()
        return measured_history(self, self._timed())

    def _warn_late(self) -> None:
        """Warn if this machine was too slow for the pace."""
        assert self.run is not None, "it has ended"
        computations = len(self.run.losses) * sum(2 * count for count in self.run.spec.plan.job.microbatch_counts)
        if computations and self.run.overruns > LATE * computations:
            warnings.warn(
                f"{self.run.overruns} computations took longer than time_scale {self.scale:g} allows, so this machine "
                "slowed the run down; wanted a larger time_scale, or fewer workers",
                stacklevel=4,
            )

    def now_s(self) -> float:
        """Return the current second of the run."""
        return (time.monotonic() - self.began_s - self.gaps_s) / self.scale

    def _timed(self) -> Iterator[tuple[float, Event]]:
        """Yield every event with its second on the run's clock."""
        gaps_s = 0.0
        for at, event in self.events:
            gaps_s += event.get("gap_s", 0.0)
            yield (at - self.began_s - gaps_s) / self.scale, event

    def _wait_until(self, moment_s: float) -> None:
        """Wait until this second of the run. Until then, switch to a prepared operation when it is ready, and ask the
        policy when it wants to be asked."""
        if self.run is None:
            # Nothing runs yet, so there is nothing to wait for.
            self._book(moment_s)
            return
        while True:
            until_s = moment_s if self.later is None else min(moment_s, self.later[0])
            # A policy may ask to be called at a moment that it chooses.
            until_s = min(until_s, self.again) if isinstance(self.again, float) else until_s
            with self.changed:
                while (left_s := (until_s - self.now_s()) * self.scale) > 0 and not (self.failure or self.asked):
                    self.changed.wait(min(left_s, 0.5))
                asked, self.asked = self.asked, None
            if self.failure is not None:
                raise self.failure
            if asked is not None:
                self._book(max(self.at_s, min(self.now_s(), until_s)))
                self._ask(asked)
                continue
            self._book(until_s)
            if self.later is not None and self.later[0] <= until_s:
                (_, response), self.later = self.later, None
                self._follow(response)
            elif isinstance(self.again, float) and self.again <= until_s < moment_s:
                self._ask(PolicyEvent.TIME)
            else:
                return

    def _book(self, moment_s: float) -> None:
        self.so_far.device_s += len(self.so_far.present) * (moment_s - self.at_s)
        self.at_s = moment_s

    def _change(self, moment: Moment) -> None:
        """Let devices leave and arrive, and ask the policy."""
        self.so_far.change(moment)
        if moment.left:
            names = tuple(self.availability.devices[device] for device in sorted(moment.left))
            serving = 0 if self.operation is None else len(moment.left & self.operation.devices)
            self.departures.append(Departure(moment.time_s, names, serving))
        if self.run is not None:
            for device in sorted(moment.left):
                with contextlib.suppress(UnknownName):  # the device was in no plan
                    self.run.leave(self.availability.devices[device])
        self._ask(PolicyEvent.CHANGE, moment.left)

    def _ask(self, why: PolicyEvent, left: frozenset[int] = NOBODY) -> None:
        """Ask the policy and follow its answer."""
        # A new answer replaces what was to happen later.
        self.later = self.again = None
        response = self.policy.decide(self._situation(why, left))
        if response is None:
            return
        again = response.again
        # Not at once, or a policy that always asks again would never let time pass.
        self.again = self.at_s + max(again, SOON_S) if isinstance(again, float | int) else again
        if response.after_s is not None:
            self.later = self.at_s + response.after_s, response
            return
        self._follow(response)

    def _situation(self, why: PolicyEvent, left: frozenset[int]) -> Situation:
        operation = self.operation
        lost = NOBODY if operation is None else operation.devices - self.so_far.present
        worked_s = self.at_s - max(self.step_began_s, self.pause_until_s)
        done = 0.0 if operation is None else min(1.0, max(0.0, worked_s / operation.step_s))
        return self.so_far.situation(
            time_s=self.at_s,
            asked=why,
            operation=operation,
            lost=lost,
            left=left,
            pause_left_s=max(0.0, self.pause_until_s - self.at_s),
            reading=False,
            meanwhile=False,
            step_done=done,
        )

    def _follow(self, response: Response) -> None:
        """Switch to the operation in the policy's answer. Without one, the run waits for devices. Raises LabError for
        an operation without a plan."""
        before, self.operation = self.operation, response.operation
        self._set_interval(response)
        if before is None and self.waits and self.run is not None:
            self.waits[-1] = self.waits[-1][0], self.at_s
        if response.operation is None and self.run is not None:
            self.waits.append((self.at_s, self.availability.end_s))
        if response.operation is None or response.operation is before:
            return
        plan = plan_of(response.operation, self.availability)
        if plan is None:
            raise LabError(f"policy {self.name} answers with work that no plan describes, which workers cannot do")
        self.pause_until_s = self.at_s + response.pause_s
        self.followed.append(response.operation)
        if self.run is None:
            self._start(plan, response.operation.step_s, response.pause_s)
            return
        back = response.keeps is WorkKept.CHECKPOINT
        self.so_far.setbacks += back
        self.run.follow(plan, pause_s=response.pause_s, from_checkpoint=back)

    def _iterations_between(self, step_s: float) -> int:
        """Return the number of iterations between two checkpoints that the policy wants, if an iteration takes
        ``step_s`` seconds. 0 for no checkpoints."""
        by_s = max(1, round(self.every_s / step_s)) if np.isfinite(self.every_s) else 0
        return min(filter(None, (self.policy.every_steps, by_s)), default=0)

    def _set_interval(self, response: Response) -> None:
        """Tell the run the number of iterations between two checkpoints."""
        self.every_s = self.every_s if response.every_s is None else response.every_s
        if self.run is None or self.operation is None:
            return
        every = self._iterations_between(self.operation.step_s)
        if response.checkpoint_next or every != self.every:
            self.run.checkpoint_every(every, after_next=response.checkpoint_next)
        self.every = every

    def _start(self, plan: Plan, step_s: float, pause_s: float) -> None:
        """Start the workers. They start and calibrate while the clock stands still. Only the policy's pause counts."""
        self.every = self._iterations_between(step_s)
        given = {"checkpoint_folder": self.folder, "checkpoint_every": self.every}
        self.run = start(plan, **(self.options | given | {"clock": "paced", "iterations": MOST_ITERATIONS}))
        self.heard = threading.Thread(target=self._listen, daemon=True)
        self.heard.start()
        with self.changed:
            # The run's status may change before its event is heard here, so wait for the event.
            while not any(event["event"] == "profile" for _, event in self.events) and self.failure is None:
                self.changed.wait(0.5)
        if self.failure is not None:
            raise self.failure
        self.scale = self.run.time_scale
        # The clock of the hours starts with the profile, when workers are ready to train.
        first_s = next(at for at, event in self.events if event["event"] == "profile")
        self.started_s, self.first_step_s = self.at_s, self.at_s + pause_s
        self.began_s = first_s - self.first_step_s * self.scale

    def _listen(self) -> None:
        """Record every event except spans, with the time at which it arrived."""

        def note(event: Event) -> None:
            with self.changed:
                # Spans come by the thousand and are in the trace anyway.
                if event["event"] != "spans":
                    self.events.append((time.monotonic(), event))
                    self.gaps_s += event.get("gap_s", 0.0)
                    self.step_began_s = self.now_s() if event["event"] == "iteration" else self.step_began_s
                    if self.again is not None and ASKED_AT.get(event["event"]) is self.again:
                        self.asked = ASKED_AT[event["event"]]
                self.changed.notify_all()
            if self.progress is not None:
                self.progress(event)

        assert self.run is not None
        try:
            self.run.wait(note)
            failure: BaseException = RunError(f"the run ended ({self.run.status}) before its hours did")
        except BaseException as error:
            failure = error
        if not self.is_ending:
            with self.changed:
                self.failure = failure
                self.changed.notify_all()
