"""Data parallelism without pipelines: PyTorch's DistributedDataParallel (whole models) and FSDP (shards of one)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.job.options import MiB
from dtfm_lab.domain.network import Topology
from dtfm_lab.extensions.systems.grids import MICROBATCHES, MICROBATCHES_ALONE, grids
from dtfm_lab.extensions.systems.strategy import (
    TRIED,
    Branch,
    Budget,
    GridStrategy,
    checkpointings,
    described,
    strategies,
)


@strategies.register("ddp")
@described
@dataclass(frozen=True, kw_only=True)
class DDP(GridStrategy):
    """PyTorch's DistributedDataParallel: the whole model on every device, gradients averaged during the backward."""

    name: ClassVar[str] = "ddp"

    overlap: bool = True
    bucket_bytes: float = 25.0 * MiB
    bucket_view: bool = False
    compression: str = "none"
    synchronisation: str = "ring"
    checkpointing: str = TRIED
    microbatches: str = TRIED
    hosts: str = "listed"

    devices: str = TRIED

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.compression != "none":  # only for this instance: without compression the mathematics do not change
            object.__setattr__(self, "mathematics", f"gradients are rounded to {self.compression} before an average")

    def branches(self, topology: Topology, job: Job, budget: Budget) -> Iterator[Branch]:
        """Yield replicas of the whole model, on each set of devices that is tried, with each checkpointing."""
        how = job.with_fields(
            schedule="1f1b",
            synchronisation=self.synchronisation,
            overlap=self.overlap,
            bucket_bytes=self.bucket_bytes,
            gradient_buffers="none" if self.bucket_view else "buckets",
        )
        if self.compression != "none":
            how = how.with_fields(gradient_compression=self.compression)
        ways = [{"checkpointing": kept} for kept in checkpointings(job, self.checkpointing)]
        yield from grids(self, topology, how, lambda _: ways, budget, stages=(1,), sizes=MICROBATCHES_ALONE)


@strategies.register("fsdp")
@described
@dataclass(frozen=True, kw_only=True)
class FSDP(GridStrategy):
    """PyTorch's FSDP: by default, parameters, gradients and optimizer states are sharded over all devices.

    By default there is one stage. Each layer is gathered while the one before it computes. It is modelled as ZeRO-3, or
    as ZeRO-2 if ``reshard`` is False; None tries both. Gradients are exchanged in fp32 by default.
    """

    name: ClassVar[str] = "fsdp"

    reshard: bool | None = None
    sharded: bool = True
    tensor_parallel: int = 1
    context_parallel: int = 1
    n_stages: int = 1
    schedule: str = "1f1b"
    stages_per_device: int = 1
    blocks_per_stage: tuple[int, ...] | None = None
    gradient_dtype: str | None = "fp32"
    checkpointing: str = TRIED
    compiled: bool = True
    microbatches: str = TRIED
    hosts: str = "listed"

    devices: str = TRIED

    def branches(self, topology: Topology, job: Job, budget: Budget) -> Iterator[Branch]:
        """Yield one stage in replicas, or pipelines of ``n_stages`` stages, on each set of devices that is tried."""
        how = job.with_fields(
            schedule=self.schedule,
            synchronisation="ring",
            gradient_dtype=self.gradient_dtype,
            memory_traffic=not self.compiled,
            early_stop=self.compiled,
            sequence_parallel=self.tensor_parallel > 1,
            context_parallel=self.context_parallel,
        )
        yield from grids(
            self,
            topology,
            how,
            self._ways,
            budget,
            tensor_parallel=(self.tensor_parallel,),
            stages=(self.n_stages,),
            sizes=MICROBATCHES_ALONE if self.n_stages == 1 else MICROBATCHES,
        )

    def _ways(self, job: Job) -> list[dict[str, Any]]:
        """Return each combination of checkpointing and resharding that is tried."""
        reshards = (True, False) if self.reshard is None else (self.reshard,)
        sharding = ["zero-3" if reshard else "zero-2" for reshard in reshards] if self.sharded else ["none"]
        cut: dict[str, Any] = {} if self.blocks_per_stage is None else {"blocks_per_stage": self.blocks_per_stage}
        if self.schedule == "interleaved-1f1b":
            cut["stages_per_device"] = self.stages_per_device
        return [
            {"checkpointing": kept, "sharding": each, **cut}
            for kept in checkpointings(job, self.checkpointing, ("none", "selective", "block"))
            for each in sharding
        ]
