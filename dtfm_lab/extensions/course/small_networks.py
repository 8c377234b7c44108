"""Small networks for missions: rows of equal devices, and random networks for one reader.

They are so small that a real run takes seconds. ``row``, with one stage per device, is also used in lesson 08.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Kind
from dtfm_lab.domain.trace import ComputeTime
from dtfm_lab.files import load_job
from dtfm_lab.planning import evaluate

LAPTOPS = ("ada", "alan", "edsger", "grace")
CITIES = ("aarhus", "bergen", "cork", "delft", "espoo", "graz", "jena", "kiel")
FAST_GBPS = 1e6
"""Bandwidth at which the bytes of a message take no time, so that a hop takes only its latency."""


def of_sites(
    site: Sequence[int | str], within: tuple[float, float], between: tuple[float, float], **devices: Any
) -> Topology:
    """Return a network with one device per entry of ``site``. All links within sites are equal, and so are all links
    between sites. ``within`` and ``between`` are (ms, Gbit/s)."""
    same = np.equal.outer(site, site)
    (near_ms, near_gbps), (far_ms, far_gbps) = within, between
    links = np.where(same, near_ms, far_ms), np.where(same, near_gbps, far_gbps)
    return Topology.from_matrices(*links, **({"regions": [str(each) for each in site]} | devices))


def four_laptops(rng: np.random.Generator) -> Topology:
    """Return two laptops at the front of a hall and two at the back, with slow links between front and back."""
    near_gbps, far_gbps = int(rng.integers(150, 300)) / 1e3, int(rng.integers(20, 60)) / 1e3
    hardware = {"gpu": "laptop", "peak_tflops": 0.05, "memory_gib": 16}
    where = ["front"] * 2 + ["back"] * 2
    return of_sites(where, (2, near_gbps), (10, far_gbps), names=LAPTOPS, name="four-laptops", **hardware)


def plan_of_laptops(rng: np.random.Generator, *, bandwidth: float = 1.0) -> Plan:
    """Return a plan for ``tiny`` in two stages of two replicas on four laptops. Stage 0 is at the front of the hall and
    stage 1 at the back.

    ``bandwidth`` is a factor on all links. Below 1, messages take most of an iteration, so a busy machine disturbs it
    less.
    """
    job = load_job("tiny", n_stages=2, n_replicas=2, global_batch=8, microbatch=1)
    front = [str(name) for name in rng.permutation(LAPTOPS[:2])]
    back = [str(name) for name in rng.permutation(LAPTOPS[2:])]
    return evaluate(four_laptops(rng).scaled(bandwidth=bandwidth), job, stages=[front, back])


def two_rooms(rng: np.random.Generator) -> Topology:
    """Return eight V100s, four in each of two cities, with 10 Gbit/s within a city and slow links between the
    cities."""
    rooms = [str(city) for city in rng.choice(CITIES, 2, replace=False)]
    between = int(rng.integers(5, 60)), int(rng.integers(3, 40)) / 10
    names = [f"{room}-{number}" for room in rooms for number in range(1, 5)]
    where = [room for room in rooms for _ in range(4)]
    return of_sites(where, (0.1, 10.0), between, names=names, name="-and-".join(rooms), gpu="V100")


def row(hops_s: Sequence[float], n_microbatches: int) -> Plan:
    """Return a plan of ``tiny`` with one stage per device, on at most eight devices in a row. A message over hop i
    takes ``hops_s[i]`` in either direction, whatever its size."""
    n_devices = len(hops_s) + 1
    latency_s = np.zeros((n_devices, n_devices))
    for before, hop_s in enumerate(hops_s):
        latency_s[before, before + 1] = latency_s[before + 1, before] = hop_s
    # Bandwidth so high that a message takes its latency only.
    network = Topology.from_matrices(1e3 * latency_s, np.full((n_devices, n_devices), FAST_GBPS), name="row")
    job = load_job("tiny", n_stages=n_devices, n_replicas=1, global_batch=n_microbatches, microbatch=1)
    return evaluate(network, job, stages=[[device] for device in range(n_devices)])


def equal_profile(n_devices: int) -> list[ComputeTime]:
    """Return a profile of equal devices: 1 s for a forward pass, 2 s for a backward pass, and 1 s for each half of a
    split one."""
    seconds = {
        Kind.FORWARD: 1.0,
        Kind.BACKWARD: 2.0,
        Kind.BACKWARD_INPUT: 1.0,
        Kind.BACKWARD_WEIGHT: 1.0,
        Kind.STEP: 0.0,
    }
    return [ComputeTime(stage, 0, kind, each) for stage in range(n_devices) for kind, each in seconds.items()]
