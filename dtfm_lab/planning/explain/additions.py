"""What one more device of each kind would bring: a GPU of the table with a price, planned in beside those there are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.network import HARDWARE, Device, Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.registry import unknown
from dtfm_lab.domain.units import FloatArray, format_s
from dtfm_lab.planning.explain.iteration_worth import replanned, replanning_limits
from dtfm_lab.planning.explain.nearby_plans import best_of, placed, value, with_device

NAME = "one more"
"""Name of the device that is added."""
LONGER = 3
"""So many times the limits of one search are those of the search without the device, which all are compared with."""
MOST_PLACES = 4
"""Regions that are tried for it, those of the best links to the devices that serve."""
SAME_PLACE = 1e-6
"""Latency in seconds of a device to the one that it stands beside, where that has no link within its region."""
COLUMNS = {
    "gpu": "kind of the device that is added",
    "where": "region, or the device beside which it stands, where it helps most",
    "iteration_s": "seconds of an iteration with it",
    "change_s": "seconds, below 0 where it is faster",
    "serves": "whether the plan with it uses it",
    "price_per_hour": "US dollars an hour of this device alone",
    "price_per_billion_tokens": "US dollars of the whole plan with it",
    "change_per_billion_tokens": "US dollars, below 0 where tokens get cheaper",
    "saved_s_per_dollar_hour": "seconds saved an iteration for each dollar an hour",
    "sentence": "the row in words",
}
"""Columns of the table and what they hold."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Addition:
    """One more device, and the best plan found with it on the network."""

    gpu: str
    where: str
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
        assert self.plan.iteration_s is not None
        assert self.before.iteration_s is not None
        return self.plan.iteration_s - self.before.iteration_s

    @property
    def change_per_billion_tokens(self) -> float:
        """US dollars a billion tokens with it less those without; it is paid for where it serves."""
        assert self.plan.price_per_billion_tokens is not None
        assert self.before.price_per_billion_tokens is not None
        return self.plan.price_per_billion_tokens - self.before.price_per_billion_tokens

    @property
    def sentence(self) -> str:
        """``one more A100 ($1.39 an hour) beside machine room: 22.1 s instead of 24.2 s``."""
        assert self.plan.iteration_s is not None
        assert self.before.iteration_s is not None
        begin = f"one more {self.gpu} (${self.price_per_hour:,.2f} an hour) in {self.where}"
        if not self.serves:
            return f"{begin}: no better plan found, it would stay idle"
        return f"{begin}: {format_s(self.plan.iteration_s)} an iteration instead of {format_s(self.before.iteration_s)}"


def additions_table(rows: Iterable[Addition]) -> pd.DataFrame:
    """One row a kind of GPU, the greatest gain in seconds first; ``attrs["units"]`` has the columns' meaning.

    All rows are compared with the best plan that any search found without the device. A device without which that is
    as good would stay idle.
    """
    rows = list(rows)
    base = best_of(row.before for row in rows)
    if base is not None:
        better = [row.serves and value(row.plan) < value(base) for row in rows]
        rows = [
            replace(row, before=base, plan=row.plan if gains else base) for row, gains in zip(rows, better, strict=True)
        ]
    table = pd.DataFrame(
        [
            (
                row.gpu,
                row.where,
                row.plan.iteration_s,
                row.change_s,
                row.serves,
                row.price_per_hour,
                row.plan.price_per_billion_tokens,
                row.change_per_billion_tokens,
                0.0 - row.change_s / row.price_per_hour,
                row.sentence,
            )
            for row in rows
        ],
        columns=[*COLUMNS],
    )
    table = table.sort_values("change_s", kind="stable", ignore_index=True)
    table.attrs["units"] = dict(COLUMNS)
    return table


def stream_additions(
    plan: Plan,
    planner: str = "evolutionary",
    *,
    gpus: Sequence[str] | str | None = None,
    seed: int = 0,
    steps: int | None = None,
    seconds: float | None = None,
) -> Iterator[Addition]:
    """What one more device of each kind would bring, one kind after the other; the plan itself is improved first.

    The device stands beside the one where it helps the fastest kind most, of one in each region: it has that one's
    links, and to that one its best link within the region; where it has none, the fastest that it or any region has.

    Parameters
    ----------
    gpus
        Names of the table of hardware; all that have a price where None.
    steps, seconds
        Limits of each search, as in ``search``; 4 steps without either.

    Raises
    ------
    PlanError
        A plan without simulated seconds; limits out of range.
    UnknownName
        A GPU that is not in the table, or has no price there.
    """
    priced = {gpu: row for gpu, row in HARDWARE.items() if row.price_per_hour}
    wanted = list(priced) if gpus is None else [gpus] if isinstance(gpus, str) else list(gpus)
    for gpu in wanted:
        if gpu not in priced:
            raise unknown("GPU with a price", gpu, priced)
    if plan.objective == "communication":
        plan = plan.changed(objective="iteration", iteration_s=plan.iteration_s)
    return _additions(plan, wanted, replanning_limits(plan, planner, seed=seed, steps=steps, seconds=seconds))


def _additions(plan: Plan, wanted: list[str], limits: dict[str, Any]) -> Iterator[Addition]:
    thorough = limits | {what: LONGER * limits[what] for what in ("steps", "seconds") if limits[what]}
    best = replanned(plan.topology, plan, plan, **thorough)
    assert best is not None, "no worse than the plan"
    fastest = max(wanted, key=lambda gpu: HARDWARE[gpu].peak_flop_per_s)
    beside = _where(best, fastest, limits)
    where = best.topology.devices[beside].region or best.topology.names[beside]
    for number, gpu in enumerate(wanted, start=1):
        topology = with_one_more(best.topology, gpu, beside)
        start = _nearest(best, topology)
        found = replanned(topology, best, start, **limits)
        assert found is not None, "no worse than the plan with the device idle"
        row = Addition(
            gpu=gpu,
            where=where,
            price_per_hour=HARDWARE[gpu].price_per_hour,
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
    serving = plan.placement.devices.ravel()
    hops_s = topology.round_trip_s(plan.job.hop_bytes)[:, serving].mean(axis=1)
    region = [device.region or device.name for device in topology.devices]
    by_hops = sorted(range(len(topology)), key=lambda d: (float(hops_s[d]), d))
    nearest = list({region[d]: d for d in reversed(by_hops)}.values())[::-1]
    tried = {}
    for d in nearest[:MOST_PLACES]:
        larger = with_one_more(topology, gpu, d)
        found = replanned(larger, plan, _nearest(plan, larger), **limits)
        assert found is not None, "no worse than the plan with the device idle"
        tried[d] = found
    return min(tried, key=lambda d: (value(tried[d]), nearest.index(d)))


def _nearest(plan: Plan, topology: Topology) -> Plan:
    """The plan on a network of one device more, which serves where that is found better at once."""
    idle = placed(plan, plan.placement.devices, plan.job, topology)
    assert idle is not None, "the plan fits"
    return best_of([idle, with_device(idle, len(topology) - 1)]) or idle


def with_one_more(topology: Topology, gpu: str, beside: int) -> Topology:
    """The network with one more device, the last, that has the links of the device beside it; and its typical price."""
    neighbour = topology.devices[beside]
    taken = set(topology.names)
    if NAME in taken:
        raise PlanError(f"{topology.name} has a device named {NAME!r}; wanted another name for it")
    device = Device(name=NAME, region=neighbour.region, gpu=gpu, price_per_hour=HARDWARE[gpu].price_per_hour)
    region = neighbour.region
    same = [d for d, other in enumerate(topology.devices) if d != beside and region and other.region == region]
    latency = _extended(topology.latency_s, beside)
    bandwidth = _extended(topology.bandwidth_bytes_per_s, beside)
    near = min(same, key=lambda d: float(topology.latency_s[beside, d]), default=None)
    others = [d for d in range(len(topology)) if d != beside]
    for a, b in ((beside, -1), (-1, beside)):
        if near is not None:
            there = (beside, near) if a == beside else (near, beside)
            latency[a, b], bandwidth[a, b] = topology.latency_s[there], topology.bandwidth_bytes_per_s[there]
        else:
            latency[a, b] = SAME_PLACE
            bandwidth[a, b] = max([*topology.bandwidth_bytes_per_s[beside, others], *_within(topology)], default=1e10)
    message_s = topology.message_s
    if message_s is not None:
        n = len(topology)
        longer = np.full((n + 1, n + 1, message_s.shape[2]), np.nan)
        longer[:n, :n] = message_s
        longer[n, :n], longer[:n, n] = message_s[beside], message_s[:, beside]
        longer[n, beside] = longer[beside, n] = np.nan
        message_s = longer
    return replace(
        topology,
        devices=(*topology.devices, device),
        latency_s=latency,
        bandwidth_bytes_per_s=bandwidth,
        message_s=message_s,
    )


def _within(topology: Topology) -> FloatArray:
    """Bytes a second of all links within regions."""
    region = np.array([device.region or device.name for device in topology.devices])
    same = region[:, None] == region[None, :]
    np.fill_diagonal(same, False)
    within: FloatArray = topology.bandwidth_bytes_per_s[same]
    return within


def _extended(matrix: FloatArray, row: int) -> FloatArray:
    """(N + 1, N + 1) the matrix with one row and one column repeated at its end."""
    order = [*range(len(matrix)), row]
    return np.array(matrix[np.ix_(order, order)])
