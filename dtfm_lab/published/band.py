"""The band in which a prediction is to lie, as a ratio or a difference."""

import math
import re
from dataclasses import dataclass

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.network import shortened

SLACK = 1e-9
"""Relative rounding that a band forgives."""


@dataclass(frozen=True)
class Band:
    """Where predictions are stated to lie: the ratio predicted / published, or the difference where ``absolute``."""

    low: float
    high: float
    absolute: bool = False

    @classmethod
    def share(cls, share: float) -> "Band":
        """Predicted within this share of the published: 0.03 is from 0.97 to 1.03 times."""
        return cls(1 - share, 1 + share)

    @classmethod
    def factor(cls, factor: float) -> "Band":
        """At most so many times the published, and at least one over that."""
        return cls(1 / factor, factor)

    @classmethod
    def within(cls, difference: float) -> "Band":
        """Predicted minus published is at most so much, in the unit of the row; for bubbles and utilisations."""
        return cls(-difference, difference, absolute=True)

    def __post_init__(self) -> None:
        reference = 0.0 if self.absolute else 1.0
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low <= self.high):
            raise LabError(f"band is {shortened(self.low)} to {shortened(self.high)}; wanted two numbers in order")
        if not self.low <= reference <= self.high or (not self.absolute and self.low < 0):
            raise LabError(f"band is {self.low:g} to {self.high:g}; wanted {reference:g}, an exact prediction, inside")

    def holds(self, published: float, predicted: float) -> bool:
        """Whether the prediction lies inside."""
        off = predicted - published if self.absolute else predicted / published
        slack = SLACK * (abs(published) if self.absolute else 1.0)
        return self.low - slack <= off <= self.high + slack

    def __str__(self) -> str:
        if self.absolute:
            return f"±{self.high:g}" if self.low == -self.high else f"{self.low:+g} to {self.high:+g}"
        if math.isclose(1 - self.low, self.high - 1):
            return f"±{100 * (self.high - 1):g} %"
        return f"{self.low:.3g} to {self.high:.3g} times"


def band_of(text: str) -> Band:
    """A band from text: ``3%``, ``1.3x``, ``+-0.0005`` or ``0.9 to 1.1``. Raises LabError."""
    wanted = LabError(f"band is {shortened(text)}; wanted such as 3%, 1.3x, +-0.0005 or 0.9 to 1.1")
    try:
        if text.endswith("%"):
            return Band.share(float(text[:-1].removeprefix("±").removeprefix("+-")) / 100)
        if text.endswith("x"):
            return Band.factor(float(text[:-1]))
        if text.startswith(("±", "+-")):
            return Band.within(float(text.removeprefix("±").removeprefix("+-")))
        low, high = re.split(r"\s+to\s+|\s+", text)
        return Band(float(low), float(high))
    except (ValueError, ZeroDivisionError):
        raise wanted from None
