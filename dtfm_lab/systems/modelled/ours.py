"""This lab: the plan that its own search finds, ways to average tried on it, and grids that need no search."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import ClassVar

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.job.options import TRANSPORTS
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.planning import plan
from dtfm_lab.systems.grids import MICROBATCHES, sizes_of
from dtfm_lab.systems.modelled.data_parallel import DDP
from dtfm_lab.systems.modelled.megatron import Megatron
from dtfm_lab.systems.strategy import TRIED, Branch, Budget, GridStrategy, described, strategies

AVERAGES = ("ring", "hierarchical")
"""Ways to average that are tried on the plan of the search beside its own, the sharded one of the paper."""


@strategies.register("dtfm-lab")
@described
@dataclass(frozen=True, kw_only=True)
class Ours(GridStrategy):
    """This lab: its own search for the fastest iteration, over shape, devices, cut, shares and the order of passes.

    On hosts with several GPUs half of its time goes to plans whose layers are shared by GPUs. Where nothing fits, it
    searches plans of split states.
    """

    name: ClassVar[str] = "dtfm-lab"
    searches: ClassVar[bool] = True

    transport: str = TRIED
    microbatches: str = TRIED
    averaging: str = "tried"
    grids: bool = True

    def branches(self, topology: Topology, job: Job, budget: Budget) -> Iterator[Plan | Branch]:
        """The plans of the searches, each with other ways to average and send, and those that need no search."""
        work = job.with_fields(transport=TRANSPORTS[0] if self.transport == TRIED else self.transport)
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
            yield from self._changed(searched)
        if self.grids:
            yield from self._unsearched(topology, work, budget)
        if not found:
            split = work.with_fields(tensor_parallel=None if grouped else 1, sharding=None)
            try:
                yield _searched(topology, split, budget)
            except LabError:
                assert why is not None, "no search found a plan"
                raise why from None

    def _unsearched(self, topology: Topology, work: Job, budget: Budget) -> Iterator[Plan | Branch]:
        """Grids of all systems' freedoms, and the whole model on every device."""
        yield from DDP(microbatches=self.microbatches).branches(topology, work, budget)
        grids = Megatron(transport=work.transport, microbatches=self.microbatches, gradient_dtype=work.gradients_in)
        yield from grids.branches(topology, work, budget)

    def _changed(self, searched: Plan) -> Iterator[Plan]:
        """The plan with one choice of its job changed that the search does not try."""
        job, tried = searched.job, list[dict[str, object]]()
        if self.averaging == TRIED and job.n_replicas > 1:
            tried += [
                {"synchronisation": one, "overlap": overlap}
                for one in (job.synchronisation, *AVERAGES)
                for overlap in (False, True)
            ]
        tried += [{"transport": one} for one in TRANSPORTS if self.transport == TRIED]
        tried += [{"microbatch": one} for one in sizes_of(self.microbatches, job, MICROBATCHES) or ()]
        for fields in tried:
            with suppress(LabError):  # a micro-batch that does not divide the batch
                changed = job.with_fields(**fields)
                if changed != job:
                    yield searched.changed(job=changed)


def _searched(topology: Topology, work: Job, budget: Budget) -> Plan:
    """The plan of a search."""
    how = {"steps": budget.steps} if budget.steps is not None else {"seconds": budget.seconds}
    return plan(
        topology,
        work,
        objective="iteration",
        seed=budget.seed,
        queueing=budget.queueing,
        efficiency=budget.efficiency,
        **how,
    )
