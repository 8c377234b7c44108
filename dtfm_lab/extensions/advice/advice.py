"""The result of ``lab.advise``: options for where to train a job, the chosen one, and the rule that chose it."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pandas as pd

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import ENDS, Topology, estimated, estimates_of
from dtfm_lab.domain.options import Option, check_options
from dtfm_lab.domain.report import Part, ReportSection, Table, as_html, as_markdown, as_page
from dtfm_lab.domain.units import (
    CENT,
    LOOSE_TIMES,
    counted,
    format_bytes,
    format_s,
    format_share,
    format_times,
    money,
    plain_rows,
)
from dtfm_lab.extensions.advice.origins import origins_of
from dtfm_lab.extensions.advice.ways import (
    DAY_S,
    MIXED,
    OWN,
    RENTED,
    FleetOption,
    between,
    duration,
    number,
    unit_of,
)
from dtfm_lab.files.reading import ending_of, write_text

DEFAULT_SECONDS = 12.0
"""Default time limit of all searches together, in seconds."""
SLOWER = 10.0
"""Without a deadline or a budget, the chosen option may take at most this many times as long as the fastest one."""
OUTSIDE = " †"
"""Mark of an option that the rule excludes."""
ENDINGS = (".md", ".html")


@dataclass(frozen=True, kw_only=True)
class AdviceOptions:
    """Keywords of ``advise``."""

    tokens: Annotated[
        float | str | None, Option(help="Tokens to train on, such as 100M (samples for a torch module).")
    ] = None
    deadline_days: Annotated[
        float | None, Option(help="Choose the cheapest option that finishes within this many days.", above=0)
    ] = None
    budget_dollars: Annotated[
        float | None,
        Option(
            help="Only options that cost at most this much. Without a deadline, choose the fastest of them.",
            above=0,
            flag="budget",
        ),
    ] = None
    electricity_per_kwh: Annotated[
        float, Option(help="US dollars per kWh for your own machines.", least=0, flag="electricity")
    ] = 0.30
    seconds: Annotated[
        float | None,
        Option(help=f"Time limit of all searches together. {DEFAULT_SECONDS:g} s without --steps.", unit="s", above=0),
    ] = None
    steps: Annotated[int | None, Option(help="Generations of every search, for reproducible results.", least=1)] = None
    seed: Annotated[int, Option(help="Seed of the searches and of the interruptions.", least=0)] = 0
    catalogue: Annotated[
        str | os.PathLike[str] | None,
        Option(help="A SkyPilot catalogue (vms.csv) of machines to rent, instead of the lab's typical prices."),
    ] = None

    def __post_init__(self) -> None:
        check_options(self, thing="advice")


class MemoryFit(NamedTuple):
    """The memory of one version of the job: the version in words, roughly how many bytes its whole model needs, and by
    name of each option, True if it fits."""

    job: str
    needs_bytes: float
    fits: dict[str, bool]


class UpgradeGain(NamedTuple):
    """The seconds of an iteration before and after an upgrade."""

    what: str
    before_s: float
    after_s: float


class Spot(NamedTuple):
    """The result of a replay in which the rented machines of an option are interrupted at random."""

    way: str
    hours: float
    interruptions: int
    share: float
    """Tokens trained, as a share of the tokens that training without interruptions would reach."""
    states: dict[str, float]
    """Share of the hours in each state, by its name. ``redundant`` is a part of ``training``."""
    rates: str


@dataclass(frozen=True, eq=False, kw_only=True)
class Advice:
    """The options for training a job on a number of tokens, ordered by ``rule``, the best first."""

    topology: Topology
    job: Job
    """The job as requested, without the fields that only fit one number of devices, such as ``n_stages``."""
    tokens: float
    asked: AdviceOptions
    """The keywords of ``lab.advise``: limits, price of electricity, and search time."""
    options: tuple[FleetOption, ...]
    wanted: int
    """Number of results until the advice is complete: one per option, and a last one with upgrades and interruptions.
    More come if the job has to be changed to fit."""
    changed: str = ""
    """The changes made to the job for these plans, if it fits nowhere unchanged. "" otherwise."""
    fits: tuple[MemoryFit, ...] = ()
    gains: tuple[UpgradeGain, ...] | None = None
    base: FleetOption | None = None
    """The option that the upgrades in ``gains`` would speed up."""
    spot: Spot | None = None

    def __post_init__(self) -> None:
        # show only the best single machine, and none if the plan for all own machines uses just that one
        alone = min((way for way in self.options if way.is_single), key=self._key, default=None)
        together = next((way for way in self.options if way.kind == OWN and not way.is_single), None)
        if alone and together and together.plan and {d.name for d in together.serving} == {*alone.topology.names}:
            alone = None
        shown = [way for way in self.options if not way.is_single or way is alone]
        object.__setattr__(self, "options", tuple(sorted(shown, key=self._key)))

    def _key(self, way: FleetOption) -> tuple[Any, ...]:
        if way.plan is None:
            # Sorts after every option with a plan, whose keys begin with False or True.
            return (2,)
        order = (way.seconds, way.dollars) if self._for_speed else (way.dollars, way.seconds)
        return not self.allows(way), *order

    @property
    def _for_speed(self) -> bool:
        return self.asked.budget_dollars is not None and self.asked.deadline_days is None

    def allows(self, way: FleetOption) -> bool:
        """Return True if an option meets the limits of the rule."""
        days, dollars = self.asked.deadline_days, self.asked.budget_dollars
        if way.plan is None:
            return False
        most_s = math.inf if days is None else days * DAY_S
        if days is None and dollars is None:
            # Without this, the cheapest could be one old machine that trains for years.
            most_s = SLOWER * min(one.seconds for one in self.options if one.plan)
        return way.seconds <= most_s and way.dollars <= (dollars or math.inf)

    @property
    def best(self) -> FleetOption | None:
        """The chosen option; None if no option meets the limits."""
        return next((way for way in self.options[:1] if self.allows(way)), None)

    @property
    def stopped(self) -> bool:
        """True if parts are missing, because the comparison is still running or was stopped."""
        return self.gains is None

    @cached_property
    def note(self) -> str:
        """Which other option would be best if the estimated links were faster or slower. "" if none."""
        if self.best is None or not any(estimated(way.topology) for way in self.options):
            return ""
        said = []
        # The plans stay the same, so this tells only whether the choice depends on the estimates.
        for most, how in ENDS.items():
            ways = tuple(way.at_end(most=most) for way in self.options)
            # A copy sorts its options again, by the same rule.
            best = replace(self, options=ways).best
            if best is not None and best.name != self.best.name:
                said.append(f"{best.name} ({_in_short(best)}) if they are {how}")
        links = next(filter(None, (estimates_of(way.topology) for way in (self.best, *self.options))), "")
        return f"{links}. With the same plans the best option is {', and '.join(said)}" if said else ""

    @property
    def first(self) -> str:
        """The first thing to do: calibrate, if the best option's time is a guess. "" otherwise."""
        best = self.best
        if best is None or best.basis.word != "guessed":
            return ""
        gpus = " or ".join(dict.fromkeys(device.gpu for device in best.serving if device.measured is None))
        where = f"on a host with {gpus}" if gpus else "again"
        return f"First run dtfm-lab calibrate {where}: times are guesses, because {best.basis.because}"

    @property
    def rule(self) -> str:
        """The rule by which the best option is chosen."""
        days, dollars = self.asked.deadline_days, self.asked.budget_dollars
        in_time = "" if days is None else f"that finishes within {days:g} day{'s' * (days != 1)}"
        limits = in_time, "" if dollars is None else f"for at most {money(dollars)}"
        within = " and ".join(filter(None, limits)) or f"that takes at most {SLOWER:g} times as long as the fastest"
        return f"{'fastest' if self._for_speed else 'cheapest'} option {within}"

    @property
    def verdict(self) -> str:
        """A sentence with the chosen option, its time, its price and the rule. If no option is chosen, it says why."""
        n_tokens, best = f"{count_of(self.tokens)} {self.job.counted}", self.best
        planned = [way for way in self.options if way.plan is not None]
        if not planned:
            n_options = counted(len(self.options), "option")
            return f"Not at all: the job fits none of {n_options}, even with the changes tried below"
        fastest = min(planned, key=lambda way: (way.seconds, way.dollars))
        cheapest = min(planned, key=lambda way: (way.dollars, way.seconds))
        if best is None:
            none = f"Not at all: there is no option {self.rule.partition('option ')[2]}"
            also = "" if cheapest is fastest else f", the cheapest, {cheapest.name}, {_in_short(cheapest)}"
            return f"{none}; for {n_tokens} the fastest, {fastest.name}, takes {_in_short(fastest)}{also}"
        # A mixed option may leave one half idle, and then the other is the advice.
        idle = {"At home": ", nothing rented", "In the cloud": ", yours idle"}.get(best.where, "")
        name = best.name + idle * (best.kind == MIXED)
        text = f"{best.where}: {name}, for {n_tokens} {_time(best)} and {_dollars(best)}, the {self.rule}"
        text += "" if best is fastest else f" ({fastest.name}: {_in_short(fastest)})"
        home = next((way for way in self.options if way.kind == OWN and not way.is_single), None)
        if home is not None and best.where != "At home":
            text += f". On {home.name} alone: {_in_short(home)}" if home.plan else f". The job does not fit {home.name}"
        # The median may meet a deadline that one in twenty runs misses.
        if self.asked.deadline_days and best.range_of(best.seconds)[1] > self.asked.deadline_days * DAY_S:
            text += ". Its 90 % interval extends past the deadline"
        if best.unmetered:
            text += f". Electricity of {', '.join(best.unmetered)} is unknown and not counted"
        return text

    def origins(self) -> list[str]:
        """Return one line per kind of number on the page, with its formula or source."""
        parts = {"What fits": self.fits, "Upgrades": self.gains, "Spot": self.spot}
        absent = tuple(what for what, part in parts.items() if not part)
        return list(origins_of(self.topology, self.job, self.options, self.asked.electricity_per_kwh, absent))

    def __repr__(self) -> str:
        return f"<Advice on {self.job.name}, {self.topology.name}: {self.verdict}>"

    def __str__(self) -> str:
        return as_markdown(report_of(self))

    def _repr_html_(self) -> str:
        return as_html(report_of(self))

    def to_frame(self) -> pd.DataFrame:
        """Return one row per option, the best first: seconds per iteration, and days, dollars and kWh for all tokens.
        They are NaN if the job does not fit."""
        return pd.DataFrame([_row(way) | {"chosen": way is self.best} for way in self.options])

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "topology": self.topology.name,
            "job": self.job.name,
            "tokens": self.tokens,
            "verdict": self.verdict,
            "first": self.first,
            "note": self.note,
            "changed": self.changed,
            "ways": plain_rows(self.to_frame()),
            "fits": [one._asdict() for one in self.fits],
            "gains": [one._asdict() for one in self.gains or ()],
            "spot": None if self.spot is None else self.spot._asdict(),
            "how": self.origins(),
        }

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page as .md or .html. Raises FileError for another ending."""
        if ending_of(path, ENDINGS) == ".html":
            return write_text(path, as_page(f"{self.job.name}: where to train it", report_of(self)))
        return write_text(path, str(self))


def _row(way: FleetOption) -> dict[str, Any]:
    plan, (low, high) = way.plan, way.range_of(1.0)
    days, dollars = way.seconds / DAY_S, way.dollars
    row = {"way": way.name, "kind": way.kind, "fits": plan is not None, "lacks": way.lacks}
    row |= {"iteration_s": way.iteration_s, "low_s": way.ends_s[0], "high_s": way.ends_s[1]}
    row |= {"basis": way.basis.word, "because": way.basis.because}
    row |= {"tokens_per_s": way.tokens_per_s, "days": days, "days_low": days * low, "days_high": days * high}
    row |= {"dollars": dollars, "dollars_low": dollars * low, "dollars_high": dollars * high}
    row |= {"rent_dollars": way.rent, "kwh": way.kwh, "unknown_watts": ", ".join(way.unmetered)}
    if plan is not None:
        idle = ", ".join(plan.topology.names[i] for i in plan.idle_devices)
        row |= {"idle": idle, "most_times_faster": plan.speed_up_left, "scope": plan.scope}
    return row


def report_of(advice: Advice) -> Iterator[Part]:
    """Yield the page: verdict, options, what would fit, what would help, interruptions, and the origin of each
    number."""
    planned = [way for way in advice.options if way.plan is not None]
    if advice.changed:
        yield f"**The job fits nowhere as it is. Everything below is for the job with {advice.changed}.**"
    yield f"**{advice.verdict}.**"
    if advice.first:
        yield f"**{advice.first}.**"
    if advice.note and not advice.stopped:
        yield f"{advice.note}."
    if planned:
        unit, n_tokens = advice.job.counted, count_of(advice.tokens)
        head = ("option", "iteration", "", f"{unit}/s", f"{n_tokens} {unit}", "dollars", "kWh", "speed-up left")
        yield Table(head, [_line(way, "" if advice.allows(way) else OUTSIDE) for way in planned])
    if not all(advice.allows(way) for way in planned):
        yield f"{OUTSIDE.strip()} is not an option {advice.rule.partition('option ')[2]}."
    for lacks in dict.fromkeys(way.lacks for way in advice.options if way.lacks):
        yield f"Does not fit {', '.join(way.name for way in advice.options if way.lacks == lacks)}: {lacks}."
    listed_ways = [way for way in planned if way is advice.best or way.kind != RENTED]
    if listed_ways:
        yield _section("Plans", *(f"{way.name}: {_plan_of(way)}" for way in listed_ways))
    if fits := advice.fits:
        names, words = list(fits[0].fits), ("no", "fits")
        cells = [(one.job, format_bytes(one.needs_bytes), *(words[fit] for fit in one.fits.values())) for one in fits]
        yield _section("What would fit", Table(("job", "needs about", *names), cells))
    if advice.base is not None and advice.gains:
        n = advice.base.seconds / advice.base.iteration_s
        rows = [
            (what, f"{format_s(before_s)} → {format_s(after_s)}", duration(max(0.0, before_s - after_s) * n))
            for what, before_s, after_s in advice.gains
        ]
        table = Table(("with", "iteration", f"saves of {duration(advice.base.seconds)}"), rows)
        yield _section(f"Upgrades for {advice.base.name}", table)
    if (spot := advice.spot) is not None:
        spent = ", ".join(f"{state} {format_share(share)}" for state, share in spot.states.items() if share >= 5e-4)
        lost = f"{counted(spot.interruptions, 'interruption')} in {spot.hours:.3g} h, replayed; {spot.rates}"
        kept = f"{spot.way} then keeps {format_share(spot.share, 0)} of its {advice.job.counted}/s"
        text = f"{kept}: {lost}. Time: {spent}"
        yield _section("With spot machines", text)
    yield ReportSection("How", advice.origins())


def _section(title: str, *parts: Part) -> ReportSection:
    return ReportSection(title, parts, opened=True)


def _line(way: FleetOption, mark: str) -> tuple[str, ...]:
    plan = way.plan
    assert plan is not None
    kwh, more = "" if way.where == "In the cloud" else number(way.kwh), " + ?" * bool(way.unmetered)
    most = plan.speed_up_left or math.inf
    return (
        way.name + mark,
        between(way.iteration_s, way.ends_s, *unit_of(min(way.iteration_s, 60.0))),
        way.basis.word,
        f"{way.tokens_per_s:,.0f}",
        _time(way),
        _dollars(way) + more,
        kwh + more,
        f"{format_times(most)} x" if most <= LOOSE_TIMES else "",
    )


def _plan_of(way: FleetOption) -> str:
    plan = way.plan
    assert plan is not None
    job = plan.job
    text = f"{counted(job.n_stages, 'stage')} x {counted(job.n_replicas, 'replica')}, micro-batches of {job.microbatch}"
    text += "" if job.checkpoints == "none" else f", checkpoints {job.checkpoints}"
    return f"{text}; **{plan.idle_words}**" if plan.idle_devices else text


def count_of(tokens: float) -> str:
    sizes = ((1e12, " T"), (1e9, " B"), (1e6, " M"), (1e3, " k"))
    size, unit = next((one for one in sizes if tokens >= one[0]), (1.0, ""))
    return f"{tokens / size:.4g}{unit}"


def _time(way: FleetOption) -> str:
    return between(way.seconds, way.range_of(way.seconds), *unit_of(way.seconds))


def _dollars(way: FleetOption) -> str:
    # One dollar sign before the range is enough.
    low, high = (money(end).replace("$", "") for end in way.range_of(way.dollars))
    return f"{money(way.dollars)} ({low}–{high})" if way.dollars >= CENT else money(way.dollars)


def _in_short(way: FleetOption) -> str:
    return f"{duration(way.seconds)} and {money(way.dollars)}"
