"""Outcomes as the rows that the view draws."""

from collections.abc import Sequence
from typing import Any

from dtfm_lab.domain.plan import Plan
from dtfm_lab.systems import Outcome, Outcomes, Strategy
from dtfm_lab.systems.bars import Bar, bars

OURS = "dtfm-lab"
"""Name of the lab's own system in the registry."""


def rows_of(outcomes: Outcomes | None, wanted: Sequence[Strategy], plan: Plan | None) -> list[dict[str, Any]]:
    """Return a row for each outcome, the fastest first, then for each system that is still to come.

    A row has its system's name in the registry, whatever of its assumptions was changed. ``plan`` is the lab's.
    """
    drawn = [] if outcomes is None else bars(outcomes)
    fastest_s = min((one.outcome.iteration_s for one in drawn if one.outcome.iteration_s is not None), default=0.0)
    longest_s = max((one.length_s for one in drawn), default=0.0)
    rows = [_row(one, fastest_s, longest_s, plan) for one in drawn]
    known = {one.outcome.strategy.name for one in drawn}
    rows += [{"name": one.name, "title": one.heading} for one in wanted if one.name not in known]
    return [row | {"ours": row["name"] == OURS} for row in rows]


def _row(bar: Bar, fastest_s: float, longest_s: float, plan: Plan | None) -> dict[str, Any]:
    outcome = bar.outcome
    row: dict[str, Any] = {"name": outcome.strategy.name, "title": outcome.title}
    if outcome.iteration_s is None:
        return row | {"reason": outcome.reason}
    return row | {
        "seconds": outcome.iteration_s,
        "times": outcome.iteration_s / fastest_s if fastest_s > 0 else 1.0,
        "parts": [[cause, seconds] for cause, seconds, _ in bar.parts],
        "length": bar.length_s / longest_s if longest_s > 0 else 0.0,
        "cut": bar.cut,
        "shape": shape_words(outcome),
        "mathematics": outcome.strategy.mathematics,
        "taken": outcome.found is plan,
    }


def shape_words(outcome: Outcome) -> str:
    """Return ``4 stages x 16 replicas, 1f1b, micro-batch 2, ZeRO-3, 2 idle``."""
    job, n_idle = outcome.job, len(outcome.plan.idle_devices)
    parts = [outcome.shape]
    parts += [job.schedule_name] if (job.n_stages or 1) > 1 else []
    parts += [f"micro-batch {job.microbatch}"]
    parts += [job.sharding.replace("zero", "ZeRO")] if job.sharding not in (None, "none") else []
    parts += [f"{n_idle} idle"] if n_idle else []
    return ", ".join(parts)
