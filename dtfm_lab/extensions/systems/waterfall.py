"""A waterfall from one set of assumptions to another: one switch at a time, with the seconds after each.

A switch changes one assumption and says why, with a source. The system then chooses its plan again, as its user would.
Or the previous step's plan is held, and only fields of its job change. Each step is one prediction, so the changes add
up to the whole by construction. They depend on the order of the switches.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import pandas as pd

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology, as_number, shortened
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import format_s, plain_rows
from dtfm_lab.extensions.systems.choosing import outcome_of
from dtfm_lab.extensions.systems.outcome import Outcome, predicted
from dtfm_lab.extensions.systems.strategy import Budget, Strategy
from dtfm_lab.planning import evaluate

INSIDE = 1e-9
"""A value within this relative distance of a published number counts as equal, because of rounding."""


@dataclass(frozen=True, kw_only=True)
class Switch:
    """What changes from this step on. A field without a value keeps what was set before, except ``held``. The first
    switch is the start."""

    sentence: str
    """What is now assumed, such as ``A stage waits until what it sends has arrived.``"""
    source: str = ""
    """Where the assumption comes from; empty if it is your own question."""
    strategy: Strategy | None = None
    """The system, with its assumptions."""
    against: Strategy | None = None
    """The system to compare with. All values are then multiples of its seconds."""
    topology: Topology | None = None
    job: Job | None = None
    budget: Budget | None = None
    """Efficiency, queueing and search limits."""
    held: Mapping[str, Any] | None = None
    """Fields of the job that change while the previous step's plan is held. ``{}`` changes none: the plan is held on
    another network. With None, the system chooses its plan again."""


@dataclass(frozen=True, eq=False, kw_only=True)
class WaterfallStep:
    """One step of a waterfall: a switch and its outcome."""

    switch: Switch
    outcome: Outcome
    against: Outcome | None = None
    """The outcome of the system that the values are multiples of; None if values are seconds."""
    before: WaterfallStep | None = None
    """The last earlier step that has a value; None without one."""

    @property
    def sentence(self) -> str:
        """A sentence on what this step assumes."""
        return self.switch.sentence

    @property
    def source(self) -> str:
        """Where the assumption comes from."""
        return self.switch.source

    @property
    def held(self) -> bool:
        """True if the previous step's plan was held."""
        return self.switch.held is not None

    @property
    def iteration_s(self) -> float | None:
        """Seconds of an iteration; None if the system has no plan."""
        return self.outcome.iteration_s

    @property
    def value(self) -> float | None:
        """Seconds of an iteration, or a multiple of the compared system's seconds. None if either has no plan."""
        if self.against is None or self.iteration_s is None:
            return self.iteration_s
        return None if not self.against.iteration_s else self.iteration_s / self.against.iteration_s

    @property
    def change(self) -> float | None:
        """The value minus the value of the last earlier step that has one (``before``); None if either is missing."""
        if self.before is None or self.before.value is None or self.value is None:
            return None
        return self.value - self.before.value

    @property
    def ratio(self) -> float | None:
        """The value divided by the value of the last earlier step that has one (``before``); None if either is
        missing."""
        if self.before is None or not self.before.value or self.value is None:
            return None
        return self.value / self.before.value

    @property
    def fits(self) -> bool:
        """True if there is a plan and it fits the devices' memory. A held plan may not fit."""
        return self.outcome.found is not None and self.outcome.memory.fits


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Waterfall:
    """The steps from one set of assumptions to another, one per switch, in order. The value of each is a predicted
    iteration time, or a multiple of another system's."""

    steps: tuple[WaterfallStep, ...]
    published: tuple[float, float] | None = None
    """Lowest and highest published value that the last step should reach. In seconds or as a multiple, like the
    values."""
    published_source: str = ""

    @property
    def in_times(self) -> bool:
        """True if values are multiples of another system's seconds."""
        return self.steps[-1].against is not None

    @property
    def start(self) -> float | None:
        """The first step's value; None if missing."""
        return self.steps[0].value

    @property
    def end(self) -> float | None:
        """The value of the last step that has one; None if all are missing."""
        return next((step.value for step in reversed(self.steps) if step.value is not None), None)

    @property
    def residue(self) -> float | None:
        """What no switch explains: the nearest published value divided by ``end``. 1 within the published range.

        1.2 means that the published number is 1.2 times the model's. None if nothing was published or no step has a
        value.
        """
        if self.published is None or not self.end:
            return None
        low, high = self.published
        if low * (1 - INSIDE) <= self.end <= high * (1 + INSIDE):
            return 1.0
        return (low if self.end < low else high) / self.end

    def text_of(self, value: float) -> str:
        """Return a value with its unit: ``12.4 s``, ``1.62 times``."""
        return f"{value:.2f} times" if self.in_times else format_s(value)

    @property
    def published_text(self) -> str:
        """The published value with its unit: ``3.8 to 4.8 times``; empty if nothing was published."""
        if self.published is None:
            return ""
        low, high = (f"{end:.3g}" if end < 1000 else f"{end:,.0f}" for end in self.published)
        return f"{low if low == high else f'{low} to {high}'} {'times' if self.in_times else 's'}"

    @property
    def sentence(self) -> str:
        """The first and last value, the switch that changes the most, and what is left unexplained."""
        if self.start is None or self.end is None:
            return f"no plan at the start: {self.steps[0].outcome.reason}"
        text = f"from {self.text_of(self.start)} to {self.text_of(self.end)} by {len(self.steps) - 1} switches"
        ratios = [(step, step.ratio) for step in self.steps if step.ratio]
        if ratios:
            # By logarithms, so that halving counts as much as doubling.
            most, ratio = max(ratios, key=lambda one: abs(math.log(one[1])))
            text += f"; most of it: {most.sentence.rstrip('.')} ({ratio:.2f} times)"
        if self.residue is not None:
            left = "nothing remains" if self.residue == 1.0 else f"a factor of {self.residue:.2f} remains"
            text += f"; published are {self.published_text}: {left}"
        return text

    def __repr__(self) -> str:
        return f"<Waterfall: {self.sentence}>"

    def __iter__(self) -> Iterator[WaterfallStep]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per switch. Columns: sentence, value, its change and ratio to the last row before that has a
        value, seconds and their change, the compared system's seconds, system and shape. The last columns say if the
        plan was held, if it fits, why a plan is missing, and the source."""
        rows = []
        for step in self.steps:
            job = None if step.outcome.found is None else step.outcome.job
            rows.append(
                {
                    **{name: getattr(step, name) for name in ("sentence", "value", "change", "ratio", "iteration_s")},
                    # Filled in below. Here it has its place among the columns.
                    "change_s": None,
                    "against_s": None if step.against is None else step.against.iteration_s,
                    "system": step.outcome.strategy.label,
                    **{name: getattr(job, name, None) for name in ("n_stages", "n_replicas", "tensor_parallel")},
                    "held": step.held,
                    "fits": step.fits,
                    "reason": step.outcome.reason or ("" if step.against is None else step.against.reason),
                    "source": step.source,
                }
            )
        numbers = ["value", "change", "ratio", "iteration_s", "change_s", "against_s"]
        frame = pd.DataFrame(rows).astype(dict.fromkeys(numbers, float))
        # A step without a plan is skipped: the next is compared with the last one that has a plan.
        return frame.assign(change_s=frame["iteration_s"] - frame["iteration_s"].ffill().shift())

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "sentence": self.sentence,
            "unit": "times" if self.in_times else "s",
            "start": self.start,
            "end": self.end,
            "published": None if self.published is None else list(self.published),
            "published_source": self.published_source,
            "residue": self.residue,
            "steps": plain_rows(self.to_frame()),
        }

    def _repr_html_(self) -> str:
        frame = self.to_frame()[["sentence", "value", "ratio", "iteration_s", "n_stages", "n_replicas", "source"]]
        table = frame.to_html(index=False, na_rep="", float_format=lambda number: f"{number:.4g}")
        return f"<p>{escape(self.sentence)}</p>{table}"


def waterfall(
    topology: Topology,
    job: Job,
    switches: Sequence[Switch],
    budget: Budget | None = None,
    *,
    published: float | tuple[float, float] | None = None,
    published_source: str = "",
) -> Waterfall:
    """Return the waterfall of these switches, each on top of those before it.

    Parameters
    ----------
    switches
        The first is the start and names a strategy.
    published
        The published value for the last step, or its lowest and highest value. In seconds, or a multiple if a
        switch names a system to compare with.

    Raises
    ------
    LabError
        The first switch has no strategy or holds a plan, there is no plan to hold, or ``published`` is not above 0.
    """
    switches, known = list(switches), _range_of(published)
    if not switches or switches[0].strategy is None or switches[0].held is not None:
        raise LabError("a waterfall starts without a system; wanted a first switch with a strategy and nothing held")
    budget = Budget() if budget is None else budget
    strategy = switches[0].strategy
    against: Strategy | None = None
    steps: list[WaterfallStep] = []
    outcomes: dict[tuple[int, ...], Outcome] = {}

    def chosen(strategy: Strategy) -> Outcome:
        """Return the system's outcome for the present network, job and budget. Outcomes are kept, so that a search is
        not repeated."""
        key = id(strategy), id(topology), id(job), id(budget)
        if key not in outcomes:
            outcomes[key] = outcome_of(strategy, topology, job, budget)
        return outcomes[key]

    for switch in switches:
        strategy = switch.strategy or strategy
        against = switch.against or against
        topology = switch.topology or topology
        job = switch.job or job
        budget = switch.budget or budget
        held = None if switch.held is None else _held(steps[-1].outcome.plan, switch)
        steps.append(
            WaterfallStep(
                switch=switch,
                outcome=chosen(strategy) if held is None else predicted(strategy, budget, held),
                against=None if against is None else chosen(against),
                before=next((step for step in reversed(steps) if step.value is not None), None),
            )
        )
    return Waterfall(steps=tuple(steps), published=known, published_source=published_source)


def _held(plan: Plan, switch: Switch) -> Plan:
    """Return the plan with the fields of its job that the switch changes, on the switch's network if it has one.

    Raises JobError for fields that the plan's shape does not allow.
    """
    network = plan.topology if switch.topology is None else switch.topology
    return evaluate(network, plan.job.with_fields(**(switch.held or {})), rank_map=plan.rank_map)


def _range_of(published: float | Iterable[float] | None) -> tuple[float, float] | None:
    if published is None:
        return None
    given = list(published) if isinstance(published, Iterable) and not isinstance(published, str) else [published] * 2
    ends = [as_number(one) for one in given]
    if len(ends) != 2 or any(end is None or not 0 < end < math.inf for end in ends):
        raise LabError(f"published is {shortened(published)}; wanted a number above 0, or the least and the most of it")
    low, high = sorted(float(end) for end in ends if end is not None)
    return low, high
