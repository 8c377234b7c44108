"""Local steps between averages: the bandwidth that Streaming DiLoCo's table 4 says they need, and the share of the time
that INTELLECT-1's nodes compute over the internet.

The paper's simulator has a node for the forward and the backward of each layer and one for the reduction of its
gradient, which is overlapped with the backward of the layers before it, in data parallelism and in DiLoCo's outer step
alike. Here a data centre is one device, whose step without communication takes the paper's seconds, a layer is a bucket
of its own, and the two average in a ring.
"""

import math
import re
from collections.abc import Iterator

import numpy as np

from dtfm_lab.domain.job import BACKWARD_PER_FORWARD, Job
from dtfm_lab.domain.job.messages import device_gradient_bytes
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.schedule import COMPUTE, Kind
from dtfm_lab.domain.trace import ComputeTime
from dtfm_lab.extensions.published.row import Evidence, Row, numbers
from dtfm_lab.extensions.published.sources import published
from dtfm_lab.extensions.published.units import measured_model
from dtfm_lab.extensions.systems.modelled.diloco import DiLoCo
from dtfm_lab.planning import evaluate
from dtfm_lab.simulation import simulate

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
    return job if every == 1 else DiLoCo(every=every).trained(job)


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


@published("streaming-diloco")
def streaming_diloco() -> Iterator[Row]:
    """Bandwidths that data parallelism and DiLoCo need."""
    for line in numbers("streaming_diloco_table4.csv"):
        model, method, wanted = line["model"], line["method"], float(line["compute_utilisation"])
        every = EVERY[method]
        yield Row(
            group=f"{model}, {NAMES[method]}",
            setting=f"{model}, {NAMES[method]}, {wanted:.0%} of the time in steps",
            quantity="bandwidth",
            unit="Gbit/s",
            published=float(line["gbit_per_s"]),
            predicted=needed_gbps(job_of(model, method), MODELS[model][2], wanted),
            evidence=Evidence.CALCULATION,
            measured=False,
            assumptions=(
                "overlap, a layer a bucket",
                *([f"synchronise_every {every}"] if every > 1 else []),
                "gradients of 2 bytes, two data centres, no latency",
            ),
            note="the published numbers lie on a grid of 21 % steps",
        )


PARAMETERS = 10_200_000_000
LOCAL_STEPS, STEP_S = 100, 22.8
NODES = 8
"""Of the report's up to 14. The share of computing does not depend on it, as links are as fast as was measured."""


@published("intellect-1")
def intellect_1() -> Iterator[Row]:
    """Shares of the time that nodes compute, for three ranges of the network."""
    for line in numbers("single_figures.csv"):
        if line["system"] != "INTELLECT-1":
            continue
        all_reduce_s, where = re.search(r"all-reduce (\d+) s \((.+)\)", line["setting"]).groups()  # type: ignore[union-attr]
        yield Row(
            group="INTELLECT-1",
            setting=f"{where}, all-reduce of {all_reduce_s} s every {LOCAL_STEPS} steps of {STEP_S} s",
            quantity="utilisation",
            unit="%",
            published=float(line["figure"]),
            predicted=100 * computing_share(float(all_reduce_s)),
            evidence=Evidence.IDENTITY,
            assumptions=("local updates", "int8 ring", "links as fast as the measured all-reduce"),
        )


def computing_share(all_reduce_s: float) -> float:
    """Share of the time that nodes compute, when an average of all takes so many seconds."""
    model = measured_model("INTELLECT-1", [PARAMETERS])
    shaped = Job(model=model, n_stages=1, n_replicas=NODES, global_batch=NODES, microbatch=1)
    job = DiLoCo(every=LOCAL_STEPS, precision="int8").trained(shaped)
    sent_bytes = 2 * (NODES - 1) / NODES * device_gradient_bytes(job, 1)[0]
    links = NODES, NODES
    internet = Topology.from_matrices(
        latency_s=np.zeros(links), bandwidth_bytes_per_s=np.full(links, sent_bytes / all_reduce_s), name="internet"
    )
    seconds = {Kind.FORWARD: STEP_S / 3, Kind.BACKWARD: STEP_S * 2 / 3}
    profile = [ComputeTime(0, node, kind, seconds.get(kind, 0.0)) for node in range(NODES) for kind in COMPUTE]
    plan = evaluate(internet, job, stages=[list(range(NODES))])
    return simulate(plan, "1f1b", profile=profile).compute_share
