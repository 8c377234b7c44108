"""Live replanning: short searches on a thread, when there is no plan and after every edit. Then the plan's lower bound
is raised."""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.planning import Cancellation
from dtfm_lab.planning.iteration.rising_bounds import rising_bounds
from dtfm_lab.widgets.controls import Panel, checkbox
from dtfm_lab.widgets.lab_state import LabState, is_plan_of
from dtfm_lab.widgets.live_search import LiveSearch
from dtfm_lab.widgets.planner.edits import EditHistory
from dtfm_lab.widgets.planner.short_searches import BUDGETS_S, Replanned, first_plan, gain_words, improved, replanned
from dtfm_lab.widgets.tasks import Stream, begin, has_event_loop, run_on_thread

RESTS_S = (0.25, 0.4)
"""Seconds without an edit before the second and the third search.

In this time, the first plan can be predicted and drawn without sharing the processor.
"""
SHOWN_S = 0.1
"""Maximum seconds that a search waits until the page has been sent the current plan's prediction."""
SENT_S = 0.015
"""Seconds for which a search waits after the current plan's prediction is drawn, because a thread of Jupyter sends it.

A search that began at once held the interpreter, and the message left 30 to 40 ms later.
"""
BOUND_REST_S = 4.0
"""Seconds that a plan must last before its bound is raised: longer than the searches that follow an edit."""
BOUND_FRAME_S = 0.5
"""Seconds between two checks of the bound."""
LONGEST_S = 120.0
"""Maximum seconds of raising the bound of a plan."""
STALLED_S = 20.0
"""Seconds without progress after which raising a bound ends."""

logger = logging.getLogger(__name__)


class Request(NamedTuple):
    """The plan to start from, or None, and the network and the job to plan for."""

    plan: Plan | None
    topology: Topology
    job: Job


class LiveReplanning(Panel):
    """Sets ``lab_state.plan`` soon after ``lab_state.topology`` or ``lab_state.job`` changes, or if there is no plan.

    The search starts from the old placement, see ``planning.adapt_plan``. An edit during a search ends it, and only the
    newest network is planned for. ``options`` returns the objective and limits of a first plan. ``history`` keeps the
    plan from before an edit, or from before a whole drag, so that the edit's effect can be described.
    """

    def __init__(
        self,
        lab_state: LabState,
        options: Callable[[], dict[str, Any]] = dict,
        history: EditHistory | None = None,
        *,
        live: bool = True,
    ) -> None:
        self._lab_state, self._options = lab_state, options
        self.history = history or EditHistory(lab_state)
        self._task: asyncio.Task[None] | None = None
        self._cancelled, self._woken = Cancellation(), asyncio.Event()
        """Both are set when a search becomes out of date. The search's thread checks the first, a pause waits for the
        second."""
        self._looks_further = False
        self._is_freer = False
        """True if the job leaves more to the planner than when the plan was made. The plan still satisfies the job."""
        self.foresee: Callable[[Plan], None] = lambda plan: None
        """Called on the search's thread with the next plan before it is set, so that its prediction is ready with
        it."""
        self.show_at_hand: Callable[[Plan], Callable[[], None] | None] = lambda plan: None
        """Called on the search's thread with the current plan, moved to the edited network.

        It may return a function, which is called on the kernel's loop before the search starts.
        """
        self.last: Replanned | None = None
        self.took_s = 0.0
        """Seconds that the first search after the last edit took, with the prediction of its plan."""
        self.switch = checkbox(
            "Live", live, "Plan again after every edit, by a short search from the current plan", "170px"
        )
        self._controls = {"on": self.switch}
        self.view = self.switch
        self.switch.observe(lambda _: self._switch(), "value")
        lab_state.observe(self._note_freedom, ["topology", "job", "plan"])
        lab_state.observe(lambda _: self._request(), ["topology", "job", "plan"])
        lab_state.observe(lambda _: self._note_planning(), ["topology", "job", "plan", "not_planned", "busy"])
        lab_state.observe(lambda _: self._yield_to_others(), "busy")
        self._switch()

    def _switch(self) -> None:
        if self.switch.value:
            self._request()
        else:
            self._cancel()
            self._lab_state.not_planned = ""

    @property
    def is_answering(self) -> bool:
        """True if the newest edit has no plan yet and one is being searched for."""
        return self._task is not None and not self._looks_further

    def begin(self) -> None:
        """Plan what is drawn now, for example once the kernel's loop runs."""
        self._request()

    def _yield_to_others(self) -> None:
        """End the search while a measured run, or a search that the user started, needs the processor. Start it again
        afterwards."""
        if self._lab_state.is_needed_elsewhere:
            self._cancel()
        else:  # an edit made during another search has no plan yet
            self._request()

    def _note_freedom(self, change: dict[str, Any]) -> None:
        old, new = change["old"], change["new"]
        if change["name"] != "job":
            self._is_freer = False
        elif old is not None and new is not None and self._lab_state.plan is not None:
            self._is_freer = is_plan_of(old, new) and old != new and not self._lab_state.plan_is_stale

    def _note_planning(self) -> None:
        """Note whether a first plan is being searched for, here or by a search that the user started."""
        state = self._lab_state
        is_asked = self._task is not None and self._next_request() is not None and not state.not_planned
        state.is_planning = state.plan is None and (is_asked or "plan" in state.busy)

    def _cancel(self) -> None:
        self._cancelled.set()
        self._woken.set()

    def _request(self) -> None:
        """Start a search, or restart it, if the plan is out of date."""
        if not self.switch.value:
            return
        state = self._lab_state
        if state.not_planned and state.plan is not None and not state.plan_is_stale:
            state.not_planned = ""  # the edit was undone
        if self._next_request() is None:
            return
        # The running search is for an older request; the loop in ``_follow`` starts the next.
        self._cancel()
        if self._task is None:
            if not has_event_loop():
                return
            self._task = begin(self._follow(), partial(state.report_error, "plan"))
        self._note_planning()

    def _next_request(self) -> Request | None:
        """Return what to plan. None if the plan is up to date, or there is nothing to plan."""
        lab_state = self._lab_state
        if lab_state.topology is None or lab_state.job is None or "plan" in lab_state.busy:
            return None
        if lab_state.plan is not None and not lab_state.plan_is_stale and not self._is_freer:
            return None
        return Request(lab_state.plan, lab_state.topology, lab_state.job)

    async def _follow(self) -> None:
        """Replan until the plan is for the newest network and job. Then look for better plans while nothing changes."""
        try:
            while self.switch.value and self._next_request() is not None:
                await asyncio.sleep(0)  # an edit may change the network and the job: wait until it has set both
                if (request := self._next_request()) is None:
                    break
                self._cancelled, self._woken = Cancellation(), asyncio.Event()
                began_s = time.monotonic()
                found, why_not = None, ""
                self._lab_state.live_search = live = LiveSearch()
                try:
                    loop = asyncio.get_running_loop()
                    found = await asyncio.to_thread(self._first_or_next, request, self._cancelled, live, loop)
                except LabError as error:
                    why_not = str(error)
                now = self._next_request()
                # The user has edited since, so the plan found is of no use any more.
                if not self.switch.value or now is None or not _same(now, request):
                    continue
                self._is_freer = False
                if why_not:  # the same request would fail again, so wait for the next edit
                    self._lab_state.not_planned = why_not
                    break
                if found is None:
                    continue
                self.took_s = time.monotonic() - began_s
                self._take(found)
                self._looks_further = self._lab_state.searches_on = True
                await self._look_further(found, request.job, live)
                self._looks_further = self._lab_state.searches_on = False
                live.is_over = True
        finally:
            self._task, self._looks_further, self._lab_state.searches_on = None, False, False
            self._note_planning()
            if self._lab_state.live_search is not None:
                self._lab_state.live_search.is_over = True

    def _first_or_next(
        self, request: Request, cancelled: Cancellation, live: LiveSearch, loop: asyncio.AbstractEventLoop
    ) -> Replanned | None:
        plan, topology, job = request

        def at_hand(start: Plan) -> None:
            if not cancelled.is_set() and (show := self.show_at_hand(start)) is not None:
                shown = asyncio.run_coroutine_threadsafe(_called(show), loop)
                with suppress(TimeoutError):
                    # The thread may not touch widgets, so the event loop draws.
                    shown.result(SHOWN_S)  # else the search would compete with the message for the interpreter

        if plan is None:
            found = first_plan(topology, job, cancelled, self._options(), live)
        else:
            earlier = self.history.plan_on(topology, job)
            found = replanned(plan, topology, job, cancelled, self.history.before, earlier, live, at_hand)
        return self._foreseen(found, cancelled)

    async def _look_further(self, found: Replanned, job: Job, live: LiveSearch) -> None:
        """Search longer for the same network, as long as nothing is edited and nothing else needs the processor."""
        for budget_s, rest_s in zip(BUDGETS_S[1:], RESTS_S, strict=True):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), rest_s)
            lab_state = self._lab_state
            busy = lab_state.is_needed_elsewhere
            # A user who took another plan by hand does not want it replaced.
            if self._cancelled.is_set() or busy or lab_state.plan is not found.plan or not self.switch.value:
                return
            further = partial(self._improved, found, job, self._cancelled, budget_s, live)
            better = await run_on_thread(further, self._woken)
            if better is None or lab_state.plan is not found.plan or not self.switch.value or lab_state.plan_is_stale:
                return
            gain = gain_words(found.plan, better.plan)
            found = better._replace(gain=gain or found.gain)
            self._take(found)

    def _improved(
        self, found: Replanned, job: Job, cancelled: Cancellation, budget_s: float, live: LiveSearch
    ) -> Replanned | None:
        return self._foreseen(improved(found, job, cancelled, budget_s, live), cancelled)

    def _foreseen(self, found: Replanned | None, cancelled: Cancellation) -> Replanned | None:
        """Predict what was found before it is set. Otherwise the chart would be old for a moment."""
        if found is not None and not cancelled.is_set():
            self.foresee(found.plan)
        return found

    def _take(self, found: Replanned) -> None:
        self._lab_state.not_planned = ""
        self.last = found
        self._lab_state.plan = found.plan


async def _called(show: Callable[[], None]) -> None:
    show()
    await asyncio.sleep(SENT_S)


def _same(one: Request, other: Request) -> bool:
    return one.plan is other.plan and one.topology is other.topology and one.job == other.job


class BackgroundBound:
    """Raises the lower bound of the lab's plan on a thread, and sets ``lab_state.bound_s`` to it.

    ``options`` returns the options of a search. Only plans that minimise the iteration time and already have a bound
    get a higher one.
    """

    def __init__(self, lab_state: LabState, options: Callable[[], dict[str, Any]] = dict) -> None:
        self._lab_state, self._options = lab_state, options
        self._task: asyncio.Task[None] | None = None
        self._done: Plan | None = None
        """The plan whose bound was raised until it stalled or took too long. It is not raised again."""
        lab_state.observe(lambda _: self._forget(), ["plan", "topology", "job"])
        lab_state.observe(lambda _: self._begin_or_end(), "busy")

    @property
    def rises(self) -> bool:
        """True if a bound is being raised, or will be in a moment."""
        return self._task is not None

    def end(self) -> None:
        """Stop. The thread ends by itself after the current step."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def _forget(self) -> None:
        self.end()
        self._lab_state.bound_s = 0.0
        self._begin_or_end()

    def _begin_or_end(self) -> None:
        state, plan = self._lab_state, self._lab_state.plan
        if state.is_needed_elsewhere:
            return self.end()
        if plan is None or plan is self._done or self._task is not None or not has_event_loop():
            return
        if plan.objective == "iteration" and plan.iteration_s and plan.iteration_lower_bound_s is not None:
            self._task = begin(self._rise(plan), logger.warning)

    async def _rise(self, plan: Plan) -> None:
        # A plan right after an edit is soon replaced, and raising a bound keeps a core busy.
        await asyncio.sleep(BOUND_REST_S)
        state = self._lab_state
        limit_s = plan.iteration_s
        if state.job is None or limit_s is None or state.plan_is_stale:
            self._task = None
            return
        known_s = max(plan.iteration_lower_bound_s or 0.0, state.bound_s)
        most = self._options().get("max_price_per_hour")
        bounds = rising_bounds(
            plan.topology, state.job, limit_s, queueing=plan.queueing, lower_s=known_s, max_price_per_hour=most
        )
        rising: Stream[float] = Stream(bounds)
        began_s = rose_s = time.monotonic()

        def show(newest_s: float) -> None:
            nonlocal rose_s, known_s
            if (bound_s := min(newest_s, limit_s)) > known_s:
                state.bound_s = known_s = bound_s
                rose_s = time.monotonic()

        def tick() -> None:
            # A bound that has stopped rising would cost a core for nothing.
            if time.monotonic() > min(began_s + LONGEST_S, rose_s + STALLED_S):
                rising.stop()

        try:
            await rising.watch(show, tick, every_s=BOUND_FRAME_S)
        finally:
            if self._task is asyncio.current_task():  # else it was stopped, or another has started
                self._done, self._task = plan, None
