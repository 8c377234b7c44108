"""What a device is worth to a plan: the network is planned again without it.

A used device is removed from the network, and the job is planned again on the rest. An idle device takes another
device's place, with as much work as helps. Either way::

    worth = cost without the device - cost with it in use

The cost is the seconds of an iteration. For a job with given message sizes, which has no iteration to simulate and
keeps its shape, it is the seconds of the communication cost.

A positive worth means that the job needs the device, a negative one that using it does harm. Every search starts from a
plan near the given one and gets the same limits. A search finds plans, not proofs, so a worth is an estimate. A
negative worth of a used device means that a better plan was found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dtfm_lab.costs.efficiency import speeds_of
from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.job import LEFT_TO_PLANNERS, Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import IntArray, format_s
from dtfm_lab.planning.adapting import shared_out, starting_plans
from dtfm_lab.planning.cost import pair_costs
from dtfm_lab.planning.evaluate import opened, placed, simulated
from dtfm_lab.planning.explain.communication import SwapCosts
from dtfm_lab.planning.iteration.problem import IterationProblem
from dtfm_lab.planning.search import PlanStep, search, value_of

if TYPE_CHECKING:
    import pandas as pd

STEPS = 4
"""Steps of each search if the caller gives neither steps nor seconds."""
NEGLIGIBLE = 1e-6
"""A worth below this share of the cost counts as zero, because it is only rounding."""
MOST_STAGES = 4
"""Maximum number of stages in which ``with_device`` tries an idle device. Stages with the least work come first."""
HALVINGS = 4
"""Maximum number of times that the micro-batches of a slow device's pipeline are halved, as long as that helps."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Worth:
    """One device, with the best plan found that uses it and the best plan found without it."""

    device: str
    role: tuple[int, int] | None
    """The device's stage and replica in the best plan with all devices; None if it is idle there."""
    serving: Plan | None
    """The best plan found that uses the device; None if it fits nowhere."""
    without: Plan | None
    """The best plan found without the device; None if no such plan fits."""

    @property
    def worth_s(self) -> float:
        """Seconds without the device minus the seconds with it; NaN if either is impossible."""
        return seconds(self.without) - seconds(self.serving)

    @property
    def verdict(self) -> str:
        """What using the device means for the plan's objective: "helps", "harms" or "makes no difference". "needed" if
        no plan fits without it, "cannot serve" if it fits nowhere."""
        if self.without is None:
            return "needed"
        if self.serving is None:
            return "cannot serve"
        gain = value_of(self.without) - value_of(self.serving)
        # A smaller difference is one between searches, not between devices.
        if abs(gain) <= NEGLIGIBLE * value_of(self.without):
            return "makes no difference"
        return "helps" if gain > 0 else "harms"

    @property
    def sentence(self) -> str:
        """The difference in a sentence: ``without the Raspberry Pi 16.7 s an iteration instead of 843 s``."""
        if self.without is None:
            return f"without {self.device} no plan fits"
        what = "of communication" if self.without.objective == "communication" else "an iteration"
        without = f"{format_s(seconds(self.without))} {what}"
        if self.serving is None:
            return f"{self.device} fits nowhere: {without} without it"
        return f"without {self.device} {without} instead of {format_s(seconds(self.serving))}"


def worth_table(rows: Iterable[Worth]) -> pd.DataFrame:
    """Return one row per device, the largest worth first. Devices without a number (``needed``, ``cannot serve``) are
    last.

    Columns:

    - device; stage and replica in the best plan with all devices (missing if idle)
    - worth_s, the seconds that the device saves; verdict
    - without_s and serving_s, the seconds without and with the device, missing for a plan that does not exist
    - n_stages and n_replicas without the device
    - without_price_per_billion_tokens and serving_price_per_billion_tokens, in US dollars
    - sentence

    ``attrs["seconds"]`` says whether the seconds are of an iteration or of the communication cost.
    """
    import pandas as pd  # takes a while to load

    rows = list(rows)
    roles = [(None, None) if row.role is None else row.role for row in rows]
    shapes = [(None, None) if row.without is None else row.without.placement.devices.shape for row in rows]
    table = pd.DataFrame(
        {
            "device": [row.device for row in rows],
            "stage": pd.array([stage for stage, _ in roles], "Int64"),
            "replica": pd.array([replica for _, replica in roles], "Int64"),
            "worth_s": [row.worth_s for row in rows],
            "verdict": [row.verdict for row in rows],
            "without_s": [seconds(row.without) for row in rows],
            "serving_s": [seconds(row.serving) for row in rows],
            "n_stages": pd.array([n_stages for n_stages, _ in shapes], "Int64"),
            "n_replicas": pd.array([n_replicas for _, n_replicas in shapes], "Int64"),
            "without_price_per_billion_tokens": [_dollars(row.without) for row in rows],
            "serving_price_per_billion_tokens": [_dollars(row.serving) for row in rows],
            "sentence": [row.sentence for row in rows],
        }
    )
    table = table.sort_values("worth_s", ascending=False, kind="stable", ignore_index=True)
    plans = [plan for row in rows for plan in (row.serving, row.without) if plan is not None]
    by_messages = any(plan.objective == "communication" for plan in plans)
    table.attrs["seconds"] = "of the communication cost" if by_messages else "of an iteration"
    return table


def stream_worth(plan: Plan, planner: str = "evolutionary", **limits: Any) -> Iterator[Worth]:
    """Yield the worth of every device of the plan's network, in the topology's order. The plan itself is improved
    first.

    ``seed``, ``steps`` and ``seconds`` of each search are as in ``search``. Without steps and seconds, a search takes 4
    steps. With steps alone, the rows depend only on the seed. Raises PlanError for limits out of range or a plan that
    cannot be simulated, and UnknownName for a planner, before the first row.
    """
    plan = simulated(plan)
    if plan.objective == "communication" and plan.iteration_s is not None:  # it has a model, so its seconds count
        plan = plan.changed(objective="iteration", iteration_s=plan.iteration_s)
    return _worths(plan, _checked(plan, planner, **limits))


def _worths(plan: Plan, limits: dict[str, Any]) -> Iterator[Worth]:
    """Yield the worth of each device.

    Devices that can change places without any effect share one worth, so only one of them is searched for. If one of
    them is idle and another in use, the worth is 0, because the idle device could replace the other.
    """
    # Search with all devices too. Otherwise a better search would look like the worth of a device.
    best = replanned(plan.topology, plan, plan, **limits)
    assert best is not None, "no worse than the plan"
    topology, grid, alike = best.topology, best.placement.devices, _alike(best)
    first: dict[int, Worth] = {}
    for device, name in enumerate(topology.names):
        at = np.argwhere(grid == device).tolist()
        role = (int(at[0][0]), int(at[0][1])) if at else None
        like = np.flatnonzero(alike == alike[device]).tolist()
        # a twin with the other role can replace it, so no search is needed
        twin = next((topology.names[d] for d in like if (d in best.idle_devices) == (role is not None)), None)
        known = first.get(int(alike[device]))
        serving: Plan | None = best
        without: Plan | None = best
        if twin is not None:
            swapped = _renamed(best, name, twin, topology)
            serving, without = (swapped, best) if role is None else (best, swapped)
        elif role is None:
            serving = _renamed(known.serving, name, known.device, topology) if known else with_device(best, device)
        elif known is not None:
            # A device that is alike has been searched for already.
            without = _renamed(known.without, name, known.device, topology)
        else:
            others = [d for d in range(len(topology)) if d != device]
            rest = topology.subset(others) if others else None
            # The plan without the device is where the search begins, so it finds nothing worse.
            without = None if rest is None else replanned(rest, best, best_of(_without(best, rest)), **limits)
        row = Worth(device=name, role=role, serving=serving, without=without)
        if twin is None:
            first.setdefault(int(alike[device]), row)
        yield row


def _alike(plan: Plan) -> IntArray:
    """Return (N,) class of each device. Two devices of a class can change places without any effect. For the
    communication cost, each device is a class."""
    if plan.objective == "communication":
        return np.arange(len(plan.topology))
    return IterationProblem.of(plan.topology, opened(plan), plan.queueing, efficiency=plan.efficiency).alike


def _renamed(plan: Plan | None, a: str, b: str, whole: Topology) -> Plan | None:
    """Return the plan with devices ``a`` and ``b``, which are interchangeable, exchanged. ``whole`` is the network that
    has both; the plan's network may lack one."""
    if plan is None:
        return None
    other = {a: b, b: a}
    names = {other.get(name, name) for name in plan.topology.names}
    network = whole if len(names) == len(whole) else whole.subset([name for name in whole.names if name in names])
    grid = np.array([[network.index(other.get(name, name)) for name in group] for group in plan.stages])
    moved = placed(plan, grid, plan.job, network)
    assert moved is not None, "devices without a difference hold the same"
    return moved


def _checked(plan: Plan, planner: str, *, steps: int | None = None, seconds: float | None = None, **limits: Any) -> Any:
    """Return the keyword arguments for ``replanned``.

    Raises PlanError for a plan that was not simulated and for limits out of range, UnknownName for a planner.
    """
    if plan.iteration_s is None and plan.objective != "communication":
        raise PlanError(f"plan of {plan.job.name} was not simulated; wanted one with iteration_s")
    steps = STEPS if steps is None and seconds is None else steps
    limits |= {"planner": planner, "steps": steps, "seconds": seconds}
    # checks the limits at once; nothing is searched before the first step is asked for
    search(plan.topology, opened(plan), objective=plan.objective, **limits)
    return limits


def replanned(
    topology: Topology,
    like: Plan,
    start: Plan | None,
    *,
    progress: Callable[[PlanStep], object] | None = None,
    **limits: Any,
) -> Plan | None:
    """Search on a network with the objective of the plan ``like`` and its job with open fields (``opened``). Return the
    best plan found, no worse than ``start``.

    None if no plan fits. ``progress`` is called with every step.
    """
    # Ctrl-C may come before the first step.
    last: PlanStep | None = None
    # not planning.plan: on Ctrl-C it returns its best plan, and the loop would continue with the next device
    try:
        how = {"queueing": like.queueing, "efficiency": like.efficiency, "improve_bound": False} | limits
        for last in search(topology, opened(like), objective=like.objective, start=start, **how):
            if progress is not None:
                progress(last)
    except PlanError:
        return start
    return start if last is None else best_of([start, last.plan])


def freed(plan: Plan, planner: str = "evolutionary", **options: Any) -> Plan | None:
    """Open every field that the plan's job pins, except ``evaluate.SETTLED``, and search. Return the best plan found,
    which is no worse than ``plan``.

    None if nothing was pinned, or if the plan is for the communication cost or was not simulated. The options are
    passed to ``replanned``.
    """
    if not plan.pinned or plan.iteration_s is None or plan.objective == "communication":
        return None
    everything = plan.changed(left_open=(*LEFT_TO_PLANNERS, "recompute"), iteration_s=plan.iteration_s)
    return replanned(plan.topology, everything, plan, planner=planner, **options)


def _dollars(plan: Plan | None) -> float:
    dollars = None if plan is None else plan.price_per_billion_tokens
    return np.nan if dollars is None else dollars


def seconds(plan: Plan | None) -> float:
    """Return the seconds of a plan's iteration, or of its communication cost if that is its objective or it was not
    simulated. NaN for no plan."""
    if plan is None:
        return np.nan
    return plan.cost.total_s if plan.objective == "communication" or plan.iteration_s is None else plan.iteration_s


def best_of(plans: Iterable[Plan | None]) -> Plan | None:
    """Return the plan with the fewest seconds or dollars; None if there is no plan."""
    return min((plan for plan in plans if plan is not None), key=value_of, default=None)


def with_device(plan: Plan, device: int) -> Plan | None:
    """Return the best plan found that uses an idle device in another's place, with as much work as helps.

    It tries the stages with the least work, in the pipeline of the slowest device there. With one stage, it also tries
    a separate pipeline. None if the device fits nowhere. For the communication cost, it is the cheapest swap with a
    used device.
    """
    if plan.objective == "communication":
        swaps = SwapCosts(plan.placement.devices, pair_costs(plan.topology, plan.job))
        swap = swaps.best(device)
        return None if swap is None else placed(plan, swaps.exchanged(device, swap.partner), plan.job)
    best = best_of(_with_device(plan, device))
    if best is None:
        return None
    (replica,) = np.argwhere(best.placement.devices == device)[:, 1]
    # a slow device delays its pipeline, so it gets fewer micro-batches as long as that helps
    for _ in range(HALVINGS):
        count = best.job.microbatch_counts[int(replica)]
        if best.job.n_replicas == 1 or count == 1:
            break
        shares = shares_with(best.job.microbatch_counts, int(replica), count // 2)
        job = best.job.with_fields(microbatches_per_replica=shares)
        fewer = placed(best, best.placement.devices, job)
        if fewer is None or value_of(fewer) >= value_of(best):
            break
        best = fewer
    return best


def _without(plan: Plan, rest: Topology) -> Iterator[Plan | None]:
    """Yield plans near this one on the rest of its network. For the communication cost, only plans of the same shape,
    because the message sizes depend on it."""
    for one in starting_plans(plan, rest):
        if plan.objective != "communication" or one.job == plan.job:
            yield placed(plan, one.placement.devices, one.job, rest)


def _with_device(plan: Plan, device: int) -> Iterator[Plan | None]:
    grid, job = plan.placement.devices, plan.job
    speed = np.array(speeds_of(job, plan.topology.devices, plan.efficiency))
    work = np.array([sum(layer.forward_flop for layer in layers) for layers in job.stage_layers])
    # Stages with least work first: there a slower device does least harm.
    for stage in np.argsort(work, kind="stable")[:MOST_STAGES]:
        replica = int(speed[grid[stage]].argmin())
        other = grid.copy()
        other[stage, replica] = device
        slower = min(1.0, float(speed[device] / speed[grid[stage, replica]]))
        yield placed(plan, other, _with_share(job, replica, slower))
    # with one stage, a device can be a pipeline alone
    if job.n_stages == 1 and job.n_replicas < sum(job.microbatch_counts):
        more = job.with_fields(n_replicas=job.n_replicas + 1)
        count = round(sum(job.microbatch_counts) * float(speed[device] / speed[[*grid[0], device]].sum()))
        shares = shares_with((*job.microbatch_counts, 0), job.n_replicas, max(1, count))
        row = np.append(grid[0], device)[None, :]
        yield placed(plan, row, more.with_fields(microbatches_per_replica=shares, warmups=job.warmups))


def _with_share(job: Job, replica: int, factor: float) -> Job:
    """Return the job with the micro-batches of one pipeline multiplied by a factor below 1. The other pipelines share
    the rest. With one pipeline, or a factor of 1 or more, the job stays as it is."""
    if job.n_replicas == 1 or factor >= 1:
        return job
    count = max(1, round(job.microbatch_counts[replica] * factor))
    return job.with_fields(microbatches_per_replica=shares_with(job.microbatch_counts, replica, count))


def shares_with(counts: tuple[int, ...], replica: int, count: int) -> tuple[int, ...]:
    """Return the micro-batches of each pipeline if pipeline ``replica`` gets ``count``. The others share the rest in
    proportion to their present ``counts``."""
    others = np.delete(np.array(counts), replica)
    count = min(count, sum(counts) - len(others))
    return tuple(np.insert(np.array(shared_out(others, sum(counts) - count)), replica, count).tolist())
