"""Data parallelism without pipelines: PyTorch's DistributedDataParallel, whole models, and FSDP, shards of one."""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.job.options import MiB
from dtfm_lab.domain.network import Topology
from dtfm_lab.systems.grids import MICROBATCHES_ALONE, Freedoms, grids
from dtfm_lab.systems.strategy import TRIED, Branch, Budget, GridStrategy, checkpointings, described, strategies


@dataclass(frozen=True, kw_only=True)
class DataParallel(GridStrategy, Freedoms):
    """Replicas of one stage, in each way and micro-batch that is tried."""

    @abstractmethod
    def fields(self) -> dict[str, Any]:
        """Fields of the job that are the same in all ways."""

    @property
    def checkpointing(self) -> str:
        """What is tried of it."""
        return TRIED

    def ways(self, job: Job) -> list[dict[str, str]]:
        """Other fields, of each way: each checkpointing that is tried."""
        return [{"checkpointing": kept} for kept in checkpointings(job, self.checkpointing)]

    def branches(self, topology: Topology, job: Job, budget: Budget) -> Iterator[Branch]:
        """One stage in replicas, on each set of devices that is tried."""
        how = job.with_fields(schedule="1f1b", **self.fields())
        yield from grids(self, topology, how, self.ways, budget, stages=(1,), sizes=MICROBATCHES_ALONE)


@strategies.register("ddp")
@described
@dataclass(frozen=True, kw_only=True)
class DDP(DataParallel):
    """PyTorch's DistributedDataParallel: the whole model on every device, gradients averaged beside the backward."""

    name: ClassVar[str] = "ddp"

    overlap: bool = True
    bucket_bytes: float = 25.0 * MiB
    synchronisation: str = "ring"
    checkpointing: str = TRIED
    microbatches: str = TRIED
    hosts: str = "listed"

    devices: str = TRIED

    def fields(self) -> dict[str, Any]:
        """As they are averaged."""
        return {"synchronisation": self.synchronisation, "overlap": self.overlap, "bucket_bytes": self.bucket_bytes}


@strategies.register("ddp-compressed")
@described
@dataclass(frozen=True, kw_only=True)
class CompressedDDP(DDP):
    """PyTorch's DistributedDataParallel with a hook that rounds gradients before they are sent."""

    name: ClassVar[str] = "ddp-compressed"

    compression: str = "int8"

    def fields(self) -> dict[str, Any]:
        """As they are averaged, rounded."""
        return super().fields() | {"gradient_compression": self.compression}


@strategies.register("fsdp")
@described
@dataclass(frozen=True, kw_only=True)
class FSDP(DataParallel):
    """PyTorch's FSDP: parameters, gradients and states sharded over all devices, layers gathered one ahead.

    One group of devices. As ZeRO-3, save that gradients are exchanged in fp32.
    """

    name: ClassVar[str] = "fsdp"

    reshard: bool | None = None
    gradient_dtype: str | None = "fp32"
    checkpointing: str = TRIED
    compiled: bool = True
    microbatches: str = TRIED
    hosts: str = "listed"

    devices: str = TRIED

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
