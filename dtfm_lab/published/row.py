"""One published number laid beside our prediction, and the band in which the two are to agree."""

import math
from dataclasses import dataclass
from typing import Any

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.network import shortened
from dtfm_lab.published.evidence import Band, Evidence, band_by_rule

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
COLUMNS = (
    *("source", "group", "setting", "quantity", "unit", "class", "measured", "published", "predicted", "low", "high"),
    *("ratio", "theirs", "band", "verdict", "assumptions", "fitted", "note", "cite"),
)
"""Columns of a table of rows."""
BY_RULE = Band(1.0, 1.0)
"""In place of a band: that of the row's class and quantity."""
NO_WORSE = 0.01
"""How much further from 1 the ratio of a known miss may move before it counts as a new miss."""


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
    evidence: Evidence = Evidence.PURE
    """How much the row proves: where the constants of the prediction are from."""
    measured: bool = True
    """Whether a measurement is published; false for a figure that its authors calculated or simulated."""
    band: Band = BY_RULE
    """Where the prediction is stated to lie; by the rule of its class and quantity where not given."""
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
    interval: tuple[float, float] | None = None
    """Between which two numbers the published one is predicted to lie in 9 of 10 cases; None where it is not known."""
    source: str = ""
    """Name of the source; filled in by it."""
    known_miss: KnownMiss | None = None
    """Filled in by the source."""

    def __post_init__(self) -> None:
        if self.quantity not in QUANTITIES:
            raise LabError(f"quantity is {self.quantity!r}; wanted one of {', '.join(QUANTITIES)}")
        if self.band is BY_RULE:
            object.__setattr__(self, "band", band_by_rule(self.evidence, self.quantity, self.unit))
        for name in ("published", "predicted"):
            value = getattr(self, name)
            if not (math.isfinite(value) and (value > 0 or (value == 0 and self.band.absolute))):
                raise LabError(f"{self.group}, {self.setting}: {name} is {shortened(value)}; wanted a number above 0")
            object.__setattr__(self, name, float(value))  # of numpy's own numbers JSON knows nothing

    @property
    def key(self) -> tuple[str, str]:
        """Setting and quantity: the row's name within its source."""
        return self.setting, self.quantity

    @property
    def hard(self) -> bool:
        """Whether the headline counts it: measured, and predicted without any fit to its source."""
        return self.measured and self.evidence.hard

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
    def covered(self) -> bool | None:
        """Whether the interval of the prediction holds the published number; None where there is none."""
        return None if self.interval is None else self.interval[0] <= self.published <= self.interval[1]

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
        """The row as plain values for JSON and tables, in the order of ``COLUMNS``."""
        low, high = self.interval or (None, None)
        known = self.known_miss.reason if self.known_miss else ""
        told = {
            "class": str(self.evidence),
            "low": low,
            "high": high,
            "band": str(self.band),
            "assumptions": "; ".join(self.assumptions),
            "note": "; ".join(filter(None, [self.note, known])),
        }
        return {name: told[name] if name in told else getattr(self, name) for name in COLUMNS}
