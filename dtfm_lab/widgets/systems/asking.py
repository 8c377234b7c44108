"""What systems are asked, and their outcomes as they come. It contains no widget."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dtfm_lab import lab
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.systems import Outcomes, Strategy, work_of


def answers(
    question: Question, systems: Sequence[Strategy], options: Mapping[str, Any], before: Outcomes | None = None
) -> Iterator[Outcomes]:
    """All outcomes so far, after each system, with those of ``before`` whose system has not been asked again.

    Each has its causes computed, so that to show them takes no time; for a thread.
    """
    for newest in lab.search_strategies(question.topology, question.job, systems=systems, **options):
        for one in newest:
            one.causes  # noqa: B018  computed here, and kept
        came = {one.strategy.name for one in newest}
        kept = [one for one in before or () if one.strategy.name not in came]
        wanted = newest.wanted if before is None else before.wanted
        yield replace(newest, outcomes=(*newest.outcomes, *kept), wanted=wanted)


class Question:
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
