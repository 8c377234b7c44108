"""What people may give in place of a noun: names, files, or the noun itself."""

from __future__ import annotations

import os

from dtfm_lab import files
from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.network import shortened
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Schedule
from dtfm_lab.files.schedules import ENDINGS, load_schedule

AnySchedule = str | os.PathLike[str] | Schedule
"""A name, a file's path (.txt, or torch's .csv), or the noun itself."""


def as_plan(plan: Plan | str | os.PathLike[str]) -> Plan:
    """Raises PlanError for what is neither a plan nor a path."""
    if isinstance(plan, Plan):
        return plan
    if not isinstance(plan, str | os.PathLike):
        raise PlanError(f"plan is {shortened(plan)}; wanted a Plan, or the path of a plan file")
    return files.load_plan(plan)


def as_schedule(schedule: AnySchedule | None) -> str | Schedule | None:
    """A file's schedule; anything else as it is."""
    if isinstance(schedule, os.PathLike) or (isinstance(schedule, str) and schedule.lower().endswith(ENDINGS)):
        return load_schedule(schedule)
    return schedule
