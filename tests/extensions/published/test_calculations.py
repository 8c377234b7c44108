"""What others calculated or simulated, by our own functions: the same numbers go in, and the same have to come out.

These are no measurements, so the ledger has no rows of them. They are held to its bands of calculations all the same.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtfm_lab.domain.job import BACKWARD_PER_FORWARD, Job
from dtfm_lab.domain.network import Links, Topology
from dtfm_lab.domain.schedule import Kind, TaskGraph, lower, task_graph
from dtfm_lab.domain.schedule.task_graph import COMPUTATION
from dtfm_lab.domain.trace import ComputeTime
from dtfm_lab.extensions.published.row import Evidence, band_by_rule
from dtfm_lab.extensions.published.row import numbers as packaged
from dtfm_lab.extensions.published.systems.zero_bubble import SCHEDULES, profile, settings_of
from dtfm_lab.extensions.published.units import measured_model
from dtfm_lab.extensions.systems.modelled.diloco import DiLoCoStrategy
from dtfm_lab.planning import evaluate
from dtfm_lab.simulation import simulate
from dtfm_lab.simulation.engine import PlacedTasks, without_edges
from dtfm_lab.simulation.schedules import schedules

DATA = Path(__file__).parents[2] / "data" / "published"

# Streaming DiLoCo (Douillard et al. 2025), table 4: the bandwidth that a share of computing needs, by their simulator.
# That has a node for the forward and the backward of each layer and one for the reduction of its gradient, which is
# overlapped with the backward of the layers before it, in data parallelism and in DiLoCo's outer step alike. Here a
# data centre is one device, whose step without communication takes the paper's seconds, a layer is a bucket of its own,
# and the two average in a ring.
MODELS = {"1B": (10**9, 24, 0.1), "10B": (10**10, 48, 0.8), "100B": (10**11, 108, 4.9)}
"""Parameters, layers and seconds of a step without communication, from the same table."""
EVERY = {"DP": 1, "DiLoCo": 100}
"""Steps from one synchronisation to the next; H is 100 in the paper's simulation."""
NAMES = {"DP": "data parallel", "DiLoCo": "DiLoCo"}
LEAST_GBPS, MOST_GBPS = 0.01, 1e5
CLOSE = 1e-3
"""Relative width at which bisection ends; the published numbers lie on a grid of 21 % steps."""
REPLICAS = 2


def job_of(model: str, method: str) -> Job:
    """A job of so many equal layers without embedding or head, bf16, averaged layer by layer under the backward.

    How DiLoCo averages is its strategy's; beneath the backward, as in the paper's simulator, it is only here.
    """
    parameters, n_layers, _ = MODELS[model]
    job = Job(
        name=f"{model} {method}",
        model=measured_model(model, [parameters // n_layers] * n_layers),
        n_stages=1,
        n_replicas=REPLICAS,
        global_batch=REPLICAS,
        microbatch=1,
        dtype="bf16",
        synchronisation="ring",
        overlap=True,
        bucket_bytes=1.0,
    )
    every = EVERY[method]
    return job if every == 1 else DiLoCoStrategy(every=every).trained(job)


def utilisation(job: Job, step_s: float, gbps: float) -> float:
    """Share of the time that is spent in steps without communication, where the link has so many Gbit/s."""
    topology = Topology.from_matrices([[0, 0], [0, 0]], [[gbps, gbps], [gbps, gbps]], name="two data centres")
    forward_s = step_s / (1 + BACKWARD_PER_FORWARD)
    profile = [
        ComputeTime(0, replica, kind, seconds)
        for replica in range(REPLICAS)
        for kind, seconds in (
            (Kind.FORWARD, forward_s),
            (Kind.BACKWARD, step_s - forward_s),
            (Kind.REDUCE, 0.0),
            (Kind.STEP, 0.0),
        )
    ]
    return step_s / simulate(evaluate(topology, job, stages=[[0, 1]]), profile=profile).iteration_s


def needed_gbps(job: Job, step_s: float, wanted: float) -> float:
    """The least Gbit/s with which the utilisation is reached, by bisection in logarithms."""
    low, high = LEAST_GBPS, MOST_GBPS
    while high / low > 1 + CLOSE:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if utilisation(job, step_s, middle) >= wanted else (middle, high)
    return high


def bandwidths() -> list[dict[str, str]]:
    lines = (DATA / "streaming_diloco_table4.csv").read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


@pytest.mark.slow
@pytest.mark.parametrize("line", bandwidths(), ids=lambda line: " ".join(line.values()))
def test_the_bandwidth_that_local_updates_need_is_streaming_dilocos(line):
    """To one step of the grid of 21 % on which the published ones were searched."""
    model, method, wanted = line["model"], line["method"], float(line["compute_utilisation"])
    needed = needed_gbps(job_of(model, method), MODELS[model][2], wanted)
    assert band_by_rule(Evidence.CALCULATION, "bandwidth").holds(float(line["gbit_per_s"]), needed)


# Zero Bubble (Qi et al., ICLR 2024), table 5: bubbles from profiled seconds of passes and messages,
# 1 - M (F + B + W) / the longest device's time. Their calculation of interleaved 1F1B (``get_interleave_schedule``)
# leaves out waits: a message from the last device to the first, from one stage of a device to its next, is awaited by
# the first micro-batch of each round, of as many as there are devices, and by no other. A run would see them all: with
# every message awaited a bubble is 0.0008 to 0.0035 more.


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
    """The graph without the waits of passes for messages that the authors leave out."""
    n_stages = graph.programs.n_positions
    # messages between the last device and the first come in at these stages
    first_of_device = {Kind.RECV_F: 0, Kind.RECV_B: n_stages - 1}
    left_out = [
        action.stage % n_stages == first_of_device.get(action.kind, -1) and (action.microbatch or 0) % n_stages > 0
        for action in graph.actions
    ]
    gone = np.array(left_out)[graph.action[graph.sources]] & (graph.role[graph.successors] == COMPUTATION)
    return without_edges(graph, gone)


@pytest.mark.slow
@pytest.mark.parametrize("line", packaged("zero_bubble_table5.csv"), ids=lambda line: " ".join([*line.values()][:4]))
def test_bubbles_are_zero_bubbles_to_the_last_published_digit(line):
    model, name = line["model"], line["schedule"]
    seconds = profile()[model, line["microbatches"]]
    what = ("forward", "backward_input", "backward_weight", "message")
    *pass_s, message_s = (float(seconds[f"{one}_ms"]) / 1e3 for one in what)
    interleaved = name == "1F1B-I"
    found = bubble(
        SCHEDULES[name],
        int(line["stages"]),
        int(line["microbatches"]),
        pass_s,
        message_s,
        stages_per_device=settings_of(model)["interleaved_chunks"] if interleaved else 1,
        as_published=interleaved,
    )
    published = float(line["bubble"])
    assert band_by_rule(Evidence.CALCULATION, "bubble").holds(published, found)
    assert found == pytest.approx(published, abs=0.5e-4)


passes = st.tuples(st.floats(0.5, 3), st.floats(0.5, 3), st.floats(0.5, 3))


@given(st.integers(2, 6), st.integers(1, 4), st.integers(2, 3), passes, st.floats(0, 0.5))
@settings(max_examples=30)
def test_leaving_waits_out_makes_no_bubble_larger(n_stages, rounds, per_device, pass_s, message_s):
    left_out, awaited = (
        bubble(
            "interleaved-1f1b",
            n_stages,
            rounds * n_stages,
            pass_s,
            message_s,
            stages_per_device=per_device,
            as_published=as_published,
        )
        for as_published in (True, False)
    )
    assert left_out <= awaited + 1e-12
    if message_s == 0:
        assert left_out == pytest.approx(awaited)


@given(st.integers(2, 6), st.integers(1, 4), passes)
def test_without_messages_bubbles_are_those_of_the_textbook(n_stages, rounds, pass_s):
    n = rounds * n_stages
    busy_s, first_s = n * sum(pass_s), (n_stages - 1) * sum(pass_s)
    assert bubble("1f1b", n_stages, n, pass_s, 0.0) == pytest.approx(first_s / (busy_s + first_s))
    halved = bubble("interleaved-1f1b", n_stages, n, pass_s, 0.0, stages_per_device=2)
    assert halved == pytest.approx(first_s / 2 / (busy_s + first_s / 2))
