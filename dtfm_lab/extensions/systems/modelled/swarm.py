"""SWARM: stochastic pipelines that route each micro-batch to a device of the next stage."""

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dtfm_lab.costs.efficiency import GivenEfficiency, peak_of, speeds_of
from dtfm_lab.costs.seconds import shard
from dtfm_lab.domain.job import Job, boundary_bytes, device_gradient_bytes, repeated_flop
from dtfm_lab.domain.network import Links, Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.extensions.systems.grids import distinct, sized
from dtfm_lab.extensions.systems.strategy import TRIED, Branch, Budget, GridStrategy, described, strategies


@dataclass(frozen=True, kw_only=True)
class RoutedPipelines(GridStrategy):
    """Equal stages, each on many devices. Every micro-batch is routed to one device of the next stage.

    No schedule fixes which device computes which micro-batch, so the seconds are a closed form (``seconds``). ``trace``
    keeps the plan's pipelines: it shows where the time goes, but its seconds differ.

    All stages have the same number of devices. Devices are dealt out so that stages are about equally fast. Remaining
    devices are idle, and the user may leave out the slowest. (The paper also moves devices between stages until none
    lags behind; its repository does not.) Three things are not modelled: delayed parameter updates, churn, and the
    trainers of the published code, which are CPU nodes that relay every message. Here a stage sends directly to the
    next.

    A device sends to many others, which is cheap if each pair has its own link (``queueing="pairs"``).
    """

    @property
    @abstractmethod
    def routing(self) -> str:
        """How the device for a micro-batch is chosen: by throughput, or at random."""

    @property
    @abstractmethod
    def trainers(self) -> int:
        """Number of micro-batches in flight per device."""

    @property
    @abstractmethod
    def microbatches(self) -> str:
        """``tried`` to try several micro-batch sizes, ``given`` to keep the job's own."""

    @abstractmethod
    def trained(self, job: Job) -> Job:
        """Return the job as the system trains it. Its shape is set later."""

    def hops_bytes(self, job: Job, n_stages: int) -> tuple[FloatArray, FloatArray]:
        """Return the bytes of a micro-batch's activations from each stage to the next, and of their gradients
        back. Both are (stages - 1,)."""
        onward = np.array(boundary_bytes(job, n_stages))[1:-1]
        return onward, onward

    def joined_s(
        self, first_and_last_s: float, between_s: float, job: Job, averaging_s: float, n_replicas: int
    ) -> float:
        """Return the seconds of an iteration, from the seconds of its parts.

        They are the path of the first and the last micro-batches, the other micro-batches between them, and the
        averaging at the end. The ends of two consecutive micro-batches are ``between_s`` apart.
        """
        rest = max(sum(job.microbatch_counts) - n_replicas, 0)
        return first_and_last_s + rest * between_s + averaging_s

    def averages_s(self, job: Job, grid: IntArray, links: Links) -> float:
        """Return the seconds for averaging in all stages. Every device sends a shard to every other device of its
        stage, and gets the averages back."""
        n_stages, n_replicas = grid.shape
        sender, receiver = np.broadcast_arrays(grid[:, :, None], grid[:, None, :])
        shard_bytes = shard(np.array(device_gradient_bytes(job, n_stages))[:, None, None], n_replicas)
        moving_s = links.moving_s(sender, receiver, np.broadcast_to(shard_bytes, sender.shape))
        moving_s = links.slower(grid)[:, None, None] * moving_s
        shard_s = links.latency_s[sender, receiver] + moving_s
        return 2 * max(float(shard_s.max()), _busiest_s(links, sender, receiver, shard_s))

    def seconds(self, plan: Plan, budget: Budget) -> float:
        """Return the seconds of an iteration, by a closed form.

        The pipelines are a closed network of queues in which ``trainers`` micro-batches per device circulate. Its
        throughput is taken to be the asymptotic bound: the busiest stage or link is never idle, and nothing else causes
        waiting. Source: Denning and Buzen, The Operational Analysis of Queueing Network Models, ACM Computing Surveys
        1978. The first micro-batch of every device passes without waiting. The last micro-batch takes the longest path
        expected among those in flight, if their seconds are normally distributed. Then each stage averages.
        """
        links = Links.of(plan.topology, budget.queueing)
        return self._iteration_s(plan.topology, plan.job, plan.placement.devices, links, budget.efficiency)

    def least_s(self, plan: Plan, budget: Budget) -> float:
        """Return ``seconds``: the closed form is quick, so it is its own lower bound."""
        return self.seconds(plan, budget)

    def branches(self, topology: Topology, job: Job, budget: Budget) -> Iterator[Branch]:
        """Yield every number of stages, on all devices and on each set without the slowest ones."""
        yield from distinct(self._grids(topology, job, budget))

    def _grids(self, topology: Topology, job: Job, budget: Budget) -> Iterator[Branch]:
        job = self.trained(job)
        speed = np.array([peak_of(device, job.dtype) for device in topology.devices])
        links = Links.of(topology, budget.queueing)
        shuffled = np.random.default_rng(budget.seed).permutation(len(topology))
        by_speed = shuffled[np.argsort(-speed[shuffled], kind="stable")]
        # Slower devices may hold the others back, so each set of the fastest is tried.
        for least in np.unique(speed):
            taking_part = by_speed[speed[by_speed] >= least]
            for n_stages in range(1, min(len(taking_part), job.modelled().n_blocks) + 1):
                grid = _dealt(taking_part, n_stages)
                for shaped in sized(job, self.microbatches, *grid.shape):
                    least_s = self._iteration_s(topology, shaped, grid, links, budget.efficiency)
                    yield Branch(topology, shaped, grid, least_s=least_s)

    def _iteration_s(
        self, topology: Topology, job: Job, grid: IntArray, links: Links, efficiency: GivenEfficiency
    ) -> float:
        """Return the seconds of an iteration on (stages, replicas) devices."""
        n_replicas, n_microbatches = grid.shape[1], sum(job.microbatch_counts)
        pass_s = _pass_s(topology, job, grid, efficiency)
        # Routing sends more to faster peers, in proportion to their speed.
        rate = 1 / pass_s if self.routing == "throughput" else np.ones(grid.shape)
        share = rate / rate.sum(axis=1, keepdims=True)  # of a stage's micro-batches that each device gets

        onward, back = self.hops_bytes(job, len(grid))
        here, there = np.broadcast_arrays(grid[:-1, :, None], grid[1:, None, :])
        taken = share[:-1, :, None] * share[1:, None, :]  # share of each link, (stages - 1, replicas, replicas)
        sender, receiver = np.concatenate([here, there]), np.concatenate([there, here])
        moving_s = links.moving_s(sender, receiver, np.concatenate([onward, back])[:, None, None])
        weighed_s = np.concatenate([taken, taken]) * moving_s

        there_and_back_s = sum(np.split(moving_s, 2)) + links.latency_s[here, there] + links.latency_s[there, here]
        (passing_s, pass_variance), (sending_s, hop_variance) = _way(pass_s, share), _way(there_and_back_s, taken)
        through_s, spread_s = passing_s + sending_s, math.sqrt(pass_variance + hop_variance)
        in_flight = self.trainers * grid.size
        busiest_s = max((share * pass_s).max(), _busiest_s(links, sender, receiver, weighed_s))
        every_s = max(busiest_s, through_s / in_flight)  # between the ends of two micro-batches
        # The last of n normal times comes about sqrt(2 ln n) deviations after the mean.
        last_s = through_s + spread_s * math.sqrt(2 * math.log(min(n_microbatches, in_flight)))
        return float(self.joined_s(last_s, every_s, job, self.averages_s(job, grid, links), n_replicas))


@strategies.register("swarm")
@described
@dataclass(frozen=True, kw_only=True)
class SwarmStrategy(RoutedPipelines):
    """SWARM: pipelines with many devices per stage. Each micro-batch is routed to one device of the next stage."""

    name: ClassVar[str] = "swarm"

    routing: str = "throughput"
    compression: str = "int8"
    gradient_compression: str = "fp16"
    checkpointing: str = "stage"
    resends_inputs: bool = True
    trainers: int = 4

    microbatches: str = TRIED

    def trained(self, job: Job) -> Job:
        """Return the job as the system trains it. Its shape is set later."""
        return job.with_fields(
            schedule="1f1b",
            synchronisation="sharded-at-once",
            compression=self.compression,
            gradient_compression=self.gradient_compression,
            checkpointing=self.checkpointing,
        )

    def hops_bytes(self, job: Job, n_stages: int) -> tuple[FloatArray, FloatArray]:
        """Return the bytes of activations onward, and of gradients back, per hop. With a gradient, a stage also gets
        its inputs again if ``resends_inputs`` is True."""
        inputs = np.array(boundary_bytes(job, n_stages))[:-1]  # of each stage; the first gets tokens, which are free
        inputs[0] = 0.0
        return inputs[1:], inputs[1:] + (inputs[:-1] if self.resends_inputs else 0.0)


def _way(seconds: FloatArray, share: FloatArray) -> tuple[float, float]:
    """Return the mean and the variance of the seconds of one micro-batch, summed over all stages or all hops.

    Each row of both arrays is a stage or a hop. It has the seconds of its devices or links, and the shares of the
    micro-batches that take them.
    """
    axes = tuple(range(1, share.ndim))
    mean = (share * seconds).sum(axis=axes)
    return float(mean.sum()), float(((share * seconds**2).sum(axis=axes) - mean**2).clip(min=0).sum())


def _pass_s(topology: Topology, job: Job, grid: IntArray, efficiency: GivenEfficiency) -> FloatArray:
    """Return (stages, replicas): seconds of a forward plus a backward, with recomputation, of one micro-batch that is
    alone on its device."""
    backward = job.modelled().backward.whole
    flop = [
        sum((1 + backward) * one.forward_flop + repeated_flop(job, one) for one in layers)
        for layers in job.stage_layers
    ]
    seconds = job.microbatch * np.array(flop)[:, None] / np.array(speeds_of(job, topology.devices, efficiency))
    return np.take_along_axis(seconds, grid, axis=1)


def _busiest_s(links: Links, sender: IntArray, receiver: IntArray, seconds: FloatArray) -> float:
    """Return the seconds for which the busiest link or NIC sends these messages. A device's messages to itself do not
    count."""
    apart = sender != receiver
    if not apart.any():
        return 0.0
    leaving, _ = links.queues(sender[apart], receiver[apart])
    _, queue = np.unique(leaving, return_inverse=True)
    return float(np.bincount(queue, seconds[apart]).max())


def _dealt(by_speed: IntArray, n_stages: int) -> IntArray:
    """Return (stages, replicas) devices, dealt out to stages from first to last and back, the fastest first. Remaining
    devices are left out."""
    n_replicas = len(by_speed) // n_stages
    grid = by_speed[: n_stages * n_replicas].reshape(n_replicas, n_stages).copy()
    grid[1::2] = grid[1::2, ::-1]
    return grid.T
