"""INTELLECT-1: the share of time that its nodes compute over the internet, with local steps between averages."""

from collections.abc import Iterator

import numpy as np

from dtfm_lab.costs.seconds import ring_share
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.job.sizes import device_gradient_bytes
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.schedule import COMPUTE, Kind
from dtfm_lab.domain.trace import ComputeTime
from dtfm_lab.extensions.published.row import Evidence, Row, numbers
from dtfm_lab.extensions.published.sources import published
from dtfm_lab.extensions.published.units import measured_model
from dtfm_lab.extensions.systems.modelled.diloco import DiLoCoStrategy
from dtfm_lab.planning import evaluate
from dtfm_lab.simulation import simulate

PARAMETERS = 10_200_000_000
LOCAL_STEPS = 100
"""Steps of a node between two averages (INTELLECT-1 report)."""
STEP_S = 22.8
"""Seconds of such a step, from the same report."""
NODES = 8
"""Number of nodes; the report had up to 14. The share of time that nodes compute does not depend on it, because the
links' speed is chosen so that averaging takes the measured time."""


@published("intellect-1")
def intellect_1() -> Iterator[Row]:
    """Yield shares of time that nodes compute, for three extents of the network."""
    for line in numbers("intellect_1.csv"):
        all_reduce_s = line["all_reduce_s"]
        yield Row(
            group="INTELLECT-1",
            setting=f"{line['nodes_in']}, all-reduce of {all_reduce_s} s every {LOCAL_STEPS} steps of {STEP_S} s",
            quantity="utilisation",
            unit="%",
            published=float(line["computing_percent"]),
            predicted=100 * computing_share(float(all_reduce_s)),
            evidence=Evidence.IDENTITY,
            assumptions=("local updates", "int8 ring", "links as fast as the measured all-reduce"),
        )


def computing_share(all_reduce_s: float) -> float:
    """Return the share of time that nodes compute if an all-reduce over all of them takes ``all_reduce_s`` seconds."""
    model = measured_model("INTELLECT-1", [PARAMETERS])
    shaped = Job(model=model, n_stages=1, n_replicas=NODES, global_batch=NODES, microbatch=1)
    job = DiLoCoStrategy(every=LOCAL_STEPS, precision="int8").trained(shaped)
    # What a node sends in one ring, from which the speed of the links follows.
    sent_bytes = 2 * ring_share(NODES) * device_gradient_bytes(job, 1)[0]
    links = NODES, NODES
    internet = Topology.from_matrices(
        latency_s=np.zeros(links), bandwidth_bytes_per_s=np.full(links, sent_bytes / all_reduce_s), name="internet"
    )
    seconds = {Kind.FORWARD: STEP_S / 3, Kind.BACKWARD: STEP_S * 2 / 3}
    profile = [ComputeTime(0, node, kind, seconds.get(kind, 0.0)) for node in range(NODES) for kind in COMPUTE]
    plan = evaluate(internet, job, stages=[list(range(NODES))])
    return simulate(plan, "1f1b", profile=profile).compute_share
