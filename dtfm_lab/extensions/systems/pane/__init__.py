"""The pane Systems: what each training system would do with the lab's network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.options import Option
from dtfm_lab.domain.report import CHANGES
from dtfm_lab.extensions.systems.api import Outcome, Outcomes, Strategy, strategies
from dtfm_lab.extensions.systems.outcomes import OURS
from dtfm_lab.extensions.systems.pane.outcome_words import (
    AssumptionControls,
    ChangedAssumptions,
    WhyText,
    outcome_html,
    rows_of,
)
from dtfm_lab.extensions.systems.pane.question import SystemsQuestion, Taking, answers, single_gpus, tasks_of
from dtfm_lab.extensions.systems.strategy import NOT_MODELLED
from dtfm_lab.widgets import markup
from dtfm_lab.widgets import quiet as w
from dtfm_lab.widgets.controls import (
    Panel,
    button,
    classed,
    controls_for,
    disable,
    mark,
    more_menu,
    pane,
    segments,
    show,
    spacer,
    toolbar,
)
from dtfm_lab.widgets.lab_state import LabState, why_not_asked
from dtfm_lab.widgets.shell.panes import SYSTEMS, LabStep
from dtfm_lab.widgets.tasks import FRAME_S, Stream, begin
from dtfm_lab.widgets.views.systems import SystemsView

if TYPE_CHECKING:
    from dtfm_lab.widgets.workbench import Lab

STEP = "systems"
"""Name of this pane among the lab's steps."""
ASSUMPTIONS = "Assumptions"
WHY = "Why"
PARTS = (ASSUMPTIONS, WHY)
"""What the pane can show about the selected system, one at a time."""
NOTHING_YET = (
    "Press the button: Megatron-LM, FSDP, DiLoCo and others each plan this network their own way, all predicted "
    "by one model of links and devices."
)
MATHEMATICS = f"{CHANGES} changes the training itself: its seconds alone do not compare"
OTHER = "the network or the job has changed"


@dataclass(frozen=True, kw_only=True)
class SystemsSettings:
    """Settings of the comparison."""

    seconds: Annotated[float, Option(help="Search time of each system that searches.", least=0.1, most=600)] = 2.0
    seed: Annotated[int, Option(help="Seed of the searches.", most=2**31)] = 0


class SystemsPanel(Panel):
    """Asks every modelled system on a thread. ``outcomes`` has the results so far.

    Clicking a system shows its plan on the network and explains its iteration time. A button makes its plan the lab's:
    it sets ``lab_state.topology``, ``job`` and ``plan``.
    """

    def __init__(self, lab_state: LabState, set_job: Callable[[Job], None], names: Sequence[str] | None = None) -> None:
        """``set_job`` sets the job that the lab's controls show. ``names`` are the systems to ask; None for all."""
        self._lab_state, self._names = lab_state, names
        self._report_error = partial(lab_state.report_error, STEP)
        self.taking = Taking(lab_state, set_job)
        self.asking: Stream[Outcomes] | None = None
        """The comparison that is running; None while no comparison runs."""
        self._asks: list[Strategy] = []
        """The systems that the running comparison asks."""
        self.outcomes: Outcomes | None = None
        self.question: SystemsQuestion | None = None
        """The network and the work that the outcomes are for; None before the first comparison."""
        self.ungrouped: Topology | None = None
        """The network of single GPUs, which the lab may show in groups; None if unknown. Systems may group them in
        other ways."""
        self._changed = ChangedAssumptions()
        self._again: dict[str, Strategy] = {}
        """Systems to ask again when the running comparison ends."""
        self._asked_with: dict[str, Any] = {}
        """Keywords of ``lab.strategies`` that produced the outcomes."""
        self._edited: list[Callable[[], None]] = []
        self.start = button("Ask every system", "", "Predict the best plan of each system", "auto", style="primary")
        self.stop = button("Stop", "", "Finish the current system and keep the results so far", "auto", disabled=True)
        asked = controls_for(SystemsSettings)
        self.seconds, self.seed = asked.values()
        title = "What would each system do with these machines?"
        self.bars = SystemsView(title=title, not_modelled=dict(NOT_MODELLED), empty_words=NOTHING_YET)
        self.summary = classed(w.HTML(), "dtfm-systems-told")
        self.take = button("Take this plan", "check", "Make it the lab's plan, with its job", "auto")
        self.back = button("Back to mine", "undo", "Restore the network, job and plan from before", "auto")
        why = "What makes it slower here: one cause removed at a time, each simulated"
        self.part = segments(PARTS, ["The assumptions of its model, each with its source", why])
        self.why = WhyText(self._report_error)
        self.assumptions = AssumptionControls(self._change)
        self._controls: dict[str, w.ValueWidget] = {**asked, "part": self.part}
        self.detail, self.view = self._laid_out()
        self.start.on_click(lambda _: self.redo())
        self.stop.on_click(lambda _: self._stop())
        self.take.on_click(lambda _: self._take())
        self.back.on_click(lambda _: self._put_back())
        self.part.observe(lambda _: self._show_part(), "value")
        self.bars.observe(lambda _: self._choose(), "chosen")
        lab_state.observe(lambda _: self._follow(), ["topology", "job", "plan", "busy"])
        lab_state.observe(lambda _: self._preview(), "shown_panes")
        self._show_part()
        self._follow()

    def _laid_out(self) -> tuple[w.VBox, w.VBox]:
        more = more_menu([self.seconds, self.seed], "Budget", "Search time of each system, and the seed")
        row = toolbar(self.start, self.stop, spacer(), self.back, more)
        head = classed(w.HBox([self.part, spacer(), self.take]), "dtfm-systems-head")
        detail = classed(w.VBox([self.summary, head, self.why.view, self.assumptions.view]), "dtfm-systems-detail")
        show(detail, False)
        return detail, pane([row, self.bars, detail], "dtfm-systems-pane")

    def settings(self) -> dict[str, Any]:
        return super().settings() | {"assumptions": self._changed.settings()}

    def restore(self, settings: dict[str, Any]) -> None:
        """Set the controls and the assumptions to saved values, without asking any system."""
        super().restore(settings)
        self._changed.restore(settings.get("assumptions"))

    def observe_edits(self, call: Callable[[], None]) -> None:
        """Call ``call`` whenever an assumption is changed."""
        self._edited.append(call)

    def result(self, _: LabState) -> str:
        """Return the outcomes in one sentence; empty without outcomes."""
        return "" if self.outcomes is None or not len(self.outcomes) else self.outcomes.sentence

    def staleness(self, lab_state: LabState) -> str:
        """Say why the outcomes are out of date; empty if they are not."""
        if self.question is None or not self.result(lab_state):
            return ""
        return "" if self.question.covers(lab_state.topology, lab_state.job) else OTHER

    @property
    def systems(self) -> list[Strategy]:
        """Every modelled system with its changed assumptions, the lab's own first."""
        names = list(strategies if self._names is None else self._names)
        return [self._changed.strategy(name) for name in sorted(names, key=lambda name: name != OURS)]

    @property
    def options(self) -> dict[str, Any]:
        """Keywords of ``lab.strategies`` that the controls and the lab set: ``seconds``, ``seed`` and ``queueing``."""
        return {"seconds": self.seconds.value, "seed": self.seed.value, "queueing": self._lab_state.queueing}

    @property
    def chosen(self) -> Outcome | None:
        """The selected outcome; None without a selection, or while its outcome is not ready."""
        return self._outcome(self.bars.chosen)

    def redo(self) -> None:
        """Ask every system about the lab's network and job."""
        topology, job = self._lab_state.topology, self._lab_state.job
        if self.start.disabled or topology is None or job is None:
            return
        self._lab_state.message = ""
        # The network or the job has changed, so earlier answers no longer count.
        if self.question is None or not self.question.covers(topology, job):
            try:
                self.question = SystemsQuestion(single_gpus(topology, self.ungrouped), job)
            except LabError as error:
                self._report_error(str(error))
                return
        self.outcomes, self._asked_with = None, self.options
        self.why.known.clear()
        self._again.clear()
        self.bars.chosen = ""
        self._ask(self.systems)

    def _ask(self, systems: list[Strategy]) -> None:
        question = self.question
        if question is None:
            return
        self._asks = systems
        self.asking = Stream(answers(question, systems, self._asked_with, self.outcomes))
        self._lab_state.set_busy(STEP, True)
        begin(self._watch(self.asking), self._report_error)
        self._follow()

    async def _watch(self, asking: Stream[Outcomes]) -> None:
        def tick() -> None:
            self.bars.caption = self._progress(asking)

        try:
            await asking.watch(self._take_outcomes, tick, every_s=FRAME_S * 2)
        finally:
            self.asking = None
            self.bars.caption = self._said()
            self._lab_state.set_busy(STEP, False)
            self._follow()
            self._offer_ours()
            self._show_rows()
        # Their assumptions changed while the comparison ran, so their answers are out of date.
        again, self._again = list(self._again.values()), {}
        if again and not self.staleness(self._lab_state):
            self._ask(again)

    def _progress(self, asking: Stream[Outcomes]) -> str:
        if asking.stopped.is_set():
            return "stopping after this system"
        if len(self._asks) == 1:
            return f"asking {self._asks[0].heading} again" if self.outcomes is not None else "asking"
        n = 0 if self.outcomes is None else len(self.outcomes)
        return f"asking: {n} of {len(self._asks)} systems so far"

    def _said(self) -> str:
        if self.outcomes is None or not len(self.outcomes):
            return ""
        changes = any(one.strategy.mathematics and one.found is not None for one in self.outcomes)
        said = self.outcomes.sentence
        if self.outcomes.stopped:  # it starts with how many systems were asked
            said = said[:1].upper() + said[1:]
        return f"{said}. {MATHEMATICS}" if changes else said

    def _take_outcomes(self, outcomes: Outcomes) -> None:
        before = self.chosen
        self.outcomes = outcomes
        if self.question is not None:
            self.question.add(outcomes)
        self._show_rows()
        if self.chosen is not before:
            self._show_detail()

    def _show_rows(self) -> None:
        wanted = self._asks if self.asking is not None else ()
        rows = rows_of(self.outcomes, wanted, self._lab_state.plan)
        self.bars.show(rows, self.staleness(self._lab_state))

    def _follow(self) -> None:
        """Enable the buttons that apply, and mark what is out of date."""
        state = self._lab_state
        is_stale = bool(self.staleness(state))
        disable(self.start, why_not_asked(state) or ("" if self.asking is None else "Systems are being asked"))
        self.start.description = "Ask again" if self.outcomes is not None else "Ask every system"
        self.stop.disabled = self.asking is None or self.asking.stopped.is_set()
        chosen = self.chosen
        self.take.disabled = chosen is None or chosen.found is None or chosen.found is state.plan or is_stale
        show(self.back, self.taking.before is not None)
        self._show_rows()
        self._preview()

    def _choose(self) -> None:
        self._show_detail()
        self._follow()

    def _show_detail(self) -> None:
        """Show the selected outcome in words and on the network, and its assumptions."""
        outcome, name = self.chosen, self.bars.chosen
        show(self.detail, bool(name))
        mark(self.view, "dtfm-systems-split", bool(name))
        self.assumptions.show(self._changed.strategy(name) if name in strategies else None)
        waits = markup.line("It has not been asked yet") if name else ""
        self.summary.value = waits if outcome is None else outcome_html(outcome, self._lab_state.job)
        self._preview()
        self._explain()

    def _preview(self) -> None:
        """Show the selected plan on the network while this pane is visible, unless it is the lab's own plan."""
        state, outcome = self._lab_state, self.chosen
        tasks: dict[str, list[int]] = {}
        note = ""
        looked_at = outcome is not None and outcome.found is not None and outcome.found is not state.plan
        if outcome is not None and looked_at and state.shows(STEP) and state.topology is not None:
            tasks = {} if self.staleness(state) else tasks_of(outcome.plan, state.topology)
            note = f"Shown on the network: {outcome.title}'s plan, {outcome.sentence}." if tasks else ""
        if state.shown_tasks != tasks:
            state.shown_tasks = tasks
        state.set_note("systems", note)

    def _show_part(self) -> None:
        show(self.why.view, self.part.value == WHY)
        show(self.assumptions.view, self.part.value == ASSUMPTIONS)
        self._explain()

    def _explain(self) -> None:
        """Explain the selected outcome if the Why part is visible."""
        outcome = self.chosen if self.part.value == WHY else None
        self.why.explain(outcome, None if outcome is None else self._faster(outcome))

    def _faster(self, outcome: Outcome) -> Outcome | None:
        """Return the lab's own outcome if it is faster; else None."""
        ours = self._outcome(OURS)
        if ours is None or ours.iteration_s is None or outcome.iteration_s is None:
            return None
        return ours if ours.iteration_s < outcome.iteration_s else None

    def _change(self, strategy: Strategy) -> None:
        """Keep a system's changed assumptions. Ask it again if it was already asked about this network and job."""
        self._changed.keep(strategy)
        for call in self._edited:
            call()
        if self._outcome(strategy.name) is None or self.staleness(self._lab_state):
            return
        if self.asking is not None:
            self._again[strategy.name] = strategy
        else:
            self._ask([strategy])

    def _take(self) -> None:
        outcome = self.chosen
        if outcome is None or self.take.disabled:
            return
        try:
            self.taking.take(outcome)
        except LabError as error:
            self.taking.put_back()
            self._report_error(str(error))
        self._follow()

    def _put_back(self) -> None:
        self.taking.put_back()
        self._follow()

    def _outcome(self, name: str) -> Outcome | None:
        return next((one for one in self.outcomes or () if one.strategy.name == name), None)

    def _offer_ours(self) -> None:
        """Offer the plan of the lab's own system as the lab's best plan, unless the outcomes are out of date."""
        ours = self._outcome(OURS)
        if ours is not None and ours.found is not None and not self.staleness(self._lab_state):
            self._lab_state.offer(ours.found, "Systems")

    def _stop(self) -> None:
        if self.asking is not None:
            self._again.clear()
            self.asking.stop()
        self._follow()


def systems_step(the_lab: Lab) -> LabStep:
    """Return the pane Systems for a lab."""
    panel = SystemsPanel(the_lab.lab_state, the_lab.take_job)
    panel.ungrouped = the_lab.opened_network
    css = Path(__file__).with_name("systems.css").read_text(encoding="utf-8")
    return LabStep(
        STEP, panel, "Ranking", panel.result, panel.staleness, asked_for=True, css=css, position=70, tab=SYSTEMS
    )
