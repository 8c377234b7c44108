"""DT-FM's table: seconds and PFLOPS of every system in every setting, with the paper's ratios and ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from statistics import median
from typing import Any

import pandas as pd

from dtfm_lab.domain.options import refuse_unknown
from dtfm_lab.domain.units import plain_rows
from dtfm_lab.extensions.published.paper.settings import BATCHES, CASES, LAYERS, Setting, settings
from dtfm_lab.extensions.published.paper.systems import SYSTEMS, outcome, published_name, rival
from dtfm_lab.extensions.published.row import document
from dtfm_lab.extensions.systems.api import Budget, Outcome
from dtfm_lab.simulation.task_runner import received

Seconds = Callable[[str, Setting], float | None]
"""Returns the seconds of a system in a setting; None if missing."""


@dataclass(frozen=True, kw_only=True)
class Stated:
    """One ratio of seconds that the paper states, with its two systems and its settings."""

    name: str
    published: tuple[float, float]
    """Lowest and highest value of the ratio that the paper states."""
    at: Sequence[Mapping[str, Any]]
    """Settings in which the paper's measured seconds give the stated ratio. Each has its value under ``ratio``."""
    over: str
    """The system in the numerator. ``rival`` is Megatron-LM with the ranks of the paper's ratios."""
    under: str
    cases: Sequence[str]
    under_case: str = ""
    """The case of the denominator; empty if it is the same as the numerator's."""
    closes: str = ""
    """The assumption that would close the gap between our ratio and the stated one, in words and with its value."""

    def of(self, setting: Setting, seconds: Seconds) -> float | None:
        """Return the ratio of the two systems' ``seconds`` in a setting; None if either is missing."""
        there = Setting(self.under_case, setting.layers, setting.batch) if self.under_case else setting
        over = seconds(_system(self.over, setting.case), setting)
        under = seconds(_system(self.under, there.case), there)
        return None if over is None or not under else over / under


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """A ratio that the paper states, in each setting: from the authors' measured seconds, and from our predicted
    ones."""

    stated: Stated
    measured: Mapping[Setting, float]
    """The ratio of the authors' measured seconds, by setting."""
    ours: Mapping[Setting, float]
    """The ratio of predicted seconds, by setting."""

    @property
    def name(self) -> str:
        """Names of numerator and denominator."""
        return self.stated.name

    @property
    def published(self) -> tuple[float, float]:
        """Lowest and highest value that the paper states."""
        return self.stated.published

    @property
    def range(self) -> tuple[float, float]:
        """Lowest and highest value of the predicted ratio."""
        return min(self.ours.values()), max(self.ours.values())

    @property
    def measured_range(self) -> tuple[float, float]:
        """Lowest and highest ratio of the authors' measured seconds, over all settings."""
        return min(self.measured.values()), max(self.measured.values())

    @property
    def overlaps(self) -> bool:
        """True if our range overlaps the stated one."""
        return self.range[0] <= self.published[1] and self.published[0] <= self.range[1]

    @property
    def residue(self) -> float:
        """Our value that is nearest to the stated range, divided by the stated value nearest to it. 1 if the ranges
        overlap."""
        if self.overlaps:
            return 1.0
        (low, high), (least, most) = self.range, self.published
        return low / most if low > most else high / least


STATED = tuple(Stated(**one) for one in document("dt_fm_ratios.yaml")["ratios"])
"""The ratios of the paper's abstract and section 4."""


def _system(name: str, case: str) -> str:
    return rival(case) if name == "rival" else name


PETA = 1e15


@dataclass(frozen=True, eq=False)
class Entry:
    """The outcome of one system in one setting: an entry of the table."""

    setting: Setting
    system: str
    outcome: Outcome

    @property
    def iteration_s(self) -> float | None:
        """Predicted seconds; None without a plan."""
        return self.outcome.iteration_s

    @property
    def pflops(self) -> float | None:
        """1e15 FLOP/s of all GPUs together, counted as in the paper; None without a plan."""
        return None if self.iteration_s is None else self.setting.flop / self.iteration_s / PETA

    @property
    def published_s(self) -> float | None:
        """Seconds that the authors measured; None if they published no number."""
        return self.setting.published_s(published_name(self.system, self.setting.case))

    @property
    def ratio(self) -> float | None:
        """Predicted over measured seconds; None if either is missing."""
        measured_s = self.published_s
        return None if self.iteration_s is None or measured_s is None else self.iteration_s / measured_s

    def to_dict(self) -> dict[str, Any]:
        """Return the entry as plain values."""
        found, published_s = self.outcome.found, self.published_s
        job = None if found is None else found.job
        return {
            "case": self.setting.case,
            "layers": self.setting.layers,
            "batch": self.setting.batch,
            "system": self.system,
            "iteration_s": self.iteration_s,
            "pflops": self.pflops,
            "published_s": published_s,
            "published_pflops": None if published_s is None else self.setting.flop / published_s / PETA,
            "ratio": self.ratio,
            **{name: getattr(job, name, None) for name in ("n_stages", "n_replicas", "tensor_parallel")},
            "reason": self.outcome.reason,
        }


@dataclass(frozen=True, eq=False, repr=False)
class PapersTable:
    """DT-FM's table, with the entries so far. Has ``to_frame`` and ``ratios``; a notebook shows both."""

    entries: tuple[Entry, ...]
    wanted: int
    """Number of entries requested. The table has fewer until it is complete, or if it was stopped."""

    def __repr__(self) -> str:
        return f"<PapersTable: {self.sentence}>"

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    @cached_property
    def _by_key(self) -> dict[tuple[str, Setting], Entry]:
        return {(entry.system, entry.setting): entry for entry in self.entries}

    def entry(self, system: str, case: str, layers: int, batch: int) -> Entry:
        """Return one entry, with its plan and causes in ``outcome``. Raises KeyError if the table does not have it."""
        return self._by_key[system, Setting(case, layers, batch)]

    def _ours(self, system: str, setting: Setting) -> float | None:
        found = self._by_key.get((system, setting))
        return None if found is None else found.iteration_s

    @cached_property
    def ratios(self) -> tuple[Ratio, ...]:
        """The paper's ratios for which this table has a setting."""
        found = []
        wanted = list(dict.fromkeys(entry.setting for entry in self.entries))
        for stated in STATED:
            here = [setting for setting in wanted if setting.case in stated.cases]
            ours = {one: value for one in here if (value := stated.of(one, self._ours)) is not None}
            measured = {one: value for one in here if (value := stated.of(one, _measured_s)) is not None}
            # A part of the table may lack one of the two systems.
            if ours and measured:
                found.append(Ratio(stated=stated, measured=measured, ours=ours))
        return tuple(found)

    @property
    def errors(self) -> dict[str, float]:
        """Median of predicted over measured seconds, by system."""
        return {
            system: median(ratios)
            for system in SYSTEMS
            if (ratios := [one.ratio for one in self if one.system == system and one.ratio])
        }

    @property
    def sentence(self) -> str:
        """How many of the paper's ratios overlap ours, and how predicted seconds compare with measured ones."""
        inside = sum(ratio.overlaps for ratio in self.ratios)
        text = f"{inside} of {len(self.ratios)} published ratios overlap ours"
        errors = ", ".join(f"{SYSTEMS[system]} {value:.2f}" for system, value in self.errors.items())
        text += f"; predicted over measured seconds, medians: {errors}" if errors else ""
        return text + ("" if len(self) == self.wanted else f"; {len(self)} of {self.wanted} entries")

    def to_frame(self) -> pd.DataFrame:
        """Return one row per entry: its setting and system, predicted seconds and PFLOPS, measured ones, and their
        ratio."""
        frame = pd.DataFrame([entry.to_dict() for entry in self.entries])
        floats = ["iteration_s", "pflops", "published_s", "published_pflops", "ratio"]
        # A column that is empty so far would hold objects.
        return frame.astype(dict.fromkeys(floats, float)) if len(frame) else frame

    def ratios_frame(self) -> pd.DataFrame:
        """Return one row per ratio: the published range, the range from measured seconds, ours, and the remaining
        gap."""
        return pd.DataFrame(
            [
                {
                    "ratio": one.name,
                    "published_low": one.published[0],
                    "published_high": one.published[1],
                    "measured_low": one.measured_range[0],
                    "measured_high": one.measured_range[1],
                    "ours_low": one.range[0],
                    "ours_high": one.range[1],
                    "overlaps": one.overlaps,
                    "residue": one.residue,
                    "closes": "" if one.overlaps else one.stated.closes,
                }
                for one in self.ratios
            ]
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "sentence": self.sentence,
            "ratios": plain_rows(self.ratios_frame()),
            "entries": plain_rows(self.to_frame()),
        }

    def _repr_html_(self) -> str:
        # Reasons are whole sentences, too long for a cell.
        frames = self.ratios_frame(), self.to_frame().drop(columns="reason", errors="ignore")
        tables = (frame.to_html(index=False, na_rep="", float_format="{:.3g}".format) for frame in frames)
        return f"<p>{escape(self.sentence)}</p>{''.join(tables)}"


def papers_table(
    *,
    cases: tuple[str, ...] = CASES,
    layers: tuple[int, ...] = LAYERS,
    batches: tuple[int, ...] = BATCHES,
    systems: tuple[str, ...] = tuple(SYSTEMS),
    budget: Budget | None = None,
    progress: Callable[[PapersTable], None] | None = None,
) -> PapersTable:
    """Return DT-FM's table, or a part of it. ``progress`` is called with it after every entry. Ctrl-C keeps the
    entries so far.

    Raises UnknownName for a case, number of layers, batch or system that the table does not have.
    """
    for given, what, known in (
        (cases, "case of the paper", CASES),
        (layers, "number of layers in the paper", LAYERS),
        (batches, "batch of the paper", BATCHES),
        (systems, "system of the table", SYSTEMS),
    ):
        # All names are checked first, because a single entry can take long.
        refuse_unknown(map(str, given), [*map(str, known)], what)
    wanted = [(setting, system) for setting in settings(cases, layers, batches) for system in systems]
    limits = Budget(queueing="pairs") if budget is None else budget
    found = received(_tables(wanted, limits), progress, newest=1)
    return found[-1] if found else PapersTable((), wanted=0)


def _tables(wanted: Sequence[tuple[Setting, str]], budget: Budget) -> Iterator[PapersTable]:
    """Yield the table so far, after every entry."""
    entries: list[Entry] = []
    for setting, system in wanted:
        entries.append(Entry(setting, system, outcome(system, setting, budget)))
        yield PapersTable(tuple(entries), len(wanted))


def _measured_s(system: str, setting: Setting) -> float | None:
    return setting.published_s(published_name(system, setting.case))
