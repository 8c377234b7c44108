"""Strategies of one's own, as a user would write them: one that has a plan, and one that has none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar

import dtfm_lab as lab
from dtfm_lab.domain.errors import PlanError
from dtfm_lab.extensions.systems.api import Assumption, Budget, Strategy


@dataclass(frozen=True, kw_only=True)
class OnePipeline(Strategy):
    """All devices in one pipeline, in the order of the file."""

    name: ClassVar[str] = "one-pipeline"
    title: ClassVar[str] = "One <pipeline>"
    cite: ClassVar[str] = "nobody"
    mathematics: ClassVar[str] = "gradients are a step old"

    every: Annotated[int, Assumption(help="Iterations between averages.", least=1, source="made up")] = 1
    overlap: Annotated[bool, Assumption(help="Averages hide.", source="made up")] = False
    share: Annotated[float, Assumption(help="Of its peak.", above=0, most=1, source="made up")] = 0.4

    def plans(self, topology: lab.Topology, job: lab.Job, budget: Budget) -> Iterator[lab.Plan]:
        """The only one."""
        one = job.with_fields(n_stages=len(topology), n_replicas=1, microbatch=job.microbatch or 1)
        yield lab.evaluate(topology, one, stages=[[at] for at in range(len(topology))])

    def trace(self, plan: lab.Plan, budget: Budget) -> lab.Trace:
        """At a share of the peak of its own."""
        return lab.simulate(plan, efficiency=self.share)


@dataclass(frozen=True, kw_only=True)
class Nowhere(Strategy):
    """A system that trains nothing."""

    name: ClassVar[str] = "nowhere"
    title: ClassVar[str] = "Nowhere"
    cite: ClassVar[str] = "nobody"

    def plans(self, topology: lab.Topology, job: lab.Job, budget: Budget) -> Iterator[lab.Plan]:
        """None."""
        raise PlanError("it wants $1 and <b>more</b> than there is")
        yield
