"""The worth of each device to a job: the cost without the device less the cost with the device serving.

A device that serves is removed from the network and the job planned again on the rest. A device that is idle is put
to work by the cheapest swap with one that serves. Either way::

    worth = cost without the device - cost with the device serving

A positive worth means that the job needs the device; zero, that another is as good; a negative one, that it does harm
where it serves. Both costs are for the same shape of the job and, as searches find them, upper bounds: each search
gets the same number of steps from a start that is quick to find, and then the cheapest swap of two devices
is applied until none is cheaper. So a worth is an estimate, and a negative one for a device that serves means that a
better plan without it was found: the given plan was not the best.

Where every device serves, the job does not fit without one, and the plan's shape cannot be kept. Then it is cut to
fewer replicas (the most that its batch allows), and the worth is that for the smaller job, with and without the device.
A warning in the log and the table's ``attrs["note"]`` say so, and the table has the shape that its figures are for.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from dtfm_lab.domain.errors import JobError, PlanError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import IntArray
from dtfm_lab.planning.cost import pair_costs, total_costs
from dtfm_lab.planning.evaluate import evaluate, reshaped
from dtfm_lab.planning.explain.exchange_costs import SwapCosts, local_optimum
from dtfm_lab.planning.explain.iteration_worth import EXTRA_COLUMNS, STEPS, IterationWorth, stream_iteration_worth
from dtfm_lab.planning.search import search

log = logging.getLogger(__name__)
NEGLIGIBLE = 1e-6
"""Share of the cost below which a worth counts as zero."""
COLUMNS = ["device", "stage", "replica", "worth_s", "verdict", "without_s", "serving_s", "n_stages", "n_replicas"]

Verdict = Literal["helps", "makes no difference", "harms"]


@dataclass(frozen=True, eq=False, kw_only=True)
class DeviceWorth:
    """One device with the best plan found in which it serves and the best found without it."""

    device: str
    role: tuple[int, int] | None
    """Its stage and replica in the best plan with all devices; None where it is idle there."""
    serving: Plan
    without: Plan
    note: str = ""
    """What a reader must know: that the worth is for a smaller shape than the given plan's. Empty where it is not."""

    @property
    def worth_s(self) -> float:
        """Cost without the device less the cost with it serving, in seconds."""
        return self.without.cost.total_s - self.serving.cost.total_s

    @property
    def verdict(self) -> Verdict:
        if abs(self.worth_s) <= NEGLIGIBLE * self.without.cost.total_s:
            return "makes no difference"
        return "helps" if self.worth_s > 0 else "harms"

    def table_row(self) -> tuple[Any, ...]:
        """The row of ``worth_table``, in the order of ``COLUMNS``."""
        job, costs_s = self.without.job, (self.without.cost.total_s, self.serving.cost.total_s)
        place = self.role or (None, None)
        return self.device, *place, self.worth_s, self.verdict, *costs_s, job.n_stages, job.n_replicas


def worth_table(rows: Iterable[DeviceWorth | IterationWorth]) -> pd.DataFrame:
    """One row for each device, the most needed first.

    Columns: device; stage and replica in the best plan with all devices (missing where idle); worth_s; verdict;
    without_s and serving_s, the two costs; n_stages and n_replicas, the shape that these are for. ``attrs["note"]``
    says so where that is not the shape of the plan that was given. ``attrs["seconds"]`` says what the seconds are:
    of the communication cost or, for a plan for seconds or dollars, of an iteration. Then the shape is that of the
    plan without the device, missing seconds are of a plan that does not exist, and there are the columns
    without_price_per_billion_tokens, serving_price_per_billion_tokens (US dollars) and sentence.
    """
    rows = list(rows)
    of_iteration = any(isinstance(row, IterationWorth) for row in rows)
    columns = [*COLUMNS, *EXTRA_COLUMNS] if of_iteration else COLUMNS
    table = pd.DataFrame([row.table_row() for row in rows], columns=columns)
    table = table.astype({"stage": "Int64", "replica": "Int64"})
    if of_iteration:
        table = table.astype({"n_stages": "Int64", "n_replicas": "Int64"})
    table = table.sort_values("worth_s", ascending=False, kind="stable", ignore_index=True)
    table.attrs["note"] = next((row.note for row in rows if row.note), "")
    table.attrs["seconds"] = "of an iteration" if of_iteration else "of the communication cost"
    return table


def stream_worth(
    plan: Plan,
    planner: str = "evolutionary",
    *,
    seed: int = 0,
    steps: int | None = None,
    seconds: float | None = None,
) -> Iterator[DeviceWorth | IterationWorth]:
    """The worth of every device of the plan's network, one after the other, in the topology's order.

    The plan itself is improved first, with the same limits as every other search. For a plan for seconds or dollars
    the worth is that to the iteration: see ``iteration_worth``.

    Parameters
    ----------
    steps, seconds
        Limits of each search, as in ``search``; 4 steps without either. With steps alone the rows depend on
        nothing but the seed.

    Raises
    ------
    PlanError
        A network of one device; a job that cannot be made smaller; limits out of range.
    UnknownName
        No such planner.
    """
    if plan.objective != "communication" and plan.job.model is not None:
        return stream_iteration_worth(plan, planner, seed=seed, steps=steps, seconds=seconds)
    if steps is None and seconds is None:
        steps = STEPS
    search(plan.topology, plan.job, planner, seed=seed, steps=steps, seconds=seconds)  # raises before the first row
    start, note = plan, ""
    if not plan.idle_devices:
        start = _smaller(plan)
        note = (
            f"all {len(plan.topology)} devices serve in {plan.job.n_stages} x {plan.job.n_replicas}, which cannot do "
            f"without one: worths are for {start.job.n_stages} x {start.job.n_replicas}"
        )
        log.warning("worth of devices: %s", note)

    def improved(topology: Topology, begin: Plan) -> Plan:
        # not planning.plan: it returns its best on an interrupt, and the next device would follow
        *_, last = search(topology, begin.job, planner, seed=seed, steps=steps, seconds=seconds, start=begin)
        better = min(begin, last.plan, key=lambda one: one.cost.total_s)
        local = _given(topology, begin.job, local_optimum(better.placement.devices, pair_costs(topology, begin.job)))
        return min(better, local, key=lambda one: one.cost.total_s)

    return (replace(row, note=note) for row in _worths(start, improved))


Improve = Callable[[Topology, Plan], Plan]
"""Improves a plan on a topology that has all of the plan's devices; the result costs no more."""


def _worths(start: Plan, improved: Improve) -> Iterator[DeviceWorth]:
    best = improved(start.topology, start)
    topology, grid = best.topology, best.placement.devices
    swaps = SwapCosts(grid, pair_costs(topology, best.job))
    idle = np.array(best.idle_devices)
    for device, name in enumerate(topology.names):
        if device in best.idle_devices:
            swap = swaps.best(device)
            assert swap is not None, "an idle device can take any place"
            forced = _given(topology, best.job, swaps.exchanged(device, swap.partner))
            yield DeviceWorth(device=name, role=None, serving=forced, without=best)
            continue
        swap = swaps.best(device, idle)
        assert swap is not None, "a device is idle"
        rest = topology.subset(other for other in topology.names if other != name)
        filled = _given(topology, best.job, swaps.exchanged(device, swap.partner))
        begin = evaluate(rest, best.job, stages=filled.stages)
        ((stage, replica),) = np.argwhere(grid == device).tolist()
        yield DeviceWorth(device=name, role=(stage, replica), serving=best, without=improved(rest, begin))


def _given(topology: Topology, job: Job, grid: IntArray) -> Plan:
    return evaluate(topology, job, stages=grid.tolist())


def _smaller(plan: Plan) -> Plan:
    """The plan with the most replicas below its own that the job allows; with one replica, with fewer stages.

    Pipelines (with one replica: stages at either end) are removed one by one, each time the one whose removal leaves
    the cheapest placement.
    """
    job = plan.job
    fewer = [(job.n_stages, n) for n in range(job.n_replicas - 1, 0, -1)]
    if job.n_replicas == 1:
        fewer = [(n, 1) for n in range(job.n_stages - 1, 0, -1)]
    for shape in fewer:
        try:
            smaller = reshaped(job, *shape)
        except JobError:
            continue
        return _given(plan.topology, smaller, _cut(plan, smaller))
    raise PlanError(
        f"{job.n_stages} x {job.n_replicas} uses every device of {plan.topology.name}, and {job.name} allows no "
        f"smaller shape; wanted a job that can do without a device"
    )


def _cut(plan: Plan, job: Job) -> IntArray:
    grid, pair = plan.placement.devices, pair_costs(plan.topology, job)
    while grid.shape != (job.n_stages, job.n_replicas):
        columns = grid.shape[1] > job.n_replicas
        rest = (
            [np.delete(grid, column, axis=1) for column in range(grid.shape[1])] if columns else [grid[1:], grid[:-1]]
        )
        grid = rest[int(total_costs(np.array(rest), pair).argmin())]
    return grid
