"""SWARM: stochastic pipelines, in which each micro-batch is routed to a device of the next stage."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

import numpy as np

from dtfm_lab.domain.job import Job, boundary_bytes, device_gradient_bytes, repeated_flop
from dtfm_lab.domain.network import Links, Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.trace import Trace
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.extensions.systems.bound import least_lacking_bytes
from dtfm_lab.extensions.systems.grids import distinct, sized
from dtfm_lab.extensions.systems.stochastic import simulate_stochastic
from dtfm_lab.extensions.systems.strategy import TRIED, Branch, Budget, GridStrategy, described, strategies
from dtfm_lab.simulation.efficiency import GivenEfficiency, peak_of, speeds_of

MOST = 12
"""Plans that are simulated, the first by a closed form: each takes a good part of a second where there are many
micro-batches, and no bound says which need not be."""


@strategies.register("swarm")
@described
@dataclass(frozen=True, kw_only=True)
class Swarm(GridStrategy):
    """SWARM: equal stages, each served by many devices, and every micro-batch routed to one of the next stage's.

    Its seconds are those of ``simulate_stochastic``, as no schedule knows the routes beforehand: ``lab.simulate``
    of the same plan keeps the plan's pipelines and predicts another iteration. Stages have as many devices each,
    the same speed in all as nearly as dealing them out allows; those over are idle, and its user may leave out the
    slowest. (The paper also moves devices between stages until none is behind, its repository does not.) The
    published trainers, CPU nodes that every message passes, are left out, a stage hands on to the next, and one
    balancer serves each stage; a backward returns over the devices of its forward, where the published code draws
    again. Delayed parameter updates and churn are left out.

    It sends to many devices, which links of each pair's own (``queueing="pairs"``) make cheap.
    """

    name: ClassVar[str] = "swarm"

    routing: str = "throughput"
    compression: str = "int8"
    gradient_compression: str = "fp16"
    checkpointing: str = "stage"
    resends_inputs: bool = True
    trainers: int = 4

    microbatches: str = TRIED

    def trained(self, job: Job) -> Job:
        """The job as the system trains it, whatever its shape."""
        return job.with_fields(
            schedule="1f1b",
            synchronisation="sharded-at-once",
            compression=self.compression,
            gradient_compression=self.gradient_compression,
            checkpointing=self.checkpointing,
        )

    def trace(self, plan: Plan, budget: Budget) -> Trace:
        """One iteration, micro-batches routed as they come."""
        return simulate_stochastic(
            plan,
            rng=np.random.default_rng(budget.seed),
            in_flight=self.trainers * plan.placement.devices.size,
            by_throughput=self.routing == "throughput",
            resends_inputs=self.resends_inputs,
            efficiency=budget.efficiency,
            queueing=budget.queueing,
        )

    def branches(self, topology: Topology, job: Job, budget: Budget) -> Iterator[Branch]:
        """Of those that fit the first by a closed form; all where none fits, for the reason."""
        ranked = sorted(
            distinct(self.routed(topology, job, budget)), key=lambda one: one.iteration_s(budget.efficiency)
        )
        fitting = (one for one in ranked if not any(map(least_lacking_bytes, one.plans())))
        yield from list(islice(fitting, MOST)) or ranked

    def routed(self, topology: Topology, job: Job, budget: Budget) -> "Iterator[Routed]":
        """Every number of stages, on all devices and without the slowest."""
        job = self.trained(job)
        speed = np.array([peak_of(device, job.dtype) for device in topology.devices])
        links = Links.of(topology, budget.queueing)
        drawn = np.random.default_rng(budget.seed).permutation(len(topology))
        by_speed = drawn[np.argsort(-speed[drawn], kind="stable")]
        for least in np.unique(speed):
            taking_part = by_speed[speed[by_speed] >= least]
            for n_stages in range(1, min(len(taking_part), job.modelled().n_blocks) + 1):
                grid = _dealt(taking_part, n_stages)
                for shaped in sized(job, self.microbatches, *grid.shape):
                    yield Routed(topology, shaped, grid, links=links)


@dataclass(frozen=True, eq=False, kw_only=True)
class Routed(Branch):
    """A plan whose micro-batches may take any device of each stage, with a closed form of its seconds: no bound, but
    in a fraction of a millisecond, where simulating thousands of micro-batches takes half a second."""

    links: Links
    """Of the network, with the times that were measured, if any."""

    def iteration_s(self, efficiency: GivenEfficiency) -> float:
        """The slowest stage, or link, serves all micro-batches after the first has come through; then all average."""
        job, n_replicas = self.job, self.grid.shape[1]
        backward = job.modelled().backward.whole
        flop = [
            sum((1 + backward) * one.forward_flop + repeated_flop(job, one) for one in layers)
            for layers in job.stage_layers
        ]
        pass_s = job.microbatch * np.array(flop)[:, None] / np.array(speeds_of(job, self.topology.devices, efficiency))
        pass_s = np.take_along_axis(pass_s, self.grid, axis=1)
        here, there = np.broadcast_arrays(self.grid[:-1, :, None], self.grid[1:, None, :])
        before, after = self.grid[:-1], self.grid[1:]
        n_bytes = np.array(boundary_bytes(job, len(self.grid)))[1:-1, None]
        straight = self._sent_s(before, after, n_bytes) + self._sent_s(after, before, n_bytes)
        through_s = pass_s.mean(axis=1).sum() + straight.mean(axis=1).sum()
        # each way; the gradient travels with an input
        sender, receiver = np.concatenate([here, there, there]), np.concatenate([there, here, here])
        link_s = self._busiest_s(
            sender, receiver, self.links.moving_s(sender, receiver, np.tile(n_bytes, (3, 1))[..., None]) / n_replicas**2
        )
        slowest_s = max((1 / (1 / pass_s).sum(axis=1)).max(), link_s)
        return float((sum(job.microbatch_counts) - 1) * slowest_s + through_s) + self._averaging_s

    @property
    def _averaging_s(self) -> float:
        """Seconds in which every device sends every other of its stage a shard, and gets its average back."""
        n_stages, n_replicas = self.grid.shape
        sender, receiver = np.broadcast_arrays(self.grid[:, :, None], self.grid[:, None, :])
        shard_bytes = np.array(device_gradient_bytes(self.job, n_stages))[:, None, None] / n_replicas
        shard_s = self._sent_s(sender, receiver, np.broadcast_to(shard_bytes, sender.shape))
        return 2 * max(float(shard_s.max()), self._busiest_s(sender, receiver, shard_s))

    def _sent_s(self, sender: IntArray, receiver: IntArray, n_bytes: float | FloatArray) -> FloatArray:
        """Seconds of messages from devices to others over idle links."""
        seconds: FloatArray = self.links.latency_s[sender, receiver] + self.links.moving_s(sender, receiver, n_bytes)
        return seconds

    def _busiest_s(self, sender: IntArray, receiver: IntArray, seconds: FloatArray) -> float:
        """Seconds for which the busiest link or card sends these messages, none of a device to itself."""
        apart = sender != receiver
        if not apart.any():
            return 0.0
        leaving, _ = self.links.queues(sender[apart], receiver[apart])
        _, queue = np.unique(leaving, return_inverse=True)
        return float(np.bincount(queue, seconds[apart]).max())


def _dealt(by_speed: IntArray, n_stages: int) -> IntArray:
    """(stages, replicas) devices, the fastest first, dealt out forth and back; those over are left out."""
    n_replicas = len(by_speed) // n_stages
    grid = by_speed[: n_stages * n_replicas].reshape(n_replicas, n_stages).copy()
    grid[1::2] = grid[1::2, ::-1]
    return grid.T
