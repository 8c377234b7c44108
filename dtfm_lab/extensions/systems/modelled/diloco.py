"""DiLoCo: islands of devices train alone and average what changed every H iterations; Streaming DiLoCo, fragment by
fragment beside the iterations; and Decoupled DiLoCo, in which no learner waits for another."""

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
"""Iterations from one average to the next by kind, where not given."""
PRECISION = {"plain": "fp16", "streaming": "int8", "decoupled": "int8"}
"""What averaged changes are sent as by kind, where not given."""


@strategies.register("diloco")
@described
@dataclass(frozen=True, kw_only=True)
class DiLoCoStrategy(LocalWorkers):
    """DiLoCo: workers step alone and average what changed every H iterations, at once, streaming, or decoupled.

    A worker is a pipeline whose devices lie on one island, or a single device that holds the whole model; an island
    with more devices than a pipeline has several workers, as a job knows one interval for all its replicas: data
    parallelism inside a worker has no model here, tensor parallelism inside a host does. Its user may leave out the
    islands of the slowest devices, for which all others wait. The parameters of the last average and the outer
    optimiser's momentum are not counted as memory of the device: torchft keeps them on the host.

    ``streaming``: fragments of the model are averaged in turn, beside the next iterations. The paper's fragments are of
    whole layers, interleaved; a job's are equal parts of every device's parameters, as many as come nearest to the
    paper's and divide H. ``decoupled``: the same fragments go to a syncer and back, and no learner waits for another.
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
                f"system {self.name}: delay is {self.delay} with every {self.steps}; wanted at most {self.steps}, as a "
                f"fragment is averaged once in so many iterations"
            )

    @property
    def steps(self) -> int:
        """H, as given or by kind."""
        return EVERY[self.kind] if self.every is None else self.every

    @property
    def simulated(self) -> bool:
        """A decoupled one has a closed form, as no schedule lets each learner keep its own pace."""
        return self.kind != "decoupled"

    def fragments(self, n_blocks: int) -> int:
        """Fragments of a model with so many blocks: of the numbers that divide H, the nearest to the paper's."""
        slots = self.steps // max(self.delay, 1)
        wanted = n_blocks / self.fragment_layers
        divide = [n for n in range(1, slots + 1) if not slots % n]
        return min(divide, key=lambda n: (abs(math.log(n / wanted)), n))

    def trained(self, job: Job) -> Job:
        """The job as the system trains it, whatever its shape."""
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
        # H is kept a multiple of the delay: no fragment would be averaged in the last few iterations of a longer one
        every = self.steps // max(self.delay, 1) * max(self.delay, 1)
        fragments = self.fragments(job.modelled().n_blocks)
        return local.with_fields(synchronise_every=every, fragments=fragments, fragment_delay=self.delay)

    def seconds(self, plan: Plan, budget: Budget) -> float:
        """Seconds of an iteration; of decoupled learners those in which all together train a global batch.

        A learner's iteration takes as long as its passes, or as its fragments' way to the syncer and back beside them.
        The syncer waits for a quorum and a grace window, the learners do not: a late one's fragment counts, weighed by
        its tokens, in the next round. Only where the quorum is all learners does each wait for the slowest.
        """
        if self.simulated:
            return super().seconds(plan, budget)
        trace = simulate(alone(plan), efficiency=budget.efficiency, queueing=budget.queueing)
        first = trace.iteration == trace.iteration.min()
        ends_s = np.zeros(plan.job.n_replicas)
        np.maximum.at(ends_s, trace.replica[first], trace.end_s[first])
        n_bytes = np.array(device_gradient_bytes(plan.job, plan.job.n_stages))[:, None] / plan.job.synchronise_every
        travel_s = np.max([n_bytes / line for line in lines_bytes_per_s(plan)], axis=0)
        each_s = np.maximum(ends_s, travel_s.max(axis=0))
        if self.quorum >= plan.job.n_replicas:
            return float(each_s.max())
        sequences = np.array(plan.job.microbatch_counts) * plan.job.microbatch
        return float(plan.job.global_batch / (sequences / each_s).sum())

    def least_s(self, plan: Plan, budget: Budget) -> float:
        """Nothing is known of decoupled learners before they are simulated."""
        return super().least_s(plan, budget) if self.simulated else 0.0
