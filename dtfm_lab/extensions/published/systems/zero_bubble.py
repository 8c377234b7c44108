"""Zero Bubble Pipeline Parallelism: peak memory and throughput (table 4).

The paper's models and cuts become plans whose messages take the seconds that the paper profiled. Its bubbles (table 5)
are calculated from profiled seconds, not measured. So tests check them, and the ledger leaves them out.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from dtfm_lab.domain.job import Job, Layer, LayerKind, ModelSpec, gpt
from dtfm_lab.domain.network import Device, Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import GB, GiB, by_key
from dtfm_lab.extensions.published.calibration import SecondsLine, leave_one_out
from dtfm_lab.extensions.published.row import Evidence, Row, assumptions, numbers
from dtfm_lab.extensions.published.sources import published
from dtfm_lab.extensions.published.units import simulated_row
from dtfm_lab.planning.evaluate import evaluate
from dtfm_lab.simulation.memory import memory

SCHEDULES = {"1F1B": "1f1b", "1F1B-I": "interleaved-1f1b", "ZB-H1": "zb-h1"}

SEQUENCE = 1024
"""Tokens per sequence."""
VOCABULARY = 50304
FREE_BYTES_PER_S = 1e30
"""Bytes/s of links that add no time. The paper profiled the seconds of a whole message, not its latency and
bandwidth."""


@cache
def settings_of(model: str) -> dict[str, int]:
    """Return the sizes of a model in the paper's table 4, and how it is cut into stages."""
    (line,) = (line for line in numbers("zero_bubble_memory.csv") if line["model"] == model)
    return {name: int(value) for name, value in line.items() if name != "model"}


def model_of(name: str) -> ModelSpec:
    """Return a GPT whose embedding and head count as a layer each when it is cut.

    The paper chose its numbers of layers for such a cut: k times the number of stages, minus 2. Both ends hold the
    embedding matrix, tied or not.
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

    # As a block, because only blocks can be cut apart.
    def as_block(layer: Layer) -> Layer:
        return replace(layer, kind=LayerKind.BLOCK, output_elements=whole.boundary_elements)

    return replace(whole, layers=(as_block(embedding), *blocks, as_block(head)))


def plan_of(
    name: str, schedule: str, microbatches: int | None = None, *, message_s: float = 0.0, **choices: object
) -> Plan:
    """Return the plan of a pipeline of the paper on A100s. Each message takes ``message_s``."""
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
    # Bandwidth without limit, so that a message takes exactly these seconds.
    latency_s = message_s * (1 - np.eye(n))
    topology = Topology(devices, latency_s, np.full((n, n), FREE_BYTES_PER_S), name=f"{n} A100")
    return evaluate(topology, job, stages=[[i] for i in range(n)])


@published("zero-bubble-memory")
def zero_bubble_memory() -> Iterator[Row]:
    """Yield gigabytes of the device that holds the most, for four models and two schedules."""
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


TRIED = (0.5, 0.8)
"""The two efficiencies at which an iteration is simulated. The line through both results gives all others
(``SecondsLine``)."""
ONE_EFFICIENCY = ", one efficiency"
ASSUMED = assumptions()["zero-bubble-throughput"]


@published("zero-bubble-throughput")
def zero_bubble_throughput() -> Iterator[Row]:
    """Yield throughputs of four models, three numbers of micro-batches and three schedules, each predicted twice.

    The first prediction uses the share of the peak that other sources give. The second uses one efficiency per model,
    fitted to the model's other rows.
    """
    for model, lines in by_key((line["model"], line) for line in numbers("zero_bubble_table5.csv")).items():
        plans = [_timed_plan(model, line["schedule"], line["microbatches"]) for line in lines]
        seconds = [_line_of(model, line["schedule"], line["microbatches"]) for line in lines]
        batches = [plan.job.global_batch / plan.job.n_stages for plan in plans]
        measured = [float(line["samples_per_gpu_per_s"]) for line in lines]
        for line, plan in zip(lines, plans, strict=True):
            yield simulated_row(plan, **_rate(line), group=model, evidence=Evidence.PROFILED, assumptions=ASSUMED)
        own = zip(seconds, batches, measured, strict=True)
        fitted = leave_one_out([one.efficiency(batch / rate) for one, batch, rate in own])
        for line, one, batch, efficiency in zip(lines, seconds, batches, fitted, strict=True):
            yield Row(
                **_rate(line, ONE_EFFICIENCY),
                group=model + ONE_EFFICIENCY,
                predicted=batch / one.seconds(efficiency),
                evidence=Evidence.LEAVE_ONE_OUT,
                assumptions=ASSUMED,
                fitted=f"efficiency {efficiency:.3f}, to the other {len(lines) - 1} rows of {model}",
            )


def _rate(line: dict[str, str], how: str = "") -> dict[str, Any]:
    """Return setting, quantity, unit and published value of a line's throughput row. ``how`` is appended to the
    setting."""
    return {
        "setting": f"{line['model']}, {line['microbatches']} micro-batches, {line['schedule']}{how}",
        "quantity": "throughput",
        "unit": "samples/s a GPU",
        "published": float(line["samples_per_gpu_per_s"]),
    }


@cache
def profile() -> dict[tuple[str, str], dict[str, str]]:
    """Return the profiled line of each model and number of micro-batches."""
    return {(line["model"], line["microbatches"]): line for line in numbers("zero_bubble_profile.csv")}


@cache
def _timed_plan(model: str, schedule: str, microbatches: str) -> Plan:
    message_s = float(profile()[model, microbatches]["message_ms"]) / 1000
    choices = {"memory_traffic": True, "transport": "blocking"}
    return plan_of(model, schedule, int(microbatches), message_s=message_s, **choices)


@cache
def _line_of(model: str, schedule: str, microbatches: str) -> SecondsLine:
    return SecondsLine.of(_timed_plan(model, schedule, microbatches), TRIED)
