"""Small networks drawn for one reader, on which a real run takes seconds."""

from __future__ import annotations

import numpy as np

from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.files import load_job
from dtfm_lab.planning import evaluate

LAPTOPS = ("ada", "alan", "edsger", "grace")
CITIES = ("aarhus", "bergen", "cork", "delft", "espoo", "graz", "jena", "kiel")


def four_laptops(rng: np.random.Generator) -> Topology:
    """Two laptops at the front of a hall and two at the back, with slow links between front and back."""
    near_gbps, far_gbps = int(rng.integers(150, 300)) / 1e3, int(rng.integers(20, 60)) / 1e3
    latency_ms = [[2] * 2 + [10] * 2] * 2 + [[10] * 2 + [2] * 2] * 2
    return Topology.from_matrices(
        latency_ms,
        [[near_gbps if ms == 2 else far_gbps for ms in row] for row in latency_ms],
        names=LAPTOPS,
        regions=["front"] * 2 + ["back"] * 2,
        name="four-laptops",
        gpu="laptop",
        peak_tflops=0.05,
        memory_gib=16,
    )


def plan_of_laptops(rng: np.random.Generator, *, bandwidth: float = 1.0) -> Plan:
    """``tiny`` in two stages of two replicas on four laptops: groups within front and back, hops between them.

    With less than all of the ``bandwidth`` messages are most of an iteration, which a busy machine disturbs less.
    """
    job = load_job("tiny", n_stages=2, n_replicas=2, global_batch=8, microbatch=1)
    front = [str(name) for name in rng.permutation(LAPTOPS[:2])]
    back = [str(name) for name in rng.permutation(LAPTOPS[2:])]
    return evaluate(four_laptops(rng).scaled(bandwidth=bandwidth), job, stages=[front, back])


def two_rooms(rng: np.random.Generator) -> Topology:
    """Eight V100s in rooms of two cities, 10 Gbit/s inside and a slow link between them."""
    rooms = [str(city) for city in rng.choice(CITIES, 2, replace=False)]
    between_ms, between_gbps = int(rng.integers(5, 60)), int(rng.integers(3, 40)) / 10
    latency_ms = [[0.1] * 4 + [between_ms] * 4] * 4 + [[between_ms] * 4 + [0.1] * 4] * 4
    return Topology.from_matrices(
        latency_ms,
        [[10.0 if ms < 1 else between_gbps for ms in row] for row in latency_ms],
        names=[f"{room}-{number}" for room in rooms for number in range(1, 5)],
        regions=[room for room in rooms for _ in range(4)],
        name="-and-".join(rooms),
        gpu="V100",
    )
