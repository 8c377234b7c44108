"""DeepSpeed: its pipeline engine with ZeRO-1, and ZeRO-3 over one group of devices."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.job.system import TRANSPORTS
from dtfm_lab.domain.network import Topology
from dtfm_lab.systems import assumption as common
from dtfm_lab.systems.assumption import TRIED, Assumption, checkpointings, shardings
from dtfm_lab.systems.branch import Branch
from dtfm_lab.systems.grids import grids
from dtfm_lab.systems.modelled.data_parallel import DataParallel
from dtfm_lab.systems.strategy import Budget, GridStrategy, strategies


@strategies.register("deepspeed-pipeline")
@dataclass(frozen=True, kw_only=True)
class DeepSpeedPipeline(GridStrategy):
    """DeepSpeed's pipeline engine: pipelines and data parallelism, replicas splitting the optimiser's states (ZeRO-1).

    More of ZeRO than its first stage is refused beside pipelines (deepspeed/runtime/pipe/engine.py).
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
        common.sharding(source="DeepSpeed, deepspeed/runtime/pipe/engine.py: the stage of ZeRO must be below 2"),
    ] = TRIED
    transport: Annotated[
        str,
        Assumption(
            help="A stage waits until what it sends has arrived.",
            choices=TRANSPORTS,
            source="DeepSpeed, deepspeed/runtime/pipe/schedule.py: SendActivation and SendGrad are blocking",
        ),
    ] = "blocking"
    n_stages: Annotated[
        int | None,
        Assumption(
            help="Devices of a pipeline; every number is tried where not given.",
            unit="devices",
            least=1,
            source="DeepSpeed: num_stages of PipelineModule is the user's",
        ),
    ] = None
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

    microbatches: Annotated[
        str, common.microbatches(source="DeepSpeed: train_micro_batch_size_per_gpu is the user's")
    ] = TRIED
    devices: Annotated[str, common.devices(source="deepspeed's launcher: --include and --exclude of its hosts")] = TRIED

    def branches(self, topology: Topology, job: Job, budget: Budget) -> Iterator[Branch]:
        """Every grid, with each checkpointing and sharding that is tried."""
        yield from grids(
            self,
            topology,
            job.with_fields(schedule="1f1b", synchronisation="ring", transport=self.transport),
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


@strategies.register("deepspeed-zero-3")
@dataclass(frozen=True, kw_only=True)
class DeepSpeedZero3(DataParallel):
    """DeepSpeed's ZeRO-3: every replica holds a shard of all states and gathers each layer when it is used.

    One group of devices. Layers are gathered in every micro-batch, in the forward and again in the backward, which
    scatters their gradients: three times the traffic of half an all-reduce.
    """

    name: ClassVar[str] = "deepspeed-zero-3"
    title: ClassVar[str] = "DeepSpeed ZeRO-3"
    cite: ClassVar[str] = "Rajbhandari et al., SC 2020"
    url: ClassVar[str] = "https://arxiv.org/abs/1910.02054"

    stage: Annotated[
        int,
        Assumption(
            help="What replicas split: 3 parameters, gradients and states, 2 not the parameters, 1 states alone.",
            least=1,
            most=3,
            source="Rajbhandari et al. 2020, figure 1; DeepSpeed, deepspeed/runtime/zero/config.py: stage",
        ),
    ] = 3
    gradient_dtype: Annotated[
        str | None,
        Assumption(
            help="Gradients are exchanged in the precision of numbers, or in one of their own.",
            choices=("fp16", "bf16", "fp32"),
            source="DeepSpeed: communication_data_type is that of the model by default",
        ),
    ] = None
    checkpointing: Annotated[
        str, common.checkpointing(source="DeepSpeed leaves it to the model's code (deepspeed.checkpointing)")
    ] = TRIED
    attention: Annotated[str, common.attention(source="FlashAttention came in 2022; models of before kept it")] = (
        "fused"
    )
    memory_traffic: Annotated[bool, common.MEMORY_TRAFFIC] = False
    microbatches: Annotated[
        str,
        common.microbatches(
            source="DeepSpeed: train_micro_batch_size_per_gpu is the user's, and gradient_accumulation_steps follows"
        ),
    ] = TRIED
    hosts: Annotated[
        str,
        common.hosts_in_rings(
            source="deepspeed's launcher numbers hosts as its hostfile lists them; NCCL lays the rings"
        ),
    ] = "listed"

    devices: Annotated[str, common.devices(source="deepspeed's launcher: --include and --exclude of its hosts")] = TRIED

    def fields(self) -> dict[str, Any]:
        """As they are split and exchanged."""
        return {
            "synchronisation": "ring",
            "sharding": f"zero-{self.stage}",
            "gradient_dtype": self.gradient_dtype,
            "attention": self.attention,
            "memory_traffic": self.memory_traffic,
        }

    def ways(self, job: Job) -> list[dict[str, str]]:
        """Each checkpointing that is tried."""
        return [{"checkpointing": kept} for kept in checkpointings(job, self.checkpointing)]
