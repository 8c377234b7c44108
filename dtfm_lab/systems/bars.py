"""The outcomes as bars: seconds stacked by cause, on a scale that one very slow system does not squeeze."""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from dtfm_lab.domain.trace.causes import CAUSES, COMPUTE, Cause
from dtfm_lab.systems.outcome import GATHERING, Outcome

STACKED = (COMPUTE, GATHERING, *(cause.value for cause in CAUSES if cause is not Cause.DEPENDENCY))
"""Causes in the order in which bars stack them, the same in all."""
CHANGES = "†"
"""Mark of a system that changes the training itself."""
FAR, LONGEST = 5.0, 4.0
"""Where the slowest takes more than ``FAR`` times the median, bars are cut at ``LONGEST`` times the median."""


@dataclass(frozen=True)
class Bar:
    """One outcome as it is drawn."""

    outcome: Outcome
    parts: tuple[tuple[str, float, float], ...]
    """Cause, its seconds, and the length in seconds at which it is drawn: less where the bar is cut."""
    cut: bool
    """Whether the bar goes beyond the scale; its parts then keep their proportions."""

    @property
    def name(self) -> str:
        """The title, marked where the system changes the training itself."""
        return marked_title(self.outcome)

    @property
    def length_s(self) -> float:
        """Seconds at which the whole bar is drawn; zero without a plan."""
        return sum(drawn_s for _, _, drawn_s in self.parts)


def marked_title(outcome: Outcome) -> str:
    """The system's title, marked where it changes the training itself."""
    return f"{outcome.title} {CHANGES}" if outcome.strategy.mathematics else outcome.title


def bars(outcomes: Iterable[Outcome]) -> list[Bar]:
    """A bar for each outcome, in their order; without parts where there is no plan."""
    given = list(outcomes)
    seconds = [one.iteration_s for one in given if one.iteration_s is not None]
    scale_s = max(seconds, default=1.0)
    if seconds and scale_s > FAR * (median_s := statistics.median(seconds)):
        scale_s = LONGEST * median_s
    return [_bar(one, scale_s) for one in given]


def _bar(outcome: Outcome, scale_s: float) -> Bar:
    whole_s = outcome.iteration_s or 0.0
    shrunk = min(1.0, scale_s / whole_s) if whole_s > 0 else 1.0
    order = {cause: at for at, cause in enumerate(STACKED)}
    causes = sorted(outcome.causes.items(), key=lambda item: order.get(item[0], len(order)))
    parts = tuple((cause, part_s, part_s * shrunk) for cause, part_s in causes if part_s > 0)
    return Bar(outcome, parts, cut=shrunk < 1.0)
