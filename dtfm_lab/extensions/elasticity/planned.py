"""A fleet whose speed comes from the lab's plans: the simulated iteration of the best plan for the devices online.

Peers of a stage (the devices that hold the same stage) may share the work of missing devices. This module also computes
how much longer a step takes then, and in which places of the plan missing devices cost least.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import NamedTuple

import numpy as np

from dtfm_lab.costs.memory import activation_budget
from dtfm_lab.domain.errors import JobError, LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Placement, Plan
from dtfm_lab.domain.units import BoolArray, FloatArray, IntArray
from dtfm_lab.extensions.elasticity.history import Operation
from dtfm_lab.extensions.elasticity.policy import kept
from dtfm_lab.planning.adapting import device_classes, nearest_grid
from dtfm_lab.planning.cost import price_placement
from dtfm_lab.planning.evaluate import evaluate, simulated
from dtfm_lab.planning.iteration.rising_bounds import rising_bounds
from dtfm_lab.planning.moving import moves
from dtfm_lab.planning.search import plan as search_plan
from dtfm_lab.simulation import simulate

Counts = tuple[int, ...]
"""Number of devices of each class of interchangeable devices (see ``PlannedFleet``)."""
SAME_S = 1e-9
"""Minimum seconds by which an exchange in ``better_hole`` must shorten a step. Less is rounding."""
RISES = 4000
"""Maximum number of steps in which ``_least_s`` raises the lower bound for the whole network. They take about two
seconds on one core."""
GENERATIONS = 3
"""Generations of the search for each fleet. The first one holds the best candidate of every shape."""


@dataclass(frozen=True, eq=False, kw_only=True)
class PlannedFleet:
    """Finds the plan with the shortest iteration for any subset of a network's devices.

    Devices are of one class if swapping them changes no plan's cost. Subsets with equal numbers of devices of each
    class share one search. Devices are then assigned to the plan so that as many as possible keep their stage. The same
    seed gives the same plans.
    """

    network: Topology
    job: Job
    seed: int = 0
    _class_of: IntArray = field(init=False, repr=False)
    _planned: dict[Counts, Plan | None] = field(default_factory=dict, init=False, repr=False)
    _known: dict[tuple[object, ...], Operation] = field(default_factory=dict, init=False, repr=False)
    """The first of all equal operations, by a key of its contents. A replay often returns to the same few operations,
    and then finds the results that were cached for the first one."""
    _loads: dict[tuple[Job, bytes], Load] = field(default_factory=dict, init=False, repr=False)
    _sharing_s: dict[tuple[Job, bytes, bytes], float] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_class_of", device_classes(self.network))

    @property
    def n_devices(self) -> int:
        return len(self.network)

    def _ordered(self, present: frozenset[int]) -> list[int]:
        """Return the devices sorted by class and index. In this order, sets with the same number of devices of each
        class have equal matrices of links."""
        return sorted(present, key=lambda device: (self._class_of[device], device))

    @kept
    def plan(self, present: frozenset[int]) -> Plan | None:
        """Return the plan for the devices online, on the network of only these devices. None if no plan fits."""
        ordered = self._ordered(present)
        found = self._found(ordered)
        return None if found is None else replace(found, topology=self.network.subset(ordered))

    def _counts(self, devices: Collection[int]) -> Counts:
        """Return the number of devices of each class."""
        return tuple(np.bincount(self._class_of[list(devices)], minlength=int(self._class_of.max()) + 1).tolist())

    def _found(self, devices: Collection[int]) -> Plan | None:
        """Return the plan for as many devices of each class as there are in ``devices``. Only the first set of devices
        with these numbers is searched. None if no plan fits."""
        key = self._counts(devices)
        if key not in self._planned:
            self._planned[key] = self._search(self._ordered(frozenset(devices)))
        return self._planned[key]

    def _search(self, ordered: list[int]) -> Plan | None:
        if not ordered:
            return None
        try:
            return self.searched(ordered)
        except LabError:  # too few devices, or too little memory, for any plan
            return None

    def searched(self, ordered: Sequence[int]) -> Plan:
        """Search for a plan of these devices. Raises LabError, which says why, if no plan fits."""
        return search_plan(
            self.network.subset(ordered),
            self.job,
            objective="iteration",
            seed=self.seed,
            steps=GENERATIONS,
            improve_bound=False,
        )

    @kept
    def operation(self, present: frozenset[int], current: Operation | None = None) -> Operation | None:
        """Return the operation of the plan for the devices online; None if no plan fits. Where possible, devices keep
        the stages that they have in ``current``."""
        found = self.plan(present)
        if found is not None and current is not None and current.plan is not None:
            # devices of one class can trade places without changing the cost
            grid = nearest_grid(found, current.plan)
            cost = price_placement(found.topology, found.job, grid)
            found = replace(found, placement=Placement(grid), cost=cost)
        return None if found is None else self._one(self.of(found))

    def shared(
        self, other: frozenset[int], present: frozenset[int], current: Operation | None, above: float
    ) -> Operation | None:
        """Return the operation of the plan for another set of devices (``other``), adapted to the devices online.

        If ``other`` is larger, its missing devices get the places in the plan in which their absence lengthens a step
        least. If it is smaller, the devices outside it stand by. None if no plan fits, if peers cannot share the work,
        or if the plan cannot exceed ``above`` samples per second even without missing devices.
        """
        found = self._found(other)
        if found is None or _samples(found) / _iteration_s(found) <= above:
            return None
        return self.operation(other, current) if other <= present else self._holed(other, present, current)

    @kept
    def _holed(self, larger: frozenset[int], present: frozenset[int], current: Operation | None) -> Operation | None:
        found = self._found(larger)
        assert found is not None, "the caller has looked"
        ordered, load = np.array(self._ordered(larger)), self._load(found)
        slots = self._counts(ordered[found.placement.devices].ravel().tolist())
        if found.job.n_replicas == 1 and any(np.array(slots) > self._counts(present)):
            return None
        plan = replace(found, topology=self.network.subset(ordered.tolist()))
        absent = {self.network.names[device] for device in larger - present}
        grid = nearest_grid(plan, None if current is None else current.plan, absent)
        gone, of_class = ~np.isin(ordered[grid], list(present)), self._class_of[ordered[grid]]
        more_s = longer_s(load, gone).max()
        while more_s > 0 and (exchange := better_hole(load, gone, of_class)) is not None:
            hole, place = exchange
            for one in (grid, gone):
                one[hole], one[place] = one[place], one[hole]
            more_s = longer_s(load, gone).max()
        # devices of one class can trade places without changing the cost
        placed = replace(plan, placement=Placement(grid))
        step_s = self._shared_s(placed, gone)
        return None if step_s == np.inf else self._one(self.of(placed).losing(larger - present, step_s=step_s))

    def of(self, plan: Plan) -> Operation:
        """Return the operation that executes a simulated plan. Its devices are found in the network by name."""
        devices = frozenset(self._indices(plan).ravel().tolist())
        return Operation(devices=devices, step_s=_iteration_s(plan), samples=_samples(plan), plan=plan)

    def _one(self, operation: Operation) -> Operation:
        """Return the first operation with the same contents as this one, so that results cached for it are found."""
        grid, plan = self.grid(operation), _plan_of(operation)
        key = (plan.job, plan.topology.names, grid.shape, grid.tobytes(), operation.left, operation.step_s)
        return self._known.setdefault(key, operation)

    @kept
    def survives(self, operation: Operation, lost: frozenset[int]) -> bool:
        """Return True if every stage has a device left."""
        left = operation.devices - lost
        return not any(left.isdisjoint(group) for group in self.grid(operation).tolist())

    @kept
    def grid(self, operation: Operation) -> IntArray:
        """Return (stages, replicas) the indices of the devices in the operation's plan."""
        return self._indices(_plan_of(operation))

    def _indices(self, plan: Plan) -> IntArray:
        """Return (stages, replicas) indices of a plan's devices in the whole network."""
        return np.array([self.network.index(name) for name in plan.topology.names])[plan.placement.devices]

    @kept
    def without(self, operation: Operation, lost: frozenset[int]) -> Operation | None:
        """Return the operation without the pipelines of lost devices. The other pipelines keep their micro-batches.
        None if no pipeline is left, or if an iteration of the rest cannot be simulated."""
        grid, plan = self.grid(operation), _plan_of(operation)
        kept = np.flatnonzero(np.isin(grid, list(operation.devices - lost)).all(axis=0))
        if not len(kept):
            return None
        counts = [plan.job.microbatch_counts[replica] for replica in kept]
        job = plan.job.with_fields(
            n_replicas=len(kept),
            global_batch=sum(counts) * plan.job.microbatch,
            microbatches_per_replica=tuple(counts),
        )
        ranks = Placement(plan.placement.devices[:, kept]).rank_map(len(plan.topology))
        smaller = simulated(evaluate(plan.topology, job, rank_map=ranks))
        return None if smaller.iteration_s is None else self._one(self.of(smaller))

    @kept
    def rerouted(self, operation: Operation, lost: frozenset[int]) -> Operation | None:
        """Return the operation in which the peers of lost devices share their work.

        None if a stage has no device left, or if a peer lacks memory for its share of the micro-batches in flight.
        """
        gone = ~np.isin(self.grid(operation), list(operation.devices - lost))
        step_s = self._shared_s(_plan_of(operation), gone)
        return None if step_s == np.inf else self._one(operation.losing(lost, step_s=step_s))

    def _shared_s(self, plan: Plan, gone: BoolArray) -> float:
        """Return the seconds of a step in which peers share the work of the missing devices (``gone``). Infinite if
        they cannot.

        The result is the larger of two estimates. One simulates every message. The other lets peers fit the work into
        the idle time of the full plan first, as ReCycle's schedules aim to. If the simulator cannot share the work
        (``check_shared``), as with embeddings tied across stages, only the second estimate is used. The larger one is
        never shorter than a step without losses. A simulated step may be, because fewer devices average. The upper
        bound on a history's samples does not allow for that.
        """
        load = self._load(plan)
        least_s = load.iteration_s + float(longer_s(load, gone).max())
        if least_s == np.inf or not gone.any():
            return least_s
        key = (plan.job, self._class_of[self._indices(plan)].tobytes(), gone.tobytes())
        if key not in self._sharing_s:
            absent = tuple(plan.topology.names[device] for device in plan.placement.devices[gone])
            with suppress(JobError):
                least_s = max(least_s, simulate(plan.changed(absent=absent)).iteration_s)
            self._sharing_s[key] = least_s
        return self._sharing_s[key]

    def _load(self, plan: Plan) -> Load:
        """Return the ``Load`` of a plan. Plans that differ only by devices of the same class share the result."""
        key = (plan.job, self._class_of[self._indices(plan)].tobytes())
        if key not in self._loads:
            self._loads[key] = load_of(plan)
        return self._loads[key]

    @kept
    def move_s(self, old: Operation | None, new: Operation) -> float:
        """Return the seconds until every device that changes layers has its parameters and optimizer state.

        Remaining devices that hold the state send it over the links. 0 without a previous plan, because a restart reads
        a checkpoint.
        """
        if old is None or old.plan is None or new.plan is None:
            return 0.0
        names, there = self.network.names, set(new.plan.topology.names)
        gone = {names[device] for device in new.left}
        holders = [name for index in old.devices if (name := names[index]) in there - gone]
        found = moves(old.plan, new.plan, holders)
        # do not wait for devices that have left
        awaited = [new.plan.topology.names[device] not in gone for device in found.receiver]
        return float(found.end_s[awaited].max(initial=0.0))

    def most_samples_per_s(self, present: frozenset[int], *, full_batch: bool) -> float:
        """Return an upper bound on samples per second: the job's batch divided by a lower bound on the seconds of an
        iteration.

        With ``full_batch``, every step trains the whole batch, and the bound is the larger of two bounds on seconds:
        the total work on ``present``, and the whole network's bound. Without, only the total work counts, because its
        bound also holds for smaller batches. If no plan fits ``present``, the whole network's bound is used. Infinite
        if no bound on the seconds is known.
        """
        found = self.plan(present)
        # the search does not improve its bound, so this is the bound of the total work. If no plan fits, the devices
        # may still continue an earlier plan, but no faster than the whole network
        work_s = 0.0 if found is None else found.iteration_lower_bound_s or 0.0
        least_s = max(work_s, self._least_s) if full_batch or found is None else work_s
        return float(self.job.global_batch) / least_s if least_s > 0 else np.inf

    @cached_property
    def _least_s(self) -> float:
        """Lower bound in seconds on an iteration of any plan of the whole network, and so of any part of it; 0 if no
        plan fits. It is raised in up to ``RISES`` steps.

        It also holds if peers share the work of missing devices, because they follow the plan of a larger set of
        devices. A bound for the devices online would not hold then: it assumes that every stage has the same number of
        replicas.
        """
        found = self.plan(frozenset(range(self.n_devices)))
        if found is None:
            return 0.0
        bounds = rising_bounds(
            found.topology, self.job, _iteration_s(found), lower_s=found.iteration_lower_bound_s or 0.0
        )
        return max(islice(bounds, RISES), default=0.0)


def _samples(plan: Plan) -> float:
    """Return the sequences per step."""
    return float(sum(plan.job.microbatch_counts) * plan.job.microbatch)


def _plan_of(operation: Operation) -> Plan:
    assert operation.plan is not None, "operations of this fleet have plans"
    return operation.plan


def _iteration_s(plan: Plan) -> float:
    assert plan.iteration_s is not None, "a search for seconds simulates what it finds"
    return plan.iteration_s


class Load(NamedTuple):
    """How long each device of a plan is busy, and how many micro-batches fit into its memory. Arrays are (stages,
    replicas)."""

    iteration_s: float
    busy_s: FloatArray
    """Seconds for which each device computes in an iteration."""
    room: IntArray
    """Number of micro-batches whose activations fit into each device's memory at once."""


def load_of(plan: Plan) -> Load:
    """Simulate an iteration of a plan and return its ``Load``."""
    trace = simulate(plan)
    busy_s = trace.bubble["busy_s"].to_numpy().reshape(plan.placement.devices.shape)
    return Load(trace.iteration_s, busy_s, activation_budget(plan))


def longer_s(load: Load, gone: BoolArray) -> FloatArray:
    """Return (stages,) the seconds by which each stage lengthens a step if peers share the work of missing devices.

    Infinite if a stage has no device left, or if a peer lacks memory for its share of the micro-batches in flight.
    """
    left = (~gone).sum(axis=1)
    extra_s = np.where(left > 0, (load.busy_s * gone).sum(axis=1) / np.maximum(left, 1), np.inf)
    idle_s = load.iteration_s - np.where(gone, 0.0, load.busy_s).max(axis=1)
    n_stages, n_replicas = gone.shape
    # 1f1b holds fewest micro-batches: in each pipeline, one per stage from this one to the last
    held = np.ceil(np.arange(n_stages, 0, -1) * n_replicas / np.maximum(left, 1))
    over = ~gone & (left < n_replicas)[:, None] & (held[:, None] > load.room)
    return np.where(over.any(axis=1), np.inf, np.maximum(extra_s - idle_s, 0.0))


def better_hole(load: Load, gone: BoolArray, of_class: IntArray) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Return the (stage, replica) of a missing device in the stage that lengthens the step most, and a place that
    should be empty instead.

    The device in the second place is of the same class, so it can move to the first. None if no exchange shortens the
    step.
    """
    worst_s = longer_s(load, gone)
    stage, least_s, found = int(worst_s.argmax()), float(worst_s.max()), None
    for replica in np.flatnonzero(gone[stage]).tolist():
        for other, place in np.argwhere(~gone & (of_class == of_class[stage, replica])).tolist():
            tried = gone.copy()
            tried[stage, replica], tried[other, place] = False, True
            tried_s = float(longer_s(load, tried).max())
            if tried_s < least_s - SAME_S:
                least_s, found = tried_s, ((stage, replica), (other, place))
    return found
