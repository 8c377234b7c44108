"""A fleet whose speed is what the lab's own plans for it reach, by the simulated iteration."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.history import Operation
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Placement, Plan
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.adapting import device_classes, nearest
from dtfm_lab.planning.evaluate import evaluate, simulated
from dtfm_lab.planning.moving import moves
from dtfm_lab.planning.search import plan as search_plan
from dtfm_lab.simulation import simulate

GENERATIONS = 3
"""Generations of the search for each fleet: the first one has the best of every shape."""


@dataclass(frozen=True, eq=False, kw_only=True)
class PlannedFleet:
    """Plans for seconds of any set of a network's devices, one search for all sets that differ in names alone.

    Devices are of one class where they can change places without changing any plan's cost; a fleet is planned by how
    many of each class are there, and of a plan for such a fleet the devices are chosen so that most keep their stage.
    The same seed gives the same plans. Raises JobError for a job without a model.
    """

    network: Topology
    job: Job
    seed: int = 0
    _class_of: IntArray = field(init=False, repr=False)
    _planned: dict[tuple[int, ...], Plan | None] = field(default_factory=dict, init=False, repr=False)
    _operations: dict[tuple[frozenset[int], Operation | None], Operation | None] = field(
        default_factory=dict, init=False, repr=False
    )
    _whole: list[float] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_class_of", device_classes(self.network))

    @property
    def n_devices(self) -> int:
        return len(self.network)

    def _ordered(self, present: frozenset[int]) -> list[int]:
        """The devices by class and number: in this order, fleets with as many of each class have equal matrices."""
        return sorted(present, key=lambda device: (self._class_of[device], device))

    def plan(self, present: frozenset[int]) -> Plan | None:
        """The plan of a fleet, on the network of these devices alone; None where none fits."""
        ordered = self._ordered(present)
        key = tuple(np.bincount(self._class_of[ordered], minlength=int(self._class_of.max()) + 1).tolist())
        if key not in self._planned:
            self._planned[key] = self._search(ordered)
        found = self._planned[key]
        return None if found is None else replace(found, topology=self.network.subset(ordered))

    def _search(self, ordered: list[int]) -> Plan | None:
        if not ordered:
            return None
        try:
            return search_plan(
                self.network.subset(ordered),
                self.job,
                objective="iteration",
                seed=self.seed,
                steps=GENERATIONS,
                improve_bound=False,
            )
        except LabError:  # too few devices, or too little memory, for any plan
            return None

    def operation(self, present: frozenset[int], current: Operation | None = None) -> Operation | None:
        """The plan of who is there, its devices near those of ``current``."""
        key = (present, current)
        if key not in self._operations:
            found = self.plan(present)
            if found is not None and current is not None and current.plan is not None:
                found = nearest(found, current.plan)
            self._operations[key] = None if found is None else self.of(found)
        return self._operations[key]

    def of(self, plan: Plan) -> Operation:
        """Working by a simulated plan, whose devices are the network's by name."""
        assert plan.iteration_s is not None, "a search for seconds simulates what it finds"
        samples = float(sum(plan.job.microbatch_counts) * plan.job.microbatch)
        devices = frozenset(self._indices(plan).ravel().tolist())
        return Operation(devices=devices, step_s=plan.iteration_s, samples=samples, plan=plan)

    def grid(self, operation: Operation) -> IntArray:
        """(stages, replicas) devices of the operation's plan."""
        assert operation.plan is not None, "operations of this fleet have plans"
        return self._indices(operation.plan)

    def _indices(self, plan: Plan) -> IntArray:
        """(stages, replicas) indices of a plan's devices in the whole network."""
        return np.array([self.network.index(name) for name in plan.topology.names])[plan.placement.devices]

    def without(self, operation: Operation, lost: frozenset[int]) -> Operation | None:
        """The plan without the pipelines of the lost, each of the others with its own micro-batches, simulated."""
        grid, plan = self.grid(operation), operation.plan
        assert plan is not None, "operations of this fleet have plans"
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
        return None if smaller.iteration_s is None else self.of(smaller)

    def rerouted(self, operation: Operation, lost: frozenset[int]) -> Operation | None:
        """The peers of a lost device share its work evenly and put it into their idle seconds first.

        A step is longer by what does not fit there: the least that it can be, as ReCycle's schedules aim at.
        """
        grid, plan = self.grid(operation), operation.plan
        assert plan is not None, "operations of this fleet have plans"
        gone = ~np.isin(grid, list(operation.devices - lost))
        if gone.all(axis=1).any():
            return None
        iteration_s, busy_s = _busy_s(plan)
        left = (~gone).sum(axis=1)
        extra_s = (busy_s * gone).sum(axis=1) / left
        idle_s = iteration_s - np.where(gone, 0.0, busy_s).max(axis=1)
        longer_s = float(np.maximum(extra_s - idle_s, 0.0).max())
        return operation.losing(lost, step_s=iteration_s + longer_s)

    def move_s(self, old: Operation | None, new: Operation) -> float:
        """Until everybody who serves other layers than before has their parameters and optimiser states, from those who
        are left and held them, over the links. 0 where there was no plan: a restart reads a checkpoint."""
        if old is None or old.plan is None or new.plan is None:
            return 0.0
        there = set(new.plan.topology.names)
        holders = [name for index in old.devices if (name := self.network.names[index]) in there]
        return moves(old.plan, new.plan, holders).move_s

    def most_samples_per_s(self, present: frozenset[int], *, full_batch: bool) -> float:
        """The job's batch over the lower bound of its seconds on these devices; where the batch may shrink, only over
        the bound by all devices' work together, of which every sample has its share."""
        found = self.plan(present)
        # a search that does not improve its bound has that of the work; where none finds a plan, survivors of another
        # one may still work by it, and no faster than the whole network
        work_s = 0.0 if found is None else found.iteration_lower_bound_s or 0.0
        least_s = max(work_s, self._least_s()) if full_batch or found is None else work_s
        return float(self.job.global_batch) / least_s if least_s > 0 else np.inf

    def _least_s(self) -> float:
        """A bound that no plan of the whole network beats, so none of a part of it; searched for longer, once."""
        if not self._whole:
            bounded = search_plan(
                self.network, self.job, objective="iteration", seed=self.seed, steps=1, improve_bound=True
            )
            self._whole.append(bounded.iteration_lower_bound_s or 0.0)
        return self._whole[0]


@lru_cache(maxsize=256)  # several losses come upon one plan
def _busy_s(plan: Plan) -> tuple[float, FloatArray]:
    """Seconds of the plan's iteration, and (stages, replicas) of them in which each device computes."""
    trace = simulate(plan)
    return trace.iteration_s, trace.bubble["busy_s"].to_numpy().reshape(plan.placement.devices.shape)
