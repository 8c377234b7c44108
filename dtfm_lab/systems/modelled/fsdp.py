"""PyTorch's FSDP: parameters, gradients and states sharded over all devices, layers gathered one ahead."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.systems import assumption as common
from dtfm_lab.systems.assumption import CHECKPOINTS, TRIED, Assumption, checkpointings
from dtfm_lab.systems.branch import Branch
from dtfm_lab.systems.grids import MICROBATCHES_ALONE, grids
from dtfm_lab.systems.strategy import Budget, GridStrategy, strategies


@strategies.register("fsdp")
@dataclass(frozen=True, kw_only=True)
class FSDP(GridStrategy):
    """PyTorch's FSDP: parameters, gradients and states sharded over all devices, layers gathered one ahead.

    One group of devices. As ZeRO-3, save that gradients
    are exchanged in fp32.
    """

    name: ClassVar[str] = "fsdp"
    title: ClassVar[str] = "PyTorch FSDP"
    cite: ClassVar[str] = "Zhao et al., VLDB 2023"
    url: ClassVar[str] = "https://arxiv.org/abs/2304.11277"

    reshard: Annotated[
        bool | None,
        Assumption(
            help="Parameters are dropped after the forward and gathered again for the backward, or kept; the faster of "
            "those that fit where not given.",
            source="torch, fully_shard: reshard_after_forward is true by default; false is SHARD_GRAD_OP, as ZeRO-2",
        ),
    ] = None
    gradient_dtype: Annotated[
        str | None,
        Assumption(
            help="Gradients are exchanged in fp32, or in another precision.",
            choices=("fp16", "bf16", "fp32"),
            source="torchtitan: mixed_precision_reduce is float32, with parameters in bf16",
        ),
    ] = "fp32"
    checkpointing: Annotated[
        str,
        Assumption(
            help="The fastest of none, selective and of blocks, of those that fit.",
            choices=CHECKPOINTS,
            source="torchtitan: activation_checkpoint.mode is selective, of operators, by default; none and full can "
            "be chosen",
        ),
    ] = TRIED
    compiled: Annotated[
        bool,
        Assumption(
            help="Operators between matrix products are fused (torch.compile); without it they move memory.",
            source="torchtitan, table 1 of Liang et al. 2024: with and without torch.compile",
        ),
    ] = True
    microbatches: Annotated[
        str,
        common.microbatches(
            source="torchtitan: training.local_batch_size is the user's; accumulation follows from the global batch"
        ),
    ] = TRIED
    hosts: Annotated[str, common.hosts_in_rings(source="torchrun numbers hosts as they join; NCCL lays the rings")] = (
        "listed"
    )

    devices: Annotated[str, common.devices(source="torchrun: --nnodes and the hosts are the user's")] = TRIED

    def branches(self, topology: Topology, job: Job, budget: Budget) -> Iterator[Branch]:
        """One stage in replicas, with each checkpointing and micro-batch that is tried."""
        how = job.with_fields(
            schedule="1f1b",
            synchronisation="ring",
            gradient_dtype=self.gradient_dtype,
            memory_traffic=not self.compiled,
        )
        yield from grids(self, topology, how, self._ways, budget, stages=(1,), sizes=MICROBATCHES_ALONE)

    def _ways(self, job: Job) -> list[dict[str, str]]:
        reshards = (True, False) if self.reshard is None else (self.reshard,)
        return [
            {"checkpointing": kept, "sharding": "zero-3" if reshard else "zero-2"}
            for kept in checkpointings(job, self.checkpointing, ("none", "selective", "block"))
            for reshard in reshards
        ]
