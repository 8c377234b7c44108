"""What of the lab's state can be handed in for a mission, and text that is typed as an answer. It has no widget."""

from __future__ import annotations

import ast
from collections.abc import Callable
from types import FunctionType
from typing import Any

from dtfm_lab import lab
from dtfm_lab.course import Mission
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Schedule
from dtfm_lab.domain.trace import Trace
from dtfm_lab.systems import Outcome, Outcomes
from dtfm_lab.widgets.lab_state import LabState

TYPED = (float, str, list, tuple)
"""Types of answers that can be typed in the pane."""
MADE_BY = {
    Topology: "the network that is drawn",
    Job: "the job that is chosen",
    Plan: "the plan",
    Schedule: "the schedule that is chosen",
    Trace: "the measured trace, else the predicted one",
    Outcomes: "the systems that were asked",
    Outcome: "the system that is chosen",
}
"""What is handed in of the screen, by the type that a mission takes."""

Systems = Callable[[], tuple[Outcomes | None, Outcome | None]]


def kinds_of(mission: Mission) -> tuple[type, ...]:
    """The types that a mission takes."""
    return mission.takes if isinstance(mission.takes, tuple) else (mission.takes,)


def is_typed(mission: Mission) -> bool:
    """Whether the answer is a number, a text or a list, which can be typed."""
    return any(kind in TYPED for kind in kinds_of(mission))


def is_shown(mission: Mission) -> bool:
    """Whether the answer may be on the screen."""
    return any(kind in MADE_BY for kind in kinds_of(mission))


def is_function(mission: Mission) -> bool:
    """Whether the answer is a function of the reader's own, which only a cell has."""
    return FunctionType in kinds_of(mission)


def words_for(mission: Mission) -> str:
    """What of the screen is checked: "the plan"; empty where a mission takes nothing that the lab shows."""
    return ", or ".join(MADE_BY[kind] for kind in kinds_of(mission) if kind in MADE_BY)


def candidates(mission: Mission, state: LabState, systems: Systems) -> list[Any]:
    """What is on the screen of the types that a mission takes: a measurement before a prediction, chosen before all."""
    outcomes, outcome = systems()
    plan = state.plan
    jobs = [state.job, None if plan is None else plan.job]
    found: list[Any] = [state.measured, state.predicted, plan, state.topology, *jobs, outcome, outcomes]
    if Schedule in kinds_of(mission):
        found.append(_schedule(state))
    return [each for each in found if each is not None and isinstance(each, kinds_of(mission))]


def _schedule(state: LabState) -> Schedule | None:
    """The chosen schedule for the plan's pipelines; None where it cannot be built from their numbers alone."""
    job = None if state.plan is None else state.plan.job
    if job is None or job.n_stages is None:
        return None
    try:
        return lab.schedules[state.schedule](job.n_stages, job.n_microbatches)
    except LabError:
        return None


def typed(mission: Mission, text: str) -> Any:
    """The answer that a text stands for; the text itself where it is no number or list, so that the check says so."""
    text = text.strip()
    if str in kinds_of(mission) and not text.startswith(("'", '"')):
        return text
    try:
        return ast.literal_eval(text) if text else None
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
