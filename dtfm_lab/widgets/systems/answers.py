"""What systems are asked, and their outcomes as they come, as the rows that the view draws, and in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import Any

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.systems import Budget, Outcome, Outcomes, Strategy, stream_outcomes, work_of
from dtfm_lab.systems.outcomes import CHANGES, Bar, bars
from dtfm_lab.widgets import markup

OURS = "dtfm-lab"
"""Name of the lab's own system in the registry."""
OWN_SECONDS = (
    "Its seconds are of its own model: as the lab's plan, the same devices are predicted by the lab's schedules."
)


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


def answers(
    question: SystemsQuestion, systems: Sequence[Strategy], options: Mapping[str, Any], before: Outcomes | None = None
) -> Iterator[Outcomes]:
    """All outcomes so far, after each system, with those of ``before`` whose system has not been asked again.

    Each has its causes computed, so that to show them takes no time; for a thread.
    """
    for newest in stream_outcomes(question.topology, question.job, systems, Budget(**options)):
        for one in newest:
            one.causes  # noqa: B018  computed here, and kept
        came = {one.strategy.name for one in newest}
        kept = [one for one in before or () if one.strategy.name not in came]
        wanted = newest.wanted if before is None else before.wanted
        yield replace(newest, outcomes=(*newest.outcomes, *kept), wanted=wanted)


class SystemsQuestion:
    """The network and the work that were asked about, under every name that they may come back by.

    To take a system's plan changes what is drawn to its groups of GPUs, and the job to how the system trains; the
    question stays the same.
    """

    def __init__(self, topology: Topology, job: Job) -> None:
        self.topology, self.job = topology, job
        self._known = {(topology.fingerprint, work_of(job))}

    def add(self, outcomes: Outcomes) -> None:
        """Recognise the plans of these outcomes, too."""
        self._known |= {(one.found.topology.fingerprint, work_of(one.found.job)) for one in outcomes if one.found}

    def covers(self, topology: Topology | None, job: Job | None) -> bool:
        """Whether a network and a job are what was asked about."""
        if topology is None or job is None or job.model is None:
            return False
        return (topology.fingerprint, work_of(job)) in self._known


def single_gpus(topology: Topology, alone: Topology | None) -> Topology:
    """Return ``alone``, single GPUs, where ``topology`` is a network of their groups; else the network itself."""
    n = topology.devices[0].gpus
    if alone is None or n <= 1 or n not in alone.group_sizes:
        return topology
    return alone if alone.grouped(n).fingerprint == topology.fingerprint else topology


def outcome_html(outcome: Outcome) -> str:
    """Return the outcome's sentence, and what it changes of the training."""
    if outcome.found is None:
        return markup.line(f"<b>{escape(outcome.title)}</b> has no plan here: {escape(outcome.reason)}")
    only = outcome.considered == 1
    counted = "the only plan considered" if only else f"the fastest of {outcome.considered:,} plans considered"
    differs = f" {CHANGES} {escape(outcome.strategy.mathematics)}." if outcome.strategy.mathematics else ""
    routed = "" if type(outcome.strategy).trace is Strategy.trace else f" {OWN_SECONDS}"
    sentence = f"{escape(outcome.sentence)}, {counted}"
    return markup.line(f"<b>{escape(outcome.title)}:</b> {sentence}.{differs}{routed}")
