"""An answer as text and HTML: its numbers, and how two answers differ."""

from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

from dtfm_lab.domain.units import format_bytes, format_s
from dtfm_lab.widgets.what_if.answer import Answer
from dtfm_lab.widgets.what_if.reason import PARTS


class Measure(NamedTuple):
    """One number of an Answer, and how it is written."""

    name: str
    """The attribute of Answer."""
    title: str
    text: Callable[[float], str]
    more_is_better: bool = False
    in_points: bool = False
    """Whether it is a share, whose differences are written in percentage points."""

    def of(self, answer: Answer) -> float | None:
        """Return the number; None where it is unknown."""
        value: float | None = getattr(answer, self.name)
        return value

    def difference(self, answer: Answer, base: Answer) -> str:
        """Return ``-14 %`` or ``+2.1 points``; empty where the two are equal or one is unknown."""
        now, then = self.of(answer), self.of(base)
        if now is None or then is None or abs(now - then) <= 1e-9 * max(abs(now), abs(then)):
            return ""
        if self.in_points:
            return f"{100 * (now - then):+z.1f} points"
        return percent(now / then - 1) if then else ""


def percent(share: float) -> str:
    """Return a change with its sign; one too small for a digit is still named."""
    size = abs(100 * share)
    if size >= 1000:
        return f"× {share + 1:.3g}"
    return f"{100 * share:+.0f} %" if size >= 10 else f"{100 * share:+.2g} %" if size >= 0.01 else "about 0 %"


def price(value: float) -> str:
    """Return a price in the currency of the devices' prices."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


MEASURES = (
    Measure("iteration_s", "iteration", format_s),
    Measure("tokens_per_s", "tokens/s", lambda value: f"{value:,.0f}" if value >= 100 else f"{value:.3g}", True),
    Measure("mfu", "MFU", lambda value: f"{value:.1%}", True, True),
    Measure("bubble", "bubble", lambda value: f"{value:.1%}", False, True),
    Measure("communication_s", "communication cost", format_s),
    Measure("peak_bytes", "worst memory", format_bytes),
    Measure("price_per_million_tokens", "price of 1M tokens", price),
)


def describe(answer: Answer, base: Answer) -> str:
    """Return ``12.4 s, 2.1 s less (-14 %)``."""
    text, change = format_s(answer.iteration_s), answer.iteration_s - base.iteration_s
    if abs(change) <= 1e-9 * base.iteration_s:
        return f"{text}, as planned" if answer.setting == base.setting else f"{text}, no different"
    word = "less" if change < 0 else "more"
    share = f" ({percent(change / base.iteration_s)})" if base.iteration_s > 0 else ""
    return f"{text}, {format_s(abs(change))} {word}{share}"


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
    parts = [] if now.tokens_per_s is None else [f"{large(now.tokens_per_s)} tokens/s"]
    lacking = "" if now.fits else f"lacks memory on {now.worst}"
    return large_numbers(
        now.iteration_s, None if base is None else base.iteration_s, [*parts, *filter(None, [told])], lacking
    )


def _three_digits(seconds: float) -> str:
    return f"{seconds:.1f} s" if 10 <= seconds < 100 else f"{seconds:.2f} s" if 1 <= seconds < 10 else format_s(seconds)


def large(value: float) -> str:
    """Return ``10.5k``, ``980`` or ``3.2``."""
    return f"{value / 1000:.3g}k" if value >= 1000 else f"{value:.3g}"


def answer(now: Answer, base: Answer | None, changed: str, number: int) -> str:
    """Return the iteration in large, then every measure with its difference from the base.

    ``base`` is None where the base is not possible; ``changed`` is what differs from it, in words; ``number`` counts
    answers.
    """
    tone, rest = "", "what the lab is turned to cannot be"
    head = format_s(now.iteration_s)
    if base is not None:
        head, _, rest = describe(now, base).partition(", ")
        if now.iteration_s != base.iteration_s:
            tone = "better" if now.iteration_s < base.iteration_s else "worse"
    under = f"with {changed}" if changed else "the plan under what is chosen; move a slider"
    cells = "".join(_cell(measure, now, base) for measure in MEASURES[1:] if measure.of(now) is not None)
    return (
        f'<div class="dtfm-answer" data-answer="{number}"><div class="dtfm-answer-head">'
        f'<span class="dtfm-answer-time">{escape(head)}</span><span class="dtfm-answer-change {tone}">'
        f'{escape(rest)}</span></div><div class="dtfm-answer-with">an iteration, {escape(under)}</div>'
        f'<div class="dtfm-answer-cells" role="list">{cells}</div>{_memory(now)}</div>'
    )


def _cell(measure: Measure, now: Answer, base: Answer | None) -> str:
    value = measure.of(now)
    assert value is not None
    detail = f", chiefly {PARTS[now.cause].lower()}" if measure.name == "bubble" and value > 0 else ""
    change, was = ("", None) if base is None else (measure.difference(now, base), measure.of(base))
    better = was is not None and (value > was) == measure.more_is_better
    tone = "better" if better else "worse"
    shown = f' <span class="dtfm-answer-change {tone}">{escape(change)}</span>' if change else ""
    return (
        f'<div role="listitem"><div class="dtfm-answer-title">{_explained(measure.title)}</div>'
        f"<div>{escape(measure.text(value) + detail)}{shown}</div></div>"
    )


def _explained(title: str) -> str:
    """Return the title, marked for the glossary where it is a word of the field."""
    if title not in ("MFU", "bubble"):
        return escape(title)
    return f'<span class="dtfm-word" data-word="{title}" tabindex="0">{title}</span>'


def _memory(now: Answer) -> str:
    """Return whether all fits in memory, and the device with the least to spare."""
    has = f"{now.worst} needs {format_bytes(now.peak_bytes)} and has {format_bytes(now.limit_bytes)}"
    if now.fits:
        return f'<div class="dtfm-answer-fit">fits in memory: {escape(has)}</div>'
    does = "1 device does" if now.n_over == 1 else f"{now.n_over:,} devices do"
    return f'<div class="dtfm-answer-fit dtfm-over">{does} not fit in memory: {escape(has)}</div>'


def empty(text: str) -> str:
    """Return a text that is shown while there is no answer."""
    return f'<div class="dtfm-what-if-empty">{escape(text)}</div>'


def busy(text: str, share: float) -> str:
    """Return a progress bar with a line of text; ``share`` is about how much is done."""
    return (
        f'<div class="dtfm-what-if-busy" role="status"><progress max="1" value="{min(share, 0.99):.2f}" '
        f'aria-label="computing"></progress><span>{escape(text)}</span></div>'
    )
