"""One iteration of a plan under a setting: its numbers, and sentences and HTML about them. It contains no widget."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from html import escape
from typing import NamedTuple

import pandas as pd

from dtfm_lab import lab
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.trace import CAUSES, Trace
from dtfm_lab.domain.units import format_bytes, format_s, format_share
from dtfm_lab.figures.measures import format_count, format_dollars
from dtfm_lab.planning import Cancellation, price_placement
from dtfm_lab.widgets.markup import table, word
from dtfm_lab.widgets.planner.short_searches import replanned
from dtfm_lab.widgets.schedule.predictions import ChartedPrediction
from dtfm_lab.widgets.what_if.setting import WhatIfSetting, n_actions

PARTS = {
    "computing": "Computing",
    "synchronisation": "Averaging",
    "bandwidth": "Waiting for bandwidth",
    "latency": "Waiting for latency",
    "queue": "Waiting behind other messages",
    "dependency": "Waiting for other stages",
    "straggler": "Waiting for slower devices",
}
"""Uses of a device's time, in words."""
TURNED = {"bandwidth": "bandwidth", "latency": "latency", "global_batch": "the batch", "microbatch": "the micro-batch"}
"""{setting that is a number: its name in sentences such as ``follows bandwidth almost one to one``}.

The sentence is used if only this setting changed.
"""
SAME = 5e-4
"""Share of an iteration below which a change counts as none."""
ONE_TO_ONE = 0.85
"""Minimum exponent for the words "almost one to one".

A part's seconds are assumed to be a power of the changed number. An exponent of 1 is "one to one".
"""
PARTLY = 0.25
"""Minimum exponent for the words "in part"."""


class Measure(NamedTuple):
    """One number of an answer, and how it is written."""

    name: str
    """The attribute of WhatIfAnswer."""
    title: str
    text: Callable[[float], str]
    in_points: bool = False
    """True if it is a share. Differences of shares are written in percentage points."""

    def cells(self, answer: WhatIfAnswer, base: WhatIfAnswer | None) -> tuple[str, str, str]:
        """Return the title, the number and its difference from the base's, ``-14 %`` or ``+2.1 points``."""
        now, then = getattr(answer, self.name), None if base is None else getattr(base, self.name)
        change = ""
        # Below this the difference is rounding, and "-0 %" would read like a change.
        if then is not None and abs(now - then) > 1e-9 * max(abs(now), abs(then)):
            # A change of shares in percent would be taken for points.
            change = f"{100 * (now - then):+z.1f} points" if self.in_points else percent(now / then - 1) if then else ""
        named = self.title.replace("tokens", answer.prediction.trace.context.plan.counted)
        title = word(named) if self.in_points else escape(named)
        detail = f", chiefly {PARTS[answer.cause].lower()}" if self.name == "bubble" and now > 0 else ""
        return title, escape(self.text(now) + detail), escape(change)


def percent(share: float) -> str:
    """Return a relative change in percent, with its sign: ``-14 %``, or ``about 0 %`` if it is tiny.

    A change by a factor of 11 or more becomes that factor, such as ``× 12``.
    """
    size = abs(100 * share)
    if size >= 1000:
        return f"× {share + 1:.3g}"
    return f"{100 * share:+.0f} %" if size >= 10 else f"{100 * share:+.2g} %" if size >= 0.01 else "about 0 %"


MEASURES = (
    Measure("iteration_s", "iteration", format_s),
    Measure("tokens_per_s", "tokens/s", lambda value: f"{value:,.0f}" if value >= 100 else f"{value:.3g}"),
    Measure("mfu", "MFU", format_share, in_points=True),
    Measure("bubble", "bubble", format_share, in_points=True),
    Measure("communication_s", "communication cost", format_s),
    Measure("peak_bytes", "worst memory", format_bytes),
    Measure("price_per_million_tokens", "price of 1M tokens", format_dollars),
)


def large_numbers(now_s: float | None, was_s: float | None, parts: Sequence[str] = (), lacking: str = "") -> str:
    """Return ``12.5 s → 22.9 s per iteration`` in large type, then the parts, and in red what is lacking."""
    if now_s is None:
        return '<div class="dtfm-what-if-numbers"><b>–</b></div>'
    was = ""
    if was_s is not None and abs(now_s - was_s) > 1e-9 * was_s:
        was = f"<i>{escape(format_s(was_s))} →</i>"
    rest = "".join(f"<span>{escape(part)}</span>" for part in parts)
    alarm = f'<span class="dtfm-over">{escape(lacking)}</span>' if lacking else ""
    words = escape(", ".join([f"{format_s(now_s)} per iteration", *parts, *([lacking] if lacking else [])]))
    return (
        f'<div class="dtfm-what-if-numbers" role="status" title="{words}">{was}<b>{escape(format_s(now_s))}</b>'
        f'<span class="dtfm-unit">per iteration</span>{alarm}{rest}</div>'
    )


def numbers_of(now: WhatIfAnswer, base: WhatIfAnswer | None, remarks: Sequence[str] = ()) -> str:
    """Return the large numbers of an answer and its base, followed by ``remarks``."""
    counted = now.prediction.trace.context.plan.counted
    parts = [] if now.tokens_per_s is None else [f"{format_count(now.tokens_per_s)} {counted}/s"]
    parts += remarks
    lacking = f"lacks memory on {now.worst}" if now.n_over else ""
    return large_numbers(now.iteration_s, None if base is None else base.iteration_s, parts, lacking)


def answer(now: WhatIfAnswer, base: WhatIfAnswer | None, changed: str, number: int) -> str:
    """Return HTML of a table with every known measure and its difference from the base, and whether all fits in memory.

    ``base`` is the answer to the lab's own setting, None if that is not possible. ``changed`` lists in words how the
    settings differ. ``number`` counts answers.
    """
    under = f"with {changed}" if changed else "the plan as it is: move a slider"
    cannot = "; the lab's own setting is not possible" if base is None else ""
    rows = [measure.cells(now, base) for measure in MEASURES if getattr(now, measure.name) is not None]
    frame = pd.DataFrame(rows, columns=["per iteration", "with this setting", "change from the plan"])
    cells = table(frame, "dtfm-answer-cells", "the answer")
    under = f'<div class="dtfm-answer-with">{escape(under + cannot)}</div>'
    return f'<div class="dtfm-answer" data-answer="{number}">{under}{cells}{_memory(now)}</div>'


def _memory(now: WhatIfAnswer) -> str:
    """Return whether everything fits in memory, and the device with the least to spare."""
    uses = f"{now.worst} needs {format_bytes(now.peak_bytes)} and {now.prediction.memory.may_use}"
    if not now.n_over:
        return f'<div class="dtfm-answer-fit">fits in memory: {escape(uses)}</div>'
    does = "1 device does" if now.n_over == 1 else f"{now.n_over:,} devices do"
    return f'<div class="dtfm-answer-fit dtfm-over">{does} not fit in memory: {escape(uses)}</div>'


def empty(text: str) -> str:
    """Return ``text`` as HTML, to show while there is no answer."""
    return f'<div class="dtfm-what-if-empty">{escape(text)}</div>'


def headline(now: WhatIfAnswer, base: WhatIfAnswer) -> str:
    """Return the answer in two sentences. Empty if nothing is changed.

    ``Bandwidth × 0.5: 12.5 s → 22.9 s. Averaging is 79 % of a device's time and follows bandwidth almost one to one.``
    """
    changed = now.setting.describe_changes(base.setting)
    if not changed:
        return ""
    return f"{changed[0].upper()}{changed[1:]}: {from_to(now, base)}. {reason(now, base)}"


def from_to(now: WhatIfAnswer, base: WhatIfAnswer) -> str:
    """Return ``12.5 s → 22.9 s``, or ``12.5 s as before``."""
    if abs(now.iteration_s - base.iteration_s) <= SAME * base.iteration_s:
        return f"{format_s(base.iteration_s)} as before"
    return f"{format_s(base.iteration_s)} → {format_s(now.iteration_s)}"


def reason(now: WhatIfAnswer, base: WhatIfAnswer) -> str:
    """Return one sentence about the part of a device's time that explains most of the change. If the iteration did not
    change, it is about the largest part."""
    largest = max(now.parts, key=lambda part: now.parts[part])
    # A change that rounding could explain needs no reason.
    if abs(now.iteration_s - base.iteration_s) <= SAME * base.iteration_s:
        return f"{PARTS[largest]} is {_share(largest, now)} of a device's time, and this does not change it."
    rose = now.iteration_s > base.iteration_s
    # Counted in the direction of the whole, because a part that moved against it explains nothing.
    changes = {part: (now.parts[part] - base.parts[part]) * (1 if rose else -1) for part in now.parts}
    part = max(changes, key=lambda each: changes[each])
    turned = now.setting.changes_from(base.setting)
    if len(turned) == 1 and (name := next(iter(turned))) in TURNED:
        factor = now.setting.values[name] / base.setting.values[name]
        return f"{PARTS[part]} is {_share(part, now)} of a device's time and {_follows(part, name, factor, now, base)}."
    return f"{PARTS[part]} goes from {_share(part, base)} to {_share(part, now)} of a device's time."


def _follows(part: str, name: str, factor: float, now: WhatIfAnswer, base: WhatIfAnswer) -> str:
    """Return in words how much a part's seconds changed when a number of the setting was multiplied by ``factor``."""
    before_s, after_s = base.parts[part], now.parts[part]
    if before_s <= 0 or after_s <= 0:
        return f"was {_share(part, base)}"
    # The exponent of a power law: 1 if the part grows as the number does, 0 if it does not depend on it.
    power = abs(math.log(after_s / before_s) / math.log(factor))
    if power >= ONE_TO_ONE:
        much = "almost one to one" if power < 2 - ONE_TO_ONE else "more than one to one"
        return f"follows {TURNED[name]} {much}"
    return f"follows {TURNED[name]} in part" if power >= PARTLY else f"hardly depends on {TURNED[name]}"


def _share(part: str, answer: WhatIfAnswer) -> str:
    whole_s = sum(answer.parts.values())
    share = answer.parts[part] / whole_s if whole_s > 0 else 0.0
    return format_share(share, 0) if share >= 0.01 or share == 0 else "under 1 %"


MOST_KEPT = 12
"""Maximum number of kept answers, each with its chart. Sliders go back and forth between a few."""


@dataclass(frozen=True, kw_only=True)
class WhatIfAnswer:
    """The numbers of one iteration. None if a number is unknown, such as a price."""

    setting: WhatIfSetting
    prediction: ChartedPrediction = field(compare=False, repr=False)
    iteration_s: float
    tokens_per_s: float | None
    mfu: float | None
    bubble: float
    """Share of device time without computing."""
    cause: str
    """The largest cause of the bubble."""
    parts: dict[str, float]
    """Seconds per iteration that a device computes, and that it waits for each cause, averaged over all devices."""
    communication_s: float
    """Communication cost of the placement in seconds, as the paper defines it."""
    peak_bytes: float
    """Peak memory of the device that lacks most, or has least to spare."""
    worst: str
    """Name of the device that lacks most memory, or has least to spare."""
    n_over: int
    """Number of devices that do not have enough memory."""
    price_per_million_tokens: float | None

    @classmethod
    def of(cls, plan: Plan, setting: WhatIfSetting, trace: Trace) -> WhatIfAnswer:
        """Return the answer that a trace of the plan under the setting gives."""
        tried = setting.on(plan)
        prediction = ChartedPrediction.of(tried, trace)
        known, bubble, held = trace.metrics, trace.bubble, prediction.memory
        # Mean over the devices, as the bubble is of the whole pipeline.
        waits = {cause.value: float(bubble[f"{cause}_s"].mean()) for cause in CAUSES}
        parts = {"computing": float(bubble["busy_s"].mean()), **waits}
        position, replica = held.worst
        return cls(
            setting=setting,
            prediction=prediction,
            iteration_s=trace.iteration_s,
            tokens_per_s=known["tokens_per_s"],
            mfu=known["mfu"],
            bubble=sum(waits.values()) / whole_s if (whole_s := sum(parts.values())) > 0 else 0.0,
            cause=max(waits, key=lambda cause: waits[cause]),
            parts=parts,
            communication_s=price_placement(tried.topology, tried.job, tried.placement.devices).total_s,
            peak_bytes=float(held.peak_bytes[position, replica]),
            worst=held.devices[position][replica],
            n_over=int((held.over_bytes > 0).sum()),
            price_per_million_tokens=known["price_per_million_tokens"],
        )


class PlannedAnew(NamedTuple):
    """The plan that a search found under a setting, and its predicted iteration under that setting."""

    plan: Plan
    trace: Trace


class Answers:
    """Computes answers about one plan, on any thread, and keeps the ``MOST_KEPT`` used last."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.trace = lru_cache(MOST_KEPT)(lambda setting: lab.simulate(setting.on(plan), **setting.simulated_with))
        """Return the iteration under a setting. Raises LabError if it is not possible."""
        self.answer = lru_cache(MOST_KEPT)(lambda setting: WhatIfAnswer.of(plan, setting, self.trace(setting)))
        """Return the answer to a setting. Raises LabError if it is not possible."""

    def forget(self) -> None:
        """Drop all answers, so that they are computed again when needed."""
        self.trace.cache_clear()
        self.answer.cache_clear()

    def with_base(self, setting: WhatIfSetting, base: WhatIfSetting) -> tuple[WhatIfAnswer, WhatIfAnswer | None]:
        """Return the answer and the base's answer. If the base is not possible, return None for it.

        Raises LabError if the setting is not possible.
        """
        try:
            before = self.answer(base)
        except LabError:
            before = None
        return self.answer(setting), before

    def count_actions(self, setting: WhatIfSetting) -> int:
        """Return the approximate number of actions per iteration. 0 if the answer will be an error."""
        try:
            return n_actions(setting.on(self.plan))
        except LabError:
            return 0

    def quick(self, setting: WhatIfSetting) -> float | None:
        """Return only the seconds of an iteration. None if the setting is not possible."""
        try:
            return self.trace(setting).iteration_s
        except LabError:  # for example if a schedule lacks memory
            return None

    def planned_anew(self, setting: WhatIfSetting, cancelled: Cancellation) -> PlannedAnew | None:
        """Return the plan of a short search from this plan under a setting. None if the search fails or is
        cancelled."""
        try:
            held = setting.on(self.plan)
            found = replanned(self.plan, held.topology, held.job, cancelled)
            return (
                None if found is None else PlannedAnew(found.plan, lab.simulate(found.plan, **setting.simulated_with))
            )
        except LabError:
            return None
