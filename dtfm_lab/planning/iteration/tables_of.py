"""The kernels' tables of a problem."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dtfm_lab.domain.job import Job
from dtfm_lab.planning.iteration.pass_tables import Kinds, PassTable, pass_table
from dtfm_lab.planning.iteration.problem import IterationProblem
from dtfm_lab.planning.iteration.starts import Nearness
from dtfm_lab.simulation.memory_intervals import sharded_over

if TYPE_CHECKING:
    from dtfm_lab.planning.iteration.kernels.tables import Tables

REPLAYED = ("sharded", "sharded-at-once", "central", "ring", "hierarchical")
"""Synchronisations that the kernels replay, in the order of their numbers."""
COMPRESSIONS = ("none", "fp16", "int8")


@dataclass(frozen=True, kw_only=True)
class SearchTarget:
    """What is minimised: seconds or dollars of an iteration, under limits."""

    dollars: bool = False
    max_price_per_hour: float = math.inf
    """US dollars an hour of all devices that compute."""
    max_iteration_s: float = math.inf

    @property
    def limited(self) -> bool:
        """Whether there is a limit on dollars or on seconds."""
        return min(self.max_price_per_hour, self.max_iteration_s) < math.inf


def tables_of(
    problem: IterationProblem, microbatch: int, target: SearchTarget, near: Nearness | None, n_replicas: int = 1
) -> Tables:
    """The tables of one size of micro-batches and one objective; of one number of replicas where these share what they
    hold. Nearness is for annealing, not for the price of a plan. Imports numba."""
    from dtfm_lab.planning.iteration.kernels.tables import Tables

    job, links, passes = problem.job, problem.links, problem.passes(microbatch)
    if (parts := sharded_over(job.sharding, n_replicas).parameters) > 1:
        split = np.array([1.0, 1.0, 1.0, parts])
        passes = passes._replace(layer=passes.layer / split[:, None], extra=passes.extra / split)
    with np.errstate(divide="ignore"):
        s_per_byte = 1.0 / links.bandwidth_bytes_per_s
    np.fill_diagonal(s_per_byte, 0.0)
    measured = links.message_bytes is not None and links.charged_bytes is not None
    kinds = Kinds.of(problem.topology.devices)
    seconds = _pass_seconds(problem, microbatch, n_replicas, kinds)
    memory_bytes = problem.memory_bytes - problem.gathered_bytes(n_replicas)
    price_per_s = problem.price_per_hour / 3600.0
    regions: dict[str, int] = {}
    region = [regions.setdefault(d.region or f" {i}", len(regions)) for i, d in enumerate(problem.topology.devices)]
    clusters = np.zeros(problem.n_devices) if near is None else near.clusters
    of_devices = memory_bytes, price_per_s, region, problem.alike
    return Tables(
        link=np.stack([problem.latency_s, s_per_byte, *passes.hop_s]),
        device=np.stack([np.ones(problem.n_devices), *of_devices, clusters, kinds.of_device]),
        near=np.zeros((len(clusters), 1), dtype=np.int64) if near is None else near.neighbours,
        passes=passes,
        message_bytes=np.array(links.message_bytes) if measured else np.empty(0),
        charged_bytes=np.array(links.charged_bytes) if measured else np.empty((1, 1, 0)),
        tied_parameters=float(problem.tied_parameters),
        **seconds._asdict(),
        gradient_element_bytes=float(problem.gradient_element_bytes),
        returned_element_bytes=0.0 if job.sharding in (None, "none") else float(problem.bytes_per_element),
        static_bytes=problem.static_bytes(n_replicas),
        codes_gradients=bool(problem.codes_gradients),
        gradients_as=COMPRESSIONS.index(job.gradients_as),
        codec_bytes_per_s=float(problem.codec_bytes_per_s),
        synchronisation=_synchronisation(job),
        synchronise_every=int(job.averages_every),
        cards=problem.cards,
        objective=int(target.dollars),
        most_dollars_per_s=float(target.max_price_per_hour) / 3600.0,
        most_s=float(target.max_iteration_s),
    )


def _pass_seconds(problem: IterationProblem, microbatch: int, n_replicas: int, kinds: Kinds) -> PassTable:
    """The seconds of passes on each kind of device; where replicas gather parameters, passes are longer on average."""
    devices = [problem.topology.devices[i] for i in kinds.first]
    found = pass_table(problem.job.with_fields(microbatch=microbatch), devices, problem.efficiency)
    if not problem.job.gathers_passes or n_replicas == 1:
        return found
    alone, gathering = (problem.estimated_flop_per_s(microbatch, n)[kinds.first] for n in (1, n_replicas))
    longer = (alone / gathering)[:, None]
    return found._replace(
        forward_s=found.forward_s * longer, backward_s=found.backward_s * longer, ends_s=found.ends_s * longer[:, 0]
    )


def _synchronisation(job: Job) -> int:
    if job.sharding == "zero-3":
        return len(REPLAYED)
    return REPLAYED.index(job.synchronisation) if job.synchronisation in REPLAYED else 0
