"""One published number laid beside our prediction, and the band in which the two are to agree."""

import math
from dataclasses import dataclass
from typing import Any

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.network import shortened

QUANTITIES = {
    "bandwidth": "bits a second that are needed",
    "bubble": "share of the time that a device idles",
    "compute": "FLOP a second of a GPU",
    "iteration": "time of an iteration",
    "memory": "peak of the worst device",
    "ratio": "one time over another",
    "synchronisation": "time of averaging gradients",
    "throughput": "samples or tokens a second",
    "utilisation": "share of the time that a device computes",
}
"""What a row may be a number of."""
SLACK = 1e-9
"""Relative rounding that a band forgives."""
NO_WORSE = 0.01
"""How much further from 1 the ratio of a known miss may move before it counts as a new miss."""


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


@dataclass(frozen=True)
class KnownMiss:
    """Why a row is known to lie outside of its band, and how far; one that moves further out is a new miss."""

    ratio: float
    """Predicted / published when the miss was looked at."""
    reason: str


@dataclass(frozen=True, kw_only=True)
class Row:
    """One published number beside our prediction of it, in the unit of the publication."""

    group: str
    """What is summed up together, such as a model or a cluster of one system."""
    setting: str
    """What was measured, in words; no other row of the source has the same setting and quantity."""
    quantity: str
    """One of QUANTITIES."""
    unit: str
    """Unit of all numbers of the row; empty for shares and ratios."""
    published: float
    predicted: float
    band: Band
    """Where the prediction is stated to lie. Wider than the goal of its system only with a reason in ``note``."""
    theirs: float | None = None
    """The system's own prediction, where it published one."""
    assumptions: tuple[str, ...] = ()
    """Choices that were switched on for this row, a sentence or a name each."""
    fitted: str = ""
    """What was fitted, and to which other rows; empty where nothing was. Never to this row."""
    note: str = ""
    """What a reader should know of this row, such as a suspect record."""
    cite: str = ""
    """Table or file of the publication; the source's where empty."""
    source: str = ""
    """Name of the source; filled in by it."""
    known_miss: KnownMiss | None = None
    """Filled in by the source."""

    def __post_init__(self) -> None:
        if self.quantity not in QUANTITIES:
            raise LabError(f"quantity is {self.quantity!r}; wanted one of {', '.join(QUANTITIES)}")
        for name in ("published", "predicted"):
            value = getattr(self, name)
            if not (math.isfinite(value) and (value > 0 or (value == 0 and self.band.absolute))):
                raise LabError(f"{self.group}, {self.setting}: {name} is {shortened(value)}; wanted a number above 0")

    @property
    def key(self) -> tuple[str, str]:
        """Setting and quantity: the row's name within its source."""
        return self.setting, self.quantity

    @property
    def ratio(self) -> float:
        """Predicted over published; infinite where 0 is published."""
        return self.predicted / self.published if self.published else math.inf if self.predicted else 1.0

    @property
    def error(self) -> float:
        """Predicted over published less 1: +0.03 is three per cent too much."""
        return self.ratio - 1

    @property
    def their_error(self) -> float | None:
        """The error of the system's own prediction."""
        return None if self.theirs is None or not self.published else self.theirs / self.published - 1

    @property
    def inside(self) -> bool:
        """Whether the prediction lies in its band."""
        return self.band.holds(self.published, self.predicted)

    @property
    def verdict(self) -> str:
        """``inside``; ``known miss`` where a reason is on record and it is no worse than then; else ``miss``."""
        if self.inside:
            return "inside"
        known = self.known_miss
        if known is None or (self.ratio > 1) != (known.ratio > 1):
            return "miss"
        return "known miss" if abs(self.error) <= abs(known.ratio - 1) + NO_WORSE else "miss"

    def to_dict(self) -> dict[str, Any]:
        """The row as plain values for JSON and tables."""
        return {
            "source": self.source,
            "group": self.group,
            "setting": self.setting,
            "quantity": self.quantity,
            "unit": self.unit,
            "published": self.published,
            "predicted": self.predicted,
            "ratio": self.ratio,
            "theirs": self.theirs,
            "band": str(self.band),
            "verdict": self.verdict,
            "assumptions": "; ".join(self.assumptions),
            "fitted": self.fitted,
            "note": "; ".join(filter(None, [self.note, self.known_miss.reason if self.known_miss else ""])),
            "cite": self.cite,
        }
