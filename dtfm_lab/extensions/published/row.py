"""One published number with our prediction, the band in which they should agree, and the strength of the evidence.

One rule gives the band for each class of evidence and quantity. The class says how much a row proves. The headline of a
ledger counts only measured rows. It groups them in three classes, by their distance from what constants were fitted on.
Numbers that others calculated are not rows of the lab's sources: tests check those.
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
"""Folder of the published numbers, unchanged. Each file states its source and licence."""
SLACK = 1e-9
"""Relative rounding error by which a prediction may be outside a band."""


@dataclass(frozen=True)
class Band:
    """The range in which a prediction should lie. It is a range of predicted / published, or of predicted - published
    if ``absolute``."""

    low: float
    high: float
    absolute: bool = False

    @classmethod
    def share(cls, share: float) -> "Band":
        """Return the band of this relative error, above and below: 0.03 is from 0.97 to 1.03 times the published
        value."""
        return cls(1 - share, 1 + share)

    @classmethod
    def factor(cls, factor: float) -> "Band":
        """Return the band of this factor, above and below: 1.3 is from 1 / 1.3 to 1.3 times the published value."""
        return cls(1 / factor, factor)

    @classmethod
    def within(cls, difference: float) -> "Band":
        """Return the band of this difference, above and below, in the row's unit. It suits bubbles and utilisations."""
        return cls(-difference, difference, absolute=True)

    def __post_init__(self) -> None:
        reference = 0.0 if self.absolute else 1.0
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low <= self.high):
            raise LabError(f"band is {shortened(self.low)} to {shortened(self.high)}; wanted two numbers in order")
        if not self.low <= reference <= self.high or (not self.absolute and self.low < 0):
            raise LabError(f"band is {self.low:g} to {self.high:g}; wanted {reference:g}, an exact prediction, inside")

    def holds(self, published: float, predicted: float) -> bool:
        """True if the prediction is inside the band."""
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
    """Parse a band: ``3%``, ``1.3x``, ``+-0.0005`` or ``0.9 to 1.1``. Raises LabError."""
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
        # 0x, whose inverse does not exist, is not a band either.
        raise wanted from None


class Evidence(StrEnum):
    """Where the constants of a prediction come from, the strongest evidence first."""

    PURE = "pure"
    """Nothing is fitted, and no constant comes from the row's own source."""
    TRANSFERRED = "transferred"
    """Constants were fitted only to other sources."""
    PROFILED = "profiled"
    """The source timed single passes and messages separately. Nothing is fitted to the predicted number."""
    LEAVE_ONE_OUT = "leave-one-out"
    """A constant was fitted to other rows of the same source, not to this one."""
    FITTED = "fitted"
    """A constant of the lab was fitted to this source, including this row."""
    CALCULATION = "calculation"
    """The published number is someone's calculation or simulation, not a measurement. The lab's own sources have no
    such rows. Tests check them against these bands (``tests/extensions/published/test_calculations.py``)."""
    IDENTITY = "identity"
    """The published number follows by arithmetic from the prediction's inputs."""
    DUPLICATE = "duplicate"
    """The published number follows from other rows, such as a ratio of two of them."""

    @property
    def hard(self) -> bool:
        """True if no constant was fitted to the row's source, or taken from it: the classes ``pure`` and
        ``transferred``."""
        return self in (Evidence.PURE, Evidence.TRANSFERRED)

    @property
    def words(self) -> str:
        """The class in words, or its name if that is clear."""
        return WORDS.get(self, str(self))


class Distance(StrEnum):
    """How far a measured row is from the rows that the lab's constants were fitted on. The farthest comes first."""

    CLUSTERS = "new clusters"
    """The GPUs, the framework or the network are new: no constant was fitted on them."""
    MODELS = "new models on fitted GPUs and frameworks"
    """Constants were fitted, on other sources, to the same GPUs and framework. The models are new."""
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
    """Return the band of each class and quantity, from ``data/bands.csv``."""
    return {
        (Evidence(line["class"]), quantity): band_of(line["band"])
        for line in numbers("bands.csv")
        for quantity in line["quantities"].split()
    }


def band_by_rule(evidence: Evidence, quantity: str, unit: str = "") -> Band:
    """Return the band for this class and quantity. A band of differences is in per cent if ``unit`` is ``%``. Raises
    LabError for a quantity without a rule."""
    if (evidence, quantity) not in rule():
        raise LabError(f"no band for {evidence}, {quantity}; wanted one in data/bands.csv")
    band = rule()[evidence, quantity]
    # Bands of differences are stated for shares, but this row counts per cent.
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
"""Quantities that a row can have, and what each means."""
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
"""A placeholder: the rule for the row's class and quantity replaces it."""
NO_WORSE = 0.01
"""How much further from 1 the ratio of a known miss may be than when it was examined. Beyond that, it is a new miss."""


@dataclass(frozen=True)
class KnownMiss:
    """Why a row is known to be outside its band, and by how much. A row that moves further out is a new miss."""

    ratio: float
    """Predicted / published when the miss was examined."""
    reason: str


@dataclass(frozen=True, kw_only=True)
class Row:
    """One published number and our prediction of it, in the publication's unit."""

    group: str
    """Rows of one group are summarised together: for example all rows of a model or a cluster."""
    setting: str
    """What was measured, in words. Unique within the source together with the quantity."""
    quantity: str
    """One of QUANTITIES."""
    unit: str
    """Unit of all numbers of the row; empty for shares and ratios."""
    published: float
    predicted: float
    evidence: Evidence = Evidence.PURE
    """How much the row proves: where the constants of the prediction come from."""
    measured: bool = True
    """True if a measurement was published; False for a number that the authors calculated or simulated."""
    band: Band = BY_RULE
    """Where the prediction should lie. By default the rule for its class and quantity decides."""
    theirs: float | None = None
    """The system's own prediction, if it published one."""
    assumptions: tuple[str, ...] = ()
    """Choices that were made for this row, each a sentence or a name."""
    fitted: str = ""
    """What was fitted to which other rows, in words; empty if nothing was."""
    note: str = ""
    """What a reader should know about this row, such as a suspect record."""
    cite: str = ""
    """Table or file of the publication; if empty, the source's citation applies."""
    interval: tuple[float, float] | None = None
    """Range that should hold the published number in 9 of 10 cases; None if unknown."""
    source: str = ""
    """Name of the source, which fills it in."""
    fitted_elsewhere: bool = False
    """True if constants were fitted to the same GPUs and framework, in rows of other sources. The source fills it
    in."""
    known_miss: KnownMiss | None = None
    """Why the row is known to be outside its band. The source fills it in."""

    def __post_init__(self) -> None:
        if self.quantity not in QUANTITIES:
            raise LabError(f"quantity is {self.quantity!r}; wanted one of {', '.join(QUANTITIES)}")
        if self.band is BY_RULE:
            object.__setattr__(self, "band", band_by_rule(self.evidence, self.quantity, self.unit))
        for name in ("published", "predicted"):
            value = getattr(self, name)
            # A prediction has no ratio to 0, but it has a difference.
            if not (math.isfinite(value) and (value > 0 or (value == 0 and self.band.absolute))):
                raise LabError(f"{self.group}, {self.setting}: {name} is {shortened(value)}; wanted a number above 0")
            object.__setattr__(self, name, float(value))  # JSON does not know numpy's numbers

    @property
    def key(self) -> tuple[str, str]:
        """Setting and quantity, which identify the row within its source."""
        return self.setting, self.quantity

    @property
    def distance(self) -> Distance | None:
        """How far the row is from what constants were fitted on.

        None if the row proves nothing: it was not measured, or follows from the prediction's inputs or from other rows.
        """
        if not self.measured or self.evidence in (Evidence.CALCULATION, Evidence.IDENTITY, Evidence.DUPLICATE):
            return None
        if not self.evidence.hard:
            return Distance.FITTED
        return Distance.MODELS if self.fitted_elsewhere else Distance.CLUSTERS

    @property
    def hard(self) -> bool:
        """True if it was measured, and predicted without any constant from its source (``Evidence.hard``)."""
        return self.measured and self.evidence.hard

    @property
    def ratio(self) -> float:
        """Predicted over published. If 0 is published, it is 1 if 0 is predicted as well, else infinite."""
        return self.predicted / self.published if self.published else math.inf if self.predicted else 1.0

    @property
    def error(self) -> float:
        """Predicted over published, minus 1: +0.03 is three per cent too much."""
        return self.ratio - 1

    @property
    def their_error(self) -> float | None:
        """The same error for the system's own prediction; None if it published none, or if the published number is
        0."""
        return None if self.theirs is None or not self.published else self.theirs / self.published - 1

    @property
    def inside(self) -> bool:
        """True if the prediction is inside its band."""
        return self.band.holds(self.published, self.predicted)

    @property
    def covered(self) -> bool | None:
        """True if the prediction's interval holds the published number; None without an interval."""
        return None if self.interval is None else self.interval[0] <= self.published <= self.interval[1]

    @property
    def verdict(self) -> str:
        """``inside``; ``known miss`` if a reason is recorded for a miss in this direction, and the miss has not grown;
        else ``miss``."""
        if self.inside:
            return "inside"
        known = self.known_miss
        # Missing in the other direction must have another reason.
        if known is None or (self.ratio > 1) != (known.ratio > 1):
            return "miss"
        return "known miss" if abs(self.error) <= abs(known.ratio - 1) + NO_WORSE else "miss"

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain values for JSON and tables, in the order of ``COLUMNS``."""
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
    """Return the rows of a CSV file of ``published/data``, each as values by column name.

    Lines that start with # are skipped. They give the file's source and licence.
    """
    lines = (DATA / name).read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if line and not line.startswith("#")))


@cache
def assumptions() -> dict[str, Any]:
    """Return the assumptions that are stated about each source's rows, by source and name (``data/assumptions.yaml``).
    Lists are tuples."""
    return {name: _in_tuples(said) for name, said in document("assumptions.yaml").items()}


def _in_tuples(said: Any) -> Any:
    return {what: _in_tuples(each) for what, each in said.items()} if isinstance(said, dict) else tuple(said)


def document(name: str) -> dict[str, Any]:
    """Return a JSON or YAML file of ``published/data``."""
    return read_mapping(DATA / name)
