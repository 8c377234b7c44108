"""Options for training a job on your own machines, with rented ones added, or only on rented ones. Each has a plan,
days and dollars.

A device with a price is rented. One without is your own and costs electricity.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dtfm_lab.costs.basis import basis_of
from dtfm_lab.domain.errors import LabError, PlanError, TopologyError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import (
    HARDWARE,
    INSIDE,
    BandwidthEstimate,
    Device,
    Topology,
    at_their_ends,
    hardware_of,
    known_gpu,
)
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.trace import UNSAID, Basis
from dtfm_lab.domain.units import format_bytes
from dtfm_lab.extensions.machines.links import as_modules, inside
from dtfm_lab.extensions.machines.network import ESTIMATED_SPREAD
from dtfm_lab.extensions.machines.seen import ReportedGpu, ReportedHost
from dtfm_lab.extensions.machines.skypilot import Offers, spelled_out
from dtfm_lab.planning import search, simulated
from dtfm_lab.planning.iteration.fitting import Room, room_for
from dtfm_lab.simulation.simulate import iteration_seconds, simulate

DAY_S = 86400.0
OWN = "own"
"""Kind of an option with only your own machines."""
MIXED = "with rented"
"""Kind of an option with your own machines and rented ones."""
RENTED = "rented"
"""Kind of an option with only rented machines."""
KINDS = ("RTX 4090", "A100", "H100")
"""GPUs of the rented hosts to try. Prices are the typical ones in the table of hardware."""
COUNTS = (1, 2, 4, 8)
"""Numbers of GPUs per rented host to try."""
BESIDE = "A100"
"""GPU to rent in addition to your own machines, if the network has no rented device."""
LINE_S = 0.02
"""Assumed latency in seconds between your own machines and a rented one."""
LINE_BYTES_PER_S = 12.5e6
"""Assumed bandwidth between them: 100 Mbit/s."""
MOST_OFFERS = 12
"""Maximum number of a catalogue's hosts to try, the most FLOP/s per dollar first."""
MOST_SINGLES = 3
"""Maximum number of kinds of your own machines, the fastest first. One machine of each kind is tried alone."""


@dataclass(frozen=True, eq=False, kw_only=True)
class FleetOption:
    """A network that could train the job, and its plan. Days, dollars and kWh are for all tokens."""

    name: str
    kind: str
    """``own``, ``with rented`` or ``rented``."""
    topology: Topology
    tokens: float
    electricity_per_kwh: float
    is_single: bool = False
    """True if the option uses only one of the several machines that you own."""
    plan: Plan | None = None
    """None if no plan fits, or before planning."""
    lacks: str = ""
    """Why no plan fits. Empty before planning, and if one fits."""
    ends_s: tuple[float, float] = (math.nan, math.nan)
    """90 % interval of the iteration time: lower and upper end, in seconds. NaN without a plan."""

    def planned(self, job: Job, **limits: Any) -> FleetOption:
        """Return the option with the best plan found for the job within the limits of a search. If no plan fits,
        ``lacks`` says why."""
        try:
            # not planning.plan: that returns its best plan on Ctrl-C, and the next option would start
            *_, last = search(self.topology, job, objective="iteration", **limits)
        except (PlanError, TopologyError) as error:
            room = room_of(self.topology, job)
            needs = f"needs about {format_bytes(room.needs_bytes)}, has {format_bytes(room.has_bytes)}"
            return replace(self, plan=None, lacks=needs if room.needs_bytes > room.has_bytes else str(error))
        plan = simulated(last.plan)
        return replace(self, plan=plan, lacks="", ends_s=simulate(plan).interval(0.9))

    def at_end(self, *, most: bool) -> FleetOption:
        """Return the option with the same plan and other speeds of estimated links: with ``most`` the highest of each
        estimate, otherwise the lowest."""
        if self.plan is None:
            return self
        plan = self.plan.changed(topology=at_their_ends(self.plan.topology, most=most))
        return replace(self, plan=plan.changed(iteration_s=iteration_seconds(plan)))

    @property
    def basis(self) -> Basis:
        """What the predicted time is based on, such as "guessed", and why. Empty without a plan."""
        return UNSAID if self.plan is None else basis_of(self.plan)

    @property
    def iteration_s(self) -> float:
        return math.nan if self.plan is None or self.plan.iteration_s is None else self.plan.iteration_s

    @property
    def tokens_per_s(self) -> float:
        return math.nan if self.plan is None else self.plan.job.tokens / self.iteration_s

    @property
    def seconds(self) -> float:
        """Seconds until all tokens are trained."""
        return self.tokens / self.tokens_per_s

    @property
    def serving(self) -> list[Device]:
        """The devices that the plan uses. Rented devices that it leaves idle are not rented."""
        plan = self.plan  # with tensor parallelism, the devices of its network are groups of GPUs
        return [] if plan is None else [plan.topology.devices[d] for d in plan.placement.devices.flat]

    @property
    def where(self) -> str:
        """ "At home", "In the cloud" or "Both". A plan may leave all own machines idle, or all rented ones."""
        paid = {device.price_per_hour > 0 for device in self.serving}
        return "Both" if len(paid) > 1 else "In the cloud" if paid == {True} else "At home"

    @property
    def rent(self) -> float:
        """US dollars of rent for all tokens. NaN without a plan."""
        return math.nan if self.plan is None else self.plan.price_per_hour * self.seconds / 3600

    @property
    def unmetered(self) -> list[str]:
        """Own machines in use whose watts are not in the table of hardware."""
        return [device.name for device in self.serving if not device.price_per_hour and watts_of(device) is None]

    @property
    def kwh(self) -> float:
        """Energy of own machines in use whose watts are known, in kWh."""
        return sum(watts_of(d) or 0.0 for d in self.serving if not d.price_per_hour) / 1000 * self.seconds / 3600

    @property
    def dollars(self) -> float:
        """Rent, plus the electricity of own machines whose watts are known."""
        return self.rent + self.kwh * self.electricity_per_kwh

    def range_of(self, total: float) -> tuple[float, float]:
        """Return the 90 % interval of ``total``, such as the seconds for all tokens. It is in proportion to the
        interval of the iteration time."""
        low_s, high_s = self.ends_s
        return total * low_s / self.iteration_s, total * high_s / self.iteration_s


def watts_of(device: Device) -> float | None:
    """Return the watts of a device at full load, by the table of hardware. None if unknown."""
    row = hardware_of(device.gpu)
    return None if row is None or row.watts is None else row.watts * device.gpus


def ways_of(topology: Topology, offers: Offers | None, **shared: Any) -> Iterator[FleetOption]:
    """Yield the options for a network, before planning. Rented hosts come from a catalogue's offers, by default from
    the typical kinds in ``KINDS``. ``shared`` sets further fields of every option."""
    devices = topology.devices
    own = [i for i, device in enumerate(devices) if not device.price_per_hour]
    paid = [i for i, device in enumerate(devices) if device.price_per_hour]
    offered = list(_offered(offers)) if offers is not None else _typical()
    yours = "your machines" if len(own) > 1 else "".join(devices[i].name for i in own)
    if own:
        yield FleetOption(name=yours, kind=OWN, topology=topology.subset(own), **shared)
    if paid:
        yield FleetOption(name=f"{_named(devices, paid)} alone", kind=RENTED, topology=topology.subset(paid), **shared)
    if own and paid:
        yield FleetOption(name=f"{yours} + {_named(devices, paid)}", kind=MIXED, topology=topology, **shared)
    elif own:
        # Without a rented device in the network, a usual one shows what renting would add.
        one = next((each for each in offered if each.name == f"1 x {BESIDE}"), offered[0]).devices[0]
        yield FleetOption(name=f"{yours} + 1 x {one.gpu}", kind=MIXED, topology=with_one_more(topology, one), **shared)
    # Reversed, so that the first of several equal devices is kept.
    kinds = {(devices[i].gpu, devices[i].peak_flop_per_s, devices[i].memory_bytes): i for i in reversed(own)}
    for i in sorted(kinds.values(), key=lambda i: -devices[i].peak_flop_per_s)[: MOST_SINGLES * (len(own) > 1)]:
        alone = topology.subset([i])
        yield FleetOption(name=f"{devices[i].name} alone", kind=OWN, topology=alone, is_single=True, **shared)
    for rented in offered:
        yield FleetOption(name=rented.name, kind=RENTED, topology=rented, **shared)


def _named(devices: Sequence[Device], which: Sequence[int]) -> str:
    return ", ".join(devices[i].name for i in which) if len(which) <= 2 else f"{len(which)} rented machines"


def _typical() -> list[Topology]:
    return [_rented(gpu, n, HARDWARE[gpu].price_per_hour, f"{n} x {gpu}") for gpu in KINDS for n in COUNTS]


def _offered(offers: Offers) -> Iterator[Topology]:
    """Yield a rented host for each kind and number of GPUs in a catalogue, if the table of hardware has the kind and
    the number is in ``COUNTS``. Its price is the lowest of any region, taking the spot price where there is one. At
    most ``MOST_OFFERS`` hosts, the most peak FLOP/s per dollar first. Raises LabError if no offer fits."""
    found: dict[tuple[str, int], tuple[float, str]] = {}
    for (name, count, region), (price, spot) in offers.items():
        gpu, dollars = known_gpu(spelled_out(name.upper())), price if spot is None else spot
        if gpu is None or not dollars or count not in COUNTS:
            continue
        where = f"{region}, spot" if spot is not None else region
        found[gpu, int(count)] = min(found.get((gpu, int(count)), (math.inf, "")), (dollars, where))
    if not found:
        raise LabError("the catalogue has no price for 1, 2, 4 or 8 GPUs that are in the table of hardware")
    # By dollars per peak speed, so that the offers worth planning come first.
    by_worth = sorted(found, key=lambda kind: found[kind][0] / (kind[1] * HARDWARE[kind[0]].peak_flop_per_s))
    for gpu, n in by_worth[:MOST_OFFERS]:
        dollars, where = found[gpu, n]
        yield _rented(gpu, n, dollars / n, f"{n} x {gpu} ({where})")


def _rented(gpu: str, n: int, price_per_hour: float, name: str) -> Topology:
    host = "rented host" if n > 1 else ""
    devices = [Device(name=f"rented {gpu} {i}", gpu=gpu, host=host, price_per_hour=price_per_hour) for i in range(n)]
    speed = inside(ReportedHost(name=name, gpus=(ReportedGpu(as_modules(gpu, n)),) * n))
    latency_s, bytes_per_s = (np.full((n, n), one) for one in speed[:2])
    estimates = (BandwidthEstimate(INSIDE, speed.bytes_per_s, *speed.ends),) if n > 1 and speed.ends is not None else ()
    return Topology(
        tuple(devices), latency_s, bytes_per_s, name=name, link_spread=ESTIMATED_SPREAD, estimates=estimates
    )


def with_one_more(topology: Topology, device: Device, like: int | None = None) -> Topology:
    """Return the network with one more device.

    Its links have the assumed latency and bandwidth (``LINE_S``, ``LINE_BYTES_PER_S``). With ``like``, they are copies
    of the links of device ``like`` instead. The link between the two is as fast as the best link of ``like``.
    """
    n = len(topology)
    links = topology.latency_s, topology.bandwidth_bytes_per_s
    whole = [np.full((n + 1, n + 1), assumed) for assumed in (LINE_S, LINE_BYTES_PER_S)]
    for new, old in zip(whole, links, strict=True):
        new[:n, :n] = old
        # A copy of a device has the links of the original. The link between the two is as fast as the original's best.
        if like is not None and n > 1:
            nearest = int(np.where(np.arange(n) == like, 0.0, links[1][like]).argmax())
            new[n, :n], new[:n, n] = old[like], old[:, like]
            new[n, like] = new[like, n] = old[like, nearest]
    devices = (*topology.devices, replace(device, position=None, host=""))
    spread = topology.link_spread if like is not None else ESTIMATED_SPREAD
    stated: dict[str, Any] = {"estimates": topology.estimates, "collectives": topology.collectives}
    return Topology(devices, *whole, name=topology.name, link_spread=spread, **stated)


def room_of(topology: Topology, job: Job) -> Room:
    """Return whether the job fits the network, roughly how many bytes its model needs, and how many all devices have.
    If the job has no valid layout on the network, it does not fit and both numbers are NaN."""
    try:
        return room_for(topology, job)
    except TopologyError:
        return Room(False, math.nan, math.nan)


def unit_of(seconds: float) -> tuple[float, str]:
    """Return the unit in which to display a duration: its seconds and its name."""
    units = ((2 * DAY_S, DAY_S, "days"), (5400.0, 3600.0, "h"), (90.0, 60.0, "min"), (1.0, 1.0, "s"), (0.0, 1e-3, "ms"))
    return next((unit_s, name) for least_s, unit_s, name in units if seconds >= least_s)


def between(value: float, ends: tuple[float, float], unit: float, name: str) -> str:
    """Return ``3.4 days (2.9–4.1)``: a value and its interval, in a unit."""
    low, high = (number(end / unit) for end in ends)
    return f"{number(value / unit)} {name} ({low}–{high})"


def duration(seconds: float) -> str:
    """Return ``25 min``, ``16.2 h``, ``3.4 days``."""
    unit_s, name = unit_of(seconds)
    return f"{number(seconds / unit_s)} {name}"


def number(value: float) -> str:
    """Return a number with three digits, or as a whole number from 100 on."""
    return f"{value:,.0f}" if value >= 99.5 else f"{value:.3g}"
