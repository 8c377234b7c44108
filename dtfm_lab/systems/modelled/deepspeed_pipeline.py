"""DeepSpeed's pipeline engine: pipelines and data parallelism, replicas splitting the optimiser's states (ZeRO-1)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.job.system import TRANSPORTS
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.systems import common_assumptions as common
from dtfm_lab.systems.assumption import Assumption
from dtfm_lab.systems.checkpoints import TRIED, checkpointed
from dtfm_lab.systems.grids import grids
from dtfm_lab.systems.strategy import Budget, Strategy, strategies


@strategies.register("deepspeed-pipeline")
@dataclass(frozen=True, kw_only=True)
class DeepSpeedPipeline(Strategy):
    """DeepSpeed's pipeline engine: pipelines and data parallelism, replicas splitting the optimiser's states (ZeRO-1).

    All devices take part, but for those that equal shares of the batch leave over. More of ZeRO than its first stage is
    refused beside pipelines (deepspeed/runtime/pipe/engine.py).
    """

    name: ClassVar[str] = "deepspeed-pipeline"
    title: ClassVar[str] = "DeepSpeed, pipelines with ZeRO-1"
    cite: ClassVar[str] = "Rasley et al., KDD 2020"
    url: ClassVar[str] = "https://www.deepspeed.ai/tutorials/pipeline/"

    order: Annotated[
        str,
        common.order(
            source="DeepSpeed, deepspeed/runtime/pipe/topology.py: PipeDataParallelTopology has the axes pipe, data"
        ),
    ] = "dp-pp"
    sharding: Annotated[
        str,
        Assumption(
            help="Every replica keeps a shard of the optimiser's states (ZeRO-1), or all of them.",
            choices=("none", "zero-1"),
            source="DeepSpeed, deepspeed/runtime/pipe/engine.py: the stage of ZeRO must be below 2",
        ),
    ] = "zero-1"
    transport: Annotated[
        str,
        Assumption(
            help="A stage waits until what it sends has arrived.",
            choices=TRANSPORTS,
            source="DeepSpeed, deepspeed/runtime/pipe/schedule.py: SendActivation and SendGrad are blocking",
        ),
    ] = "blocking"
    tensor_parallel: Annotated[
        bool,
        Assumption(
            help="Layers are not sliced over GPUs; with Megatron-DeepSpeed they may be.",
            source="DeepSpeed has no sliced layers of its own; Megatron-DeepSpeed brings Megatron's",
        ),
    ] = False
    checkpointing: Annotated[
        str, common.checkpointing(source="DeepSpeed: activation_checkpoint_interval of PipelineModule, 0 by default")
    ] = TRIED
    hosts: Annotated[str, common.hosts(source="deepspeed's launcher numbers hosts as its hostfile lists them")] = (
        "listed"
    )

    def plans(self, topology: Topology, job: Job, budget: Budget) -> Iterator[Plan]:
        """Every grid, with each checkpointing that is tried."""
        how = job.with_fields(schedule="1f1b", synchronisation="ring", transport=self.transport, sharding=self.sharding)
        degrees = topology.group_sizes if self.tensor_parallel else (1,)
        for one in checkpointed(how, self.checkpointing):
            yield from grids(
                topology, one, tensor_parallel=degrees, order=self.order, hosts=self.hosts, seed=budget.seed
            )
