"""Zero Bubble Pipeline Parallelism: bubbles of 1F1B, interleaved 1F1B and ZB-H1 (table 5), from profiled seconds; peak
memory and throughput (table 4), its models and cuts as plans whose messages take the seconds that the paper profiled.

The bubbles are calculated, not measured: from the seconds of passes and messages that the authors profiled, a bubble is
1 - M (F + B + W) / the longest device's time. Their calculation of interleaved 1F1B (``get_interleave_schedule``)
leaves out waits: a message from the last device to the first, from one stage of a device to its next, is awaited by the
first micro-batch of each round, of as many as there are devices, and by no other. A run would see them all: with every
message awaited a bubble is 0.0008 to 0.0035 more.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np

from dtfm_lab.domain.job import Job, Layer, LayerKind, ModelSpec, gpt
from dtfm_lab.domain.network import Device, Links, Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Kind, TaskGraph, lower, task_graph
from dtfm_lab.domain.schedule.task_graph import COMPUTATION
from dtfm_lab.domain.units import GB, GiB, by_key
from dtfm_lab.extensions.published.calibration import SecondsLine, leave_one_out
from dtfm_lab.extensions.published.row import Evidence, Row, assumptions, numbers
from dtfm_lab.extensions.published.sources import published
from dtfm_lab.extensions.published.units import simulated_row
from dtfm_lab.planning.evaluate import evaluate
from dtfm_lab.simulation.engine import PlacedTasks, without_edges
from dtfm_lab.simulation.memory import memory
from dtfm_lab.simulation.schedules import schedules

SCHEDULES = {"1F1B": "1f1b", "1F1B-I": "interleaved-1f1b", "ZB-H1": "zb-h1"}
LEFT_OUT = "of messages from the last device back to the first, only those of a round's first micro-batch are awaited"


def bubble(
    schedule: str,
    n_stages: int,
    n_microbatches: int,
    pass_s: Sequence[float],
    message_s: float,
    *,
    stages_per_device: int = 1,
    as_published: bool = False,
) -> float:
    """Share of the time in which the devices idle.

    Parameters
    ----------
    pass_s
        Seconds of a device's forward and of the two halves of its backward, over all stages that it holds.
    message_s
        Seconds from the end of a pass to the beginning of the next device's.
    as_published
        Whether the waits that the authors' calculation of interleaved 1F1B leaves out are left out.
    """
    graph = _graph(schedule, n_stages, n_microbatches, stages_per_device)
    forward_s, input_s, weight_s = (seconds / stages_per_device for seconds in pass_s)
    taken_s = {
        Kind.FORWARD: forward_s,
        Kind.BACKWARD: input_s + weight_s,
        Kind.BACKWARD_INPUT: input_s,
        Kind.BACKWARD_WEIGHT: weight_s,
    }
    compute_s = np.array([taken_s.get(action.kind, 0.0) for action in graph.actions])[graph.action]
    if as_published:
        graph = _without_left_out(graph)
    there = np.where(graph.partner >= 0, graph.position[graph.partner], graph.position)
    tasks = PlacedTasks(graph, graph.position, there, np.zeros(len(graph)), compute_s)
    links = Links(np.full((n_stages, n_stages), message_s), np.full((n_stages, n_stages), np.inf))
    return 1 - n_microbatches * sum(pass_s) / tasks.simulate(links).makespan_s


@lru_cache(maxsize=2)
def _graph(schedule: str, n_stages: int, n_microbatches: int, stages_per_device: int) -> TaskGraph:
    built = schedules[schedule](n_stages, n_microbatches, stages_per_device=stages_per_device)
    return task_graph(lower(built, n_replicas=1))


def _without_left_out(graph: TaskGraph) -> TaskGraph:
    """The graph without the waits of passes for messages that LEFT_OUT does not name."""
    n_stages = graph.programs.n_positions
    # messages between the last device and the first come in at these stages
    first_of_device = {Kind.RECV_F: 0, Kind.RECV_B: n_stages - 1}
    left_out = [
        action.stage % n_stages == first_of_device.get(action.kind, -1) and (action.microbatch or 0) % n_stages > 0
        for action in graph.actions
    ]
    gone = np.array(left_out)[graph.action[graph.sources]] & (graph.role[graph.successors] == COMPUTATION)
    return without_edges(graph, gone)


@published("zero-bubble")
def zero_bubble() -> Iterator[Row]:
    """Bubbles of three schedules for four models."""
    profile = _profile()
    chunks = {line["model"]: int(line["interleaved_chunks"]) for line in numbers("zero_bubble_memory.csv")}
    for line in numbers("zero_bubble_table5.csv"):
        model, name, n_microbatches = line["model"], line["schedule"], int(line["microbatches"])
        seconds = profile[model, line["microbatches"]]
        what = ("forward", "backward_input", "backward_weight", "message")
        *pass_s, message_s = (float(seconds[f"{one}_ms"]) / 1e3 for one in what)
        interleaved = name == "1F1B-I"
        per_device = chunks[model] if interleaved else 1
        predicted = partial(
            bubble,
            SCHEDULES[name],
            int(line["stages"]),
            n_microbatches,
            pass_s,
            message_s,
            stages_per_device=per_device,
        )
        yield Row(
            group=name,
            setting=f"{model}, {line['stages']} stages, {n_microbatches} micro-batches, {name}",
            quantity="bubble",
            unit="",
            published=float(line["bubble"]),
            predicted=predicted(as_published=interleaved),
            evidence=Evidence.CALCULATION,
            measured=False,
            assumptions=(
                "the authors' profiled seconds",
                *([f"{per_device} stages a device", LEFT_OUT] if interleaved else []),
            ),
            note=f"{predicted():.4f} with every message awaited, as in a run" if interleaved else "",
        )


SEQUENCE, VOCABULARY = 1024, 50304
FREE_BYTES_PER_S = 1e30
"""The seconds of a message are profiled as a whole, whatever of them is latency."""


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


@published("zero-bubble-memory")
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


TRIED = (0.5, 0.8)
"""Efficiencies at which an iteration is simulated."""
ONE_EFFICIENCY = ", one efficiency"
ASSUMED = assumptions()["zero-bubble-throughput"]


@published("zero-bubble-throughput")
def zero_bubble_throughput() -> Iterator[Row]:
    """Throughputs of four models, three numbers of micro-batches and three schedules, twice: with the share of the peak
    that other sources say, and with one efficiency a model, fitted to its other rows."""
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
    """Fields of the row of a throughput."""
    return {
        "setting": f"{line['model']}, {line['microbatches']} micro-batches, {line['schedule']}{how}",
        "quantity": "throughput",
        "unit": "samples/s a GPU",
        "published": float(line["samples_per_gpu_per_s"]),
    }


@cache
def _profile() -> dict[tuple[str, str], dict[str, str]]:
    """The profiled line of each model and number of micro-batches."""
    return {(line["model"], line["microbatches"]): line for line in numbers("zero_bubble_profile.csv")}


@cache
def _timed_plan(model: str, schedule: str, microbatches: str) -> Plan:
    message_s = float(_profile()[model, microbatches]["message_ms"]) / 1000
    choices = {"memory_traffic": True, "transport": "blocking"}
    return plan_of(model, schedule, int(microbatches), message_s=message_s, **choices)


@cache
def _line_of(model: str, schedule: str, microbatches: str) -> SecondsLine:
    return SecondsLine.of(_timed_plan(model, schedule, microbatches), TRIED)
