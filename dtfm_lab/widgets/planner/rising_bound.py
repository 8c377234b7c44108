"""The bound of a plan for seconds goes on rising on a thread after the plan is shown, until something else is asked."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from dtfm_lab.domain.plan import Plan
from dtfm_lab.planning.iteration.incremental_bound import rising_bounds
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.tasks import Stream, begin, has_event_loop

REST_S = 4.0
"""Seconds that a plan stands before its bound is raised: longer than the searches that follow an edit."""
FRAME_S = 0.5
"""Seconds between two looks at the bound."""
LONGEST_S = 120.0
STALLED_S = 20.0
"""Most seconds of raising, and of raising in vain."""
OTHERS = {"run", "plan"}
"""Steps that need the processor for themselves: what is measured, and what is searched for."""

logger = logging.getLogger(__name__)


class BackgroundBound:
    """Sets ``lab_state.bound_s`` while the plan stands that it is for. ``options`` are those of a search.

    Only bounds of seconds rise, and only where a search has stated one: a placement of one's own has none.
    """

    def __init__(self, lab_state: LabState, options: Callable[[], dict[str, Any]] = dict) -> None:
        self._lab_state, self._options = lab_state, options
        self._task: asyncio.Task[None] | None = None
        self._done: Plan | None = None
        """The plan whose bound has been raised as far as it will be."""
        lab_state.observe(lambda _: self._forget(), ["plan", "topology", "job"])
        lab_state.observe(lambda _: self._begin_or_end(), "busy")

    @property
    def rises(self) -> bool:
        """Whether a bound is being raised, or will be in a moment."""
        return self._task is not None

    def end(self) -> None:
        """Stop; the thread ends by itself after the step at hand."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def _forget(self) -> None:
        self.end()
        self._lab_state.bound_s = 0.0
        self._begin_or_end()

    def _begin_or_end(self) -> None:
        state, plan = self._lab_state, self._lab_state.plan
        if OTHERS & set(state.busy):
            return self.end()
        if plan is None or plan is self._done or self._task is not None or not has_event_loop():
            return
        if plan.objective == "iteration" and plan.iteration_s and plan.iteration_lower_bound_s is not None:
            self._task = begin(self._rise(plan), logger.warning)

    async def _rise(self, plan: Plan) -> None:
        await asyncio.sleep(REST_S)
        state = self._lab_state
        if state.job is None or plan.iteration_s is None or state.plan_is_stale:
            self._task = None
            return
        known_s = max(plan.iteration_lower_bound_s or 0.0, state.bound_s)
        most = self._options().get("max_price_per_hour")
        bounds = rising_bounds(
            plan.topology, state.job, plan.iteration_s, queueing=plan.queueing, lower_s=known_s, max_price_per_hour=most
        )
        rising: Stream[float] = Stream(bounds)
        began_s = rose_s = time.monotonic()
        try:
            while rising.running and time.monotonic() < min(began_s + LONGEST_S, rose_s + STALLED_S):
                await asyncio.sleep(FRAME_S)
                if rising.newest is not None and (bound_s := min(rising.newest, plan.iteration_s)) > known_s:
                    state.bound_s = known_s = bound_s
                    rose_s = time.monotonic()
            self._done, self._task = plan, None
        finally:
            rising.stop()
        if rising.error is not None:
            raise rising.error
