"""How much a better link or device would shorten an iteration. The iteration is simulated again with each one improved.

One link or device is improved at a time. Schedule and placement stay. A link is both directions of a pair of devices.
Some are also improved together: all links between the same two regions or within one, all links between hosts, and all
devices with the same GPU. If several pipelines are equally slow, one faster device saves nothing, but all devices of
its kind together do.

With ``pairs``, the order on every link is fixed: messages of one directed pair come from one device and keep its order.
If a link or device has slack, improving it then changes nothing, so it is not simulated. The order is not fixed if
messages queue on NICs, if both directions of a pair take turns (transport ``blocking``), or if the rounds of a ring are
taken together. Everything is then simulated again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.network import Topology, as_number, shortened
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.registry import unknown
from dtfm_lab.domain.schedule import Schedule
from dtfm_lab.domain.units import by_key
from dtfm_lab.simulation.simulate import SimulatedIterations, simulated_iterations

if TYPE_CHECKING:
    import pandas as pd

WHAT = ("bandwidth", "latency", "compute")
NEGLIGIBLE = 1e-9
"""Slack of up to this share of the iteration counts as none, because it is only rounding."""
LEAST_REPORTED = 5e-6
"""``SensitivityGain.sentence`` reports "no change" below this relative change."""
COLUMNS = ["what", "of", "name", "iteration_s", "change_s", "change", "sentence"]
DOLLARS = ["price_per_billion_tokens", "change_per_billion_tokens"]
"""Columns in US dollars; 0 if no device of the plan has a price."""

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class SensitivityGain:
    """One improvement, and the iteration time with it."""

    what: str
    """The property that is improved: ``bandwidth`` or ``compute``, which is multiplied by the factor, or ``latency``,
    which is divided by it."""
    of: str
    """The kind of target that is improved.

    - ``link``: the link between two devices
    - ``regions``: all links between two regions, or within one
    - ``network``: all links between hosts; in a network without hosts, all links
    - ``device``: one device
    - ``kind``: all devices of the plan with the same GPU
    """
    name: str
    factor: float
    before_s: float
    """Seconds of the iteration without the improvement."""
    iteration_s: float
    number: int
    """Position of this row among ``total``, from 1, for a progress bar."""
    total: int
    dollars_per_s: float = 0.0
    """US dollars per billion tokens for each second of an iteration, at present prices."""
    first: tuple[str, ...] = ()
    """Names of the improved device, or of both ends of the improved link. If several devices or links are improved, the
    names belong to the first."""

    @property
    def price_per_billion_tokens(self) -> float:
        """US dollars per billion tokens with the improvement, at present prices: the improvement itself is assumed to
        be free."""
        return self.iteration_s * self.dollars_per_s

    @property
    def change_per_billion_tokens(self) -> float:
        """Change in US dollars per billion tokens; below 0 if tokens get cheaper. The improvement pays if it costs less
        than it saves here."""
        return self.change_s * self.dollars_per_s

    @property
    def change_s(self) -> float:
        return self.iteration_s - self.before_s

    @property
    def change(self) -> float:
        """Relative change: -0.03 is three per cent faster."""
        return self.change_s / self.before_s if self.before_s > 0 else 0.0

    @property
    def sentence(self) -> str:
        """The gain in words: ``10 % more bandwidth on Tokyo - London: -3.1 %``."""
        more, less = (f"{round(100 * share, 1):g} %" for share in (self.factor - 1, 1 - 1 / self.factor))
        begin = {
            "bandwidth": f"{more} more bandwidth on {self.name}",
            "latency": f"{less} less latency on {self.name}",
            "compute": f"{self.name} computing {more} faster",
        }[self.what]
        return f"{begin}: {'no change' if abs(self.change) < LEAST_REPORTED else f'{100 * self.change:+.2g} %'}"


def sensitivity_table(rows: Iterable[SensitivityGain]) -> pd.DataFrame:
    """Return one row per gain, largest first: seconds of an iteration, and US dollars per billion tokens."""
    import pandas as pd  # takes a while to load

    columns = [*COLUMNS, *DOLLARS]
    table = pd.DataFrame([[getattr(gain, column) for column in columns] for gain in rows], columns=columns)
    return table.sort_values("change_s", kind="stable", ignore_index=True)


def gains(
    plan: Plan,
    schedule: str | Schedule | None = None,
    *,
    factor: float = 1.1,
    what: str | Sequence[str] = WHAT,
    **as_simulated: Any,
) -> Iterator[SensitivityGain]:
    """Yield the gain of each improvement. It improves each link that carries messages and each device. It also improves
    groups of two or more of these together: links between two regions or within one, links between hosts, devices with
    the same GPU.

    Parameters
    ----------
    factor
        Multiplies bandwidth and computing speed (including coding) and divides latency.
    what
        Any of ``bandwidth``, ``latency`` and ``compute``.
    as_simulated
        ``like``, ``queueing``, ``profile`` and ``efficiency``, as in ``simulate``.

    Raises
    ------
    PlanError
        The factor is not above 1, or is infinite.
    UnknownName
        ``what`` is something other than bandwidth, latency and compute.
    LabError
        Whatever ``simulate`` raises, before the first row.
    """
    number = as_number(factor)
    if number is None or not 1 < number < math.inf:
        raise PlanError(f"factor of the sensitivity is {shortened(factor)}; wanted more than 1, such as 1.1")
    chosen = list(what) if isinstance(what, Iterable) and not isinstance(what, str) else [what]
    for name in chosen:
        if name not in WHAT:
            raise unknown("sensitivity", name, WHAT)
    base = simulated_iterations(plan, schedule, **as_simulated)
    return _gains(base, number, [one for one in WHAT if one in chosen])


def _gains(base: SimulatedIterations, factor: float, what: list[str]) -> Iterator[SensitivityGain]:
    plan = base.plan
    before_s = base.iteration_s
    targets = [(one, target) for one in what for target in (_devices(plan) if one == "compute" else _links(base, one))]
    for number, (one, target) in enumerate(targets, start=1):
        yield SensitivityGain(
            what=one,
            of=target.of,
            name=target.name,
            factor=factor,
            before_s=before_s,
            iteration_s=improved_s(base, one, target, factor),
            number=number,
            total=len(targets),
            dollars_per_s=plan.price_per_hour / 3600 / plan.job.tokens * 1e9,
            first=tuple(plan.topology.names[at] for at in dict.fromkeys(target.pairs[0])),
        )


class ImprovedTarget(NamedTuple):
    """A link, several links, a device or several devices that are improved together."""

    of: str
    name: str
    pairs: list[tuple[int, int]]
    """Pairs of device indices: the two ends of each link. A device is paired with itself."""


def improved_s(base: SimulatedIterations, what: str, target: ImprovedTarget, factor: float) -> float:
    """Return the seconds of an iteration with one target improved. Links are improved in both directions."""
    where: Mask = np.zeros(base.links.latency_s.shape, dtype=bool)
    i, j = np.array(target.pairs).T
    where[i, j] = where[j, i] = True
    links, speed = base.links, np.ones(len(where))
    if what == "latency":
        links = replace(links, latency_s=np.where(where, links.latency_s / factor, links.latency_s))
    elif what == "bandwidth":
        bandwidth = links.bandwidth_bytes_per_s
        links = replace(links, bandwidth_bytes_per_s=np.where(where, bandwidth * factor, bandwidth))
    else:
        speed[i] = factor
    total_s = 0.0
    for share, times in base.parts:
        tasks = times.tasks
        nodes = where[tasks.here, tasks.there]  # the two ends of a computation are the same device
        critical = times.slack_s <= NEGLIGIBLE * times.makespan_s
        fixed_order = not (links.has_nics or tasks.graph.programs.blocking or tasks.graph.rings)
        passes_change = base.gathers and what != "compute"
        kept = fixed_order and not passes_change and not (nodes & critical).any()
        total_s += share * (times.makespan_s if kept else base.changed_part_s(tasks, links, speed))
    return total_s


def _devices(plan: Plan) -> list[ImprovedTarget]:
    """Return targets for ``compute``: each device of the plan, in stage order, then all devices with the same GPU if
    there are several."""
    devices, used = plan.topology.devices, plan.placement.devices.ravel().tolist()
    found = [ImprovedTarget("device", devices[d].name, [(d, d)]) for d in used]
    n_of = Counter(device.gpu for device in devices)
    for gpu, some in by_key((devices[d].gpu, d) for d in used).items():
        if len(some) > 1:
            n_gpus = sum(devices[d].gpus for d in some)
            noun = "GPUs" if n_gpus > len(some) else "devices"  # a group of GPUs counts as one device
            in_use = " in use" if len(some) < n_of[gpu] else ""
            found.append(ImprovedTarget("kind", f"all {n_gpus:,} {gpu} {noun}{in_use}", [(d, d) for d in some]))
    return found


def _links(base: SimulatedIterations, what: str) -> list[ImprovedTarget]:
    """Return targets for ``bandwidth`` or ``latency``: pairs of devices that exchange messages, pairs of regions (or
    single regions) with several such pairs, and all pairs on different hosts."""
    topology = base.plan.topology
    names = topology.names
    used: set[tuple[int, int]] = set()
    for _, times in base.parts:
        here, there = times.tasks.here, times.tasks.there
        # a link is both directions, so each pair counts once
        low, high = np.unique(np.sort([here[here != there], there[here != there]], axis=0), axis=1)
        used.update(zip(low.tolist(), high.tolist(), strict=True))
    region = [device.region or device.name for device in topology.devices]
    between = by_key((frozenset((region[i], region[j])), (i, j)) for i, j in sorted(used))
    links = [ImprovedTarget("link", f"{names[i]} - {names[j]}", [(i, j)]) for i, j in sorted(used)]
    for some in between.values():
        a, b = (region[d] for d in some[0])
        if len(some) > 1:
            links.append(ImprovedTarget("regions", f"{a} - {b}" if a != b else f"links within {a}", some))
    return links + _network_cards(topology, sorted(used), what, known=list(between.values()))


def _network_cards(
    topology: Topology, used: list[tuple[int, int]], what: str, known: list[list[tuple[int, int]]]
) -> list[ImprovedTarget]:
    """Return one target with all links between different hosts. Empty if there are fewer than two such links.

    In a network without hosts, the target has all links. The result is then empty if one of the ``known`` targets has
    the same links.
    """
    has_hosts = topology.nic_of is not None
    host = np.arange(len(topology)) if topology.nic_of is None else topology.nic_of
    apart = [(i, j) for i, j in used if host[i] != host[j]]
    if len(apart) < 2 or (not has_hosts and apart in known):
        return []
    n_cards = len({int(host[device]) for pair in apart for device in pair})
    # NICs set a link's bandwidth, the network its latency.
    of_hosts = f"all {n_cards:,} NICs" if what == "bandwidth" else "all links between hosts"
    return [ImprovedTarget("network", of_hosts if has_hosts else "all links", apart)]
