"""What a device is worth to a plan: the network without it, or with one more, planned anew.

A device that serves is removed from the network and the job planned again on the rest. A device that is idle is put
to work, in another's place and with as much work as pays. Either way::

    worth = cost without the device - cost with it serving

in seconds of an iteration; in seconds of the communication cost for a job of given message sizes, which has no
iteration to simulate and keeps its shape. A positive worth means that the job needs the device, a negative one that it
does harm where it serves. Every search starts from a plan near the given one and gets the same limits. They give plans,
not proofs: a worth is an estimate, and a negative one for a device that serves means that a better plan was found.

One more device of each kind is asked in the same way, with a device added beside one of those there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.job import LEFT_TO_PLANNERS
from dtfm_lab.domain.network import HARDWARE, Device, Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.registry import unknown
from dtfm_lab.domain.units import IntArray, format_s
from dtfm_lab.planning.evaluate import simulated
from dtfm_lab.planning.explain.nearby_plans import best_of, opened, placed, seconds, value, with_device, without_device
from dtfm_lab.planning.iteration.problem import IterationProblem
from dtfm_lab.planning.search import search
from dtfm_lab.planning.step import PlanStep

STEPS = 4
"""Steps of each search, where the caller gives neither steps nor seconds."""
NEGLIGIBLE = 1e-6
"""Share of the cost below which a worth counts as zero."""
NAME = "one more"
"""Name of the device that is added."""
LONGER = 3
"""So many times the limits of one search are those of the search without the device, which all are compared with."""
MOST_PLACES = 4
"""Regions that are tried for one more device, those of the best links to the devices that serve."""
SAME_PLACE = 1e-6
"""Latency in seconds of a device to the one that it stands beside, where that has no link within its region."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Worth:
    """One device with the best plan found in which it serves, and the best found without it."""

    device: str
    role: tuple[int, int] | None
    """Its stage and replica in the best plan with all devices; None where it is idle there."""
    serving: Plan | None
    """None where it fits nowhere."""
    without: Plan | None
    """None where no plan without it fits."""

    @property
    def worth_s(self) -> float:
        """Seconds without the device less those with it; NaN where either is not possible."""
        return seconds(self.without) - seconds(self.serving)

    @property
    def verdict(self) -> str:
        """Whether it helps by what the plan was made for, such as dollars a billion tokens."""
        if self.without is None:
            return "needed"
        if self.serving is None:
            return "cannot serve"
        gain = value(self.without) - value(self.serving)
        if abs(gain) <= NEGLIGIBLE * value(self.without):
            return "makes no difference"
        return "helps" if gain > 0 else "harms"

    @property
    def sentence(self) -> str:
        """``without the Raspberry Pi 16.7 s an iteration instead of 843 s``."""
        if self.without is None:
            return f"without {self.device} no plan fits"
        what = "of communication" if self.without.objective == "communication" else "an iteration"
        if self.serving is None:
            return f"{self.device} fits nowhere: {format_s(seconds(self.without))} {what} without it"
        return (
            f"without {self.device} {format_s(seconds(self.without))} {what} instead of "
            f"{format_s(seconds(self.serving))}"
        )


def worth_table(rows: Iterable[Worth]) -> pd.DataFrame:
    """One row for each device, the most needed first.

    Columns: device; stage and replica in the best plan with all devices (missing where idle); worth_s; verdict;
    without_s and serving_s, missing for a plan that does not exist; n_stages and n_replicas without the device;
    without_price_per_billion_tokens and serving_price_per_billion_tokens (US dollars); sentence. ``attrs["seconds"]``
    says whether the seconds are of an iteration or of the communication cost.
    """
    rows = list(rows)
    table = pd.DataFrame(
        {
            "device": [row.device for row in rows],
            "stage": pd.array([None if row.role is None else row.role[0] for row in rows], "Int64"),
            "replica": pd.array([None if row.role is None else row.role[1] for row in rows], "Int64"),
            "worth_s": [row.worth_s for row in rows],
            "verdict": [row.verdict for row in rows],
            "without_s": [seconds(row.without) for row in rows],
            "serving_s": [seconds(row.serving) for row in rows],
            "n_stages": pd.array([None if row.without is None else row.without.job.n_stages for row in rows], "Int64"),
            "n_replicas": pd.array(
                [None if row.without is None else row.without.job.n_replicas for row in rows], "Int64"
            ),
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
    """The worth of every device of the plan's network, in the topology's order; the plan itself is improved first.

    ``seed``, ``steps`` and ``seconds`` are those of each search, as in ``search``; 4 steps without either. With steps
    alone the rows depend on nothing but the seed. Raises PlanError for limits out of range and UnknownName for a
    planner, before the first row.
    """
    plan = _by_seconds(plan)
    return _worths(plan, _checked(plan, planner, **limits))


def _worths(plan: Plan, limits: dict[str, Any]) -> Iterator[Worth]:
    """Devices that can change places without changing anything have one worth, found once; where one of them is idle,
    it is 0."""
    best = replanned(plan.topology, plan, plan, **limits)
    assert best is not None, "no worse than the plan"
    topology, grid, alike = best.topology, best.placement.devices, _alike(best)
    first: dict[int, Worth] = {}
    for device, name in enumerate(topology.names):
        at = np.argwhere(grid == device).tolist()
        role = (int(at[0][0]), int(at[0][1])) if at else None
        like = np.flatnonzero(alike == alike[device]).tolist()
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
            without = _renamed(known.without, name, known.device, topology)
        else:
            rest = topology.subset([d for d in range(len(topology)) if d != device])
            without = replanned(rest, best, without_device(best, device), **limits)
        row = Worth(device=name, role=role, serving=serving, without=without)
        if twin is None:
            first.setdefault(int(alike[device]), row)
        yield row


def _alike(plan: Plan) -> IntArray:
    """(N,) number of the kind of each device; two of a kind can change places without changing anything."""
    if plan.objective == "communication":
        return np.arange(len(plan.topology))
    return IterationProblem.of(plan.topology, opened(plan), plan.queueing, efficiency=plan.efficiency).alike


def _renamed(plan: Plan | None, a: str, b: str, whole: Topology) -> Plan | None:
    """The plan with two devices changed over, between which nothing differs, on its part of the whole network."""
    if plan is None:
        return None
    other = {a: b, b: a}
    names = {other.get(name, name) for name in plan.topology.names}
    network = whole if len(names) == len(whole) else whole.subset([name for name in whole.names if name in names])
    grid = np.array([[network.index(other.get(name, name)) for name in group] for group in plan.stages])
    moved = placed(plan, grid, plan.job, network)
    assert moved is not None, "devices without a difference hold the same"
    return moved


def _by_seconds(plan: Plan) -> Plan:
    """The plan as one for the seconds of its iteration, where it is for its communication cost and has a model."""
    plan = simulated(plan)
    if plan.objective == "communication" and plan.iteration_s is not None:
        return plan.changed(objective="iteration", iteration_s=plan.iteration_s)
    return plan


def _checked(plan: Plan, planner: str, *, steps: int | None = None, seconds: float | None = None, **limits: Any) -> Any:
    """The keywords of ``replanned``. Raises PlanError for a plan that was not simulated and for limits out of range,
    UnknownName for a planner."""
    if plan.iteration_s is None and plan.objective != "communication":
        raise PlanError(f"plan of {plan.job.name} was not simulated; wanted one with iteration_s")
    steps = STEPS if steps is None and seconds is None else steps
    limits |= {"planner": planner, "steps": steps, "seconds": seconds}
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
    """The best plan found of another's job and objective on a network, everything open, no worse than the start.

    None where none fits. ``progress`` gets every step.
    """
    last: PlanStep | None = None
    # not planning.plan: it returns its best on an interrupt, and the next device would follow
    try:
        for last in search(
            topology,
            opened(like),
            objective=like.objective,
            start=start,
            queueing=like.queueing,
            efficiency=like.efficiency,
            improve_bound=False,
            **limits,
        ):
            if progress is not None:
                progress(last)
    except PlanError:
        return start
    return start if last is None else best_of([start, last.plan])


def freed(plan: Plan, planner: str = "evolutionary", **options: Any) -> Plan | None:
    """The best plan found where all is open that the plan's job named, no worse than the plan; None where nothing was
    named, or where the plan is not for seconds or dollars. The options are those of ``replanned``."""
    if not plan.pinned or plan.iteration_s is None or plan.objective == "communication":
        return None
    everything = plan.changed(left_open=(*LEFT_TO_PLANNERS, "recompute"), iteration_s=plan.iteration_s)
    return replanned(plan.topology, everything, plan, planner=planner, **options)


def _dollars(plan: Plan | None) -> float:
    dollars = None if plan is None else plan.price_per_billion_tokens
    return np.nan if dollars is None else dollars


# one more device


@dataclass(frozen=True, eq=False, kw_only=True)
class Addition:
    """One more device, and the best plan found with it on the network."""

    gpu: str
    where: str
    """Region, or the device beside which it stands, where it helps the fastest kind most."""
    price_per_hour: float
    """US dollars an hour of the device alone."""
    before: Plan
    """The best plan found without it."""
    plan: Plan
    """No worse than that, by what the plan was made for."""
    number: int
    """Position of this row among ``total``, from 1, for a progress bar."""
    total: int

    @property
    def serves(self) -> bool:
        """Whether the plan uses the device that was added."""
        return any(NAME in group for group in self.plan.stages)

    @property
    def change_s(self) -> float:
        """Seconds of the iteration with it less those without, below 0 where it is faster."""
        return seconds(self.plan) - seconds(self.before)

    @property
    def sentence(self) -> str:
        """``one more A100 ($1.39 an hour) in machine room: 22.1 s an iteration instead of 24.2 s``."""
        begin = f"one more {self.gpu} (${self.price_per_hour:,.2f} an hour) in {self.where}"
        if not self.serves:
            return f"{begin}: no better plan found, it would stay idle"
        return f"{begin}: {format_s(seconds(self.plan))} an iteration instead of {format_s(seconds(self.before))}"


def additions_table(rows: Iterable[Addition]) -> pd.DataFrame:
    """One row a kind of GPU, the greatest gain in seconds first.

    Columns: gpu; where it is added; iteration_s with it; change_s, below 0 where it is faster; whether it serves;
    price_per_hour of the device alone, price_per_billion_tokens of the whole plan with it and
    change_per_billion_tokens (US dollars); saved_s_per_dollar_hour, seconds saved an iteration for each dollar an
    hour; sentence. All rows are compared with the best plan that any search found without the device. A device without
    which that is as good would stay idle.
    """
    rows = list(rows)
    base = best_of(row.before for row in rows)
    if base is not None:
        better = [row.serves and value(row.plan) < value(base) for row in rows]
        rows = [
            replace(row, before=base, plan=row.plan if gains else base) for row, gains in zip(rows, better, strict=True)
        ]
    table = pd.DataFrame(
        {
            "gpu": [row.gpu for row in rows],
            "where": [row.where for row in rows],
            "iteration_s": [seconds(row.plan) for row in rows],
            "change_s": [row.change_s for row in rows],
            "serves": [row.serves for row in rows],
            "price_per_hour": [row.price_per_hour for row in rows],
            "price_per_billion_tokens": [_dollars(row.plan) for row in rows],
            "change_per_billion_tokens": [_dollars(row.plan) - _dollars(row.before) for row in rows],
            "saved_s_per_dollar_hour": [0.0 - row.change_s / row.price_per_hour for row in rows],
            "sentence": [row.sentence for row in rows],
        }
    )
    return table.sort_values("change_s", kind="stable", ignore_index=True)


def stream_additions(
    plan: Plan, planner: str = "evolutionary", *, gpus: Sequence[str] | str | None = None, **limits: Any
) -> Iterator[Addition]:
    """What one more device of each kind would bring, one kind after the other; the plan itself is improved first.

    The device stands beside the one where it helps the fastest kind most, of one in each region: it has that one's
    links, and to that one its best link within the region; where it has none, the fastest that it or any region has.

    ``gpus`` are names of the table of hardware; all that have a price where None. The limits are those of
    ``stream_worth``. Raises PlanError, too, for a job without a model, and UnknownName for a GPU that is not in the
    table, or has no price there.
    """
    priced = {gpu: row for gpu, row in HARDWARE.items() if row.price_per_hour}
    wanted = list(priced) if gpus is None else [gpus] if isinstance(gpus, str) else list(gpus)
    for gpu in wanted:
        if gpu not in priced:
            raise unknown("GPU with a price", gpu, priced)
    plan = _by_seconds(plan)
    if plan.iteration_s is None:
        raise PlanError(f"plan of {plan.job.name} was not simulated; wanted one with iteration_s")
    return _additions(plan, wanted, _checked(plan, planner, **limits))


def _additions(plan: Plan, wanted: list[str], limits: dict[str, Any]) -> Iterator[Addition]:
    thorough = limits | {what: LONGER * limits[what] for what in ("steps", "seconds") if limits[what]}
    best = replanned(plan.topology, plan, plan, **thorough)
    assert best is not None, "no worse than the plan"
    fastest = max(wanted, key=lambda gpu: HARDWARE[gpu].peak_flop_per_s)
    beside = _where(best, fastest, limits)
    where = best.topology.devices[beside].region or best.topology.names[beside]
    for number, gpu in enumerate(wanted, start=1):
        found = _with_one_more(best, gpu, beside, limits)
        price_per_hour = HARDWARE[gpu].price_per_hour
        row = Addition(
            gpu=gpu,
            where=where,
            price_per_hour=price_per_hour,
            before=best,
            plan=found,
            number=number,
            total=len(wanted),
        )
        if not row.serves and value(found) < value(best):  # a better plan without the device
            best = placed(found, found.placement.devices, found.job, best.topology) or best
            row = replace(row, before=best, plan=best)
        yield row


def _where(plan: Plan, gpu: str, limits: dict[str, Any]) -> int:
    """The device beside which a GPU helps most, of one in each region: that of the best links to those that serve."""
    topology = plan.topology
    hops_s = topology.round_trip_s(plan.job.hop_bytes)[:, plan.placement.devices.ravel()].mean(axis=1)
    nearest: dict[str, int] = {}
    for d in np.argsort(hops_s, kind="stable").tolist():
        nearest.setdefault(topology.devices[d].region or topology.names[d], d)
    tried = list(nearest.values())[:MOST_PLACES]
    return min(tried, key=lambda d: value(_with_one_more(plan, gpu, d, limits)))


def _with_one_more(plan: Plan, gpu: str, beside: int, limits: dict[str, Any]) -> Plan:
    """The best plan found with one more device, from the plan in which it is idle, or serves where that is better."""
    larger = with_one_more(plan.topology, gpu, beside)
    idle = placed(plan, plan.placement.devices, plan.job, larger)
    assert idle is not None, "the plan fits"
    found = replanned(larger, plan, best_of([idle, with_device(idle, len(larger) - 1)]), **limits)
    assert found is not None, "no worse than the plan with the device idle"
    return found


def with_one_more(topology: Topology, gpu: str, beside: int) -> Topology:
    """The network with one more device, the last, that has the links of the device beside it; and its typical price."""
    neighbour = topology.devices[beside]
    if NAME in topology.names:
        raise PlanError(f"{topology.name} has a device named {NAME!r}; wanted another name for it")
    device = Device(name=NAME, region=neighbour.region, gpu=gpu, price_per_hour=HARDWARE[gpu].price_per_hour)
    region = np.array([one.region or one.name for one in topology.devices])
    order = [*range(len(topology)), beside]
    latency, bandwidth = topology.latency_s[np.ix_(order, order)], topology.bandwidth_bytes_per_s[np.ix_(order, order)]
    others = np.flatnonzero((region == region[beside]) & (np.arange(len(region)) != beside))
    if len(others):
        near = int(others[topology.latency_s[beside, others].argmin()])
        pairs = {(beside, -1): (beside, near), (-1, beside): (near, beside)}
        for new, known in pairs.items():
            latency[new], bandwidth[new] = topology.latency_s[known], topology.bandwidth_bytes_per_s[known]
    else:
        within = (region[:, None] == region) & ~np.eye(len(region), dtype=bool)
        fastest = max(
            [*topology.bandwidth_bytes_per_s[within], *np.delete(topology.bandwidth_bytes_per_s[beside], beside)],
            default=1e10,
        )
        latency[beside, -1] = latency[-1, beside] = SAME_PLACE
        bandwidth[beside, -1] = bandwidth[-1, beside] = fastest
    message_s = topology.message_s
    if message_s is not None:
        message_s = message_s[np.ix_(order, order)]
        message_s[beside, -1] = message_s[-1, beside] = np.nan
    return replace(
        topology,
        devices=(*topology.devices, device),
        latency_s=latency,
        bandwidth_bytes_per_s=bandwidth,
        message_s=message_s,
    )
