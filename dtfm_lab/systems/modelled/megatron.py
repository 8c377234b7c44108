"""Megatron-LM: the best grid of tensor, pipeline and data parallelism, devices in the order of their ranks."""

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

BY_PRECISION = "by-precision"


@strategies.register("megatron")
@dataclass(frozen=True, kw_only=True)
class Megatron(Strategy):
    """Megatron-LM: the best grid of tensor, pipeline and data parallelism, devices in the order of their ranks.

    All devices take part, but for those that equal shares of batch and layers leave over. The number of stages divides
    the number of blocks, as ``megatron/arguments.py`` asks. Tensor parallelism stays within a host (Narayanan et al.
    2021, section 5.4, takeaway 1).
    """

    name: ClassVar[str] = "megatron"
    title: ClassVar[str] = "Megatron-LM"
    cite: ClassVar[str] = "Narayanan et al., SC 2021"
    url: ClassVar[str] = "https://arxiv.org/abs/2104.04473"

    order: Annotated[
        str,
        common.order(
            source="Megatron-LM, megatron/core/parallel_state.py: the order tp-cp-ep-dp-pp, unless "
            "--use-tp-pp-dp-mapping asks for another",
        ),
    ] = "dp-pp"
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
        bool,
        Assumption(
            help="Gradients are averaged behind the last backward, not beside it.",
            source="Megatron-LM, megatron/model/distributed.py of 2021 to 2023 reduces the whole buffer after the "
            "schedule; --overlap-grad-reduce is off by default",
        ),
    ] = False
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
        str,
        Assumption(
            help="Every replica keeps all of the optimiser's states, or a shard (the distributed optimizer).",
            choices=("none", "zero-1"),
            source="Megatron-LM: --use-distributed-optimizer is off by default",
        ),
    ] = "none"
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
    memory_traffic: Annotated[bool, common.MEMORY_TRAFFIC] = False
    fewer_devices: Annotated[
        bool,
        Assumption(
            help="Every device takes part; the user does not try to leave some out.",
            source="Narayanan et al. 2021, section 3.1: the sizes of the grid multiply to the number of GPUs",
        ),
    ] = False

    def plans(self, topology: Topology, job: Job, budget: Budget) -> Iterator[Plan]:
        """Every grid, with each checkpointing that is tried."""
        how = job.with_fields(
            schedule="1f1b",
            synchronisation=self.synchronisation,
            transport=self.transport,
            overlap=self.overlap,
            sharding=self.sharding,
            attention=self.attention,
            memory_traffic=self.memory_traffic,
            gradient_dtype=self._gradients_in(job),
        )
        blocks = how.modelled().n_blocks
        stages = [n for n in range(1, blocks + 1) if not blocks % (n if n == 1 else n * self.stages_per_device)]
        stages = [n for n in stages if self.n_stages in (None, n)]
        degrees = topology.group_sizes if self.tensor_parallel is None else (self.tensor_parallel,)
        for one in checkpointed(how, self.checkpointing):
            for plan in grids(
                topology,
                one,
                tensor_parallel=degrees,
                order=self.order,
                stages=stages,
                hosts=self.hosts,
                seed=budget.seed,
                fewer=self.fewer_devices,
            ):
                if self.stages_per_device == 1 or plan.job.n_stages == 1:
                    yield plan
                elif not plan.job.n_microbatches % plan.job.n_stages:  # as Megatron's interleaving asks
                    interleaved = plan.job.with_fields(
                        schedule="interleaved-1f1b", stages_per_device=self.stages_per_device
                    )
                    yield plan.changed(job=interleaved)

    def _gradients_in(self, job: Job) -> str | None:
        if self.gradient_dtype != BY_PRECISION:
            return self.gradient_dtype
        return "fp32" if job.dtype == "bf16" else None
