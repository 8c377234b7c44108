"""Data parallelism without pipelines: PyTorch's DistributedDataParallel, whole models, and FSDP, shards of one."""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from dtfm_lab.domain.job import COMPRESSIONS, Job
from dtfm_lab.domain.job.system import MiB
from dtfm_lab.domain.network import Topology
from dtfm_lab.systems import assumption as common
from dtfm_lab.systems.assumption import CHECKPOINTS, TRIED, Assumption, checkpointings
from dtfm_lab.systems.branch import Branch
from dtfm_lab.systems.grids import MICROBATCHES_ALONE, Freedoms, grids
from dtfm_lab.systems.strategy import Budget, GridStrategy, strategies


@dataclass(frozen=True, kw_only=True)
class DataParallel(GridStrategy, Freedoms):
    """Replicas of one stage, in each way and micro-batch that is tried."""

    @abstractmethod
    def fields(self) -> dict[str, Any]:
        """Fields of the job that are the same in all ways."""

    @abstractmethod
    def ways(self, job: Job) -> list[dict[str, str]]:
        """Other fields, of each way."""

    def branches(self, topology: Topology, job: Job, budget: Budget) -> Iterator[Branch]:
        """One stage in replicas, on each set of devices that is tried."""
        how = job.with_fields(schedule="1f1b", **self.fields())
        yield from grids(self, topology, how, self.ways, budget, stages=(1,), sizes=MICROBATCHES_ALONE)


@strategies.register("ddp")
@dataclass(frozen=True, kw_only=True)
class DDP(DataParallel):
    """PyTorch's DistributedDataParallel: the whole model on every device, gradients averaged beside the backward."""

    name: ClassVar[str] = "ddp"
    title: ClassVar[str] = "PyTorch DDP"
    cite: ClassVar[str] = "Li et al., VLDB 2020"
    url: ClassVar[str] = "https://arxiv.org/abs/2006.15704"

    overlap: Annotated[
        bool,
        Assumption(
            help="Gradients are averaged in buckets while the last backward still runs.",
            source="Li et al. 2020, section 3.2.3; of several micro-batches, the last one (no_sync)",
        ),
    ] = True
    bucket_bytes: Annotated[
        float,
        Assumption(
            help="Gradient of a bucket.",
            unit="bytes",
            above=0,
            source="torch, DistributedDataParallel: bucket_cap_mb is 25 MiB by default",
        ),
    ] = 25.0 * MiB
    synchronisation: Annotated[
        str, common.ring_or_tree(source="NCCL chooses by size and devices; rings where bandwidth counts")
    ] = "ring"
    checkpointing: Annotated[
        str, common.checkpointing(source="torch leaves it to the model's code (torch.utils.checkpoint)")
    ] = TRIED
    microbatches: Annotated[
        str, common.microbatches(source="Li et al. 2020, section 3.2.4: no_sync accumulates where a batch does not fit")
    ] = TRIED
    hosts: Annotated[
        str,
        common.hosts(source="torchrun numbers hosts as they join; NCCL lays the ring over hosts one after the other"),
    ] = "listed"

    devices: Annotated[str, common.devices(source="torchrun: --nnodes and the hosts are the user's")] = TRIED

    def fields(self) -> dict[str, Any]:
        """As they are averaged."""
        return {"synchronisation": self.synchronisation, "overlap": self.overlap, "bucket_bytes": self.bucket_bytes}

    def ways(self, job: Job) -> list[dict[str, str]]:
        """Each checkpointing that is tried."""
        return [{"checkpointing": kept} for kept in checkpointings(job, self.checkpointing)]


@strategies.register("ddp-compressed")
@dataclass(frozen=True, kw_only=True)
class CompressedDDP(DDP):
    """PyTorch's DistributedDataParallel with a hook that rounds gradients before they are sent."""

    name: ClassVar[str] = "ddp-compressed"
    title: ClassVar[str] = "PyTorch DDP, compressed gradients"
    cite: ClassVar[str] = "Dettmers, ICLR 2016"
    url: ClassVar[str] = "https://arxiv.org/abs/1511.04561"
    mathematics: ClassVar[str] = "gradients are rounded before they are averaged, to 8 bits in blocks by default"

    compression: Annotated[
        str,
        Assumption(
            help="What gradients are rounded to on their way, where that is smaller.",
            choices=tuple(one for one in COMPRESSIONS if one != "none"),
            source="torch, ddp_comm_hooks: fp16_compress_hook and quantization hooks of 8 bits; blocks of 256 numbers "
            "with a scale each as in Dettmers et al. 2022",
        ),
    ] = "int8"

    def fields(self) -> dict[str, Any]:
        """As they are averaged, rounded."""
        return super().fields() | {"gradient_compression": self.compression}


@strategies.register("fsdp")
@dataclass(frozen=True, kw_only=True)
class FSDP(DataParallel):
    """PyTorch's FSDP: parameters, gradients and states sharded over all devices, layers gathered one ahead.

    One group of devices. As ZeRO-3, save that gradients are exchanged in fp32.
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

    def fields(self) -> dict[str, Any]:
        """As they are exchanged, and whether operators move memory."""
        how = {"synchronisation": "ring", "gradient_dtype": self.gradient_dtype}
        return how | {"memory_traffic": not self.compiled}

    def ways(self, job: Job) -> list[dict[str, str]]:
        """Each checkpointing and resharding that is tried."""
        reshards = (True, False) if self.reshard is None else (self.reshard,)
        return [
            {"checkpointing": kept, "sharding": "zero-3" if reshard else "zero-2"}
            for kept in checkpointings(job, self.checkpointing, ("none", "selective", "block"))
            for reshard in reshards
        ]
