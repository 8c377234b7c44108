"""How much a row proves: classes of evidence, and the one rule of bands by class and quantity.

The headline of a ledger counts only what was measured and predicted without any fit to its source. All other classes
are shown and counted apart: they test our arithmetic, or how well a source agrees with itself.
"""

import math
import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.network import shortened
from dtfm_lab.published.tables import numbers

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


class Evidence(StrEnum):
    """Where the constants of a prediction are from, the hardest evidence first."""

    PURE = "pure"
    """Nothing is fitted, and no constant is of the row's own source."""
    TRANSFERRED = "transferred"
    """Constants are fitted to other sources only."""
    PROFILED = "profiled"
    """The source timed single passes and messages apart; nothing is fitted to what is predicted."""
    LEAVE_ONE_OUT = "leave-one-out"
    """Fitted to other rows of the same source."""
    FITTED = "fitted"
    """The source is one of those that a constant of the lab was fitted to, this row among them."""
    CALCULATION = "calculation"
    """What is published is another's calculation or simulation, not a measurement."""
    IDENTITY = "identity"
    """What is published follows by arithmetic from numbers that the prediction is given."""
    DUPLICATE = "duplicate"
    """What is published follows from other rows, such as a ratio of two of them."""

    @property
    def hard(self) -> bool:
        """Whether a measured row of this class counts in the headline: nothing was fitted to its source."""
        return self in (Evidence.PURE, Evidence.TRANSFERRED)

    @property
    def words(self) -> str:
        """The class in words; its name where that says it."""
        return WORDS.get(self, str(self))


WORDS = {
    Evidence.PURE: "pure prediction",
    Evidence.TRANSFERRED: "transferred from other sources",
    Evidence.PROFILED: "from the source's own profiles",
    Evidence.LEAVE_ONE_OUT: "leave-one-out within the source",
    Evidence.FITTED: "fitted to this source",
    Evidence.CALCULATION: "another's calculation",
    Evidence.DUPLICATE: "duplicate of other rows",
}


@cache
def rule() -> dict[tuple[Evidence, str], Band]:
    """The band of each class and quantity, of ``data/bands.csv``."""
    return {
        (Evidence(line["class"]), quantity): band_of(line["band"])
        for line in numbers("bands.csv")
        for quantity in line["quantities"].split()
    }


def band_by_rule(evidence: Evidence, quantity: str, unit: str = "") -> Band:
    """The band of a row of this class and quantity. Raises LabError for a quantity that the rule does not name."""
    if (evidence, quantity) not in rule():
        raise LabError(f"no band for {evidence}, {quantity}; wanted one in data/bands.csv")
    band = rule()[evidence, quantity]
    return Band.within(100 * band.high) if band.absolute and unit == "%" else band
