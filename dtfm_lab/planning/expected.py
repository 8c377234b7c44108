"""The plan of least expected seconds, where links and devices have a stated spread, of the plans that a search holds.

A search makes nominal seconds least. Of the best plans of each shape, micro-batch and checkpointing that it ends with,
the one is taken whose mean over random draws of the network is least (sample average approximation: Kleywegt, Shapiro
and Homem-de-Mello 2002). Few draws, the same for all, leave a few plans, which then meet more.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import numpy as np

from dtfm_lab.domain.errors import LabError, PlanError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.planning.draws import GivenSpread, checked_spread, drawn
from dtfm_lab.planning.search import last_step
from dtfm_lab.planning.step import PlanStep

FIRST_DRAWS, THEN_DRAWS = 48, 400
NEAR = 1.25
"""Plans beyond so many times the best's nominal seconds are not considered."""
LEFT = 5
"""Plans that meet the second, larger number of draws, beside the nominally best."""
OF_THE_CHOICE = 10**9
"""Seed of the draws by which is chosen; those of any other seed are fresh ones."""


def plan_for_draws(
    topology: Topology, job: Job, planner: str = "evolutionary", *, spread: GivenSpread, **options: Any
) -> Plan:
    """The plan of least expected seconds of those that ``search`` holds at its end; see ``search`` for the options.

    Raises PlanError for another objective than iteration, and what ``search`` and ``drawn`` raise.
    """
    checked_spread(spread)
    if options.get("objective") != "iteration":
        raise PlanError(f"spread with the objective {options.get('objective')}; wanted iteration")
    step = last_step(topology, job, planner, **options)
    plans = held_plans(step, options.get("max_iteration_s") or inf)
    if len(plans) > LEFT + 1:
        first = drawn(plans, spread, n=FIRST_DRAWS, seed=OF_THE_CHOICE)
        plans = [plans[i] for i in sorted({0, *np.argsort(first.mean_s, kind="stable")[:LEFT].tolist()})]
    if len(plans) > 1:
        return plans[drawn(plans, spread, n=THEN_DRAWS, seed=OF_THE_CHOICE).expected_best]
    return plans[0]


def held_plans(step: PlanStep, most_s: float = inf) -> list[Plan]:
    """The best plan of a search, and those that it holds beside it of at most so many seconds, simulated."""
    found, others = [step.plan], () if step.held is None else step.held().individuals[1:]  # the first is the best
    for one in others:
        if one.chosen is not None and one.cost_s <= NEAR * step.best_s:
            try:
                other = replace(step, best=one.grid, job=one.chosen()).plan
            except LabError:  # what the search only estimated may turn out to be impossible
                continue
            if (other.iteration_s or inf) <= most_s:
                found.append(other)
    return found
