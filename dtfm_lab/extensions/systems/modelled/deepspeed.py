"""DeepSpeed as launch files and publications use it: pipelines with ZeRO-1, and ZeRO-3 over one group of devices.

Users no longer ask for them by name. ``megatron`` includes all such pipelines, and ``fsdp`` shards like ZeRO-3.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.extensions.systems.grids import MICROBATCHES_ALONE, grids
from dtfm_lab.extensions.systems.strategy import (
    TRIED,
    Branch,
    Budget,
    GridStrategy,
    checkpointings,
    described,
    shardings,
)


@described
@dataclass(frozen=True, kw_only=True)
class DeepSpeedPipeline(GridStrategy):
    """DeepSpeed's pipeline engine: pipelines and data parallelism. Replicas may split the optimizer's states (ZeRO-1).

    DeepSpeed refuses higher stages of ZeRO with pipelines (deepspeed/runtime/pipe/engine.py).
    """

    name: ClassVar[str] = "deepspeed-pipeline"

    order: str = "dp-pp"
    sharding: str = TRIED
    transport: str = "blocking"
    n_stages: int | None = None
    tensor_parallel: bool = False
    gradient_dtype: str | None = None
    checkpointing: str = TRIED
    hosts: str = "listed"

    microbatches: str = TRIED
    devices: str = TRIED

    def branches(self, topology: Topology, job: Job, budget: Budget) -> Iterator[Branch]:
        """Yield every grid, with each checkpointing and sharding that is tried."""
        yield from grids(
            self,
            topology,
            job.with_fields(
                schedule="1f1b",
                synchronisation="ring",
                transport=self.transport,
                gradient_dtype=self.gradient_dtype,
            ),
            self._ways,
            budget,
            tensor_parallel=topology.group_sizes if self.tensor_parallel else (1,),
            orders=(self.order,),
            stages=None if self.n_stages is None else (self.n_stages,),
        )

    def _ways(self, job: Job) -> list[dict[str, Any]]:
        return [
            {"checkpointing": kept, "sharding": sharding}
            for kept in checkpointings(job, self.checkpointing)
            for sharding in shardings(job, self.sharding)
        ]


@described
@dataclass(frozen=True, kw_only=True)
class DeepSpeedZero3(GridStrategy):
    """DeepSpeed's ZeRO-3: every replica holds a shard of all states and gathers each layer when it needs it.

    There is one group of devices. Each micro-batch gathers the layers in the forward and again in the backward, which
    also scatters their gradients. That is three times the traffic of half an all-reduce. ``stage`` gives another stage
    of ZeRO (0 to 2).
    """

    name: ClassVar[str] = "deepspeed-zero-3"

    stage: int = 3
    tensor_parallel: int = 1
    gradient_dtype: str | None = None
    checkpointing: str = TRIED
    attention: str = "fused"
    memory_traffic: bool = False
    microbatches: str = TRIED
    hosts: str = "listed"

    devices: str = TRIED

    def branches(self, topology: Topology, job: Job, budget: Budget) -> Iterator[Branch]:
        """Yield replicas of the whole model, on each set of devices that is tried, with each checkpointing."""
        how = job.with_fields(
            schedule="1f1b",
            synchronisation="ring",
            sharding=f"zero-{self.stage}" if self.stage else "none",
            gradient_dtype=self.gradient_dtype,
            attention=self.attention,
            memory_traffic=self.memory_traffic,
        )
        ways = [{"checkpointing": kept} for kept in checkpointings(job, self.checkpointing)]
        yield from grids(
            self,
            topology,
            how,
            lambda _: ways,
            budget,
            tensor_parallel=(self.tensor_parallel,),
            stages=(1,),
            sizes=MICROBATCHES_ALONE,
        )
