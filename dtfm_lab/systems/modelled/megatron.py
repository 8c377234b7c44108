"""Megatron-LM: the best grid of tensor, pipeline and data parallelism, devices in the order of their ranks."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.job.system import TRANSPORTS
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.systems import assumption as common
from dtfm_lab.systems.assumption import ORDERS, TRIED, Assumption, checkpointings, shardings
from dtfm_lab.systems.branch import Branch
from dtfm_lab.systems.grids import grids
from dtfm_lab.systems.strategy import Budget, GridStrategy, strategies

BY_PRECISION = "by-precision"
AS_SHIPPED: dict[str, Any] = {
    "order": "dp-pp",
    "overlap": False,
    "sharding": "none",
    "microbatches": "given",
    "devices": "all",
}
"""Assumptions of Megatron-LM where no flag is given, at the job's micro-batch on all devices."""


@strategies.register("megatron")
@dataclass(frozen=True, kw_only=True)
class Megatron(GridStrategy):
    """Megatron-LM: the best grid of tensor, pipeline and data parallelism, devices in the order of their ranks.

    Its user tries what its flags allow; devices beyond that are taken as the network lists them. The number of stages
    divides the number of blocks, as ``megatron/arguments.py`` asks. Tensor parallelism stays within a host (Narayanan
    et al. 2021, section 5.4, takeaway 1).
    """

    name: ClassVar[str] = "megatron"
    title: ClassVar[str] = "Megatron-LM"
    cite: ClassVar[str] = "Narayanan et al., SC 2021"
    url: ClassVar[str] = "https://arxiv.org/abs/2104.04473"

    order: Annotated[
        str,
        Assumption(
            help="Neighbouring ranks are of one data-parallel group, or of one pipeline; the faster order.",
            choices=(TRIED, *ORDERS),
            source="Megatron-LM, megatron/training/arguments.py: --use-tp-pp-dp-mapping has the order tp-cp-ep-pp-dp "
            "instead of tp-cp-ep-dp-pp",
        ),
    ] = TRIED
    tensor_parallel: Annotated[
        int | None,
        Assumption(
            help="GPUs of a host that share each layer; every power of two that a host has is tried where not given.",
            unit="GPUs",
            least=1,
            source="Megatron-LM: --tensor-model-parallel-size is the user's",
        ),
    ] = None
    n_stages: Annotated[
        int | None,
        Assumption(
            help="Devices of a pipeline; every divisor of the blocks is tried where not given.",
            unit="devices",
            least=1,
            source="Megatron-LM: --pipeline-model-parallel-size is the user's",
        ),
    ] = None
    hosts: Annotated[
        str,
        common.hosts(
            source="torchrun and Slurm number hosts as they are listed; nothing in Megatron-LM looks at the network"
        ),
    ] = "listed"
    transport: Annotated[
        str,
        Assumption(
            help="A stage waits until what it sends has arrived; both directions of an exchange travel at once.",
            choices=TRANSPORTS,
            source="Megatron-LM, p2p_communication.py: batch_isend_irecv of a send with its receive, then a wait; "
            "--overlap-p2p-communication came with interleaving in 2023",
        ),
    ] = "batched"
    stages_per_device: Annotated[
        int,
        Assumption(
            help="Stages of each device; more than one interleaves them.",
            unit="stages",
            least=1,
            source="Narayanan et al. 2021, section 2.2.2; --num-layers-per-virtual-pipeline-stage is off by default",
        ),
    ] = 1
    synchronisation: Annotated[
        str,
        common.ring_or_tree(
            source="NCCL chooses by size and devices; rings for the large buffers that Megatron-LM reduces whole"
        ),
    ] = "ring"
    overlap: Annotated[
        bool | None,
        Assumption(
            help="Gradients are averaged beside the last backward, or behind it; the faster where not given.",
            source="Megatron-LM: --overlap-grad-reduce is the user's, and off by default",
        ),
    ] = None
    gradient_dtype: Annotated[
        str,
        Assumption(
            help="Gradients are summed and exchanged in fp32 where numbers are bf16, and in fp16 where they are fp16.",
            choices=(BY_PRECISION, "fp16", "bf16", "fp32"),
            source="Megatron-LM, megatron/arguments.py: bf16 sets --accumulate-allreduce-grads-in-fp32, fp16 does not; "
            "docs/source/api-guide/dist_optimizer.md counts 18 bytes a parameter with fp32 gradients and 20 with fp16 "
            "ones, of which the fp32 copy of these, 4 bytes, is not counted here",
        ),
    ] = BY_PRECISION
    sharding: Annotated[
        str, common.sharding(source="Megatron-LM: --use-distributed-optimizer is the user's, and off by default")
    ] = TRIED
    checkpointing: Annotated[
        str,
        common.checkpointing(
            source="Megatron-LM: --recompute-granularity is off by default; every row of Narayanan et al. 2021, table "
            "1, recomputes (examples/sc21/run_table_1.sh)",
        ),
    ] = TRIED
    attention: Annotated[
        str, common.attention(source="Megatron-LM kept it until FlashAttention came in 2022 (--use-flash-attn)")
    ] = "fused"
    dropout: Annotated[
        bool,
        Assumption(
            help="Blocks of a gpt drop out and keep the masks.",
            source="Megatron-LM, megatron/training/arguments.py: --attention-dropout and --hidden-dropout are 0.1 by "
            "default",
        ),
    ] = True
    sequence_parallel: Annotated[
        bool,
        Assumption(
            help="GPUs of a tensor-parallel group split norms, residuals and dropout too, along the sequence.",
            source="Megatron-LM: --sequence-parallel is the user's, and off by default (Korthikanti et al. 2022)",
        ),
    ] = False
    memory_traffic: Annotated[bool, common.MEMORY_TRAFFIC] = False
    microbatches: Annotated[str, common.microbatches(source="Megatron-LM: --micro-batch-size is the user's")] = TRIED
    devices: Annotated[
        str,
        common.devices(source="torchrun: --nnodes and the hosts are the user's; Megatron-LM takes those it is given"),
    ] = TRIED

    def branches(self, topology: Topology, job: Job, budget: Budget) -> Iterator[Plan | Branch]:
        """Every grid, in each way to train it that is tried."""
        how = job.with_fields(
            schedule="1f1b",
            synchronisation=self.synchronisation,
            transport=self.transport,
            attention=self.attention,
            dropout=self.dropout,
            sequence_parallel=self.sequence_parallel,
            memory_traffic=self.memory_traffic,
            gradient_dtype=self._gradients_in(job),
        )
        blocks = how.modelled().n_blocks
        stages = [n for n in range(1, blocks + 1) if not blocks % (n if n == 1 else n * self.stages_per_device)]
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
        """Fields of a shaped job that its flags change; none where its shape cannot be interleaved."""
        interleaved: dict[str, Any] = {}
        if self.stages_per_device > 1 and job.n_stages > 1:
            if job.n_microbatches % job.n_stages:  # as Megatron's interleaving asks
                return []
            interleaved = {"schedule": "interleaved-1f1b", "stages_per_device": self.stages_per_device}
        overlaps = (False, True) if self.overlap is None else (self.overlap,)
        if job.n_replicas == 1:  # which average nothing
            overlaps = overlaps[:1]
        return [
            {"checkpointing": kept, "sharding": sharding, "overlap": overlap, **interleaved}
            for kept in checkpointings(job, self.checkpointing)
            for sharding in shardings(job, self.sharding)
            for overlap in overlaps
        ]

    def _gradients_in(self, job: Job) -> str | None:
        if self.gradient_dtype != BY_PRECISION:
            return self.gradient_dtype
        return "fp32" if job.dtype == "bf16" else None
