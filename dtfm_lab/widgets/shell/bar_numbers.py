"""The live numbers of the bar: plan, iteration, throughput, dollars and measurement, each with what it was before."""

import math
from typing import Any

from dtfm_lab.compare import Comparison
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import format_range, format_s
from dtfm_lab.planning.explain.sentences import none_of
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.measures import format_dollars, format_times
from dtfm_lab.widgets.shell.history import Before
from dtfm_lab.widgets.shell.steps import prediction_staleness

SAME = 5e-3
"""Share of a number below which it is not shown as changed."""
THOUSAND, MILLION = 1e3, 1e6


def bar_numbers(state: LabState, before: Before | None) -> list[dict[str, Any]]:
    """Return {label, value, was, note, short, bad, word} of each number.

    ``was`` is empty where nothing changed; ``short`` is the note where there is little room.
    """
    plan = state.plan
    if plan is None:
        return []
    numbers = [_plan(plan, before), _iteration(state, plan, before)]
    seconds = _predicted_s(state, plan)
    if seconds and plan.job.model is not None:
        numbers.append(_number("Throughput", f"{format_count(plan.job.tokens / seconds)} tokens/s", word="throughput"))
    dollars = plan.price_per_billion_tokens
    if dollars:
        numbers.append(_number("Price", format_dollars(dollars), note="per billion tokens", word="price"))
    return [*numbers, _measured(state)]


def _number(
    label: str, value: str, *, was: str = "", note: str = "", short: str = "", bad: bool = False, word: str = ""
) -> dict[str, Any]:
    known = {"label": label, "value": value, "was": was, "note": note}
    return known | {"short": short or note, "bad": bad, "word": word}


def _plan(plan: Plan, before: Before | None) -> dict[str, Any]:
    was = None if before is None else before.plan.cost.total_s
    return _number(
        "Plan: communication",
        format_s(plan.cost.total_s),
        was=_was(was, plan.cost.total_s),
        note=gap_words(plan),
        short=gap_words(plan).replace("at most", "≤").replace("the best", "best").replace("proved best", "proved"),
        word="communication cost",
    )


def gap_words(plan: Plan) -> str:
    """Return how far the communication cost is from its bound: ``at most 1.04 × the best``; empty without a bound."""
    if not plan.lower_bound_s > 0:
        return "no bound yet" if plan.cost.total_s > 0 else "nothing to send"
    times = plan.cost.total_s / plan.lower_bound_s
    return "proved the best" if plan.gap < SAME / 10 else f"at most {format_times(times)} × the best"


def _iteration(state: LabState, plan: Plan, before: Before | None) -> dict[str, Any]:
    seconds = _predicted_s(state, plan)
    if seconds is None:
        return _number("Iteration, predicted", "–", note="the job has no model" if plan.job.model is None else "")
    context = None if state.predicted is None else state.predicted.context
    schedule = context.schedule if context is not None else plan.job.schedule_name
    left = plan.speed_up_left
    if left is not None and plan.iteration_s and state.bound_s > 0:
        left = min(left, max(1.0, plan.iteration_s / state.bound_s))
    note = short = schedule
    if left is not None and math.isfinite(left):
        short = "no faster plan" if left <= 1 else f"≤ {format_times(left)} × bound"
        of = "any plan's bound" if plan.scope == "any plan" else f"the bound of {plan.scope}"
        note = f"{none_of(plan)} is faster" if left <= 1 else f"at most {format_times(left)} × {of}"
    if between := _between(state):
        note, short = f"{between}, {note}", f"{between}, {short}"
    was = None if before is None else before.iteration_s
    return _number(
        "Iteration, predicted", format_s(seconds), was=_was(was, seconds), note=note, short=short, word="iteration"
    )


def _between(state: LabState) -> str:
    """Return the 90 % interval of what is predicted: ``15.4 to 24.7 s``; empty while that is being made anew."""
    return "" if state.predicted is None or prediction_staleness(state) else format_range(*state.predicted.interval())


def _measured(state: LabState) -> dict[str, Any]:
    if state.run_note:
        return _number("Measured", "…", note=state.run_note, word="measured")
    if state.measured is None:
        return _number("Measured", "–", note="not run", word="measured")
    comparison: Comparison | None = state.comparison
    note = "" if comparison is None else f"{comparison.iteration_error:+.1%}".replace("%", " %").replace("-", "−")
    bad = comparison is not None and abs(comparison.iteration_error) > 0.1
    return _number("Measured", format_s(state.measured.iteration_s), note=note, bad=bad, word="error")


def _predicted_s(state: LabState, plan: Plan) -> float | None:
    """Return the predicted seconds; those of the plan while its prediction is still being made."""
    stale = state.predicted is None or prediction_staleness(state)
    return plan.iteration_s if stale or state.predicted is None else state.predicted.iteration_s


def _was(was: float | None, now: float) -> str:
    return "" if was is None or abs(was - now) <= SAME * now else format_s(was)


def format_count(number: float) -> str:
    """Return ``871``, ``10.5k``, ``1.2M``."""
    for size, letter in ((MILLION, "M"), (THOUSAND, "k")):
        if number >= size:
            return f"{number / size:.3g}{letter}"
    return f"{number:.3g}"
