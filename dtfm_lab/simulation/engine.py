"""Play programs on a network: the structure, the seconds and the links go in, the times come out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dtfm_lab.domain.errors import ScheduleError
from dtfm_lab.domain.job import Job, device_gradient_bytes
from dtfm_lab.domain.network import Links
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import ACROSS_STAGES, Kind, Programs, Schedule, lower
from dtfm_lab.domain.trace import ComputeTime
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.simulation.deadlock import waiting_in_a_circle
from dtfm_lab.simulation.durations import seconds_of
from dtfm_lab.simulation.kernels.choice import kernel
from dtfm_lab.simulation.kernels.events import RECEIVE, SEND
from dtfm_lab.simulation.structure import Structure, structure


def programs_of(plan: Plan, schedule: Schedule, *, synchronise: bool = True) -> Programs:
    """All that the devices of a plan do in one iteration under a schedule."""
    devices = plan.topology.devices
    regions = tuple(tuple(devices[int(d)].region for d in row) for row in plan.placement.devices)
    return programs_in(plan.job, schedule, regions, synchronise=synchronise)


def programs_in(
    job: Job, schedule: Schedule, regions: tuple[tuple[str, ...], ...], *, synchronise: bool = True
) -> Programs:
    """The same of a job on any devices of these regions, (stages, replicas)."""
    return lower(
        schedule,
        job.n_replicas,
        job.synchronisation,
        regions if job.synchronisation == "hierarchical" else None,  # no other way of averaging asks for them
        tied=job.ties_stages,
        compressed=job.codes_gradients,
        synchronise=synchronise,
        locally=job.synchronise_every > 1,
    )


DENSE_DEVICES = 2048
"""up to as many, every pair of devices has a place in an array"""


@dataclass(frozen=True, eq=False)
class Scene:
    """Programs on the devices of a plan, ready to be played on any links and at any speeds. Columns by node."""

    structure: Structure
    here: IntArray
    """device, by its number in the topology"""
    there: IntArray
    """device at the other end of a message; ``here`` of computations"""
    n_bytes: FloatArray
    """of messages, at both ends; 0 of computations"""
    compute_s: FloatArray
    """of computations; 0 of messages"""
    extra_edges: tuple[IntArray, IntArray] | None = None
    """source and target of edges beyond the structure's"""

    @classmethod
    def of(cls, plan: Plan, programs: Programs, profile: Iterable[ComputeTime]) -> Scene:
        """Raises TraceError where the profile has no time for a computation."""
        whole, job = structure(programs), plan.job
        here = plan.placement.devices[whole.position, whole.replica]
        there = np.where(whole.partner >= 0, here[whole.partner], here)
        kinds = np.array([_SIZES.get(action.kind, 0) for action in whole.actions])[whole.action]
        gradient_bytes = np.array(device_gradient_bytes(job, programs.schedule.n_stages))[whole.position]
        sizes = np.choose(kinds, [whole.share * gradient_bytes, job.activation_bytes, job.embedding_bytes])
        n_bytes = np.where(whole.role == SEND, sizes, 0.0)
        received = whole.role == RECEIVE
        n_bytes[received] = n_bytes[whole.partner[received]]
        seconds = np.append(seconds_of(whole.works, profile), 0.0)
        return cls(whole, here, there, n_bytes, seconds[whole.work])

    def play(self, links: Links) -> Played:
        """Raises ScheduleError, naming the circle, where actions wait for each other."""
        whole = self.structure
        n = len(whole)
        sends = whole.role == SEND
        sender, receiver = (np.where(whole.role == RECEIVE, *ends) for ends in self._ends)
        latency_s = np.where(sends, links.latency_s[sender, receiver], 0.0)
        moving_s = np.where(whole.partner >= 0, links.moving_s(sender, receiver, self.n_bytes), 0.0)
        queue, n_queues = self._queues(links, sender, receiver)
        waits_for, next_from, next_node = self._edges()
        duration_s = self.compute_s + moving_s
        start_s, end_s = np.empty(n), np.empty(n)
        after, before, order = (np.empty(n, dtype=np.int64) for _ in range(3))
        n_played = kernel("play_events", n)(
            whole.role,
            duration_s,
            latency_s,
            whole.partner,
            queue,
            n_queues,
            waits_for,
            next_from,
            next_node,
            start_s,
            end_s,
            after,
            before,
            order,
        )
        if n_played < n:
            raise ScheduleError(waiting_in_a_circle(whole, order[:n_played]))
        return Played(self, duration_s, latency_s, start_s, end_s, after, before, order)

    def in_the_order_of(self, played: Played) -> Scene:
        """The same with every queue served in the order in which it was then, whoever is ready first."""
        target = np.flatnonzero(played.before >= 0)
        return replace(self, extra_edges=(played.before[target], target))

    @property
    def _ends(self) -> tuple[tuple[IntArray, IntArray], tuple[IntArray, IntArray]]:
        return (self.there, self.here), (self.here, self.there)

    def _queues(self, links: Links, sender: IntArray, receiver: IntArray) -> tuple[IntArray, int]:
        role, n = self.structure.role, len(links.latency_s)
        if links.queueing == "cards":
            queue = np.where(role == SEND, sender, np.where(role == RECEIVE, n + receiver, -1))
            return queue, 2 * n
        pair = np.where(role == SEND, sender * n + receiver, -1)
        if n <= DENSE_DEVICES:
            return pair, n * n
        used, queue = np.unique(pair, return_inverse=True)
        return np.where(pair < 0, -1, queue), len(used)

    def _edges(self) -> tuple[IntArray, IntArray, IntArray]:
        whole = self.structure
        if self.extra_edges is None:
            return whole.waits_for, whole.next_from, whole.next_node
        n, (source, target) = len(whole), self.extra_edges
        sources = np.concatenate([np.repeat(np.arange(n), np.diff(whole.next_from)), source])
        targets = np.concatenate([whole.next_node, target])
        next_from = np.concatenate([[0], np.cumsum(np.bincount(sources, minlength=n))])
        waits_for = whole.waits_for + np.bincount(target, minlength=n)
        return waits_for, next_from, targets[np.argsort(sources, kind="stable")]


_SIZES = {**dict.fromkeys(ACROSS_STAGES, 1), Kind.SEND_E: 2, Kind.RECV_E: 2}


@dataclass(frozen=True, eq=False)
class Played:
    """When everything happened. Columns by node, seconds since the iteration began."""

    scene: Scene
    duration_s: FloatArray
    latency_s: FloatArray
    """of sends"""
    start_s: FloatArray
    end_s: FloatArray
    after: IntArray
    """the node whose end it waited for last; -1 for none"""
    before: IntArray
    """the node before it on its link or card; -1 for none"""
    order: IntArray
    """the nodes as they started"""

    @property
    def makespan_s(self) -> float:
        return float(self.end_s.max())

    @cached_property
    def slack_s(self) -> FloatArray:
        """How much later each node could start, the order in every queue kept, and nothing end later in the end."""
        whole = self.scene.structure
        _, next_from, next_node = self.scene._edges()
        left_s = np.empty(len(whole))
        kernel("longest_from", len(whole))(
            whole.role,
            self.duration_s,
            self.latency_s,
            whole.partner,
            self.before,
            self.order,
            next_from,
            next_node,
            left_s,
        )
        slack_s: FloatArray = self.makespan_s - self.start_s - left_s
        return slack_s


def play(
    plan: Plan, schedule: Schedule, profile: Iterable[ComputeTime], links: Links, *, synchronise: bool = True
) -> Played:
    """One iteration of a plan under a schedule, computations as long as the profile says."""
    return Scene.of(plan, programs_of(plan, schedule, synchronise=synchronise), profile).play(links)
