"""The four ratios that DT-FM's paper states, beside those of its authors' own seconds and of our predictions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dtfm_lab.published.paper.settings import CASES, DATACENTER, WORLDWIDE, Setting
from dtfm_lab.published.paper.systems import rival

Seconds = Callable[[str, Setting], float | None]
"""Seconds of a system in a setting; None where there are none."""


@dataclass(frozen=True, kw_only=True)
class Stated:
    """One ratio of the paper: between which seconds, and over which settings."""

    name: str
    published: tuple[float, float]
    """Least and most, as the paper states them."""
    over: str
    """The system that is divided, ``rival`` for Megatron with the ranks of the paper's ratios."""
    under: str
    cases: tuple[str, ...]
    under_case: str = ""
    """Where another case's seconds are divided by."""
    closes: str = ""
    """The assumption that would close what remains, with its number."""

    def of(self, setting: Setting, seconds: Seconds) -> float | None:
        """The ratio in a setting; None where either has no seconds."""
        there = Setting(self.under_case, setting.layers, setting.batch) if self.under_case else setting
        over = seconds(_system(self.over, setting.case), setting)
        under = seconds(_system(self.under, there.case), there)
        return None if over is None or not under else over / under


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """A stated ratio beside that of the measured seconds and ours, a value a setting."""

    stated: Stated
    measured: Mapping[Setting, float]
    """Of the seconds that the authors measured."""
    ours: Mapping[Setting, float]
    """Of predicted seconds."""

    @property
    def name(self) -> str:
        """What is divided by what."""
        return self.stated.name

    @property
    def published(self) -> tuple[float, float]:
        """Least and most that the paper states."""
        return self.stated.published

    @property
    def range(self) -> tuple[float, float]:
        """Least and most of ours."""
        return min(self.ours.values()), max(self.ours.values())

    @property
    def measured_range(self) -> tuple[float, float]:
        """Least and most of the measured seconds'."""
        return min(self.measured.values()), max(self.measured.values())

    @property
    def overlaps(self) -> bool:
        """Whether our range and the stated one have a value in common."""
        return self.range[0] <= self.published[1] and self.published[0] <= self.range[1]

    @property
    def residue(self) -> float:
        """Our nearest value over the nearest stated one; 1 where the ranges overlap."""
        if self.overlaps:
            return 1.0
        (low, high), (least, most) = self.range, self.published
        return low / most if low > most else high / least

    @property
    def sentence(self) -> str:
        """The three ranges, and what remains."""
        text = f"{self.name}: published {_text(self.published)}, of their seconds {_text(self.measured_range)}, "
        text += f"ours {_text(self.range)}"
        if self.overlaps:
            return text
        return f"{text}, a factor of {self.residue:.2f} remains: {self.stated.closes}"


STATED = (
    Stated(
        name="world-wide, Megatron-LM over DT-FM",
        published=(3.8, 4.8),
        over="rival",
        under="dt-fm",
        cases=(WORLDWIDE,),
        closes="links within a region at 40 to 60 % of their rate, as DT-FM's own seconds ask",
    ),
    Stated(
        name="other cases, Megatron-LM over DT-FM",
        published=(1.2, 2.5),
        over="rival",
        under="dt-fm",
        cases=CASES[:-1],
        closes="cards of AWS's instances at 10 of their 25 Gbit/s, as the seconds in the data centre ask",
    ),
    Stated(
        name="DT-FM world-wide over Megatron-LM in the data centre",
        published=(1.7, 3.5),
        over="dt-fm",
        under="megatron",
        cases=(WORLDWIDE,),
        under_case=DATACENTER,
        closes="both of these rates",
    ),
    Stated(
        name="world-wide, random placement over DT-FM's scheduler",
        published=(1.0, 2.7),
        over="dt-fm-random",
        under="dt-fm",
        cases=(WORLDWIDE,),
        closes="links within a region at 40 to 60 % of their rate, as DT-FM's own seconds ask",
    ),
)
"""The paper's abstract and section 4. 1.7, 2.7, 3.5, 3.8 and 4.8 are, to two digits, those of the first and the last
setting in its authors' seconds, and 1.2 and 2.5 of the first in the data centre and in the regions."""


def _system(name: str, case: str) -> str:
    return rival(case) if name == "rival" else name


def _text(ends: tuple[float, float]) -> str:
    return f"{ends[0]:.2f} to {ends[1]:.2f}"
