"""What was shown before the last edit, and how the edit changed the plan. It contains no widget.

A ``PlanChange`` is computed once per edit: the values of both plans on both networks, and what moved. Every sentence
about the edit reads it, so that all of them agree.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.figures.measures import measure_of
from dtfm_lab.planning import Difference, objectives
from dtfm_lab.widgets.lab_state import LabState, modelled_s, shown_prediction
from dtfm_lab.widgets.planner.job_controls import COMMUNICATION
from dtfm_lab.widgets.planner.plan_words import describe_moves

ONE_EDIT_S = 1.2
"""An edit within this many seconds of the previous one counts as the same edit."""
MOST_REMEMBERED = 30
"""Number of networks and jobs whose newest plan is kept, in case an edit is undone."""
SAME = 5e-3
"""Relative difference up to which a value counts as the same. No device moves for a smaller gain."""


def is_same(was: float, now: float) -> bool:
    """True if a value has not changed by more than ``SAME``."""
    return abs(now - was) <= SAME * was


@dataclass(frozen=True)
class BeforeEdit:
    """The network, the job and the plan before an edit, and the predicted seconds of an iteration, from FLOP."""

    topology: Topology
    job: Job | None
    plan: Plan
    iteration_s: float | None
    shown: Plan | None = None
    """``plan`` with the schedule and choices of the shown prediction. None if there was no prediction."""


@dataclass(frozen=True, eq=False)
class PlanChange:
    """The change from the earlier plan, before an edit, to the later plan, after it.

    A value is what the later plan's objective minimises, such as the seconds of an iteration.
    """

    before: BeforeEdit
    after: Plan
    job: Job
    """The requested job after the edit. The planner chose the fields that it leaves open."""

    @cached_property
    def difference(self) -> Difference:
        return Difference(self.before.plan, self.after)

    @cached_property
    def was(self) -> float | None:
        """Value of the earlier plan on its own network. None if unknown."""
        return self._value(self.before.plan)

    @cached_property
    def now(self) -> float | None:
        """Value of the later plan on its own network. None if unknown."""
        return self._value(self.after)

    @cached_property
    def held(self) -> float | None:
        """Value of the earlier plan on the later network. None if it does not fit, if the job was edited, or if the
        network is the same."""
        return self._carried(self.difference)

    @cached_property
    def earlier(self) -> float | None:
        """Value of the later plan on the earlier network. None in the same cases as ``held``.

        If it is better than ``was``, the search found a plan that would have been better even before the edit. That
        gain is not the edit's effect.
        """
        return self._carried(Difference(self.after, self.before.plan))

    @cached_property
    def moves(self) -> str:
        """Which devices moved and what else of the plan changed. Empty if the plan is the same."""
        return describe_moves(self.difference)

    @cached_property
    def no_longer_fits(self) -> bool:
        """True if all devices of the earlier plan still exist, but the plan no longer fits on them."""
        placed = {name for group in self.before.plan.stages for name in group}
        return self._is_of_network and self.held is None and placed <= set(self.after.topology.names)

    @property
    def moved(self) -> str:
        """``moves`` as a sentence, or that the plan stays."""
        return f"{self.moves}." if self.moves else "The plan stays."

    @cached_property
    def sentence(self) -> str:
        """What happened to the plan, and what the earlier plan would take now."""
        was, now, held = self.was, self.now, self.held
        if not self.moves:
            stays = was is None or now is None or is_same(was, now)
            return self.moved if stays else "The plan stays: no better one was found."
        words = measure_of(self.after.objective).words
        if held is None or now is None or is_same(now, held):
            kept = "The old plan no longer fits in memory" if self.no_longer_fits else ""
        else:
            kept = f"The old plan would take {words(held)} now"
        # Else the edit would get credit for what only a longer search found.
        if self.earlier is not None and was is not None and self.earlier < was * (1 - SAME):
            found = f"The search found a better plan: it would have taken {words(self.earlier)} even before the edit"
            return ". ".join(filter(None, (found, kept, self.moved)))
        return f"{kept}. {self.moved}" if kept else self.moved

    @property
    def effect(self) -> str:
        """Return ``1.2 s → 1.3 s``, or ``stays 1.2 s``. Empty if a value is unknown."""
        return effect(self.was, self.now, self.after.objective)

    def _value(self, plan: Plan) -> float | None:
        known = self.after.objective == COMMUNICATION or plan.iteration_s is not None
        return objectives[self.after.objective].value(plan) if known else None

    @property
    def _is_of_network(self) -> bool:
        """True if the network was edited and the job was not."""
        return self.job == self.before.job and self.after.topology.fingerprint != self.before.topology.fingerprint

    def _carried(self, difference: Difference) -> float | None:
        if not self._is_of_network:
            return None
        if self.after.objective == COMMUNICATION:
            return None if difference.carried is None else difference.carried.total_s
        return None if difference.carried_plan is None else self._value(difference.carried_plan)


def effect(was: float | None, now: float | None, objective: str) -> str:
    """Return ``1.2 s → 1.3 s``, ``stays 1.2 s`` or ``stays about 1.2 s``, in the units of an objective.

    Empty if a value is unknown.
    """
    if was is None or now is None:
        return ""
    words = measure_of(objective).words
    if not is_same(was, now):
        return f"{words(was)} → {words(now)}"
    return f"stays {words(now)}" if words(was) == words(now) else f"stays about {words(now)}"


class EditHistory:
    """Keeps one ``BeforeEdit``: before the last edit, or before the first of several quick ones."""

    def __init__(
        self,
        lab_state: LabState,
        now_s: Callable[[], float] = time.monotonic,
        in_gesture: Callable[[], bool] = lambda: False,
    ) -> None:
        """``in_gesture`` returns True during a drag. All edits of a drag count as one, however slow they are."""
        self._lab_state, self._now_s, self._in_gesture = lab_state, now_s, in_gesture
        self._was_in_gesture = False
        self._last_edit_s = -ONE_EDIT_S
        self._settled: BeforeEdit | None = None
        """The state to compare the next edit with. It is updated only while the plan matches the drawn network."""
        self._predicted: BeforeEdit | None = None
        """``_settled`` at the time of the last prediction."""
        self.before: BeforeEdit | None = None
        self._plans: dict[tuple[str, Job], Plan] = {}
        """{(fingerprint of a network, job): newest plan} of recent networks and jobs, the oldest first."""
        lab_state.observe(self._edited, ["topology", "job"])
        lab_state.observe(lambda _: self._settle(), ["plan", "predicted"])
        lab_state.observe(lambda _: self._chosen(), "predicted")

    def forget(self) -> None:
        """Forget the last edit, for example because another network was opened."""
        self.before = None

    def end_gesture(self) -> None:
        """End the drag in progress, so that the next edit does not belong to it."""
        self._was_in_gesture = False

    def plan_on(self, topology: Topology, job: Job) -> Plan | None:
        """Return the last plan of this network and job, for example after an edit was undone. None if there was
        none."""
        return self._plans.get((topology.fingerprint, job))

    def _edited(self, change: dict[str, Any]) -> None:
        if change["old"] is None or change["new"] is None:
            self.before = self._settled = None
            return
        now_s = self._now_s()
        if change["name"] == "topology" and change["old"].name != change["new"].name:
            self.before = self._settled = None  # opening a network is not an edit, so the next edit is the first
            self._last_edit_s, self._was_in_gesture = now_s - ONE_EDIT_S, False
        if self._settled is None:  # nothing is shown yet that an edit could be compared with
            return
        # Edits in quick succession, or in one drag, count as one: the user thinks of them so.
        if now_s - self._last_edit_s >= ONE_EDIT_S and not self._was_in_gesture:
            self.before = self._settled
        self._last_edit_s, self._was_in_gesture = now_s, self._in_gesture()

    def _chosen(self) -> None:
        """Treat another schedule, or other choices, for the same plan as an edit."""
        settled, state = self._settled, self._lab_state
        if settled is None or settled.plan is not state.plan or shown_prediction(state) is None:
            return
        predicted, self._predicted = self._predicted, settled
        if predicted is not None and predicted.plan is settled.plan and predicted.shown is not settled.shown:
            self.before = predicted

    def _settle(self) -> None:
        state = self._lab_state
        if state.plan is None or state.topology is None or state.plan_is_stale:
            return
        shown = None if shown_prediction(state) is None else state.shown_plan
        self._settled = BeforeEdit(state.topology, state.job, state.plan, modelled_s(state), shown)
        if state.job is not None:
            key = state.topology.fingerprint, state.job
            # Taken out first, so that a plan used again counts as the newest.
            self._plans.pop(key, None)
            self._plans[key] = state.plan
            if len(self._plans) > MOST_REMEMBERED:
                # Dictionaries keep their order, so the first is the oldest.
                del self._plans[next(iter(self._plans))]
