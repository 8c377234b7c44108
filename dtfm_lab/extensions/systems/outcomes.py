"""The systems' outcomes on one network: a table, and bars of seconds stacked by cause.

The bars' scale is chosen so that one very slow system does not squeeze the others.
"""

from __future__ import annotations

import json
import math
import os
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.registry import listed, unknown
from dtfm_lab.domain.report import CHANGES, Part, ReportSection, Table, as_html, as_markdown, as_page
from dtfm_lab.domain.trace.causes import STACKED
from dtfm_lab.domain.units import format_range, format_s, format_share, plain_rows
from dtfm_lab.extensions.systems.bound import peak_memory
from dtfm_lab.extensions.systems.choosing import Asked, chosen, outcomes_in_order
from dtfm_lab.extensions.systems.estimates import note_on
from dtfm_lab.extensions.systems.outcome import Outcome
from dtfm_lab.extensions.systems.strategy import NOT_MODELLED, Budget
from dtfm_lab.files.reading import ending_of, write_text
from dtfm_lab.simulation.executors import Executor
from dtfm_lab.simulation.memory import MOST_USED

ENDINGS = (".html", ".md", ".csv", ".json")
"""Endings of the files that outcomes can be written to."""
FAR = 5.0
"""Bars are cut if the slowest system takes more than this many times the median."""
LONGEST = 4.0
"""Length at which bars are cut, as a multiple of the median."""


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Outcomes:
    """What each system would do with a network and a job, the fastest first. Systems without a plan come last."""

    topology: Topology
    job: Job
    """The requested job."""
    outcomes: tuple[Outcome, ...]
    wanted: int = 0
    """Number of systems that are asked. Until all have answered, or if it is stopped, there are fewer outcomes."""

    def __post_init__(self) -> None:
        by_seconds = sorted(self.outcomes, key=lambda one: math.inf if one.iteration_s is None else one.iteration_s)
        object.__setattr__(self, "outcomes", tuple(by_seconds))

    def __repr__(self) -> str:
        return f"<Outcomes of {self.job.name} on {self.topology.name}: {self.sentence}>"

    def __len__(self) -> int:
        return len(self.outcomes)

    def __iter__(self) -> Iterator[Outcome]:
        return iter(self.outcomes)

    def __getitem__(self, name: str) -> Outcome:
        for one in self.outcomes:
            if one.name == name:
                return one
        raise unknown("system", name, [one.name for one in self.outcomes])

    @property
    def best(self) -> Outcome:
        """The fastest system's outcome. Raises PlanError if no system has a plan."""
        if not self.outcomes or self.outcomes[0].found is None:
            raise PlanError(f"no system has a plan for {self.job.name} on {self.topology.name}")
        return self.outcomes[0]

    @property
    def not_modelled(self) -> dict[str, str]:
        """Systems without a model here, and why."""
        return dict(NOT_MODELLED)

    @property
    def stopped(self) -> bool:
        """True if some systems have not answered, because it is still running or was stopped."""
        return len(self.outcomes) < self.wanted

    @cached_property
    def note(self) -> str:
        """Which links are estimates, and which system is fastest if these are faster or slower. Empty if no link is an
        estimate or no system has a plan."""
        return note_on(self.topology, self.outcomes)

    @property
    def sentence(self) -> str:
        """The fastest system and the second fastest, by the link model. It says if one of them changes the training
        itself."""
        so_far = f"of {len(self.outcomes)} of {self.wanted} systems so far, " if self.stopped else ""
        with_plan = [one for one in self.outcomes if one.iteration_s is not None]
        if not with_plan:
            return f"{so_far}no system has a plan"
        first = with_plan[0]
        assert first.iteration_s is not None, "it has a plan"
        text = f"{so_far}{first.title} is fastest, {format_s(first.iteration_s)} an iteration by the link model"
        # Seconds only compare systems that train alike.
        alike = [one for one in with_plan if not one.strategy.mathematics]
        if first.strategy.mathematics:
            text += ", but changes the training"
            if alike and alike[0].iteration_s is not None:
                text += f"; {alike[0].title} is fastest of those that do not, {format_s(alike[0].iteration_s)}"
        elif len(with_plan) > 1 and (next_s := with_plan[1].iteration_s):
            times = f"{next_s / first.iteration_s:.2f}"
            text += f"; {with_plan[1].title} takes " + ("as long" if times == "1.00" else f"{times} times as long")
            text += ", and changes the training" if with_plan[1].strategy.mathematics else ""
        return f"{text}. Beware of {first.title}: {first.caveat}" if first.caveat else text

    def to_frame(self) -> pd.DataFrame:
        """Return one row per system, the fastest first: the columns of ``Outcome.to_dict``, and ``times`` relative
        to the fastest."""
        rows = [one.to_dict() for one in self.outcomes]
        frame = pd.DataFrame(rows)
        if len(frame):
            frame.insert(3, "times", frame["iteration_s"].astype(float) / frame["iteration_s"].astype(float).min())
        return frame

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "topology": self.topology.name,
            "job": self.job.name,
            "global_batch": self.job.global_batch,
            "sentence": self.sentence,
            "note": self.note,
            "systems": plain_rows(self.to_frame()),
            "assumptions": {one.name: one.strategy.assumed for one in self.outcomes},
            "not_modelled": self.not_modelled,
        }

    def _repr_html_(self) -> str:
        return as_html(report_of(self, assumptions=True))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a page (.html), a table to read (.md), a table for programs (.csv), or everything (.json).

        Raises FileError for another ending.
        """
        match ending_of(path, ENDINGS):
            case ".html":
                title = f"{self.job.name} on {self.topology.name}: what each system would do"
                text = as_page(title, report_of(self, assumptions=True))
            case ".md":
                text = as_markdown(report_of(self, assumptions=True))
            case ".csv":
                text = self.to_frame().to_csv(index=False)
            case _:
                text = json.dumps(self.to_dict(), indent=1) + "\n"
        return write_text(path, text)


def stream_outcomes(
    topology: Topology, job: Job, systems: Asked, budget: Budget, executor: Executor | None = None
) -> Iterator[Outcomes]:
    """Yield all outcomes so far, after each system. With an executor, plans are chosen on its workers."""
    wanted = chosen(systems)
    found: list[Outcome] = []
    for outcome in outcomes_in_order([(one, topology, job, budget) for one in wanted], executor):
        found.append(outcome)
        yield Outcomes(topology=topology, job=job, outcomes=tuple(found), wanted=len(wanted))


OURS = "dtfm-lab"
"""Registry name of the lab's own system."""


def what_the_job_fixes(outcome: Outcome, job: Job) -> str:
    """Say why the lab's own outcome may differ from ``lab.plan``: the job pins fields that are open here. Empty
    otherwise."""
    if outcome.strategy.name != OURS or outcome.found is None:
        return ""
    shape, chosen_shape = (job.n_stages, job.n_replicas), (outcome.job.n_stages, outcome.job.n_replicas)
    fixed = [
        f"{job.n_stages} x {job.n_replicas}" if job.n_stages is not None and shape != chosen_shape else "",
        f"micro-batches of {job.microbatch}" if job.microbatch not in (None, outcome.job.microbatch) else "",
    ]
    kept = " in ".join(filter(None, fixed))
    return f"the job fixes {kept}, and lab.plan keeps that; here nothing is fixed" if kept else ""


HEAD = (
    "system",
    "an iteration",
    "90 % of cases",
    "",
    "times",
    "if each device had one network card",
    "plan",
    "most of it",
)


def report_of(found: Outcomes, *, assumptions: bool) -> Iterator[Part]:
    """Yield a summary sentence, a note on estimated links if there are any, and a table of the outcomes. Then yield
    which plans nearly fill a device's memory, and what each system chose, or why it has no plan.

    With ``assumptions``, also the assumptions with their sources, and why other systems are not modelled.
    """
    least_s = min((one.iteration_s for one in found if one.iteration_s is not None), default=1.0)
    yield f"**{found.sentence}.**"
    # The note compares all systems, so it waits for the last.
    if found.note and not found.stopped:
        yield found.note
    yield Table(HEAD, [_line(one, least_s) for one in found])
    if tight := [one.title for one in found if one.found is not None and peak_memory(one.found).caution]:
        yield (
            f"{listed(tight)} would use more than {format_share(MOST_USED, 0)} of a device's memory, where allocators "
            f"thrash: treat this as not fitting. `--set fragmentation={1 - MOST_USED:.1g}` keeps plans below."
        )
    # Systems with the same reason say it once.
    yield from dict.fromkeys(f"{one.basis.sentence}." for one in found if one.basis.because)
    said = [(one, one.reason or "; ".join(filter(None, _words(one, found.job)))) for one in found]
    yield ReportSection("Chosen", [f"{marked_title(one)}: {words}" for one, words in said if words], opened=True)
    if any(one.strategy.mathematics for one in found):
        yield f"{CHANGES} changes the training itself: seconds alone do not compare it."
    if not assumptions:
        return
    assumed = [
        f"{one.title}, {each['name'].replace('_', ' ')} {each['value']}: {each['help']} ({each['source']})"
        for one in found
        for each in one.strategy.assumed
    ]
    if assumed:
        yield ReportSection("Assumed", assumed)
    if found.not_modelled:
        yield ReportSection("Not modelled", [f"{name}: {reason}" for name, reason in found.not_modelled.items()])


def _words(one: Outcome, job: Job) -> tuple[str, ...]:
    return one.choices, one.strategy.mathematics, one.caveat, what_the_job_fixes(one, job)


def _line(one: Outcome, least_s: float) -> tuple[str, ...]:
    name = marked_title(one)
    if one.iteration_s is None:
        return name, "no plan", *[""] * (len(HEAD) - 2)
    cause, part_s = next(iter(one.causes.items()), ("", 0.0))
    with_one_nic = "" if one.nics_s is None else format_s(one.nics_s)
    most = f"{cause} {format_share(part_s / one.iteration_s, 0)}" if one.iteration_s else cause
    ends = "" if one.interval_s is None else format_range(*one.interval_s)
    return (
        name,
        format_s(one.iteration_s),
        ends,
        one.basis.word,
        _times(one.iteration_s / least_s),
        with_one_nic,
        one.shape,
        most,
    )


def _times(ratio: float) -> str:
    """Format a ratio with at least three figures."""
    return f"{ratio:,.{2 if ratio < 10 else 1 if ratio < 100 else 0}f}"


@dataclass(frozen=True)
class Bar:
    """One outcome as a bar of the chart."""

    outcome: Outcome
    parts: tuple[tuple[str, float, float], ...]
    """Cause, its seconds, and the length in seconds at which it is drawn. The length is less if the bar is cut."""
    cut: bool
    """True if the bar is drawn shorter than it is. Its parts keep their proportions."""

    @property
    def name(self) -> str:
        """The title, marked if the system changes the training itself."""
        return marked_title(self.outcome)

    @property
    def length_s(self) -> float:
        """Length of the whole bar in seconds; 0 without a plan."""
        return sum(displayed_s for _, _, displayed_s in self.parts)


def marked_title(outcome: Outcome) -> str:
    """Return the system's title, marked if it changes the training itself."""
    return f"{outcome.title} {CHANGES}" if outcome.strategy.mathematics else outcome.title


def bars(outcomes: Iterable[Outcome]) -> list[Bar]:
    """Return a bar for each outcome, in their order. An outcome without a plan has a bar without parts."""
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
    # The same order in every bar, so that bars can be compared.
    causes = sorted(outcome.causes.items(), key=lambda item: order.get(item[0], len(order)))
    parts = tuple((cause, part_s, part_s * shrunk) for cause, part_s in causes if part_s > 0)
    return Bar(outcome, parts, cut=shrunk < 1.0)
