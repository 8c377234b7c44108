"""What stood on the screen before the last edit, so that numbers can be shown as old and new."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.staleness import shown_s

ONE_EDIT_S = 1.2
"""Seconds within which the edits of a drag count as one."""


@dataclass(frozen=True)
class BeforeEdit:
    """The network, the job and the plan before an edit, and the seconds of an iteration that were shown."""

    topology: Topology
    job: Job | None
    plan: Plan
    iteration_s: float | None


class EditHistory:
    """Keeps one ``BeforeEdit``: of the last edit, or of the first of a row of edits that follow each other fast."""

    def __init__(
        self,
        lab_state: LabState,
        now_s: Callable[[], float] = time.monotonic,
        in_gesture: Callable[[], bool] = lambda: False,
    ) -> None:
        """``in_gesture``: whether a drag is under way, whose edits are one however slow they follow each other."""
        self._lab_state, self._now_s, self._in_gesture = lab_state, now_s, in_gesture
        self._was_in_gesture = False
        self._last_edit_s = -ONE_EDIT_S
        self._settled: BeforeEdit | None = None
        """What stands on the screen, as long as the plan is of the network that is drawn."""
        self.before: BeforeEdit | None = None
        lab_state.observe(self._edited, ["topology", "job"])
        lab_state.observe(lambda _: self._settle(), ["plan", "predicted"])

    def forget(self) -> None:
        """Begin anew, as with another network."""
        self.before = None

    def _edited(self, change: dict[str, Any]) -> None:
        if change["old"] is None or change["new"] is None:
            self.before = self._settled = None
            return
        now_s = self._now_s()
        if change["name"] == "topology" and change["old"].name != change["new"].name:
            self.before = None
        elif self._settled is not None and now_s - self._last_edit_s > ONE_EDIT_S and not self._was_in_gesture:
            self.before = self._settled
        self._last_edit_s, self._was_in_gesture = now_s, self._in_gesture()

    def _settle(self) -> None:
        state = self._lab_state
        if state.plan is None or state.topology is None or state.plan_is_stale:
            return
        self._settled = BeforeEdit(state.topology, state.job, state.plan, shown_s(state))
