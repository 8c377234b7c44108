"""Fine-tuning with adapters on home machines: AnswerDotAI's fsdp_qlora on two RTX 3090s without NVLink.

Two GeForce GPUs cannot reach each other's memory over PCIe, so their messages go through the host's memory. With FSDP
the program waits for the parameters that it gathers, unit by unit. Each adapter is a separate unit, and at most two
units are gathered at a time (``limit_all_gathers``). So the next layer is not fetched before this one is done.
"""

from collections.abc import Iterator
from typing import Any

from dtfm_lab.domain.job import MODELS, Job, with_adapters
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import GiB
from dtfm_lab.extensions.published.row import Evidence, Row, assumptions, numbers
from dtfm_lab.extensions.published.sources import published
from dtfm_lab.extensions.published.units import ALLOCATED, Prediction, hosts_of, listed_plan, simulated_row
from dtfm_lab.simulation import simulate

GPUS = 2
"""Number of GPUs in every row."""
GPU = "RTX 3090"
"""Kind of the GPUs in every row."""
SAMPLES = 1024
"""Sequences per epoch."""
RANK = 64
"""Rank of the adapters: the default of its train.py (``lora_rank``)."""
MODEL_NAMES = {"Llama-2 7B": "llama-2-7b", "Llama-2 70B": "llama-2-70b", "Yi 34B": "yi-34b"}
HOST_MEMORY_BYTES_PER_S = 6.12e9 / 2
"""Bytes/s between two GeForce GPUs of a host, each way. Two RTX 3090s without peer-to-peer copy 6.11 to 6.13 GB/s in
both directions together, by CUDA's p2pBandwidthLatencyTest (NVIDIA/nccl, issue 1127). In that
issue, pairs of GPUs that are farther apart copy 8.5 to 8.6 GB/s."""
COPIED_LOGIT_BYTES = 8
"""Bytes per logit in addition to what ``operators=eager`` counts. Hugging Face's Llama of 2024 makes a copy in fp32,
and another of all tokens except the last (modeling_llama.py, ``logits.float()`` and ``logits[..., :-1,
:].contiguous()``).
"""
SPEED_LINES = ("72", "73")
"""Numbers of the lines without sharding. The speed of an RTX 3090 was fitted to them."""
SPEED_FITTED = "the speed of an RTX 3090 to lines 72 and 73, which have no sharding"


def plan_of(line: dict[str, str], link_bytes_per_s: float = HOST_MEMORY_BYTES_PER_S) -> Plan:
    """Return the plan of a line: a replica on each GPU, with links of ``link_bytes_per_s`` one way."""
    size, fsdp = int(line["batch_per_gpu"]), line["sharding"] == "fsdp"
    job = Job(
        name="fsdp-qlora",
        model=with_adapters(MODELS[MODEL_NAMES[line["model"]]].with_seq_len(int(line["context"])), RANK),
        n_stages=1,
        n_replicas=GPUS,
        global_batch=size * GPUS,
        microbatch=size,
        dtype="bf16",
        schedule="1f1b",
        synchronisation="ring",
        sharding="zero-3" if fsdp else "none",
        prefetch=not fsdp,
        frozen_weights="nf4" if line["training"] == "QLoRA" else "same",
        checkpointing="block",
        operators="eager",
        memory_traffic=True,
    )
    network = hosts_of(GPUS, GPU, inside_bytes_per_s=link_bytes_per_s, between_bytes_per_s=link_bytes_per_s)
    return listed_plan(network, job)


def _epoch_s(found: Prediction) -> float:
    return SAMPLES / found.plan.job.global_batch * found.trace.iteration_s


def _reserved_gib(found: Prediction) -> float:
    """Return the GiB that torch reserves on a GPU, including Hugging Face's copies of the logits."""
    job = found.plan.job
    logits = job.microbatch * job.modelled().seq_len * job.modelled().vocab_size
    return (found.peak_bytes + COPIED_LOGIT_BYTES * logits) / ALLOCATED / GiB


@published("fsdp-qlora")
def fsdp_qlora() -> Iterator[Row]:
    """Yield seconds per 1,024 samples, and the memory that torch reserves."""
    assumed = assumptions()["fsdp-qlora"]
    for line in numbers("home_qlora.csv"):
        if line["cpu_offload"] == "True":  # an omission of data/sources.yaml
            continue
        plan, number = plan_of(line), line["line"]
        trace = simulate(plan)
        how: dict[str, Any] = {
            "group": f"{line['training']}, {line['sharding'].upper()}",
            "setting": f"{line['model']}, {line['training']}, {line['sharding'].upper()}, {line['batch_per_gpu']} x "
            f"{line['context']} tokens a GPU, line {number}",
        }
        yield simulated_row(
            plan,
            trace,
            value=_epoch_s,
            quantity="iteration",
            unit="s",
            published=float(line["seconds_per_1024_samples"]),
            evidence=Evidence.FITTED if number in SPEED_LINES else Evidence.LEAVE_ONE_OUT,
            fitted=SPEED_FITTED,
            assumptions=assumed["iteration"],
            **how,
        )
        yield simulated_row(
            plan,
            trace,
            value=_reserved_gib,
            quantity="memory",
            unit="GiB",
            published=float(line["peak_memory_gib"]),
            evidence=Evidence.TRANSFERRED,
            assumptions=assumed["memory"],
            **how,
        )
