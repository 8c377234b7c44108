"""PyTorch's DistributedDataParallel: the whole model on every device, gradients averaged beside the backward."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar

from dtfm_lab.domain.job import COMPRESSIONS, Job
from dtfm_lab.domain.job.system import MiB
from dtfm_lab.domain.network import Topology
from dtfm_lab.systems import assumption as common
from dtfm_lab.systems.assumption import TRIED, Assumption, checkpointings
from dtfm_lab.systems.branch import Branch
from dtfm_lab.systems.grids import MICROBATCHES_ALONE, grids
from dtfm_lab.systems.strategy import Budget, GridStrategy, strategies


@strategies.register("ddp")
@dataclass(frozen=True, kw_only=True)
class DDP(GridStrategy):
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

    def _compression(self) -> str:
        return "none"

    def branches(self, topology: Topology, job: Job, budget: Budget) -> Iterator[Branch]:
        """Replicas of one stage, with each checkpointing and micro-batch that is tried."""
        how = job.with_fields(
            schedule="1f1b",
            synchronisation=self.synchronisation,
            overlap=self.overlap,
            bucket_bytes=self.bucket_bytes,
            gradient_compression=self._compression(),
        )
        yield from grids(self, topology, how, self._ways, budget, stages=(1,), sizes=MICROBATCHES_ALONE)

    def _ways(self, job: Job) -> list[dict[str, str]]:
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

    def _compression(self) -> str:
        return self.compression
