"""The numbers of an answer as people read them, and how two answers differ."""

from collections.abc import Callable
from typing import NamedTuple

from dtfm_lab.domain.units import format_bytes, format_s
from dtfm_lab.widgets.what_if.answer import Answer


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

    def best(self, answers: list[Answer]) -> float | None:
        """Return the best value among the answers that fit in memory, or all if none does; None where all are equal."""
        fitting = [answer for answer in answers if answer.fits] or answers
        values = [value for answer in fitting if (value := self.of(answer)) is not None]
        if len(answers) < 2 or not values or (len(values) > 1 and max(values) - min(values) <= 1e-9 * abs(max(values))):
            return None
        return max(values) if self.more_is_better else min(values)


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
    Measure("price_per_thousand", "price of 1,000 iterations", price),
)


def describe(answer: Answer, base: Answer) -> str:
    """Return ``12.4 s, 2.1 s less (-14 %)``."""
    text, change = format_s(answer.iteration_s), answer.iteration_s - base.iteration_s
    if abs(change) <= 1e-9 * base.iteration_s:
        return f"{text}, as planned" if answer.setting == base.setting else f"{text}, no different"
    word = "less" if change < 0 else "more"
    share = f" ({percent(change / base.iteration_s)})" if base.iteration_s > 0 else ""
    return f"{text}, {format_s(abs(change))} {word}{share}"
