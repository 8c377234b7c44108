"""This lab: the plan that its own search finds, ways to average tried on it, and grids that need no search."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.job.system import TRANSPORTS
from dtfm_lab.domain.network import Device, Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.planning import plan
from dtfm_lab.simulation.durations import EFFICIENCY, peak_of
from dtfm_lab.systems.assumption import Assumption
from dtfm_lab.systems.checkpoints import TRIED, checkpointed
from dtfm_lab.systems.grids import grids
from dtfm_lab.systems.modelled.data_parallel import DDP
from dtfm_lab.systems.strategy import Budget, Strategy, strategies

AVERAGES = ("ring", "hierarchical")
"""Ways to average that are tried on the plan of the search beside its own, the sharded one of the paper."""


@strategies.register("dtfm-lab")
@dataclass(frozen=True, kw_only=True)
class Ours(Strategy):
    """This lab: its own search for the fastest iteration, over shape, devices, cut, shares and the order of passes.

    On hosts with several GPUs half of its time goes to plans whose layers are shared by GPUs. Where nothing fits, it
    searches plans of split states.
    """

    name: ClassVar[str] = "dtfm-lab"
    title: ClassVar[str] = "dtfm_lab"
    cite: ClassVar[str] = "this lab"
    searches: ClassVar[bool] = True

    transport: Annotated[
        str,
        Assumption(help="A device computes on while it sends.", choices=TRANSPORTS, source="the lab's own workers do"),
    ] = "overlapped"
    averaging: Annotated[
        str,
        Assumption(
            help="On the plan found, a ring and averages by region, behind the last backward or in buckets beside it; "
            "or the search's own only.",
            choices=("tried", "sharded"),
            source="the lab's own workers play all of them",
        ),
    ] = "tried"
    grids: Annotated[
        bool,
        Assumption(
            help="Grids in rank order, either way round, and the whole model on every device are tried, too.",
            source="a search of a second or two should not lose to a plan that needs none",
        ),
    ] = True

    def plans(self, topology: Topology, job: Job, budget: Budget) -> Iterator[Plan]:
        """The plans of the searches, each with other ways to average, and those that need no search."""
        work = job.with_fields(transport=self.transport)
        grouped = max(topology.group_sizes) > 1
        part = replace(budget, seconds=budget.seconds / 2) if grouped else budget
        asked = [work.with_fields(tensor_parallel=None), work] if grouped else [work]
        found, why = 0, None
        for one in asked:
            try:
                searched = _searched(topology, one, part)
            except LabError as error:
                why = error
                continue
            found += 1
            yield searched
            yield from self._averaged(searched)
        if self.grids:
            yield from self._unsearched(topology, work, budget)
        if not found:
            split = work.with_fields(tensor_parallel=None if grouped else 1, sharding=None)
            try:
                yield _searched(topology, split, budget)
            except LabError:
                assert why is not None, "no search found a plan"
                raise why from None

    def _unsearched(self, topology: Topology, work: Job, budget: Budget) -> Iterator[Plan]:
        yield from DDP().plans(topology, work, budget)
        how = work.with_fields(schedule="1f1b", synchronisation="ring", overlap=True)
        for one in checkpointed(how, TRIED):
            for order in ("pp-dp", "dp-pp"):
                yield from grids(topology, one, tensor_parallel=topology.group_sizes, order=order)

    def _averaged(self, searched: Plan) -> Iterator[Plan]:
        if self.averaging != "tried" or searched.job.n_replicas == 1:
            return
        for synchronisation in (searched.job.synchronisation, *AVERAGES):
            for overlap in (False, True):
                if (synchronisation, overlap) != (searched.job.synchronisation, False):
                    job = searched.job.with_fields(synchronisation=synchronisation, overlap=overlap)
                    yield searched.changed(job=job)


def _searched(topology: Topology, work: Job, budget: Budget) -> Plan:
    """The plan of a search, which counts with the lab's efficiency: for another one, on devices of another peak."""
    factor = budget.efficiency / EFFICIENCY
    there = topology if factor == 1 else replace(topology, devices=_faster(topology, work.dtype, factor))
    how = {"steps": budget.steps} if budget.steps is not None else {"seconds": budget.seconds}
    found = plan(there, work, objective="iteration", seed=budget.seed, queueing=budget.queueing, **how)
    return found if factor == 1 else found.changed(topology=topology.grouped(found.job.tensor_parallel or 1))


def _faster(topology: Topology, dtype: str, factor: float) -> tuple[Device, ...]:
    return tuple(replace(one, peak_flop_per_s=factor * peak_of(one, dtype)) for one in topology.devices)
