"""Megatron-LM: the best grid of tensor, pipeline and data parallelism, with devices in the order of their ranks."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology, hardware_of
from dtfm_lab.domain.plan import Plan
from dtfm_lab.extensions.systems.grids import grids
from dtfm_lab.extensions.systems.strategy import (
    ORDERS,
    TRIED,
    Branch,
    Budget,
    GridStrategy,
    checkpointings,
    described,
    shardings,
    strategies,
)

BY_PRECISION = "by-precision"
BY_GPU = "by-gpu"
AS_SHIPPED: dict[str, Any] = {
    "order": "dp-pp",
    "overlap": False,
    "sharding": "none",
    "microbatches": "given",
    "devices": "all",
}
"""Assumptions about Megatron-LM if no flags say otherwise. Data-parallel groups have neighbouring ranks, averaging does
not overlap the backward, and nothing is sharded. The job's own micro-batch size and all devices are used."""


def has_flash_attention(gpu: str) -> bool:
    """True if NVIDIA's and FlashAttention's fused kernels run on a GPU. These need Ampere or later, the GPUs with bf16.

    Apple's GPUs, and GPUs that are not in the table, count as capable. Source: FlashAttention's README ("Ampere, Ada,
    or Hopper GPUs"); cuDNN's and FlashAttention's requirements in transformer_engine/pytorch/attention (sm80 and
    later).
    """
    known = hardware_of(gpu)
    return known is None or "bf16" in known.peak or gpu.startswith("Apple")


@strategies.register("megatron")
@described
@dataclass(frozen=True, kw_only=True)
class Megatron(GridStrategy):
    """Megatron-LM: the best grid of tensor, pipeline and data parallelism, with devices in the order of their ranks.

    The user tries what the flags allow. Otherwise devices are used in the order in which the network lists them. The
    number of stages divides the number of blocks, as ``megatron/arguments.py`` requires. Tensor parallelism stays
    within a host (Narayanan et al. 2021, section 5.4, takeaway 1).
    """

    name: ClassVar[str] = "megatron"

    order: str = TRIED
    tensor_parallel: int | None = None
    context_parallel: int = 1
    expert_parallel: int = 1
    n_stages: int | None = None
    blocks_per_stage: tuple[int, ...] | None = None
    hosts: str = "listed"
    transport: str = "batched"
    stages_per_device: int = 1
    synchronisation: str = "ring"
    overlap: bool | None = None
    gradient_dtype: str = BY_PRECISION
    sharding: str = TRIED
    checkpointing: str = TRIED
    attention: str = "fused"
    dropout: bool = True
    sequence_parallel: bool = False
    memory_traffic: bool = False
    microbatches: str = TRIED
    devices: str = TRIED

    def branches(self, topology: Topology, job: Job, budget: Budget) -> Iterator[Plan | Branch]:
        """Yield every grid, with each way to train it that is tried."""
        how = job.with_fields(
            schedule="1f1b",
            context_parallel=self.context_parallel,
            expert_parallel=self.expert_parallel,
            synchronisation=self.synchronisation,
            transport=self.transport,
            attention=self._attention_on(topology),
            dropout=self.dropout,
            sequence_parallel=self.sequence_parallel,
            memory_traffic=self.memory_traffic,
            gradient_dtype=self._gradients_in(job),
        )
        blocks = how.modelled().n_blocks
        stages = [n for n in range(1, blocks + 1) if not blocks % (n if n == 1 else n * self.stages_per_device)]
        if self.blocks_per_stage is not None:
            stages = [len(self.blocks_per_stage)]
        degrees = topology.group_sizes if self.tensor_parallel is None else (self.tensor_parallel,)
        yield from grids(
            self,
            topology,
            how,
            self._ways,
            budget,
            tensor_parallel=degrees,
            orders=ORDERS if self.order == TRIED else (self.order,),
            stages=[n for n in stages if self.n_stages in (None, n)],
        )

    def _ways(self, job: Job) -> list[dict[str, Any]]:
        """Return the job fields to set, one mapping for each combination of checkpointing, sharding and overlap to try.

        Empty if stages should interleave but the stage count does not divide the micro-batch count.
        """
        interleaved: dict[str, Any] = {}
        if self.stages_per_device > 1 and job.n_stages > 1:
            if job.n_microbatches % job.n_stages:  # Megatron's interleaving requires it
                return []
            interleaved = {"schedule": "interleaved-1f1b", "stages_per_device": self.stages_per_device}
        if self.blocks_per_stage is not None:
            interleaved["blocks_per_stage"] = self.blocks_per_stage
        overlaps = (False, True) if self.overlap is None else (self.overlap,)
        if job.n_replicas == 1:  # nothing is averaged
            overlaps = overlaps[:1]
        return [
            {"checkpointing": kept, "sharding": sharding, "overlap": overlap, **interleaved}
            for kept in checkpointings(job, self.checkpointing)
            for sharding in shardings(job, self.sharding)
            for overlap in overlaps
        ]

    def _attention_on(self, topology: Topology) -> str:
        if self.attention != BY_GPU:
            return self.attention
        return "fused" if all(has_flash_attention(device.gpu) for device in topology.devices) else "unfused"

    def _gradients_in(self, job: Job) -> str | None:
        if self.gradient_dtype != BY_PRECISION:
            return self.gradient_dtype
        return "fp32" if job.dtype == "bf16" else None
