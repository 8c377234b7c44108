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
    """Tokens to train on, such as 100M (samples for a torch module)."""
    deadline_days: float | None
    """Choose the cheapest option that finishes within this many days. More than 0."""
    budget_dollars: float | None
    """Only options that cost at most this much. Without a deadline, choose the fastest of them. More than 0."""
    electricity_per_kwh: float
    """US dollars per kWh for your own machines. 0 or more. Default: 0.3."""
    seconds: float | None
    """Time limit of all searches together. 12 s without --steps. More than 0 s."""
    steps: int | None
    """Generations of every search, for reproducible results. 1 or more."""
    seed: int
    """Seed of the searches and of the interruptions. 0 or more. Default: 0."""
    catalogue: str | os.PathLike[str] | None
    """A SkyPilot catalogue (vms.csv) of machines to rent, instead of the lab's typical prices."""
