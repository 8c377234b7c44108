"""Outcomes of systems as the pane tells them: the rows that the view draws, a sentence, and why one takes so long."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any

import ipywidgets as w

from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import format_s
from dtfm_lab.systems import Outcome, Outcomes, Strategy
from dtfm_lab.systems.outcomes import CHANGES, Bar, bars
from dtfm_lab.systems.why import MOST_CAUSES, Why, stream_why
from dtfm_lab.widgets import markup
from dtfm_lab.widgets.controls import classed
from dtfm_lab.widgets.tasks import FRAME_S, Stream, begin

OURS = "dtfm-lab"
"""Name of the lab's own system in the registry."""
OWN_SECONDS = (
    "Its seconds are of its own model: as the lab's plan, the same devices are predicted by the lab's schedules."
)
WAITS = "taking one thing away at a time"


def rows_of(outcomes: Outcomes | None, wanted: Sequence[Strategy], plan: Plan | None) -> list[dict[str, Any]]:
    """Return a row for each outcome, the fastest first, then for each system that is still to come.

    A row has its system's name in the registry, whatever of its assumptions was changed. ``plan`` is the lab's.
    """
    drawn = [] if outcomes is None else bars(outcomes)
    fastest_s = min((one.outcome.iteration_s for one in drawn if one.outcome.iteration_s is not None), default=0.0)
    longest_s = max((one.length_s for one in drawn), default=0.0)
    rows = [_row(one, fastest_s, longest_s, plan) for one in drawn]
    known = {one.outcome.strategy.name for one in drawn}
    rows += [{"name": one.name, "title": one.heading} for one in wanted if one.name not in known]
    return [row | {"ours": row["name"] == OURS} for row in rows]


def _row(bar: Bar, fastest_s: float, longest_s: float, plan: Plan | None) -> dict[str, Any]:
    outcome = bar.outcome
    row: dict[str, Any] = {"name": outcome.strategy.name, "title": outcome.title}
    if outcome.iteration_s is None:
        return row | {"reason": outcome.reason}
    return row | {
        "seconds": outcome.iteration_s,
        "times": outcome.iteration_s / fastest_s if fastest_s > 0 else 1.0,
        "parts": [[cause, seconds] for cause, seconds, _ in bar.parts],
        "length": bar.length_s / longest_s if longest_s > 0 else 0.0,
        "cut": bar.cut,
        "shape": shape_words(outcome),
        "mathematics": outcome.strategy.mathematics,
        "taken": outcome.found is plan,
    }


def shape_words(outcome: Outcome) -> str:
    """Return ``4 stages x 16 replicas, 1f1b, micro-batch 2, ZeRO-3, 2 idle``."""
    job, n_idle = outcome.job, len(outcome.plan.idle_devices)
    parts = [outcome.shape]
    parts += [job.schedule_name] if (job.n_stages or 1) > 1 else []
    parts += [f"micro-batch {job.microbatch}"]
    parts += [job.sharding.replace("zero", "ZeRO")] if job.sharding not in (None, "none") else []
    parts += [f"{n_idle} idle"] if n_idle else []
    return ", ".join(parts)


def outcome_html(outcome: Outcome) -> str:
    """Return the outcome's sentence, and what it changes of the training."""
    if outcome.found is None:
        return markup.line(f"<b>{escape(outcome.title)}</b> has no plan here: {escape(outcome.reason)}")
    only = outcome.considered == 1
    counted = "the only plan considered" if only else f"the fastest of {outcome.considered:,} plans considered"
    differs = f" {CHANGES} {escape(outcome.strategy.mathematics)}." if outcome.strategy.mathematics else ""
    routed = "" if type(outcome.strategy).trace is Strategy.trace else f" {OWN_SECONDS}"
    sentence = f"{escape(outcome.sentence)}, {counted}"
    return markup.line(f"<b>{escape(outcome.title)}:</b> {sentence}.{differs}{routed}")


class WhyText:
    """``view`` explains one outcome; the explanation is computed on a thread, and kept."""

    def __init__(self, report_error: Callable[[str], None]) -> None:
        self._report_error = report_error
        self.explaining: Stream[Why] | None = None
        """The explanation that is computed; None while none is."""
        self.known: dict[Outcome, Why] = {}
        """The explanations that are complete."""
        self.view = classed(w.HTML(), "dtfm-systems-why")

    def explain(self, outcome: Outcome | None, faster: Outcome | None = None) -> None:
        """Explain an outcome against a ``faster`` one; None for nothing. What is computed of another ends."""
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
            return  # nobody looks at it any more
        if explaining is self.explaining and explaining.newest is not None:
            self.explaining, self.known[outcome] = None, explaining.newest
            self.view.value = why_html(explaining.newest)


def why_html(why: Why | None, state: str = "") -> str:
    """Return a bar for each thing that saves time when taken away, then the explanation's other sentences.

    ``state`` says that more is to come; empty where this is all.
    """
    waiting = markup.line(escape(state)) if state else ""
    if why is None:
        return waiting
    lines = why.text.splitlines()
    told = {one.sentence for one in why.causes} | {
        f"Less each: {', '.join(one.noun for one in why.causes[MOST_CAUSES:])}."
    }
    rows = "".join(
        f'<li title="{escape(one.sentence)}"><span>{escape(one.noun[:1].upper() + one.noun[1:])}</span>'
        f'<span class="dtfm-why-track"><i style="width:{100 * min(1.0, one.share):.1f}%"></i></span>'
        f"<span>saves {format_s(one.gain_s)} ({one.share:.0%})</span></li>"
        for one in why.causes
    )
    listed = f'<ul class="dtfm-why">{rows}</ul>' if rows else ""
    rest = "".join(markup.line(escape(line)) for line in lines[1:] if line not in told)
    return f"{markup.line(escape(lines[0]), 'figure')}{listed}{waiting}{rest}"
