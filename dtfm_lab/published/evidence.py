"""How much a row proves: classes of evidence, and the one rule of bands by class and quantity.

The headline of a ledger counts only what was measured and predicted without any fit to its source. All other classes
are shown and counted apart: they test our arithmetic, or how well a source agrees with itself.
"""

from enum import StrEnum
from functools import cache

from dtfm_lab.domain.errors import LabError
from dtfm_lab.published.band import Band, band_of
from dtfm_lab.published.tables import numbers


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
        """The class in words."""
        return WORDS[self]


WORDS = {
    Evidence.PURE: "pure prediction",
    Evidence.TRANSFERRED: "transferred from other sources",
    Evidence.PROFILED: "from the source's own profiles",
    Evidence.LEAVE_ONE_OUT: "leave-one-out within the source",
    Evidence.FITTED: "fitted to this source",
    Evidence.CALCULATION: "another's calculation",
    Evidence.IDENTITY: "identity",
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
