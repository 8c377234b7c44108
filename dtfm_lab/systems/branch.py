"""Plans of one grid that differ in flags alone, with a bound of their seconds: made into plans only where one of them
may be the fastest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import IntArray
from dtfm_lab.planning import evaluate
from dtfm_lab.planning.iteration.candidate import unpriced_plan


@dataclass(frozen=True, eq=False)
class Branch:
    """A shaped job on some devices, in each of several ways to train it."""

    topology: Topology
    """Grouped where the job has tensor parallelism."""
    job: Job
    grid: IntArray
    """(stages, replicas) devices."""
    ways: Sequence[Mapping[str, Any]] = ({},)
    """Fields of the job, changed; none, once, where it is trained as it is."""
    least_s: float = 0.0
    """Seconds that no plan of it goes below."""

    def __len__(self) -> int:
        return len(self.ways)

    def plans(self) -> Iterator[Plan]:
        """Its plans, not priced: their communication cost is not counted (``priced``)."""
        for fields in self.ways:
            try:
                job = self.job.with_fields(**fields)
                yield unpriced_plan(self.topology, job, self.grid)
            except LabError:  # what the schedule or the sharding does not allow
                continue


def priced(plan: Plan) -> Plan:
    """The plan with its communication cost."""
    rank_map = plan.placement.rank_map(len(plan.topology))
    return evaluate(plan.topology, plan.job, rank_map=rank_map).changed(queueing=plan.queueing)


B = TypeVar("B", bound=Branch)


def distinct(found: Iterable[B]) -> Iterator[B]:
    """Each job on each grid once, where it is met first."""
    seen: set[tuple[Job, bytes]] = set()
    for one in found:
        if (key := (one.job, one.grid.tobytes())) not in seen:
            seen.add(key)
            yield one
