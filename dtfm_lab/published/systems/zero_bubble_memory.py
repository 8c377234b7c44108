"""Zero Bubble, table 4: peak memory of the worst device, of 1F1B and interleaved; its models and cuts as plans."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np

from dtfm_lab.domain.job import Job, Layer, LayerKind, ModelSpec, gpt
from dtfm_lab.domain.network import Device, Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import GB, GiB
from dtfm_lab.planning.evaluate import evaluate
from dtfm_lab.published.evidence import Evidence
from dtfm_lab.published.row import Row
from dtfm_lab.published.sources import published
from dtfm_lab.published.tables import numbers
from dtfm_lab.simulation.memory import memory

SEQUENCE, VOCABULARY = 1024, 50304
FREE_BYTES_PER_S = 1e30
"""The seconds of a message are profiled as a whole, whatever of them is latency."""
SCHEDULES = {"1F1B": "1f1b", "1F1B-I": "interleaved-1f1b", "ZB-H1": "zb-h1"}
"""The paper's names of schedules, and ours."""


@cache
def settings_of(model: str) -> dict[str, int]:
    """Sizes and cut of a model of the paper's table 4."""
    (line,) = (line for line in numbers("zero_bubble_memory.csv") if line["model"] == model)
    return {name: int(value) for name, value in line.items() if name != "model"}


def model_of(name: str) -> ModelSpec:
    """A GPT whose embedding and head each count as a layer when it is cut, as k layers a stage less 2 were chosen for.

    Both ends hold the matrix of the embedding, tied or not.
    """
    sizes = settings_of(name)
    whole = gpt(
        name=name,
        n_layers=sizes["layers"],
        d_model=sizes["d_model"],
        n_heads=sizes["heads"],
        seq_len=SEQUENCE,
        vocab_size=VOCABULARY,
        tied=False,
    )
    embedding, *blocks, head = whole.layers

    def as_block(layer: Layer) -> Layer:
        return replace(layer, kind=LayerKind.BLOCK, output_elements=whole.boundary_elements)

    return replace(whole, layers=(as_block(embedding), *blocks, as_block(head)))


def plan_of(
    name: str, schedule: str, microbatches: int | None = None, *, message_s: float = 0.0, **choices: object
) -> Plan:
    """A pipeline of the paper on A100s, each message taking so many seconds."""
    sizes = settings_of(name)
    n, n_microbatches = sizes["stages"], sizes["microbatches"] if microbatches is None else microbatches
    job = Job(
        name=name,
        model=model_of(name),
        n_stages=n,
        n_replicas=1,
        global_batch=n_microbatches * sizes["microbatch"],
        microbatch=sizes["microbatch"],
        dtype="fp16",
        attention="unfused",
        stages_per_device=sizes["interleaved_chunks"] if schedule == "1F1B-I" else 1,
        schedule=SCHEDULES[schedule],
        **choices,  # type: ignore[arg-type]
    )
    devices = tuple(Device(name=f"gpu {i}", gpu="A100") for i in range(n))
    latency_s = message_s * (1 - np.eye(n))
    topology = Topology(devices, latency_s, np.full((n, n), FREE_BYTES_PER_S), name=f"{n} A100")
    return evaluate(topology, job, stages=[[i] for i in range(n)])


@published(
    "zero-bubble-memory",
    title="Zero Bubble, peak memory",
    cite="Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, table 4",
    licence="figures of a paper, cited",
    url="https://arxiv.org/abs/2401.10241",
)
def zero_bubble_memory() -> Iterator[Row]:
    """Gigabytes of the worst device, for four models and two schedules."""
    for line in numbers("zero_bubble_memory.csv"):
        for schedule, column in (("1F1B", "one_f_one_b_gb"), ("1F1B-I", "interleaved_gb")):
            peak_bytes = int(memory(plan_of(line["model"], schedule)).peak_bytes.max())
            measured = float(line[column])
            yield Row(
                group="Zero Bubble",
                setting=f"{line['model']}, {line['stages']} stages, {schedule}",
                quantity="memory",
                unit="GB",
                published=measured,
                predicted=peak_bytes / GB,
                evidence=Evidence.PURE,
                assumptions=(
                    "attention unfused",
                    "fp16 gradients, as the paper's scripts name --fp16 and not --accumulate-allreduce-grads-in-fp32",
                    "embedding and head count as a layer each in the cut",
                ),
                note=f"published in whole GB; were they GiB, {peak_bytes / GiB / measured:.2f} times",
            )
