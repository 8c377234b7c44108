"""Oobleck, Varuna and Bamboo on changing fleets: what Oobleck's authors simulate, and our replay of the same.

The same throughputs, seconds and traces go in. The numbers differ where the simulators have a defect.
Source: Jang et al., SOSP 2023, what the unchanged simulators of its artefact print (tools/simulator of
github.com/SymbioticLab/Oobleck, MIT licence). Not published: Bamboo with the three largest models, for which its
simulator has no memory.
"""

import csv
import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import numpy as np
from simulated_fleets import SimulatedBamboo, SimulatedFleet, SimulatedRestart

from dtfm_lab.extensions.elasticity.api import Policy, ReconfigurationCosts, replay
from dtfm_lab.extensions.elasticity.availability import Availability
from dtfm_lab.extensions.elasticity.availability_files import load_availability
from dtfm_lab.extensions.elasticity.history import History

FEWEST = 12
"""Nodes without which nothing runs, and of a pipeline of Bamboo's."""
START_S, FATAL_S = 45.0, 30.0
"""From a node's coming until it can serve; Bamboo's restart after the loss of neighbours."""
REDUNDANT = 1 - 0.1971
"""Share of Bamboo's steps that its simulator does not count as useful."""
TRACES = {
    "6h": ("oobleck-every-6h", "a loss every 6 h"),
    "3h": ("oobleck-every-3h", "a loss every 3 h"),
    "1h": ("oobleck-every-1h", "a loss every hour"),
    "30m": ("oobleck-every-30m", "a loss every 30 min"),
    "10m": ("oobleck-every-10m", "a loss every 10 min"),
    "ec2-p3": ("oobleck-scaled-p3", "EC2's P3 scaled"),
    "gcp": ("oobleck-scaled-gcp", "GCP scaled"),
}
"""By column of the data: the name of the trace, and what it is."""
REAL = ("ec2-p3", "gcp")
DATA = Path(__file__).parents[2] / "data" / "published"


def numbers(name: str) -> list[dict[str, str]]:
    """The lines of a file of published numbers, by its headings."""
    lines = (DATA / name).read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


@dataclass(frozen=True)
class Inputs:
    """What the simulator of one system and model knows; the numbers of nodes are 15 to 30, those beyond as the last."""

    batch: float
    samples_per_s: Mapping[int, float]
    restart_s: Mapping[int, float]
    """Wait after a loss, a checkpoint included; of Bamboo that of rebalancing."""
    checkpoint_s: float


@cache
def inputs() -> dict[tuple[str, str], Inputs]:
    """By system and model."""
    return {
        (line["system"], line["model"]): Inputs(
            float(line["batch"]),
            _by_nodes(line["samples_per_s"]),
            _by_nodes(line["restart_s"]),
            float(line["checkpoint_s"]),
        )
        for line in numbers("oobleck_inputs.csv")
    }


def _by_nodes(text: str) -> dict[int, float]:
    values = [float(value) for value in text.split()]
    return dict(zip(range(15, 31), values * (16 // len(values)), strict=True))


def loses_steps(system: str, model: str, trace: str) -> bool:
    """Whether a loss goes back to the newest checkpoint: Varuna's, but for the smaller models on the real traces."""
    return system == "Varuna" and (trace not in REAL or model in ("GPT-3 2.7b", "GPT-3 6.7b"))


def history(system: str, model: str, trace: str) -> History:
    """Our replay of a row: a system, a model and a key of ``TRACES``."""
    given, availability = inputs()[system, model], load_availability(TRACES[trace][0])
    policy, costs = _policy(system, given, loses=loses_steps(system, model, trace))
    if system == "Bamboo":
        availability = in_heap_order(availability)
    fleet = SimulatedFleet(
        n_devices=len(availability.devices),
        samples_per_s=given.samples_per_s,
        batch=given.batch,
        fewest=FEWEST,
        whole_ms=True,
        pipeline=FEWEST if system == "Bamboo" else 1,
        standby_counts=system == "Bamboo",
        redundant_share=REDUNDANT if system == "Bamboo" else 0.0,
    )
    return replay(availability, fleet, policy, costs, name=system)


def _policy(system: str, given: Inputs, *, loses: bool) -> tuple[Policy, ReconfigurationCosts]:
    def restart_s(n_nodes: int) -> float:
        return given.restart_s[min(max(n_nodes, 15), 30)] - given.checkpoint_s

    if system == "Bamboo":
        rules = SimulatedBamboo(loses_steps=False, every_s=math.inf)
        return rules, ReconfigurationCosts(start_s=START_S, restart_s=FATAL_S, regroup_s=restart_s)
    every = {"every_steps": 10, "checkpoint_after_loss": True} if system == "Varuna" else {}
    rules = SimulatedRestart(loses_steps=loses, every_s=math.inf, **every)
    return rules, ReconfigurationCosts(start_s=START_S, restart_s=restart_s, checkpoint_s=given.checkpoint_s)


@dataclass(order=True)
class _Event:
    time_s: float
    leaves: bool
    device: int = field(compare=False)


def in_heap_order(availability: Availability) -> Availability:
    """The same with its devices in the order in which a heap of Python's gives out who comes.

    Bamboo's pipelines are of nodes beside each other in this order, which for nodes of one instant is the heap's.
    """
    queue: list[_Event] = []
    for values in zip(availability.time_s, ~availability.comes, availability.device, strict=True):
        heapq.heappush(queue, _Event(*values))
    heapq.heapify(queue)  # as in the simulator: it puts equal events in another order
    place: dict[int, int] = {}
    while queue:
        event = heapq.heappop(queue)
        if not event.leaves:
            place.setdefault(event.device, len(place))
            heapq.heappush(queue, _Event(event.time_s + START_S, True, event.device))
    order = sorted(place, key=lambda device: place[device])
    return replace(
        availability,
        devices=tuple(availability.devices[device] for device in order),
        device=np.array([place[device] for device in availability.device.tolist()]),
    )
