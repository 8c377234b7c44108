"""Texts and rows of the pane Systems. They are the rows that the view draws, a sentence per outcome, why a system takes
its time, and its assumptions, each with its source and a control."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import Any

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.report import CHANGES
from dtfm_lab.domain.units import format_s, format_share
from dtfm_lab.extensions.systems.api import Assumption, Outcome, Outcomes, Strategy, strategies
from dtfm_lab.extensions.systems.outcomes import OURS, Bar, bars, what_the_job_fixes
from dtfm_lab.extensions.systems.why import MOST_CAUSES, Why, stream_why
from dtfm_lab.widgets import markup
from dtfm_lab.widgets import quiet as w
from dtfm_lab.widgets.controls import button, classed, control_for, value_of
from dtfm_lab.widgets.lab_state import Guard
from dtfm_lab.widgets.tasks import FRAME_S, Stream, begin


class AssumptionControls:
    """``view`` shows one system's assumptions. When the user changes one, ``changed`` is called with the changed
    system."""

    def __init__(self, changed: Callable[[Strategy], None]) -> None:
        self._changed = changed
        self._is_filling = Guard()
        self.strategy: Strategy | None = None
        self.by_field: dict[str, w.ValueWidget] = {}
        self.problem = w.HTML()
        self.reset = button("As modelled", "undo", "Reset every assumption to the model's default", "auto")
        self.reset.on_click(lambda _: self._reset())
        self.view = classed(w.VBox(), "dtfm-assumptions")

    def show(self, strategy: Strategy | None) -> None:
        """Show the assumptions of a system; None shows nothing."""
        before, self.strategy = self.strategy, strategy
        self.problem.value = ""
        if strategy is None:
            self.by_field, self.view.children = {}, ()
            return
        # Another kind of system has other assumptions; the same kind only other values.
        if before is None or type(before) is not type(strategy):
            self._build(strategy)
        # These values are not the user's, so they are not taken as changes.
        with self._is_filling:
            for one in strategy.assumptions:
                value = getattr(strategy, one.field)
                if isinstance(control := self.by_field[one.field], w.Text):
                    value = "" if value is None else str(value)
                control.value = value
        self.reset.disabled = not strategy.changed

    def _build(self, strategy: Strategy) -> None:
        self.by_field = {}
        rows: list[w.Widget] = []
        for one in strategy.assumptions:
            control = control_for(one, width="100%", label_width="40%", placeholder="not given")
            self.by_field[one.field] = control
            rows.append(classed(w.HBox([control, w.HTML(_assumption_html(one))]), "dtfm-assumption"))
            control.observe(lambda _: self._take(), "value")
        shown = w.HTML(_system(strategy))
        nothing = [] if rows else [w.HTML(markup.line("Its model has no assumptions to change."))]
        self.view.children = (shown, *nothing, *rows, w.HBox([self.reset, self.problem]))

    def _take(self) -> None:
        strategy = self.strategy
        if self._is_filling or strategy is None:
            return
        self.problem.value = ""
        try:
            values = {one.field: _value(one, self.by_field[one.field]) for one in strategy.assumptions}
            made = replace(strategy, **values)
        except (LabError, ValueError) as error:
            self.problem.value = markup.line(escape(str(error)), "warning")
            return
        # Another way to write the same value must not predict everything again.
        if made != strategy:
            self.strategy = made
            self.reset.disabled = not made.changed
            self._changed(made)

    def _reset(self) -> None:
        if self.strategy is not None:
            made = type(self.strategy)()
            self.show(made)
            self._changed(made)


class ChangedAssumptions:
    """Systems whose assumptions were changed, by name. A workspace file stores only the changes."""

    def __init__(self) -> None:
        self._changed: dict[str, Strategy] = {}

    def keep(self, strategy: Strategy) -> None:
        """Remember a system if its assumptions differ from its model's defaults. Otherwise forget its changes."""
        self._changed.pop(strategy.name, None)
        if strategy.changed:
            self._changed[strategy.name] = strategy

    def strategy(self, name: str) -> Strategy:
        """Return the system of this name, with its changes if it has any."""
        kept = self._changed.get(name)
        return strategies[name]() if kept is None else kept

    def settings(self) -> dict[str, dict[str, Any]]:
        return {
            name: {one.field: value for one in made.assumptions if (value := getattr(made, one.field)) != one.default}
            for name, made in self._changed.items()
        }

    def restore(self, saved: object) -> None:
        """Replace all changes by saved ones. Invalid ones are skipped. Does nothing if ``saved`` is not a mapping."""
        if not isinstance(saved, Mapping):
            return
        self._changed = {}
        for name, changes in saved.items():
            if name in strategies and isinstance(changes, Mapping):
                self.keep(_changed(name, changes))


def _changed(name: str, changes: Mapping[str, Any]) -> Strategy:
    """Return a system with those changes that are valid. Other assumptions keep their defaults."""
    made: Strategy = strategies[name]()
    for one in made.assumptions:
        if one.field in changes:
            try:
                made = replace(made, **{one.field: changes[one.field]})
            except LabError:
                continue
    return made


def _value(one: Assumption, control: w.ValueWidget) -> Any:
    value = value_of(one, control)
    return float(value) if one.type is float and value is not None else value


def _system(strategy: Strategy) -> str:
    """Return as HTML: the system's sentence, what it changes about the training, and its authors."""
    first = (type(strategy).__doc__ or "").strip().splitlines()[0]
    cite = escape(strategy.cite)
    if strategy.url.startswith(markup.LINKS):
        cite = f'<a href="{escape(strategy.url)}" target="_blank" rel="noopener noreferrer">{cite}</a>'
    differs = f"<br><b>Another training:</b> {escape(strategy.mathematics)}" if strategy.mathematics else ""
    return f'<div class="dtfm-line">{escape(first)} <span class="dtfm-source">{cite}</span>{differs}</div>'


def _assumption_html(one: Assumption) -> str:
    return f'<div class="dtfm-line">{escape(one.help)} <span class="dtfm-source">{escape(one.source)}</span></div>'


OWN_SECONDS = (
    "Its seconds come from its own formula. If you take its plan, the lab predicts it by its schedule instead."
)
WAITS = "removing one cause at a time"


def rows_of(outcomes: Outcomes | None, wanted: Sequence[Strategy], plan: Plan | None) -> list[dict[str, Any]]:
    """Return a row for each outcome, the fastest first, then for each system that is still to come.

    A row's name is the system's registry name, even if assumptions were changed. ``plan`` is the lab's plan, whose row
    is marked as taken.
    """
    displayed = [] if outcomes is None else bars(outcomes)
    fastest_s = min((one.outcome.iteration_s for one in displayed if one.outcome.iteration_s is not None), default=0.0)
    longest_s = max((one.length_s for one in displayed), default=0.0)
    rows = [_row(one, fastest_s, longest_s, plan) for one in displayed]
    known = {one.outcome.strategy.name for one in displayed}
    rows += [{"name": one.name, "title": one.heading} for one in wanted if one.name not in known]
    return [row | {"ours": row["name"] == OURS} for row in rows]


def _row(bar: Bar, fastest_s: float, longest_s: float, plan: Plan | None) -> dict[str, Any]:
    outcome = bar.outcome
    row: dict[str, Any] = {"name": outcome.strategy.name, "title": outcome.title}
    if outcome.iteration_s is None:
        return row | {"reason": outcome.reason}
    row |= {"seconds": outcome.iteration_s, "times": outcome.iteration_s / fastest_s if fastest_s > 0 else 1.0}
    row |= {"parts": [[cause, seconds] for cause, seconds, _ in bar.parts], "cut": bar.cut}
    row |= {"length": bar.length_s / longest_s if longest_s > 0 else 0.0, "shape": shape_words(outcome)}
    return row | {"mathematics": outcome.strategy.mathematics, "taken": outcome.found is plan}


def shape_words(outcome: Outcome) -> str:
    """Return the plan's shape and choices in words: ``4 stages x 16 replicas, 1f1b, micro-batch 2, ZeRO-3, 2 idle``."""
    job, n_idle = outcome.job, len(outcome.plan.idle_devices)
    parts = [outcome.shape]
    parts += [job.schedule_name] if (job.n_stages or 1) > 1 else []
    parts += [f"micro-batch {job.microbatch}"]
    parts += [job.sharding.replace("zero", "ZeRO")] if job.sharding not in (None, "none") else []
    parts += [f"{n_idle} idle"] if n_idle else []
    return ", ".join(parts)


def outcome_html(outcome: Outcome, job: Job | None = None) -> str:
    """Return as HTML: the outcome's sentence, what it changes about the training, and which of its choices the lab's
    job pins."""
    if outcome.found is None:
        return markup.line(f"<b>{escape(outcome.title)}</b> has no plan here: {escape(outcome.reason)}")
    only = outcome.considered == 1
    counted = "the only plan considered" if only else f"the fastest of {outcome.considered:,} plans considered"
    differs = f" {CHANGES} {escape(outcome.strategy.mathematics)}." if outcome.strategy.mathematics else ""
    routed = "" if outcome.strategy.simulated else f" {OWN_SECONDS}"
    sentence = f"{escape(outcome.sentence)}, {counted}"
    fixed = f" {said[:1].upper()}{said[1:]}." if job is not None and (said := what_the_job_fixes(outcome, job)) else ""
    beware = f" {outcome.caveat[:1].upper()}{escape(outcome.caveat[1:])}." if outcome.caveat else ""
    return markup.line(f"<b>{escape(outcome.title)}:</b> {sentence}.{differs}{beware}{routed}{fixed}")


class WhyText:
    """``view`` explains one outcome. The explanation is computed on a thread and kept."""

    def __init__(self, report_error: Callable[[str], None]) -> None:
        self._report_error = report_error
        self.explaining: Stream[Why] | None = None
        """The explanation that is being computed; None while nothing is computed."""
        self.known: dict[Outcome, Why] = {}
        """Explanations that are complete, by outcome."""
        self.view = classed(w.HTML(), "dtfm-systems-why")

    def explain(self, outcome: Outcome | None, faster: Outcome | None = None) -> None:
        """Explain an outcome, compared with a ``faster`` one. Stop the explanation of any other outcome. None clears
        the view."""
        if self.explaining is not None:
            self.explaining.stop()
            self.explaining = None
        if outcome is None:
            self.view.value = ""
        elif (known := self.known.get(outcome)) is not None:
            self.view.value = why_html(known)
        else:
            self.explaining = Stream(stream_why(outcome, faster))
            begin(self._watch(self.explaining, outcome), self._report_error)

    async def _watch(self, explaining: Stream[Why], outcome: Outcome) -> None:
        def show(newest: Why) -> None:
            if explaining is self.explaining:
                self.view.value = why_html(newest, WAITS)

        self.view.value = why_html(None, WAITS)
        try:
            await explaining.watch(show, every_s=FRAME_S * 3)
        except BaseException:
            if explaining is self.explaining:
                self.explaining, self.view.value = None, ""
                raise
            return  # it is no longer shown
        if explaining is self.explaining and explaining.newest is not None:
            self.explaining, self.known[outcome] = None, explaining.newest
            self.view.value = why_html(explaining.newest)


def why_html(why: Why | None, state: str = "") -> str:
    """Return as HTML: a bar for each thing that saves time when removed, then the explanation's other sentences.

    ``state`` is a text that says that more is to come; empty if the explanation is complete.
    """
    waiting = markup.line(escape(state)) if state else ""
    if why is None:
        return waiting
    lines = why.text.splitlines()
    less = f"Less each: {', '.join(one.noun for one in why.causes[MOST_CAUSES:])}."
    shown = {less, *(one.sentence for one in why.causes)}
    rows = "".join(
        f'<li title="{escape(one.sentence)}"><span>{escape(one.noun[:1].upper() + one.noun[1:])}</span>'
        f'<span class="dtfm-why-track"><i style="width:{100 * min(1.0, one.share):.1f}%"></i></span>'
        f"<span>saves {format_s(one.gain_s)} ({format_share(one.share, 0)})</span></li>"
        for one in why.causes
    )
    listed = f'<ul class="dtfm-why">{rows}</ul>' if rows else ""
    rest = "".join(markup.line(escape(line)) for line in lines[1:] if line not in shown)
    return f"{markup.line(escape(lines[0]), 'figure')}{listed}{waiting}{rest}"
