"""Rows of torchtitan: Llama 3.1 8B with FSDP on H100s: tokens a second and peak memory, with and without torch.compile.

Nothing is fitted: devices reach the lab's default share of the data sheet's peak. Without torch.compile the operators
between matrix products each read and write memory (``memory_traffic``); with it they are fused into few, and count as
nothing. torchtitan's GPUs have slower memory (2.4 TB/s) and a power limit of 500 W, of which we know no peak.
"""

from collections.abc import Iterator
from dataclasses import replace

from dtfm_lab.domain.job import MODELS, Job, Layer, LayerKind, ModelSpec
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import GiB
from dtfm_lab.published.hosts import hosts_of
from dtfm_lab.published.row import Band, Row
from dtfm_lab.published.sources import published
from dtfm_lab.published.tables import numbers
from dtfm_lab.simulation import simulate
from dtfm_lab.simulation.memory import memory
from dtfm_lab.systems import Budget
from dtfm_lab.systems.modelled.fsdp import FSDP

LOCAL_BATCH = 2
NVLINK_BYTES_PER_S, NETWORK_BYTES_PER_S = 450e9, 8 * 50e9
"""Between two GPUs of a host, of the H100's data sheet, one way; and of a host's network: 400 Gbit/s a GPU."""
LOSS_ELEMENTS = 6
"""Numbers of 2 bytes for each logit at the beginning of the backward: the loss takes logits in fp32, keeps their
log-softmax, and its backward makes the gradients of that and of the logits beside it."""


@published(
    "torchtitan",
    title="torchtitan, Llama 3.1 8B with FSDP on H100s",
    cite="Liang et al. 2024, TorchTitan, table 1; benchmarks/llama3_h100_202412_torchtitan.md in its repository",
    licence="BSD-3-Clause",
)
def torchtitan() -> Iterator[Row]:
    """Throughput and memory of 8 and of 128 GPUs."""
    for line in numbers("torchtitan.csv"):
        n, compiled = int(line["gpus"]), line["compiled"] == "yes"
        plan = plan_of(n, compiled=compiled)
        tokens_per_s = plan.job.tokens / n / simulate(plan).iteration_s
        peak_gib = float(memory(plan).peak_bytes.max()) / GiB
        setting = f"{n} H100, FSDP{', torch.compile' if compiled else ''}"
        fused = "operators are fused" if compiled else "operators move memory"
        system = ("zero-3", "selective checkpointing", "fp32 gradients")
        for quantity, unit, found, predicted, assumptions in (
            ("throughput", "tokens/s a GPU", "tokens_per_s", tokens_per_s, (*system, "40 % of the peak", fused)),
            ("memory", "GiB", "peak_gib", peak_gib, (*system, "loss in fp32")),
        ):
            yield Row(
                group="torchtitan",
                setting=setting,
                quantity=quantity,
                unit=unit,
                published=float(line[found]),
                predicted=predicted,
                band=Band.share(0.1),
                assumptions=assumptions,
            )


def plan_of(n: int, *, compiled: bool) -> Plan:
    """The model sharded over so many GPUs, in hosts of eight."""
    network = hosts_of(n, "H100", inside_bytes_per_s=NVLINK_BYTES_PER_S, between_bytes_per_s=NETWORK_BYTES_PER_S)
    job = Job(
        name="torchtitan",
        model=_with_loss_in_fp32(MODELS["llama-3-8b"]),
        global_batch=LOCAL_BATCH * n,
        microbatch=LOCAL_BATCH,
        dtype="bf16",
    )
    strategy = FSDP(checkpointing="selective", compiled=compiled, microbatches="given")
    (plan,) = strategy.plans(network, job, Budget())
    return plan


def _with_loss_in_fp32(model: ModelSpec) -> ModelSpec:
    def held(layer: Layer) -> Layer:
        if layer.kind is not LayerKind.HEAD:
            return layer
        return replace(layer, held_elements=model.seq_len * (2 * model.d_model + LOSS_ELEMENTS * model.vocab_size))

    return replace(model, layers=tuple(map(held, model.layers)))
