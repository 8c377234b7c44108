"""DiLoCo: islands of devices train alone and average their changes every H iterations.

Streaming DiLoCo averages fragment by fragment during the iterations. In Decoupled DiLoCo no learner waits for another.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job, device_gradient_bytes
from dtfm_lab.domain.plan import Plan
from dtfm_lab.extensions.systems.modelled.local_workers import LocalWorkers, alone, lines_bytes_per_s
from dtfm_lab.extensions.systems.strategy import Budget, described, strategies
from dtfm_lab.simulation import simulate

EVERY = {"plain": 500, "streaming": 100, "decoupled": 100}
"""Default iterations between two averages, by kind."""
PRECISION = {"plain": "fp16", "streaming": "int8", "decoupled": "int8"}
"""Default precision of averaged changes in messages, by kind."""


@strategies.register("diloco")
@described
@dataclass(frozen=True, kw_only=True)
class DiLoCoStrategy(LocalWorkers):
    """DiLoCo: workers train alone and average their changes every H iterations: all at once, streaming, or decoupled.

    A worker is a pipeline within one island, or a single device that holds the whole model. A large island has several
    workers, because a job has one averaging interval for all its replicas. So data parallelism inside a worker is not
    modelled; tensor parallelism inside a host is. The user may leave out islands with slow devices, for which all
    others wait. The parameters of the last average and the outer optimizer's momentum do not count as device memory:
    torchft keeps them on the host.

    ``streaming`` averages fragments of the model one after another, during the next iterations. In the paper a fragment
    is a set of interleaved whole layers, here an equal part of every device's parameters. The number of fragments
    divides H and is as near as possible to the paper's. ``decoupled`` sends the same fragments to a syncer and back,
    and no learner waits for another.
    """

    name: ClassVar[str] = "diloco"

    kind: str = "plain"
    every: int | None = None
    precision: str | None = None
    fragment_layers: int = 3
    delay: int = 1
    quorum: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind != "plain" and self.delay > self.steps:
            raise LabError(
                f"system {self.name}: delay is {self.delay} with every {self.steps}; wanted at most {self.steps}, the "
                f"iterations between two averages of a fragment"
            )

    @property
    def steps(self) -> int:
        """H, the iterations between two averages: as given, or the default of this kind."""
        return EVERY[self.kind] if self.every is None else self.every

    @property
    def simulated(self) -> bool:
        """False for the decoupled kind. It has a closed form, because no schedule lets each learner keep its own
        pace."""
        return self.kind != "decoupled"

    def fragments(self, n_blocks: int) -> int:
        """Return the number of fragments for this many blocks. It divides H / ``delay``, and is as near as possible to
        the paper's number."""
        slots = self.steps // max(self.delay, 1)
        wanted = n_blocks / self.fragment_layers
        divide = [n for n in range(1, slots + 1) if not slots % n]
        return min(divide, key=lambda n: (abs(math.log(n / wanted)), n))

    def trained(self, job: Job) -> Job:
        """Return the job as the system trains it. Its shape is set later."""
        precision = PRECISION[self.kind] if self.precision is None else self.precision
        in_fp32 = {"gradient_dtype": "fp32", "gradient_compression": "none"}
        local = job.with_fields(
            schedule="1f1b",
            synchronisation="ring",
            synchronise_every=self.steps,
            **(in_fp32 if precision == "fp32" else {"gradient_compression": precision}),
        )
        if self.kind == "plain":
            return local
        # round H down to a multiple of the delay: no fragment would be averaged in the iterations beyond it
        every = self.steps // max(self.delay, 1) * max(self.delay, 1)
        fragments = self.fragments(job.modelled().n_blocks)
        return local.with_fields(synchronise_every=every, fragments=fragments, fragment_delay=self.delay)

    def seconds(self, plan: Plan, budget: Budget) -> float:
        """Return the seconds of an iteration. For decoupled learners, the time in which all together train one global
        batch.

        A decoupled learner's iteration takes as long as its passes, or as its messages to the syncer or back, whichever
        is longest. The syncer waits for a quorum and a grace window; the learners do not wait. A late fragment counts
        in the next round, weighted by its tokens. Only if the quorum is all learners does each wait for the slowest.
        """
        if self.simulated:
            return super().seconds(plan, budget)
        # Learners do not wait for one another, so each is simulated alone.
        trace = simulate(alone(plan), efficiency=budget.efficiency, queueing=budget.queueing)
        first = trace.iteration == trace.iteration.min()
        ends_s = np.zeros(plan.job.n_replicas)  # each learner keeps its own pace, so each has its own end
        np.maximum.at(ends_s, trace.replica[first], trace.end_s[first])
        n_bytes = np.array(device_gradient_bytes(plan.job, plan.job.n_stages))[:, None] / plan.job.synchronise_every
        travel_s = np.max([n_bytes / line for line in lines_bytes_per_s(plan)], axis=0)
        each_s = np.maximum(ends_s, travel_s.max(axis=0))
        if self.quorum >= plan.job.n_replicas:
            return float(each_s.max())
        # Learners that do not wait for each other add up their speeds, not their times.
        sequences = np.array(plan.job.microbatch_counts) * plan.job.microbatch
        return float(plan.job.global_batch / (sequences / each_s).sum())

    def least_s(self, plan: Plan, budget: Budget) -> float:
        """Return a lower bound of ``seconds``. It is 0 for decoupled learners, because no bound of their closed form is
        known."""
        return super().least_s(plan, budget) if self.simulated else 0.0
