"""What checks of missions ask of an answer: numbers are computed again, never taken from the answer's own fields."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import numpy as np

from dtfm_lab.course.mission import NotYet
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.trace import Trace
from dtfm_lab.files import load_topology
from dtfm_lab.planning import evaluate
from dtfm_lab.simulation import simulate

TRAINED = (
    "model",
    "dtype",
    "compression",
    "gradient_compression",
    "gradient_dtype",
    "synchronise_every",
    "fragments",
    "fragment_delay",
    "memory_traffic",
    "flush_every",
)
"""Fields of a job that say what is trained and in which numbers, for ``same_job``; the batch and how all of it is
divided are left to the answer."""

cases_seed: int | None = None
"""Seed of the cases on which readers' functions are tried. None draws others at every check, which nobody knows."""


def fresh_cases() -> np.random.Generator:
    """What random cases for a reader's function are drawn from."""
    return np.random.default_rng(cases_seed)


def require(holds: bool, otherwise: str) -> None:
    """Raise NotYet with the sentence unless it holds."""
    if not holds:
        raise NotYet(otherwise)


def near(found: float, wanted: float, tolerance: float = 0.01, slips: Mapping[float, str] | None = None) -> None:
    """Raise NotYet unless a number is within a share of the wanted one.

    ``slips``: what well-known mistakes lead to, each with the sentence that helps; never the answer itself.
    """
    if abs(found - wanted) <= tolerance * abs(wanted):
        return
    for slip, sentence in (slips or {}).items():
        if abs(found - slip) <= tolerance * abs(slip):
            raise NotYet(sentence)
    raise NotYet(f"{found:.6g} is {'above' if found > wanted else 'below'} it")


def same_network(found: Topology, wanted: Topology | str) -> None:
    """Raise NotYet unless devices and links are those of the wanted network, or of the bundled one of that name."""
    network = load_topology(wanted) if isinstance(wanted, str) else wanted
    require(
        found.fingerprint == network.fingerprint,
        f"this is about another network than {network.name}, or one whose links or devices were changed",
    )


def same_job(found: Job, wanted: Job, *fields: str) -> None:
    """Raise NotYet unless the job has the wanted values, of all fields where none is named."""
    for field in fields or tuple(vars(wanted)):
        have, want = getattr(found, field), getattr(wanted, field)
        require(have == want, f"the job has {field} {have!r:.60}; wanted {want!r:.60}")


def priced_again(plan: Plan) -> Plan:
    """The plan with its communication cost computed from its placement alone."""
    return evaluate(plan.topology, plan.job, stages=plan.placement.devices.tolist())


def iteration_again_s(plan: Plan) -> float:
    """Seconds of the plan's iteration, simulated now."""
    return simulate(plan).iteration_s


def really_measured(trace: Trace) -> None:
    """Raise NotYet unless a trace is a run's, with losses and a profile of its own."""
    require(trace.context.source == "measured", "this trace was simulated; wanted one that lab.run measured")
    require(bool(trace.context.losses), "this trace has no losses; wanted one that lab.run measured")


def value_of(function: Callable[..., Any], *arguments: Any) -> Any:
    """What the reader's own function returns of copies, which it may change. Raises NotYet where it raises."""
    try:
        return function(*deepcopy(arguments))
    except Exception as error:  # the reader's code may raise anything
        raise NotYet(f"your function raised {type(error).__name__}: {error}") from None


def number_from(function: Callable[..., Any], *arguments: Any) -> float:
    """The real number that the reader's own function returns. Raises NotYet for anything else."""
    found = value_of(function, *arguments)
    wrong = f"your function returned {type(found).__name__} {found!r:.60}; wanted a number"
    require(not isinstance(found, (bool, str, bytes, complex)), wrong)
    try:
        value = float(found)
    except (TypeError, ValueError, OverflowError):
        raise NotYet(wrong) from None
    require(math.isfinite(value), f"your function returned {value}; wanted a number")
    return value
