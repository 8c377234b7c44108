"""A waterfall from one model to another: one switch at a time, with the seconds after each.

A switch says what holds from here on, why and by which source. The system chooses its plan anew under it, as its user
would, or the plan of the step before is held and only fields of its job change. Each step is one prediction, so the
changes add up to the whole by construction; they depend on the order of the switches.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology, as_number, shortened
from dtfm_lab.planning import evaluate
from dtfm_lab.systems.choosing import outcome_of
from dtfm_lab.systems.outcome import Outcome
from dtfm_lab.systems.strategy import Budget, Strategy
from dtfm_lab.systems.waterfall_steps import Step, Switch, Waterfall

__all__ = ["Step", "Switch", "Waterfall", "stream_waterfall", "waterfall"]


def waterfall(
    topology: Topology,
    job: Job,
    switches: Sequence[Switch],
    budget: Budget | None = None,
    *,
    published: float | tuple[float, float] | None = None,
    published_source: str = "",
) -> Waterfall:
    """The waterfall of some switches, each on top of those before it.

    Parameters
    ----------
    switches
        The first is the start and names a strategy.
    published
        What was published for the last step, or the least and the most of it: in seconds, or in times where the
        switches name a system to compare with.

    Raises
    ------
    LabError
        A start without a strategy, or a plan to hold where there is none.
    """
    *_, whole = stream_waterfall(
        topology, job, switches, budget, published=published, published_source=published_source
    )
    return whole


def stream_waterfall(
    topology: Topology,
    job: Job,
    switches: Sequence[Switch],
    budget: Budget | None = None,
    *,
    published: float | tuple[float, float] | None = None,
    published_source: str = "",
) -> Iterator[Waterfall]:
    """The waterfall so far, after each switch; arguments as of ``waterfall``."""
    switches, known = list(switches), _range_of(published)
    if not switches or switches[0].strategy is None or switches[0].held is not None:
        raise LabError("a waterfall starts without a system; wanted a first switch with a strategy and nothing held")
    return _stream(topology, job, switches, Budget() if budget is None else budget, known, published_source)


def _stream(
    topology: Topology,
    job: Job,
    switches: list[Switch],
    budget: Budget,
    published: tuple[float, float] | None,
    published_source: str,
) -> Iterator[Waterfall]:
    strategy, against = switches[0].strategy, switches[0].against
    steps: list[Step] = []
    outcomes = _Outcomes()
    for switch in switches:
        strategy = strategy if switch.strategy is None else switch.strategy
        against = against if switch.against is None else switch.against
        topology = topology if switch.topology is None else switch.topology
        job = job if switch.job is None else switch.job
        budget = budget if switch.budget is None else switch.budget
        assert strategy is not None, "the first switch has one"
        if switch.held is None:
            outcome = outcomes.of(strategy, topology, job, budget)
        else:
            outcome = held(steps[-1].outcome, strategy, budget, switch.topology, switch.held)
        step = Step(
            switch=switch,
            outcome=outcome,
            against=None if against is None else outcomes.of(against, topology, job, budget),
            before=next((step for step in reversed(steps) if step.value is not None), None),
        )
        steps.append(step)
        yield Waterfall(
            steps=tuple(steps), published=published, published_source=published_source, wanted=len(switches)
        )


def held(
    outcome: Outcome, strategy: Strategy, budget: Budget, topology: Topology | None, fields: Mapping[str, Any]
) -> Outcome:
    """The outcome with its plan held: its job with other fields, on another network where one is given.

    Raises PlanError where the outcome has no plan, and JobError for fields that the plan's shape does not allow.
    """
    plan = outcome.plan
    network = plan.topology if topology is None else topology
    kept = evaluate(network, plan.job.with_fields(**fields), rank_map=plan.rank_map)
    iteration_s = strategy.trace(kept, budget).iteration_s
    return Outcome(strategy=strategy, budget=budget, found=kept.changed(iteration_s=iteration_s), considered=1)


class _Outcomes:
    """Outcomes by what they are of, so that what a switch leaves alone is not searched again."""

    def __init__(self) -> None:
        self._known: list[tuple[Strategy, Topology, Job, Budget, Outcome]] = []

    def of(self, strategy: Strategy, topology: Topology, job: Job, budget: Budget) -> Outcome:
        for of, there, work, limits, outcome in self._known:
            if there is topology and of == strategy and type(of) is type(strategy) and (work, limits) == (job, budget):
                return outcome
        outcome = outcome_of(strategy, topology, job, budget)
        self._known.append((strategy, topology, job, budget, outcome))
        return outcome


def _range_of(published: float | Iterable[float] | None) -> tuple[float, float] | None:
    if published is None:
        return None
    given = list(published) if isinstance(published, Iterable) and not isinstance(published, str) else [published] * 2
    ends = [as_number(one) for one in given]
    if len(ends) != 2 or any(end is None or not 0 < end < math.inf for end in ends):
        raise LabError(f"published is {shortened(published)}; wanted a number above 0, or the least and the most of it")
    low, high = sorted(float(end) for end in ends if end is not None)
    return low, high
