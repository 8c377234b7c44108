"""An answer as text and HTML: its numbers, how two answers differ, and why."""

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

import pandas as pd

from dtfm_lab.domain.units import format_bytes, format_s
from dtfm_lab.figures.measures import format_count, format_dollars
from dtfm_lab.widgets.markup import table, word
from dtfm_lab.widgets.what_if.answer import Answer

PARTS = {
    "computing": "Computing",
    "synchronisation": "Averaging",
    "bandwidth": "Waiting for bandwidth",
    "latency": "Waiting for latency",
    "queue": "Waiting behind other messages",
    "dependency": "Waiting for other stages",
    "straggler": "Waiting for slower devices",
}
"""What a device's time goes to, in words."""
TURNED = {"bandwidth": "bandwidth", "latency": "latency", "global_batch": "the batch", "microbatch": "the micro-batch"}
"""Numbers of a setting that a part may follow."""
SAME = 5e-4
"""Share of an iteration below which a change is none."""
ONE_TO_ONE, PARTLY = 0.85, 0.25
"""Powers with which a part follows a number, from which on it is said to do so almost one to one, and partly."""


class Measure(NamedTuple):
    """One number of an Answer, and how it is written."""

    name: str
    """The attribute of Answer."""
    title: str
    text: Callable[[float], str]
    in_points: bool = False
    """Whether it is a share, whose differences are written in percentage points."""

    def cells(self, answer: Answer, base: Answer | None) -> tuple[str, str, str]:
        """Return the title, the number and how it differs from the base's, ``-14 %`` or ``+2.1 points``."""
        now, then = getattr(answer, self.name), None if base is None else getattr(base, self.name)
        change = ""
        if then is not None and abs(now - then) > 1e-9 * max(abs(now), abs(then)):
            change = f"{100 * (now - then):+z.1f} points" if self.in_points else percent(now / then - 1) if then else ""
        title = word(self.title) if self.in_points else escape(self.title)
        detail = f", chiefly {PARTS[answer.cause].lower()}" if self.name == "bubble" and now > 0 else ""
        return title, escape(self.text(now) + detail), escape(change)


def percent(share: float) -> str:
    """Return a change with its sign; one too small for a digit is still named."""
    size = abs(100 * share)
    if size >= 1000:
        return f"× {share + 1:.3g}"
    return f"{100 * share:+.0f} %" if size >= 10 else f"{100 * share:+.2g} %" if size >= 0.01 else "about 0 %"


MEASURES = (
    Measure("iteration_s", "iteration", format_s),
    Measure("tokens_per_s", "tokens/s", lambda value: f"{value:,.0f}" if value >= 100 else f"{value:.3g}"),
    Measure("mfu", "MFU", "{:.1%}".format, in_points=True),
    Measure("bubble", "bubble", "{:.1%}".format, in_points=True),
    Measure("communication_s", "communication cost", format_s),
    Measure("peak_bytes", "worst memory", format_bytes),
    Measure("price_per_million_tokens", "price of 1M tokens", format_dollars),
)


def large_numbers(now_s: float | None, was_s: float | None, parts: Sequence[str] = (), lacking: str = "") -> str:
    """Return ``12.5 s → 22.9 s an iteration`` in large, then the parts, and in red what is lacking."""
    if now_s is None:
        return '<div class="dtfm-what-if-numbers"><b>–</b></div>'
    was = ""
    if was_s is not None and abs(now_s - was_s) > 1e-9 * was_s:
        was = f"<i>{escape(_three_digits(was_s))} →</i>"
    rest = "".join(f"<span>{escape(part)}</span>" for part in parts)
    alarm = f'<span class="dtfm-over">{escape(lacking)}</span>' if lacking else ""
    words = escape(", ".join([f"{format_s(now_s)} an iteration", *parts, *([lacking] if lacking else [])]))
    return (
        f'<div class="dtfm-what-if-numbers" role="status" title="{words}">{was}<b>{escape(_three_digits(now_s))}</b>'
        f'<span class="dtfm-unit">an iteration</span>{alarm}{rest}</div>'
    )


def numbers_of(now: Answer, base: Answer | None, told: str = "") -> str:
    """Return the large numbers of an answer against the base, with what is ``told`` beside its tokens."""
    counted = now.prediction.trace.context.counted
    parts = [] if now.tokens_per_s is None else [f"{format_count(now.tokens_per_s)} {counted}/s"]
    parts += [told] if told else []
    lacking = f"lacks memory on {now.worst}" if now.n_over else ""
    return large_numbers(now.iteration_s, None if base is None else base.iteration_s, parts, lacking)


def _three_digits(seconds: float) -> str:
    return f"{seconds:.1f} s" if 10 <= seconds < 100 else f"{seconds:.2f} s" if 1 <= seconds < 10 else format_s(seconds)


def answer(now: Answer, base: Answer | None, changed: str, number: int) -> str:
    """Return a table of every measure and its difference from the base, and whether all fits in memory.

    ``base`` is None where the base is not possible; ``changed`` is what differs from it, in words; ``number`` counts
    answers.
    """
    under = f"with {changed}" if changed else "the plan under what is chosen; move a slider"
    cannot = "; what the lab is turned to cannot be" if base is None else ""
    rows = [measure.cells(now, base) for measure in MEASURES if getattr(now, measure.name) is not None]
    cells = table(
        pd.DataFrame(rows, columns=["of an iteration", "as set", "from the plan"]), "dtfm-answer-cells", "the answer"
    )
    under = f'<div class="dtfm-answer-with">{escape(under + cannot)}</div>'
    return f'<div class="dtfm-answer" data-answer="{number}">{under}{cells}{_memory(now)}</div>'


def _memory(now: Answer) -> str:
    """Return whether all fits in memory, and the device with the least to spare."""
    has = f"{now.worst} needs {format_bytes(now.peak_bytes)} and has {format_bytes(now.limit_bytes)}"
    if not now.n_over:
        return f'<div class="dtfm-answer-fit">fits in memory: {escape(has)}</div>'
    does = "1 device does" if now.n_over == 1 else f"{now.n_over:,} devices do"
    return f'<div class="dtfm-answer-fit dtfm-over">{does} not fit in memory: {escape(has)}</div>'


def empty(text: str) -> str:
    """Return a text that is shown while there is no answer."""
    return f'<div class="dtfm-what-if-empty">{escape(text)}</div>'


def headline(now: Answer, base: Answer) -> str:
    """Return ``Bandwidth × 0.5: 12.5 s → 22.9 s. Averaging is 79 % of a device's time and follows bandwidth almost one
    to one.``; empty where nothing is changed."""
    changed = now.setting.describe_changes(base.setting)
    if not changed:
        return ""
    return f"{changed[0].upper()}{changed[1:]}: {from_to(now, base)}. {reason(now, base)}"


def from_to(now: Answer, base: Answer) -> str:
    """Return ``12.5 s → 22.9 s``, or ``12.5 s as before``."""
    if abs(now.iteration_s - base.iteration_s) <= SAME * base.iteration_s:
        return f"{format_s(base.iteration_s)} as before"
    return f"{format_s(base.iteration_s)} → {format_s(now.iteration_s)}"


def reason(now: Answer, base: Answer) -> str:
    """Return one sentence about the part of a device's time that changed most, or is largest where nothing did."""
    largest = max(now.parts, key=lambda part: now.parts[part])
    if abs(now.iteration_s - base.iteration_s) <= SAME * base.iteration_s:
        return f"{PARTS[largest]} is {_share(largest, now)} of a device's time, and that does not change it."
    rose = now.iteration_s > base.iteration_s
    changes = {part: (now.parts[part] - base.parts[part]) * (1 if rose else -1) for part in now.parts}
    part = max(changes, key=lambda each: changes[each])
    turned = now.setting.changes_from(base.setting)
    if len(turned) == 1 and (name := next(iter(turned))) in TURNED:
        factor = now.setting.values[name] / base.setting.values[name]
        return f"{PARTS[part]} is {_share(part, now)} of a device's time and {_follows(part, name, factor, now, base)}."
    return f"{PARTS[part]} goes from {_share(part, base)} to {_share(part, now)} of a device's time."


def _follows(part: str, name: str, factor: float, now: Answer, base: Answer) -> str:
    """Return how a part's seconds follow a number that was multiplied by ``factor``, by the power between the two."""
    before_s, after_s = base.parts[part], now.parts[part]
    if before_s <= 0 or after_s <= 0:
        return f"was {_share(part, base)}"
    power = abs(math.log(after_s / before_s) / math.log(factor))
    if power >= ONE_TO_ONE:
        much = "almost one to one" if power < 2 - ONE_TO_ONE else "more than one to one"
        return f"follows {TURNED[name]} {much}"
    return f"follows {TURNED[name]} in part" if power >= PARTLY else f"hardly depends on {TURNED[name]}"


def _share(part: str, answer: Answer) -> str:
    whole_s = sum(answer.parts.values())
    share = answer.parts[part] / whole_s if whole_s > 0 else 0.0
    return f"{100 * share:.0f} %" if share >= 0.01 or share == 0 else "under 1 %"
