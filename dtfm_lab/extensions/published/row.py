"""One published number laid beside our prediction, the band in which the two are to agree by one rule of bands by class
and quantity, and how much a row proves: its class of evidence.

The headline of a ledger counts what was measured, in three classes of distance from what constants were fitted on. What
others calculated is no row of the lab's sources: tests hold it.
"""

import csv
import math
import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.network import shortened
from dtfm_lab.files.reading import read_mapping

DATA = Path(__file__).parent / "data"
"""The published numbers as they were published, each file with its source and licence."""
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
    """What is published is another's calculation or simulation, not a measurement. The lab's own sources have no such
    rows: tests hold them to these bands (``tests/extensions/published/test_calculations.py``)."""
    IDENTITY = "identity"
    """What is published follows by arithmetic from numbers that the prediction is given."""
    DUPLICATE = "duplicate"
    """What is published follows from other rows, such as a ratio of two of them."""

    @property
    def hard(self) -> bool:
        """Whether nothing was fitted to the source of such a row."""
        return self in (Evidence.PURE, Evidence.TRANSFERRED)

    @property
    def words(self) -> str:
        """The class in words; its name where that says it."""
        return WORDS.get(self, str(self))


class Distance(StrEnum):
    """How far a measured row lies from what the lab's constants were fitted on, the farthest first."""

    CLUSTERS = "new clusters"
    """GPUs, a framework or a network that no constant was fitted on."""
    MODELS = "new models on fitted GPUs and frameworks"
    """Constants were fitted on such GPUs with such a framework, from other sources; the models are new."""
    FITTED = "GPUs and frameworks that constants were fitted on"
    """Constants were fitted to this source, or the source timed its own passes and messages."""


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


QUANTITIES = {
    "bandwidth": "bits a second that are needed, or reached",
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
    *(
        "source",
        "group",
        "setting",
        "quantity",
        "unit",
        "class",
        "distance",
        "measured",
        "published",
        "predicted",
        "low",
        "high",
    ),
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
    fitted_elsewhere: bool = False
    """Whether constants were fitted on such GPUs with such a framework, from other sources; filled in by the source."""
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
    def distance(self) -> Distance | None:
        """How far it lies from what constants were fitted on; None for what proves nothing of a prediction: what was
        not measured, or follows from the prediction's own input or from other rows."""
        if not self.measured or self.evidence in (Evidence.CALCULATION, Evidence.IDENTITY, Evidence.DUPLICATE):
            return None
        if not self.evidence.hard:
            return Distance.FITTED
        return Distance.MODELS if self.fitted_elsewhere else Distance.CLUSTERS

    @property
    def hard(self) -> bool:
        """Whether it was measured, and predicted without any fit to its source."""
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
        values = {
            "class": str(self.evidence),
            "distance": self.distance,
            "low": low,
            "high": high,
            "band": str(self.band),
            "assumptions": "; ".join(self.assumptions),
            "note": "; ".join(filter(None, [self.note, known])),
        }
        return {name: values[name] if name in values else getattr(self, name) for name in COLUMNS}


def numbers(name: str) -> list[dict[str, str]]:
    """The lines of a CSV file of ``published/data`` by its headings; lines from # on are its source and licence."""
    lines = (DATA / name).read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if line and not line.startswith("#")))


@cache
@cache
def assumptions() -> dict[str, Any]:
    """What the rows of a source assume, in tuples, by its name (``data/assumptions.yaml``)."""
    return {name: _in_tuples(said) for name, said in document("assumptions.yaml").items()}


def _in_tuples(said: Any) -> Any:
    return {what: _in_tuples(each) for what, each in said.items()} if isinstance(said, dict) else tuple(said)


def document(name: str) -> dict[str, Any]:
    """A JSON or YAML file of ``published/data``."""
    return read_mapping(DATA / name)
