"""What binds a bound: the resources of which more would lower it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from dtfm_lab.domain.network import Links
from dtfm_lab.planning.iteration.bounds.cuts import cuts_of
from dtfm_lab.planning.iteration.bounds.device_classes import DeviceClasses
from dtfm_lab.planning.iteration.bounds.families import families_of
from dtfm_lab.planning.iteration.bounds.iteration_bound import cases_of
from dtfm_lab.planning.iteration.bounds.refutation import Refuter
from dtfm_lab.planning.iteration.problem import IterationProblem

FACTOR = 2.0
"""How many times more of a resource is tried."""
SHARES = (0.97, 0.92, 0.85, 0.75, 0.6)
"""Shares of the bound that are tried, from the largest."""


@dataclass(frozen=True)
class Binding:
    """A resource that binds a bound."""

    resource: str
    """``compute (A100)``, ``memory``, ``synchronisation``, ``latency``, ``bandwidth``, ``links between regions``..."""
    share: float
    """With twice as much of it, or without it, the bound is no more than this share of what it is."""


def bindings(problem: IterationProblem, bound_s: float, schedules: Iterable[str] | None = None) -> tuple[Binding, ...]:
    """The resources that bind ``bound_s``, the bound of this problem, most binding first; those below 3 % are left out.

    Each takes a few proofs, so this takes some seconds for large networks.
    """
    names = None if schedules is None else tuple(schedules)
    found = []
    for resource, relaxed, synchronises in _relaxed(problem):
        share = _share(relaxed, bound_s, names, synchronises)
        if share < 1:
            found.append(Binding(resource, share))
    return tuple(sorted(found, key=lambda one: one.share))


def _share(problem: IterationProblem, bound_s: float, schedules: tuple[str, ...] | None, synchronises: bool) -> float:
    """The least of SHARES of the bound that can no longer be refuted; 1 where all can."""
    classes = DeviceClasses.of(problem)
    cases = list(cases_of(classes, families_of(problem.job, schedules), synchronises=synchronises))
    if not cases:
        return 1.0
    refuter = Refuter(classes, cuts_of(classes, cases[0].capacities.hop_s + classes.latency_s))
    least = 1.0
    for share in SHARES:
        left = next((number for number, case in enumerate(cases) if not refuter.refutes(case, share * bound_s)), None)
        if left is None:
            break
        least, cases = share, cases[left:]
    return least


def _relaxed(problem: IterationProblem) -> Iterator[tuple[str, IterationProblem, bool]]:
    """Each resource with the problem in which there is more of it, and whether gradients are averaged there."""
    devices, topology = problem.topology.devices, problem.topology
    gpus = np.array([device.gpu for device in devices])
    for gpu in dict.fromkeys(gpus.tolist()):
        speeds = np.where(gpus == gpu, FACTOR, 1.0) * problem.flop_per_s
        yield f"compute ({gpu})", replace(problem, flop_per_s=speeds), True
    yield "memory", replace(problem, memory_bytes=FACTOR * problem.memory_bytes), True
    if problem.job.n_replicas != 1:
        yield "synchronisation", problem, False
    everywhere = np.ones_like(problem.latency_s)
    yield "latency", _linked(problem, latency=everywhere / FACTOR, bandwidth=everywhere), True
    yield "bandwidth", _linked(problem, latency=everywhere, bandwidth=FACTOR * everywhere), True
    regions = np.array([device.region for device in devices])
    if 1 < len(topology.regions) < len(devices):
        within = regions[:, None] == regions[None, :]
        faster = np.where(within, FACTOR, 1.0)
        yield "links within regions", _linked(problem, latency=1 / faster, bandwidth=faster), True
        faster = np.where(within, 1.0, FACTOR)
        yield "links between regions", _linked(problem, latency=1 / faster, bandwidth=faster), True


def _linked(problem: IterationProblem, *, latency: np.ndarray, bandwidth: np.ndarray) -> IterationProblem:
    """The problem with each link's latency and bandwidth times these (N, N) factors; measured times follow."""
    topology = problem.topology
    links = problem.links
    latency_s = topology.latency_s * latency
    message_s = None
    if topology.message_s is not None:
        moving_s = np.maximum(topology.message_s - topology.latency_s[:, :, None], 0.0)
        message_s = latency_s[:, :, None] + moving_s / bandwidth[:, :, None]
    topology = replace(
        topology,
        latency_s=latency_s,
        bandwidth_bytes_per_s=topology.bandwidth_bytes_per_s * bandwidth,
        message_s=message_s,
    )
    return replace(problem, topology=topology, links=Links.of(topology, links.queueing), latency_s=topology.latency_s)
