"""The pane "Rent or own": should you train on your own machines, with rented ones, only on rented ones, or not at
all?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.options import options_of
from dtfm_lab.extensions.advice.advice import Advice, AdviceOptions
from dtfm_lab.extensions.advice.advising import growing_advice
from dtfm_lab.extensions.advice.card import card_svg, sentence_of
from dtfm_lab.extensions.advice.views.card import CardView
from dtfm_lab.widgets import markup
from dtfm_lab.widgets import quiet as w
from dtfm_lab.widgets.controls import (
    Panel,
    button,
    classed,
    control_for,
    disable,
    more_menu,
    pane,
    show,
    spacer,
    toolbar,
    value_of,
)
from dtfm_lab.widgets.lab_state import LabState, why_not_asked
from dtfm_lab.widgets.shell.panes import SYSTEMS, LabStep
from dtfm_lab.widgets.tasks import FRAME_S, Stream, begin

if TYPE_CHECKING:
    from dtfm_lab.widgets.workbench import Lab

STEP = "advice"
"""Name of this pane."""
LIMITS = {
    "deadline_days": "Deadline (days)",
    "budget_dollars": "Budget ($)",
    "electricity_per_kwh": "Electricity ($/kWh)",
    "seconds": "",
    "seed": "",
}
"""Options of ``lab.advise`` in the menu of the pane, each with its label. "" stands for the option's name."""
USUAL_TOKENS = "100M"
OTHER = "the network or the job has changed"
NOTHING_YET = (
    "Should you train on your own machines, rent some, or both? Compare shows the time and the dollars of each option. "
    "Devices without a price are your own."
)
FIRST_S = 2.0
"""Seconds of the first comparison, which starts without a click when the pane is opened."""
QUICK = f"Compared in {FIRST_S:g} s when you opened this page. <b>Compare</b> searches longer, and tries upgrades."
DETAILS = "<details><summary>All options with intervals, plans, and the source of each number</summary>{}</details>"


class AdvicePanel(Panel):
    """Plans every option in the background. ``advice`` is the result so far; None before the first comparison."""

    def __init__(self, lab_state: LabState) -> None:
        self._lab_state = lab_state
        self._report_error = partial(lab_state.report_error, STEP)
        self.advice: Advice | None = None
        self.asking: Stream[Advice] | None = None
        """The running comparison; None if none is running."""
        self._asked_of: tuple[str, Job] | None = None
        """Fingerprint of the network, and the job, for which ``advice`` was made."""
        options = {option.name: option for option in options_of(AdviceOptions)}
        self._options = {name: options[name] for name in ("tokens", *LIMITS)}
        self.tokens = control_for(options["tokens"], width="150px", label_width="52px")
        self.tokens.value = USUAL_TOKENS
        limits = {
            name: control_for(options[name], label=label, width="260px", label_width="140px")
            for name, label in LIMITS.items()
        }
        self._controls = {"tokens": self.tokens, **limits}
        self._is_quick = False
        """True if the advice, or the running comparison, is the short first one."""
        self.card = CardView(name="rent-or-own")
        self.start = button("Compare", "", "Plan every option for this many tokens", "auto", style="primary")
        self.stop = button("Stop", "", "Stop after the current option and keep those done so far", "auto")
        self.summary = classed(w.HTML(), "dtfm-advice")
        words = "Deadline, budget, price of electricity, and search time"
        menu = more_menu(list(limits.values()), "My limits", words)
        row = toolbar(self.tokens, spacer(), self.start, self.stop, menu)
        result = classed(w.VBox([self.card, self.summary]), "dtfm-advice-result")
        self.view = pane([row, result], "dtfm-advice-pane")
        self.start.on_click(lambda _: self.redo())
        self.stop.on_click(lambda _: self._stop())
        lab_state.observe(lambda _: self._follow(), ["topology", "job", "busy"])
        lab_state.observe(lambda _: self._look(), ["shown_panes", "plan"])
        self._follow()

    def result(self, _: LabState) -> str:
        """Return the verdict. "" before the first comparison and while one is running."""
        return "" if self.advice is None or self.asking is not None else self.advice.verdict

    def staleness(self, lab_state: LabState) -> str:
        """Return why the advice is out of date. "" if it is not."""
        topology, job = lab_state.topology, lab_state.job
        now = None if topology is None or job is None else (topology.fingerprint, job)
        return "" if self._asked_of in (None, now) else OTHER

    def _look(self) -> None:
        """Start a short comparison when the pane is shown, if there is a plan and no advice yet."""
        state = self._lab_state
        if STEP in state.shown_panes and self.advice is None and state.plan is not None and not state.busy:
            self._ask(quick=True)

    def redo(self) -> None:
        """Compare the options for the current network and job."""
        self._ask()

    def _ask(self, *, quick: bool = False) -> None:
        topology, job = self._lab_state.topology, self._lab_state.job
        if self.asking is not None or why_not_asked(self._lab_state) or topology is None or job is None:
            return
        self._lab_state.message = ""
        try:
            given = {name: value_of(option, self._controls[name]) for name, option in self._options.items()}
            asked = AdviceOptions(**(given | {"seconds": FIRST_S} if quick else given))
        except LabError as error:
            return self._report_error(str(error))
        self._is_quick = quick
        growing = growing_advice(topology, job, asked)
        self.asking = Stream(options_only(growing) if quick else growing)
        self._lab_state.set_busy(STEP, True)
        begin(self._watch(self.asking, (topology.fingerprint, job)), self._report_error)
        self._follow()

    async def _watch(self, asking: Stream[Advice], asked_of: tuple[str, Job]) -> None:
        def take(advice: Advice) -> None:
            self.advice, self._asked_of = advice, asked_of
            self._follow()

        try:
            await asking.watch(take, every_s=FRAME_S * 2)
        finally:
            self.asking = None
            self._lab_state.set_busy(STEP, False)
            self._follow()
        # Its plans may beat the lab's own, found by a longer search.
        for way in () if self.advice is None else self.advice.options:
            if way.plan is not None:
                self._lab_state.offer(way.plan, "Advice")

    def _stop(self) -> None:
        if self.asking is not None:
            self.asking.stop()
            self._follow()

    def _follow(self) -> None:
        """Update the buttons, the result, and whether it is out of date."""
        why_not, asking, advice = why_not_asked(self._lab_state), self.asking, self.advice
        if asking is not None and "run" in self._lab_state.busy:
            asking.stop()  # a measured run needs the processor for itself
        disable(self.start, why_not)
        show(self.start, asking is None)
        show(self.stop, asking is not None)
        self.stop.disabled = asking is not None and asking.stopped.is_set()
        if advice is not None:
            self.card.svg, self.card.words = card_svg(advice), sentence_of(advice)
        if asking is not None:
            so_far = asking.newest
            words = "" if so_far is None else f": {len(so_far.options)} of at most {so_far.wanted - 1} options done"
            self.summary.value = markup.line(f"Planning{words}")
        elif advice is not None:
            stale = self.staleness(self._lab_state)
            said = f"<b>Out of date:</b> {stale}. Press Compare." if stale else QUICK if self._is_quick else ""
            self.summary.value = markup.line(said, "stale" if stale else "note") + DETAILS.format(advice._repr_html_())
        else:
            self.summary.value = markup.line(escape(why_not or NOTHING_YET))


def options_only(growing: Iterator[Advice]) -> Iterator[Advice]:
    """Yield the advice until every option is planned. Upgrades and interruptions are not computed."""
    for n, advice in enumerate(growing, 1):
        yield advice
        if n % (advice.wanted - 1) == 0 and any(way.plan is not None for way in advice.options):
            return


def advice_step(the_lab: Lab) -> LabStep:
    """Return the pane "Rent or own" for a lab."""
    panel = AdvicePanel(the_lab.lab_state)
    css = Path(__file__).with_name("advice.css").read_text(encoding="utf-8")
    return LabStep(
        STEP, panel, "Rent or own", panel.result, panel.staleness, asked_for=True, css=css, position=80, tab=SYSTEMS
    )
