"""Keywords of ``lab.advise``, as editors and type checkers read them.

Written by tools/keywords.py from the options that each class names: change those, and run it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    import os


class AdviceKeywords(TypedDict, total=False):
    """Keywords of ``lab.advise``, from `dtfm_lab.extensions.advice.advice.AdviceOptions`."""

    tokens: float | str | None
    """Tokens (of a module samples) to train on, such as 100M."""
    deadline_days: float | None
    """The cheapest of the ways that are done within so many days. More than 0."""
    budget_dollars: float | None
    """Only ways that cost at most this much; the fastest of them without a deadline. More than 0."""
    electricity_per_kwh: float
    """US dollars for a kWh of one's own machines. 0 or more. Default: 0.3."""
    seconds: float | None
    """Time limit of all searches together; 12 s without --steps. More than 0 s."""
    steps: int | None
    """Generations of every search: reproducible. 1 or more."""
    seed: int
    """Seed of the searches and of the interruptions. 0 or more. Default: 0."""
    catalogue: str | os.PathLike[str] | None
    """A SkyPilot catalogue, vms.csv, of what there is to rent, in place of the lab's typical prices."""
