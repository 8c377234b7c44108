"""Build the History of a real run over the hours of an availability, from the run's events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from dtfm_lab.domain.plan import Plan
from dtfm_lab.extensions.elasticity.availability import Availability
from dtfm_lab.extensions.elasticity.history import History, Loss, Operation, TimeUse
from dtfm_lab.runtime.client.record import Event
from dtfm_lab.runtime.protocol.run_options import RunSpec


class Departure(NamedTuple):
    """An instant at which devices left."""

    time_s: float
    devices: tuple[str, ...]
    serving: int
    """Number of ``devices`` that were in use."""


@dataclass(kw_only=True)
class Booked:
    """What the client recorded about a run besides its events. Times are seconds of the run's clock."""

    availability: Availability
    name: str
    """Name of the policy."""
    followed: list[Operation] = field(default_factory=list)
    """Operations in the order in which they were sent to the run, which may have skipped some."""
    started_s: float = 0.0
    """When the workers were started."""
    first_step_s: float = 0.0
    departures: list[Departure] = field(default_factory=list)
    waits: list[tuple[float, float]] = field(default_factory=list)
    """Intervals, (start, end) in seconds of the run, in which no plan fitted the devices online."""


def plan_of(operation: Operation, availability: Availability) -> Plan | None:
    """Return the plan of an operation, with the devices that have left marked as absent. None if it has no plan."""
    plan = operation.plan
    if plan is None or not operation.left:
        return plan
    return plan.changed(absent=tuple(availability.devices[device] for device in sorted(operation.left)))


def measured_history(booked: Booked, events: Iterable[tuple[float, Event]]) -> History:
    """Attribute every second of a run to a state.

    A step ends when its end was reported. A change lasts from a loss, or from the last step, until all workers have
    their state. ``events`` yields each event with its time in seconds of the run.
    """
    rows = _Rows(booked)
    for time_s, event in events:
        if time_s > booked.availability.end_s:
            break
        rows.add(time_s, event)
    return rows.history()


class _Rows:
    """The segments so far. The current step or change began at ``since_s``."""

    def __init__(self, booked: Booked) -> None:
        self.booked, self.operation, self.changing = booked, 0, False
        self.rows: list[list[Any]] = []  # start, end, state, operation, steps
        self.since_s = 0.0
        self.losses = [Loss(*departure, 0.0, 0.0, 0.0) for departure in booked.departures]
        self.last_loss: int | None = None
        self._row(booked.started_s, TimeUse.STOPPED)
        self._book(booked.first_step_s, TimeUse.RECONFIGURING)

    def add(self, time_s: float, event: Event) -> None:
        """Record an event and end the current segment if the event closes it."""
        match event["event"]:
            case "iteration":
                self._book(time_s, TimeUse.TRAINING, steps=1)
            case "lost":
                self._lose(time_s)
            case "replanned":
                self._undo(event["undone"])
                self.operation, self.changing = self._index(event["spec"]), True
            case "resumed":
                if self.last_loss is not None and self.changing:
                    loss = self.losses[self.last_loss]
                    self.losses[self.last_loss] = loss._replace(pause_s=loss.pause_s + time_s - self.since_s)
                self._book(time_s, TimeUse.RECONFIGURING)
                self.changing, self.last_loss = False, None

    def history(self) -> History:
        """Return the History, completed to the end of the hours."""
        booked = self.booked
        # The hours may end in the middle of a change, which then has no separate event.
        last = TimeUse.RECONFIGURING if self.changing or self.last_loss is not None else TimeUse.TRAINING
        self._book(booked.availability.end_s, last)
        start_s, end_s, state, operation, steps = (np.array(column) for column in zip(*self.rows, strict=True))
        return History(
            availability=booked.availability,
            policy=booked.name,
            operations=tuple(booked.followed),
            start_s=start_s.astype(float),
            end_s=end_s.astype(float),
            state=state.astype(np.int64),
            operation=operation.astype(np.int64),
            steps=steps.astype(np.int64),
            losses=tuple(self.losses),
        )

    def _book(self, until_s: float, state: TimeUse, *, steps: int = 0) -> None:
        """Record the time from ``since_s`` to ``until_s`` in a state. Waiting for devices counts as idle and not as
        reconfiguring."""
        until_s = max(until_s, self.since_s)
        if state is TimeUse.RECONFIGURING:
            for begin_s, end_s in self.booked.waits:
                if self.since_s < end_s and begin_s < until_s:
                    self._row(min(max(begin_s, self.since_s), until_s), state)
                    self._row(min(end_s, until_s), TimeUse.IDLE)
        self._row(until_s, state, steps)

    def _row(self, until_s: float, state: TimeUse, steps: int = 0) -> None:
        if until_s > self.since_s or steps:
            self.rows.append([self.since_s, until_s, state, self.operation, steps])
            self.since_s = until_s

    def _lose(self, time_s: float) -> None:
        """Record a loss. The current step, from its start to the last departure, becomes work to redo."""
        known = [i for i, departure in enumerate(self.booked.departures) if departure.time_s <= time_s]
        # Several events may report one loss.
        if not known or self.last_loss == known[-1]:
            return
        self.last_loss = known[-1]
        left_s = self.booked.departures[known[-1]].time_s
        if not self.changing and left_s > self.since_s:
            loss = self.losses[self.last_loss]
            self.losses[self.last_loss] = loss._replace(redone_s=loss.redone_s + left_s - self.since_s)
            self._book(left_s, TimeUse.REDONE)

    def _undo(self, n_steps: int) -> None:
        """Mark the last ``n_steps`` steps as work to redo, because the checkpoint that was loaded is older."""
        counted = [row for row in self.rows if row[4]]
        for row in counted[len(counted) - n_steps :]:
            row[2], row[4] = TimeUse.REDONE, 0
            if self.last_loss is not None:
                loss, samples = self.losses[self.last_loss], self.booked.followed[row[3]].samples
                redone_s = loss.redone_s + row[1] - row[0]
                self.losses[self.last_loss] = loss._replace(redone_s=redone_s, samples=loss.samples + samples)

    def _index(self, line: str) -> int:
        """Return the index of the operation whose plan is in the RunSpec ``line``. The search starts at the current
        operation, because a policy may return to an earlier plan."""
        plan = RunSpec.from_line(line).plan
        # Only from the current one on, since a policy may return to an earlier plan.
        for index in range(self.operation, len(self.booked.followed)):
            recorded = plan_of(self.booked.followed[index], self.booked.availability)
            if recorded is not None and (recorded.stages, recorded.job, recorded.absent) == (
                plan.stages,
                plan.job,
                plan.absent,
            ):
                return index
        return self.operation
