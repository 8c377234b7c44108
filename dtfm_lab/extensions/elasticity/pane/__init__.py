"""The pane Hours: which policy trains most while devices come and go."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.report import CHANGES
from dtfm_lab.domain.units import counted
from dtfm_lab.extensions.elasticity.api import policies
from dtfm_lab.extensions.elasticity.availability import Availability
from dtfm_lab.extensions.elasticity.availability_files import availability_names, load_availability
from dtfm_lab.extensions.elasticity.history import History
from dtfm_lab.extensions.elasticity.pane.race import (
    CAUSES,
    OURS,
    RaceQuestion,
    Replays,
    marks_of,
    moment_of,
    ranked_by,
    rows_of,
    sentence,
    title_of,
)
from dtfm_lab.extensions.elasticity.pane.time_line import HistoryChart, TimeLine
from dtfm_lab.widgets.controls import Panel, button, disable, menu, pane, show, spacer, toolbar
from dtfm_lab.widgets.lab_state import LabState, why_not_asked
from dtfm_lab.widgets.shell.panes import SYSTEMS, LabStep
from dtfm_lab.widgets.tasks import FRAME_S, LatestRequest, Stream
from dtfm_lab.widgets.views.systems import SystemsView

if TYPE_CHECKING:
    from dtfm_lab.widgets.workbench import Lab

STEP = "hours"
"""Name of this pane."""
ALL = "all"
USUAL = "bamboo-g4dn"
"""The availability that is selected first."""
HOURS = ((2, "2 h"), (6, "6 h"), (12, "12 h"), (24, "24 h"), (0, "all"))
OTHER = "the network or the job has changed"
NOTHING_YET = (
    "Which policy trains most while devices come and go? Press Replay: the lab plans every fleet that occurs. "
    "This takes minutes."
)
MOST_QUICK = 16
"""Maximum number of devices whose plans are found within seconds. With more devices, the pane warns that a replay takes
long."""
NOBODY = "No device is online in these hours: choose other hours, or add an arrival"


class HoursPanel(Panel):
    """Replays the hours in the background, under every policy or only the selected one. ``histories`` are the results
    so far, the one with most samples first.

    The first replay waits for the button, because it may take minutes. After that, it replays again when one of its
    controls changes or the time line is edited. After a change of the network it waits for the button again.
    """

    def __init__(self, lab_state: LabState) -> None:
        self._lab_state = lab_state
        self.replays = Replays()
        self.question: RaceQuestion | None = None
        """What was replayed last; None before the first replay."""
        self._raced: dict[str, History] = {}
        """The history last shown for each policy. While an edited time line is replayed, the previous histories stay
        visible. A new network, job or duration clears them."""
        self._problem, self._is_replaying, self._was_stopped = "", False, False
        self._asked = LatestRequest(
            self._answer,
            partial(lab_state.report_error, STEP),
            can_answer=lambda: not lab_state.is_needed_elsewhere,
            at_rest=self._follow,
        )
        parts_of_text = [(_words(name), name) for name in availability_names()]
        self.availability = menu("Trace", "366px", "56px", parts_of_text, "Recorded or made-up hours", value=USUAL)
        lengths = [(text, hours) for hours, text in HOURS]
        self.hours = menu("First", "112px", "32px", lengths, "How many hours to replay", value=12)
        names = sorted(policies, key=lambda name: name != OURS)
        entries = [("all, compared", ALL), *((title_of(name), name) for name in names)]
        self.policy = menu("Policy", "160px", "40px", entries, "How training responds when devices come and go")
        self.start = button("Replay", "", "Replay these hours on this network and job", "auto", style="primary")
        self.stop = button("Stop", "", "Stop the replay and keep the policies done so far", "auto")
        self.race = SystemsView(causes=CAUSES, title="Which policy trains most?", empty_words=NOTHING_YET)
        self.time_line = TimeLine(lab_state, self.redo, partial(lab_state.report_error, STEP))
        self.chart = HistoryChart(partial(setattr, self.time_line.line, "moment_s"))
        self._controls = {"availability": self.availability, "hours": self.hours, "policy": self.policy}
        row = toolbar(self.availability, self.hours, self.policy, spacer(), self.start, self.stop)
        children = [row, self.race, *self.time_line.children, self.chart.view]
        self.view = pane(children, "dtfm-hours-pane")
        self.start.on_click(lambda _: self.redo())
        self.stop.on_click(lambda _: self._stop())
        self.policy.observe(lambda _: self._choose(), "value")
        for control in (self.availability, self.hours):
            control.observe(lambda _: self._choose(others=True), "value")
        self.race.observe(lambda _: self._show_history(), "chosen")
        self.time_line.line.observe(lambda _: self._look(), "moment_s")
        lab_state.observe(lambda _: self._follow(), ["topology", "job", "busy"])
        lab_state.observe(lambda _: self._show_history(), "dark")
        lab_state.observe(lambda _: self._look(), "shown_panes")
        self._follow()

    @property
    def wanted(self) -> Sequence[str]:
        """Names of the policies to replay, in order: the one that is selected in the menu, or all. Of all, the selected
        row comes first, ``goodput`` next, and the others by name."""
        if self.policy.value != ALL:
            return [self.policy.value]
        first = {self.race.chosen: 0, OURS: 1}
        return sorted(policies, key=lambda name: (first.get(name, 2), name))

    @property
    def histories(self) -> list[History]:
        """Known histories of ``question`` under the wanted policies, the one with most samples first."""
        return self.replays.of(self.question, self.wanted)

    @property
    def history(self) -> History | None:
        """The displayed history: the selected row's, otherwise the one with most samples. None if there is no
        history."""
        found = self.histories
        return next((one for one in found if one.policy == self.race.chosen), found[0] if found else None)

    def result(self, _: LabState) -> str:
        """Return the comparison in a sentence. "" if there is no history."""
        return sentence(self.histories)

    def staleness(self, lab_state: LabState) -> str:
        """Return why the histories are out of date. "" if they are not."""
        if self.question is None or not self.histories:
            return ""
        return "" if self.question.covers(lab_state.topology, lab_state.job) else OTHER

    def redo(self) -> None:
        """Replay the selected hours on the current network and job."""
        if not why_not_asked(self._lab_state):
            self._was_stopped = False
            self._asked.ask()
        self._follow()

    def _choose(self, *, others: bool = False) -> None:
        """Replay again after a control was changed, if there was a replay before. With ``others``, other hours were
        selected, so edits of the time line are discarded."""
        if others:
            self.time_line.forget()
        if self.question is not None:
            self.redo()

    def _nothing_yet(self) -> str:
        topology = self._lab_state.topology
        if topology is None or len(topology) <= MOST_QUICK:
            return NOTHING_YET
        long = "a fleet may take half a minute to plan, and many occur: start with a few hours"
        return f"{NOTHING_YET} With {counted(len(topology), 'device')}, {long}."

    def _here(self, topology: Topology) -> Availability:
        """Return the selected or edited hours of the network's devices."""
        edited = self.time_line.edited
        if edited is not None and edited.devices == topology.names:
            return edited
        recorded = load_availability(self.availability.value)
        end_s = min(self.hours.value * 3600.0 or recorded.end_s, recorded.end_s)
        return recorded.until(end_s).on(topology)

    async def _answer(self, _: int) -> None:
        state = self._lab_state
        topology, job = state.topology, state.job
        if topology is None or job is None:
            return
        question = RaceQuestion(topology, job, self._here(topology))
        if self.question is None or question.key != self.question.key:
            # After an edit the old bars stay until the new ones come, so that the change can be seen.
            if not question.is_edit_of(self.question) or self.time_line.edited is None:
                self._raced = {}
            self.question, self._problem = question, ""
        self.time_line.show(question.here)
        if not len(question.here.time_s):
            self._problem = NOBODY
            return
        self._is_replaying = True
        stream = Stream(self.replays.each(question, self.wanted))
        state.set_busy(STEP, True)
        try:
            await stream.watch(lambda _: self._show(), self._tick, every_s=FRAME_S)
        except LabError as error:
            self._problem = str(error)
        finally:
            self._is_replaying = False
            state.set_busy(STEP, False)

    def _tick(self) -> None:
        """Show the progress. Stop the replay if another one is requested, or if a measured run needs the processor."""
        if self._asked.waits:
            self.replays.stop()
        elif self._lab_state.is_needed_elsewhere and not self.replays.is_stopping:
            self.replays.stop()
            self._asked.ask()
        self.race.caption = self._progress()

    def _progress(self) -> str:
        if self.replays.is_stopping:
            return "stopping after the current plan"
        here = None if self.question is None else self.question.here
        n, end_s = len(self.histories), 0.0 if here is None else here.end_s
        at = f"{self.replays.at_s / 3600:.1f} of {end_s / 3600:.1f} h"
        whose = f"{title_of(self.replays.doing)}: {at}, planning new fleets" if self.replays.doing else "the hours"
        return f"replaying {whose}; {n} of {len(self.wanted)} policies done"

    def _said(self) -> str:
        found, here = self.histories, None if self.question is None else self.question.here
        if here is None or self._problem:
            return ""
        parts_of_text = [f"stopped: {len(found)} of {len(self.wanted)} policies"] if self._was_stopped else []
        if here.left_out:
            parts_of_text.append(f"{here.left_out} events skipped, as no device was free")
        if found:
            parts_of_text.insert(0, "Which policy trains most? Samples per second, and share of perfect foresight")
        marks = "; or ".join(marks_of(found))
        return "; ".join([*parts_of_text, f"{CHANGES} {marks}"] if marks else parts_of_text)

    def _follow(self) -> None:
        """Update the buttons and the display, including whether the histories are out of date."""
        why_not = why_not_asked(self._lab_state)
        disable(self.start, why_not)
        self.start.description = "Replay" if self.question is None else "Replay again"
        show(self.start, not self._is_replaying)
        show(self.stop, self._is_replaying)
        self.stop.disabled = self.replays.is_stopping
        self.race.empty_words = why_not if self.question is None and why_not else self._problem or self._nothing_yet()
        if not self._lab_state.is_needed_elsewhere:
            self._asked.go_on()
        self._show()

    def _show(self) -> None:
        """Display the comparison. Policies that are being replayed after an edit show their previous history."""
        found = self.histories
        self._raced = (self._raced if self._asked.is_running else {}) | {one.policy: one for one in found}
        raced = sorted((self._raced[name] for name in self.wanted if name in self._raced), key=ranked_by)
        waiting = [name for name in self.wanted if name not in self._raced] if self._is_replaying else []
        stale = self.staleness(self._lab_state)
        self.race.show([] if self._problem else rows_of(raced, waiting), stale)
        self.race.caption = self._progress() if self._is_replaying else self._said()
        self._lab_state.set_note("hours", "" if stale or self._problem else sentence(raced))
        self._show_history()

    def _show_history(self) -> None:
        one = None if self._problem else self.history
        if one is not None or self._problem:
            self.chart.show(one, dark=self._lab_state.dark)
        self._look()

    def _look(self) -> None:
        """Show the selected moment on the network while this pane is visible."""
        state, line, one = self._lab_state, self.time_line.line, self.history
        if line.moment_s < 0 or one is None or not state.shows(STEP) or self.staleness(state):
            state.moment, line.said = {}, ""
        else:
            state.moment, line.said = moment_of(one, line.moment_s)

    def _stop(self) -> None:
        self._was_stopped = True
        self._asked.drop()
        self.replays.stop()
        self._follow()


@lru_cache(maxsize=64)
def _words(name: str) -> str:
    """Return an availability's name, maximum number of devices online, and length: ``bamboo-p3: 32 devices, 11.4
    h``."""
    here = load_availability(name)
    return f"{name}: {counted(here.counts().max(), 'device')}, {here.end_s / 3600:.3g} h"


def hours_step(the_lab: Lab) -> LabStep:
    """Return the pane Hours for a lab."""
    panel = HoursPanel(the_lab.lab_state)
    css = Path(__file__).with_name("hours.css").read_text(encoding="utf-8")
    result, staleness = panel.result, panel.staleness
    return LabStep(
        STEP, panel, "Hours", result, staleness, "Replay again", asked_for=True, css=css, position=90, tab=SYSTEMS
    )
