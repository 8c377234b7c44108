"""Systems that leave their user no choice: one shape in the order of the network, and given fields of the job."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.extensions.systems.api import Budget, Strategy
from dtfm_lab.extensions.systems.grids import in_rank_order


class Fixed(Strategy):
    """One shape, devices in the order of the network."""

    cite: ClassVar[str] = "these tests"
    how: ClassVar[dict[str, Any]] = {}

    def plans(self, topology: Topology, job: Job, budget: Budget) -> Iterator[Plan]:
        if self.how["n_stages"] * self.how["n_replicas"] <= len(topology):
            yield in_rank_order(topology, job.with_fields(**self.how), np.arange(len(topology)), order="dp-pp")


def fixed(name: str, n_stages: int, n_replicas: int, *, mathematics: str = "", **fields: Any) -> Strategy:
    """A system of this name with these fields of the job."""
    how = {"n_stages": n_stages, "n_replicas": n_replicas, **fields}
    kind = type(name, (Fixed,), {"name": name, "title": name, "mathematics": mathematics, "how": how})
    system: Strategy = kind()
    return system
