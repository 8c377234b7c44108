"""Zero Bubble Pipeline Parallelism, table 5: bubbles of 1F1B, interleaved 1F1B and ZB-H1, from profiled seconds.

The bubbles are calculated, not measured: from the seconds of passes and messages that the authors profiled, a bubble is
1 - M (F + B + W) / the longest device's time. Their calculation of interleaved 1F1B (``get_interleave_schedule``)
leaves out waits: a message from the last device to the first, from one stage of a device to its next, is awaited by the
first micro-batch of each round, of as many as there are devices, and by no other. A run would see them all: with every
message awaited a bubble is 0.0008 to 0.0035 more.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from dtfm_lab.domain.network import Links
from dtfm_lab.domain.schedule import Kind, TaskGraph, lower, task_graph
from dtfm_lab.domain.schedule.task_graph import COMPUTATION
from dtfm_lab.published.evidence import Evidence
from dtfm_lab.published.row import Row
from dtfm_lab.published.sources import published
from dtfm_lab.published.tables import numbers
from dtfm_lab.simulation.engine import PlacedTasks
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
    source, target = graph.sources, graph.successors
    kept = ~(np.array(left_out)[graph.action[source]] & (graph.role[target] == COMPUTATION))
    n = len(graph)
    return replace(
        graph,
        n_predecessors=graph.n_predecessors - np.bincount(target[~kept], minlength=n),
        successors_from=np.concatenate([[0], np.cumsum(np.bincount(source[kept], minlength=n))]),
        successors=target[kept],
    )


@published(
    "zero-bubble",
    title="Zero Bubble Pipeline Parallelism, bubbles",
    cite="Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, table 5",
    licence="figures of a paper, cited; its own calculation from profiled seconds, not a measurement",
    url="https://openreview.net/forum?id=tuzTN0eIO5",
)
def zero_bubble() -> Iterator[Row]:
    """Bubbles of three schedules for four models."""
    profile = {(line["model"], line["microbatches"]): line for line in numbers("zero_bubble_profile.csv")}
    chunks = {line["model"]: int(line["interleaved_chunks"]) for line in numbers("zero_bubble_memory.csv")}
    for line in numbers("zero_bubble_table5.csv"):
        model, name, n_microbatches = line["model"], line["schedule"], int(line["microbatches"])
        seconds = profile[model, line["microbatches"]]
        what = ("forward", "backward_input", "backward_weight", "message")
        *pass_s, message_s = (float(seconds[f"{one}_ms"]) / 1e3 for one in what)
        interleaved = name == "1F1B-I"
        per_device = chunks[model] if interleaved else 1
        found, awaited = (
            bubble(
                SCHEDULES[name],
                int(line["stages"]),
                n_microbatches,
                pass_s,
                message_s,
                stages_per_device=per_device,
                as_published=as_published,
            )
            for as_published in (interleaved, False)
        )
        yield Row(
            group=name,
            setting=f"{model}, {line['stages']} stages, {n_microbatches} micro-batches, {name}",
            quantity="bubble",
            unit="",
            published=float(line["bubble"]),
            predicted=found,
            evidence=Evidence.CALCULATION,
            measured=False,
            assumptions=(
                "the authors' profiled seconds",
                *([f"{per_device} stages a device", LEFT_OUT] if interleaved else []),
            ),
            note=f"{awaited:.4f} with every message awaited, as in a run" if interleaved else "",
        )
