"""Replay an availability (when each device is online) under a policy: every second is attributed to a state, and every
step is counted once.

Between two changes a run only repeats its step. The replay therefore jumps from change to change and counts the whole
steps between them. It never looks ahead: a policy knows only the present and the past.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.network import name_words
from dtfm_lab.domain.units import FloatArray, counted
from dtfm_lab.extensions.elasticity.availability import Availability
from dtfm_lab.extensions.elasticity.history import History, Loss, Operation, TimeUse
from dtfm_lab.extensions.elasticity.moments import NOBODY, Moment, moments
from dtfm_lab.extensions.elasticity.policy import (
    Fleet,
    FleetSoFar,
    Policy,
    PolicyEvent,
    ReconfigurationCosts,
    Response,
    WorkKept,
)

SAME_S = 1e-9
"""Seconds. A step that ends at most this long after a change counts as ended at the change, because of rounding."""
MOST_TURNS = 1_000_000
"""Maximum number of intervals of a replay, which take about 5 s of computing and 200 MB of memory. A change, a
checkpoint or a policy's answer ends an interval. Half a year with a checkpoint per minute needs half of them."""
COLLECTED_AFTER = 50_000
"""Number of new objects between two garbage collections during a replay. Python's default is 700."""
# plain integers: comparing enum members in the inner loop is slower
TRAINING, CHECKPOINT, REDONE, RECONFIGURING, IDLE, STOPPED = (int(state) for state in TimeUse)


def replay(
    availability: Availability,
    fleet: Fleet,
    policy: Policy,
    costs: ReconfigurationCosts | None = None,
    *,
    name: str = "",
    price_per_hour: FloatArray | None = None,
    progress: Callable[[float], object] | None = None,
) -> History:
    """Return the history of a run under the policy. The availability must have as many devices as the fleet, in the
    same order.

    ``progress`` is called with the seconds played so far, at every change. Raises PlanError if the numbers of devices
    differ, if the policy answers with devices that are not online, or if there are more than ``MOST_TURNS`` intervals.
    """
    if len(availability.devices) != fleet.n_devices:
        raise PlanError(
            f"{availability.name} has {counted(len(availability.devices), 'device')}, the fleet {fleet.n_devices}; "
            "wanted availability.on(network)"
        )
    run = _Run(
        availability, fleet, policy, ReconfigurationCosts() if costs is None else costs, name or type(policy).__name__
    )
    with _collected_rarely():
        for moment in moments(availability, run.costs.start_s, run.costs.notice_s):
            run.advance(moment.time_s)
            run.change(moment)
            if progress is not None:
                progress(moment.time_s)
        run.advance(availability.end_s)
        return run.history(price_per_hour)


@contextmanager
def _collected_rarely() -> Iterator[None]:
    """Collect garbage less often within the block. The objects of a history live to its end and form no cycles, but
    looking for cycles would take a third of the time."""
    before = gc.get_threshold()
    raised = 0 < before[0] < COLLECTED_AFTER  # False while another thread's replay has raised it
    if raised:
        gc.set_threshold(COLLECTED_AFTER, *before[1:])
    try:
        yield
    finally:
        if raised:
            gc.set_threshold(*before)


class _Run:
    """The state of a replay: the current operation, the progress of its step, and what has been recorded."""

    def __init__(
        self, availability: Availability, fleet: Fleet, policy: Policy, costs: ReconfigurationCosts, name: str
    ) -> None:
        self.availability, self.policy, self.costs, self.name = availability, policy, costs, name
        self.so_far = FleetSoFar(fleet, costs)
        self.time_s, self.turns = 0.0, 0
        self.operation: Operation | None = None
        self.done = 0.0  # share of the current step that is done
        self.paused_until_s = 0.0
        self.reading = False  # True if a checkpoint is read until then
        self.ghosts = False  # True if devices that have left keep working until then (published simulators)
        self.next: Operation | None = None  # starts after the pause; the previous operation continues until then
        self.writing_until_s: float | None = None  # end of the checkpoint being written
        self.since_checkpoint = self.worked = 0
        self.every_s = policy.every_s
        self.checkpoint_next = False
        self.again: PolicyEvent | float | None = None  # a float is a time
        self.later: tuple[float, Response] | None = None  # the first step that ends after this time switches to it
        self.losses: list[list[Any]] = []  # fields of a Loss
        self.operations: list[Operation] = []
        self.number_of: dict[int, int] = {}
        self.booked: Operation | None = None  # operation of the latest segment; its index is self.number
        self.number = -1
        # columns of the segments; each segment begins where the previous one ends
        self.ends_s: list[float] = []
        self.states: list[int] = []
        self.works: list[int] = []  # index into the operations
        self.steps: list[int] = []
        self.first_since_checkpoint = 0
        self.first_of_step = 0
        self.loss_open = False

    def change(self, moment: Moment) -> None:
        """Change the fleet: remove devices that left, add those that are ready, and ask the policy."""
        left = moment.left
        self.so_far.change(moment)
        if left:
            devices = self.availability.devices
            names = tuple([devices[device] for device in sorted(left)])
            serving = len(left & self.operation.devices) if self.operation is not None else 0
            self.losses.append([self.time_s, names, serving, 0.0, 0.0, 0.0])
            self.loss_open = True
        self.ask(PolicyEvent.CHANGE, left)

    def ask(self, why: PolicyEvent, left: frozenset[int] = NOBODY) -> None:
        """Ask the policy and follow its answer."""
        operation, self.again, self.later = self.operation if self.next is None else self.next, None, None
        # all devices of an operation were online before this change
        lost = operation.devices - self.so_far.present if operation is not None and left else NOBODY
        pause_left_s = self.paused_until_s - self.time_s
        response = self.policy.decide(
            self.so_far.situation(
                time_s=self.time_s,
                asked=why,
                operation=operation,
                lost=lost,
                left=left,
                pause_left_s=pause_left_s if pause_left_s > 0 else 0.0,
                reading=self.reading and self.paused_until_s > self.time_s,
                meanwhile=self.next is not None,
                step_done=self.done,
            )
        )
        if response is None:
            if lost:
                self._must_be_there(operation)
            if (
                self.next is not None
                and self.operation is not None
                and not self.operation.devices <= self.so_far.present
            ):
                # the previous operation has lost a device, and the next one is not ready: wait for it
                self._end_step(TimeUse.REDONE)
                self.operation, self.next, self.writing_until_s = self.next, None, None
            return
        self._must_be_there(response.operation)
        self._apply(response, lost)

    def _must_be_there(self, operation: Operation | None) -> None:
        if operation is not None and not operation.devices <= self.so_far.present:
            gone = operation.devices - self.so_far.present
            names = name_words([self.availability.devices[device] for device in sorted(gone)])
            raise PlanError(
                f"policy {self.name} uses {names} at {self.time_s:g} s, not online then; wanted devices that are online"
            )

    def _apply(self, response: Response, lost: frozenset[int] = NOBODY) -> None:
        old, new = self.operation, response.operation
        if response.after_s is not None:
            self.later = (self.time_s + response.after_s, replace(response, after_s=None))
            return
        self.checkpoint_next |= response.checkpoint_next
        self.every_s = self.every_s if response.every_s is None else response.every_s
        if isinstance(response.again, float | int) and not isinstance(response.again, PolicyEvent):
            # late in the hours, adding SAME_S may not change the float: take the next one, so that time advances
            self.again = max(self.time_s + max(response.again, SAME_S), math.nextafter(self.time_s, math.inf))
        else:
            self.again = response.again
        if new is old and response.pause_s <= 0 and response.keeps is WorkKept.STEP:
            return  # nothing changes, the policy only wants to be asked again
        self.reading = response.keeps is WorkKept.CHECKPOINT or (self.reading and self.paused_until_s > self.time_s)
        self.paused_until_s = self.time_s + response.pause_s
        if response.keeps is WorkKept.CHECKPOINT:
            self.so_far.setbacks += old is not None
            self._void(self.first_since_checkpoint, self.first_of_step)
            self.first_since_checkpoint = self.first_of_step
            self.since_checkpoint = 0
        # after a loss the old operation can only continue if the policy says so, as published simulators do
        self.ghosts = bool(lost) or (self.ghosts and self.next is not None)
        able = old is not None and (self.ghosts or old.devices <= self.so_far.present)
        if response.meanwhile and response.pause_s > 0 and new is not None and able and self._working():
            self.next = new
            return
        self.next, self.writing_until_s = None, None
        if response.keeps is not WorkKept.STEP or new is None:
            self._end_step(TimeUse.REDONE)
        self.operation = new

    def _working(self) -> bool:
        """Return True if the run was training or writing a checkpoint until now."""
        return self.next is not None or bool(self.states and self.states[-1] in (TRAINING, CHECKPOINT))

    def _end_step(self, state: TimeUse) -> None:
        """Abandon the current step: its seconds of training are attributed to another state."""
        if state is TimeUse.REDONE:
            self._void(self.first_of_step, len(self.ends_s))
        for i in range(self.first_of_step, len(self.ends_s)):
            if self.states[i] == TRAINING:
                self.states[i] = int(state)
        self.first_of_step, self.done = len(self.ends_s), 0.0

    def _void(self, first: int, until: int) -> None:
        """Mark the training in segments ``first`` to ``until`` (exclusive) as work to redo. Its steps do not count."""
        redone_s = samples = 0.0
        for i in range(first, until):
            if self.states[i] == TRAINING:
                self.states[i] = REDONE
                redone_s += self.ends_s[i] - (self.ends_s[i - 1] if i else 0.0)
                samples += self.steps[i] * self.operations[self.works[i]].samples
                self.steps[i] = 0
        if self.losses:
            last = self.losses[-1]
            last[3] += redone_s
            last[4] += samples

    def advance(self, to_s: float) -> None:
        """Advance to second ``to_s``, and ask the policy whenever it wants to be asked. Raises PlanError after more
        than ``MOST_TURNS`` turns."""
        while self.time_s < to_s:
            self.turns += 1
            if self.turns > MOST_TURNS:
                raise PlanError(
                    f"{self.availability.name} under policy {self.name} makes more than {MOST_TURNS:,} changes, "
                    f"checkpoints and questions by second {self.time_s:.4g} of {self.availability.end_s:.4g}; wanted a "
                    "shorter time, longer steps, or fewer checkpoints"
                )
            until_s = min(to_s, self.again) if isinstance(self.again, float) else to_s
            if self.later is not None and self.later[0] > self.time_s:
                until_s = min(until_s, self.later[0])
            if self.next is not None:
                if self.paused_until_s <= self.time_s:
                    # the change interrupts the current step, whose work is lost
                    self._end_step(TimeUse.RECONFIGURING)
                    self.operation, self.next, self.writing_until_s = self.next, None, None
                    continue
                until_s = min(until_s, self.paused_until_s)
            asked = self._pass(until_s)
            if asked is None and isinstance(self.again, float) and self.time_s >= self.again:
                asked = PolicyEvent.TIME
            if asked is not None:
                self.ask(asked)

    def _pass(self, to_s: float) -> PolicyEvent | None:
        """Advance by one interval, at most to second ``to_s``. Return the event that ended the interval if the policy
        wants to be asked at it, otherwise None."""
        operation = self.operation
        if operation is None:
            self._book(IDLE if self.so_far.present else STOPPED, to_s, None)
            return None
        if self.paused_until_s > self.time_s and self.next is None:
            self._book(RECONFIGURING, min(self.paused_until_s, to_s), operation)
            return None
        if self.writing_until_s is not None:
            self._book(CHECKPOINT, min(self.writing_until_s, to_s), operation)
            return None if self.time_s < self.writing_until_s else self._written()
        return self._work(operation, to_s)

    def _work(self, operation: Operation, to_s: float) -> PolicyEvent | None:
        """Train until ``to_s``, or until a checkpoint is due. Train only to the end of a step if the policy wants to be
        asked then, or if a prepared operation is ready."""
        first_s = (1 - self.done) * operation.step_s
        left_s = to_s - self.time_s + SAME_S
        if first_s > left_s:
            self.done += (to_s - self.time_s) / operation.step_s
            self._book(TRAINING, to_s, operation)
            return None
        due = 1 if self.checkpoint_next else self._steps_to_checkpoint(operation)
        ready = self.later is not None and self.later[0] <= self.time_s
        most = 1 if ready or self.again is PolicyEvent.STEP else due
        steps = min(1 + math.floor((left_s - first_s) / operation.step_s), most)
        self._book(TRAINING, min(to_s, self.time_s + first_s + (steps - 1) * operation.step_s), operation)
        self._count(steps)
        self.done = 0.0
        if ready and self.later is not None:
            (_, prepared), self.later = self.later, None
            self._apply(prepared)
            return None
        if steps == due:
            self.checkpoint_next = False
            self.writing_until_s = self.time_s + self.costs.checkpoint_s
            if self.costs.checkpoint_s <= 0 and (asked := self._written()):
                return asked
        return PolicyEvent.STEP if self.again is PolicyEvent.STEP else None

    def _steps_to_checkpoint(self, operation: Operation) -> int:
        """Return the number of whole steps until the next checkpoint is due."""
        due, every = 2**62, self.policy.every_steps
        if every:
            due = every - self.worked % every
        if self.every_s < math.inf:
            due = min(due, max(1, round(self.every_s / operation.step_s) - self.since_checkpoint))
        return due

    def _written(self) -> PolicyEvent | None:
        """Complete the checkpoint: earlier work cannot be lost any more. Return the event if the policy wants to be
        asked at it."""
        self.writing_until_s, self.since_checkpoint = None, 0
        self.first_since_checkpoint = self.first_of_step = len(self.ends_s)
        return PolicyEvent.CHECKPOINT if self.again is PolicyEvent.CHECKPOINT else None

    def _count(self, steps: int) -> None:
        self.steps[-1] += steps
        self.since_checkpoint += steps
        self.worked += steps
        self.first_of_step = len(self.ends_s)

    def _book(self, state: int, until_s: float, operation: Operation | None) -> None:
        """Append a segment: the seconds until ``until_s`` are spent in this state."""
        lasts_s = until_s - self.time_s
        if lasts_s <= 0 and state != TRAINING:
            return
        if operation is not self.booked:
            self.booked, self.number = operation, -1
            if operation is not None:
                self.number = self.number_of.setdefault(id(operation), len(self.operations))
                if self.number == len(self.operations):
                    self.operations.append(operation)
        if self.loss_open:
            if state == TRAINING:
                self.loss_open = False
            else:
                self.losses[-1][5] += lasts_s
        self.ends_s.append(until_s)
        self.states.append(state)
        self.works.append(self.number)
        self.steps.append(0)
        self.so_far.device_s += lasts_s * len(self.so_far.present)
        self.time_s = until_s

    def history(self, price_per_hour: FloatArray | None) -> History:
        """Return the history recorded so far."""
        end_s = np.array(self.ends_s)
        return History(
            availability=self.availability,
            policy=self.name,
            operations=tuple(self.operations),
            start_s=np.append(0.0, end_s[:-1]),
            end_s=end_s,
            state=np.array(self.states, dtype=np.int64),
            operation=np.array(self.works, dtype=np.int64),
            steps=np.array(self.steps, dtype=np.int64),
            losses=tuple(Loss._make(fields) for fields in self.losses),
            price_per_hour=np.zeros(len(self.availability.devices)) if price_per_hour is None else price_per_hour,
        )
