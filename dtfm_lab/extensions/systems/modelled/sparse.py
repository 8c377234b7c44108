"""Workers that send only a few of every thousand numbers: SparseLoCo every H iterations, DisTrO in every iteration."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.job.sizes import device_gradient_elements
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.trace import Trace
from dtfm_lab.extensions.systems.bound import least_iteration_s
from dtfm_lab.extensions.systems.modelled.local_workers import LocalWorkers, alone, exchange_s, lines_bytes_per_s
from dtfm_lab.extensions.systems.strategy import Budget, described, strategies
from dtfm_lab.simulation.simulate import iteration_seconds


@dataclass(frozen=True, kw_only=True)
class SparseWorkers(LocalWorkers):
    """Workers that exchange the largest numbers of every chunk, each with its position in the chunk.

    A job cannot express such messages, so the exchange is a closed form added to the simulated passes. No two workers
    choose the same positions, so every worker needs the chosen numbers of every other one. A worker uploads once, or
    once for each other worker (``copies``), and downloads from all others; it is not an all-reduce. The plan's job says
    int8, the strongest compression a job has.
    """

    @property
    @abstractmethod
    def bytes_per_parameter(self) -> float:
        """Bytes that a worker sends in an exchange, divided by its number of parameters."""

    @property
    def copies(self) -> str:
        """``storage`` if a worker uploads its chosen numbers once and the others download them. ``peers`` if it sends
        them to each of the others."""
        return "storage"

    def exchanged_s(self, plan: Plan) -> float:
        """Return the seconds of one exchange among all workers."""
        job = plan.job
        n_bytes = self.bytes_per_parameter * np.array(device_gradient_elements(job, job.n_stages), dtype=float)[:, None]
        up, down = lines_bytes_per_s(plan)
        if self.copies == "peers":  # a worker uploads its choice once per other worker, not once in all
            up = up / max(job.n_replicas - 1, 1)
        there = plan.placement.devices.ravel()
        latency_s = float(plan.topology.latency_s[np.ix_(there, there)].max())
        return exchange_s(n_bytes, job.n_replicas, up, down) + 2 * latency_s

    @abstractmethod
    def _whole_s(self, passes_s: float, exchange_s: float) -> float:
        """Return the seconds of an iteration, given the seconds of its passes and of one exchange."""

    def seconds(self, plan: Plan, budget: Budget) -> float:
        """Return the seconds of an iteration: the passes, simulated without averaging, plus what the exchange adds."""
        passes_s = iteration_seconds(alone(plan), efficiency=budget.efficiency, queueing=budget.queueing)
        return self._whole_s(passes_s, self.exchanged_s(plan))

    def trace(self, plan: Plan, budget: Budget) -> Trace:
        """Return one iteration without the exchange, which no schedule can express."""
        return super().trace(alone(plan), budget)

    def averaging_s(self, plan: Plan, budget: Budget) -> float:
        """Return the seconds that the exchange adds to the passes."""
        passes_s = iteration_seconds(alone(plan), efficiency=budget.efficiency, queueing=budget.queueing)
        return self._whole_s(passes_s, self.exchanged_s(plan)) - passes_s

    def least_s(self, plan: Plan, budget: Budget) -> float:
        """Return a lower bound of the seconds of an iteration: the passes' lower bound, with the exact seconds of the
        exchange."""
        passes_s = least_iteration_s(alone(plan), budget.efficiency, budget.queueing)
        return self._whole_s(passes_s, self.exchanged_s(plan))


@strategies.register("sparseloco")
@described
@dataclass(frozen=True, kw_only=True)
class SparseLoCo(SparseWorkers):
    """SparseLoCo: DiLoCo that sends only the largest numbers of each chunk, in 2 bits, and keeps the rest for later."""

    name: ClassVar[str] = "sparseloco"

    every: int = 30
    chunk: int = 4096
    kept: int = 64
    value_bits: int = 2
    index_bits: int = 12
    most_workers: int = 20

    @property
    def bytes_per_parameter(self) -> float:
        return self.kept / self.chunk * (self.value_bits + self.index_bits) / 8

    def trained(self, job: Job) -> Job:
        """Return the job as the system trains it. Its shape is set later."""
        how = {"schedule": "1f1b", "synchronisation": "ring", "gradient_compression": "int8"}
        return job.with_fields(synchronise_every=self.every, **how)

    def _whole_s(self, passes_s: float, exchange_s: float) -> float:
        return passes_s + exchange_s / self.every


@strategies.register("distro")
@described
@dataclass(frozen=True, kw_only=True)
class DisTrO(SparseWorkers):
    """DisTrO: in every iteration, workers send the fast part of their momentum, a few coefficients of each chunk."""

    name: ClassVar[str] = "distro"

    chunk: int = 4096
    kept: int = 8
    value_bits: int = 1
    index_bits: int = 16
    overlap: bool = True
    copies: str = "peers"

    @property
    def bytes_per_parameter(self) -> float:
        return self.kept / self.chunk * (self.value_bits + self.index_bits) / 8

    def trained(self, job: Job) -> Job:
        """Return the job as the system trains it. Its shape is set later."""
        return job.with_fields(schedule="1f1b", synchronisation="ring", gradient_compression="int8")

    def _whole_s(self, passes_s: float, exchange_s: float) -> float:
        return max(passes_s, exchange_s) if self.overlap else passes_s + exchange_s
