"""The Worth page of the What if pane. It lists how much time each better link or device would save, largest saving
first."""

from functools import partial

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import counted, format_s
from dtfm_lab.simulation.sensitivity import SensitivityGain, gains
from dtfm_lab.widgets import quiet as w
from dtfm_lab.widgets.controls import Panel, button, classed, pane, segments, show, spacer, toolbar
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.planner.plan_words import PLANNING
from dtfm_lab.widgets.tasks import Stream, begin, has_event_loop
from dtfm_lab.widgets.views.worth import WorthView
from dtfm_lab.widgets.what_if.worth import rows_of

PANE = "worth"
FACTORS = {"10 % better": 1.1, "twice as good": 2.0, "10 x as good": 10.0}
EVERY_S = 0.25
"""Seconds between two updates of the list while it is computed."""
AT_ONCE_UP_TO = 24
"""Maximum devices of a plan for which the list is computed when it is shown. For more, it waits for its button."""
NO_PLAN = "No plan yet: press Plan to see what each faster link and device would save."
NOT_LISTED = "Press List savings to see what each faster link and device would save."
Asked = tuple[Plan, str, str, float]


class WorthPanel(Panel):
    """Simulates ``lab_state.plan`` again with links and devices improved, one at a time and in groups.

    Clicking a row selects it.
    """

    def __init__(self, lab_state: LabState) -> None:
        self._lab_state = lab_state
        self._report_error = partial(lab_state.report_error, PANE)
        self._found: Asked | None = None
        """The newest request, which the list answers or will answer. None if there is no list."""
        self._search: Stream[SensitivityGain] | None = None
        self.factor = segments(
            list(FACTORS.items()), [f"Improve each thing alone: {name}" for name in FACTORS], value=2.0
        )
        classed(self.factor, "dtfm-segmented")
        self.start = button("List savings", "", "Simulate the plan again with each link and device improved", "auto")
        self.stop = button("Stop", "", "Stop, and keep the list so far", "auto")
        self.rows = WorthView(lab_state.select, caption=NO_PLAN)
        title = classed(w.HTML("<b>If each of these were</b>"), "dtfm-worth-title")
        row = toolbar(title, self.factor, spacer(), self.start, self.stop)
        self.view = pane([row, classed(self.rows, "dtfm-fill")], "dtfm-worth-pane")
        self._controls = {"factor": self.factor}
        self.start.on_click(lambda _: self.redo())
        self.stop.on_click(lambda _: None if self._search is None else self._search.stop())
        self.factor.observe(lambda _: self._follow(), "value")
        lab_state.observe(
            lambda _: self._follow(),
            ["plan", "schedule", "queueing", "choices", "topology", "shown_panes", "is_planning"],
        )
        self._follow()

    def staleness(self, lab_state: LabState) -> str:
        """Return why the list is out of date. Empty if it is up to date, or if it updates without being asked."""
        asked = self._asked()
        is_old = self._found is not None and asked is not None and asked != self._found and self._search is None
        return "the plan has changed since this list" if is_old and not self._is_small(asked) else ""

    def redo(self) -> None:
        """Compute the list again, replacing the current one."""
        asked = self._asked()
        if self._search is not None:
            self._search.stop()
        if asked is not None and has_event_loop():
            self._found = asked  # at once, so that the next change of a trait does not ask for the same list
            begin(self._list(asked), self._report_error)

    def _asked(self) -> Asked | None:
        state = self._lab_state
        try:
            plan = state.chosen_plan
        except LabError:
            return None
        if plan is None or plan.job.model is None or state.plan_is_stale:
            return None
        return plan, state.schedule, state.queueing, float(self.factor.value)

    @staticmethod
    def _is_small(asked: Asked | None) -> bool:
        return asked is not None and asked[0].job.n_tasklets <= AT_ONCE_UP_TO

    def _follow(self) -> None:
        """Compute the list again if that is quick and it is on the screen, else mark it as out of date."""
        asked = self._asked()
        is_old = asked != self._found
        self.rows.stale = is_old and bool(self.rows.rows)
        show(self.start, self._search is None and is_old and asked is not None and not self._is_small(asked))
        show(self.stop, self._search is not None)
        if not self.rows.rows and (asked is None or is_old):
            self.rows.caption = self._words_without_list(asked)
        if is_old and self._is_small(asked) and PANE in self._lab_state.shown_panes:
            # A hidden list is computed when its pane is opened.
            self.redo()

    def _words_without_list(self, asked: Asked | None) -> str:
        if asked is None:
            return PLANNING if self._lab_state.is_planning else NO_PLAN
        return "" if self._is_small(asked) else NOT_LISTED

    async def _list(self, asked: Asked) -> None:
        if asked is not self._found:
            return  # asked for another list since
        plan, schedule, queueing, factor = asked
        search = self._search = Stream(gains(plan, schedule, queueing=queueing, factor=factor))
        self._lab_state.set_busy(PANE, True)
        self._follow()
        all_gains: list[SensitivityGain] = []

        def more(found: list[SensitivityGain]) -> None:
            all_gains.extend(found)
            # A newer request may have started, which owns the list now.
            if search is self._search:
                self._show(all_gains, plan)

        try:
            await search.watch_all(more, every_s=EVERY_S)
        finally:
            if search is self._search:
                self._search = None
                self._lab_state.set_busy(PANE, False)
                self._follow()

    def _show(self, found: list[SensitivityGain], plan: Plan) -> None:
        self.rows.rows = rows = rows_of(found)
        last = found[-1]
        without = len(found) - len(rows)
        others = counted(without, "other improvement")
        rest = f"{others} would save nothing, often because another pipeline is just as slow."
        progress = f"{last.number:,} of {last.total:,} tried. " if last.number < last.total else ""
        now = (
            f"An iteration takes {format_s(last.before_s)} now. "
            if rows
            else "None of these improvements makes this plan faster. "
        )
        self.rows.caption = progress + now + (rest if without else "")
