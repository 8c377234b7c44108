"""Pluralis' Agora: routed pipelines that send activations in a small subspace, whose stages average a few
parameters."""

from dataclasses import dataclass
from typing import ClassVar

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Links
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.extensions.systems.modelled.swarm import RoutedPipelines
from dtfm_lab.extensions.systems.strategy import TRIED, described, strategies


@strategies.register("pluralis")
@described
@dataclass(frozen=True, kw_only=True)
class Pluralis(RoutedPipelines):
    """Pluralis: routed pipelines that send activations in a small subspace. Stages sometimes average some parameters.

    Passes, routing and the path of micro-batches follow SWARM's closed form. A job cannot express messages in a
    subspace. So the plan's job says int8, the strongest compression a job has, but the seconds use the smaller
    messages.
    """

    name: ClassVar[str] = "pluralis"

    message_ratio: float = 100.0
    share: float = 0.05
    every: int = 20
    asynchronous: bool = True
    checkpointing: str = "stage"
    routing: str = "throughput"
    trainers: int = 4

    microbatches: str = TRIED

    def trained(self, job: Job) -> Job:
        """Return the job as the system trains it. Its shape is set later."""
        return job.with_fields(
            schedule="1f1b",
            synchronisation="sharded-at-once",
            compression="int8",
            gradient_compression="fp16",
            checkpointing=self.checkpointing,
        )

    def hops_bytes(self, job: Job, n_stages: int) -> tuple[FloatArray, FloatArray]:
        """Return the bytes of activations onward, and of their gradients back, per hop. Both are sent in the
        subspace."""
        onward, back = super().hops_bytes(job.with_fields(compression="none"), n_stages)
        return onward / self.message_ratio, back / self.message_ratio

    def averages_s(self, job: Job, grid: IntArray, links: Links) -> float:
        """Return the seconds per iteration for averaging by SPARTA: every few iterations, it averages a share of the
        parameters in 16 bits."""
        return self.share * super().averages_s(job, grid, links) / self.every

    def joined_s(
        self, first_and_last_s: float, between_s: float, job: Job, averaging_s: float, n_replicas: int
    ) -> float:
        """Return the seconds of an iteration. If training is asynchronous, iterations follow each other without a gap,
        and averaging runs at the same time."""
        if not self.asynchronous:
            return super().joined_s(first_and_last_s, between_s, job, averaging_s, n_replicas)
        return max(sum(job.microbatch_counts) * between_s, averaging_s)
