"""What a better link or device would bring: the iteration played again with each of them improved.

One thing is improved at a time, schedule and placement as they are. A link is both directions of a pair
of devices; links of the same two regions are also improved together. Where the order on
every link is settled (``pairs``: messages of one directed pair come from one device and keep its order), what
has slack can get shorter and change nothing, and is not played again. On network cards everything is.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.network import Links, as_number, shortened
from dtfm_lab.domain.plan import Plan, cut_subplan
from dtfm_lab.domain.registry import unknown
from dtfm_lab.domain.schedule import Schedule
from dtfm_lab.simulation.durations import EFFICIENCY, analytic
from dtfm_lab.simulation.engine import Played, Scene, programs_of
from dtfm_lab.simulation.simulate import simulate

WHAT = ("bandwidth", "latency", "compute")
NEGLIGIBLE = 1e-9
"""share of the iteration: less slack is rounding"""
TOLD_FROM = 5e-6
"""relative change; a smaller one is told as none"""
COLUMNS = ["what", "of", "name", "iteration_s", "change_s", "change", "sentence"]

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Gain:
    """One improvement and the iteration that it would make."""

    what: str
    """bandwidth and speed of computing grow by the factor, latency is divided by it"""
    of: str
    """``link`` (two devices), ``regions`` (all links between two, or within one) or ``device``"""
    name: str
    factor: float
    before_s: float
    """the iteration as it is"""
    iteration_s: float
    number: int
    """of this row, from 1, and of how many: for a progress bar"""
    total: int

    @property
    def change_s(self) -> float:
        return self.iteration_s - self.before_s

    @property
    def change(self) -> float:
        """Relative: -0.03 is three per cent faster."""
        return self.change_s / self.before_s if self.before_s > 0 else 0.0

    @property
    def sentence(self) -> str:
        """``10 % more bandwidth on Tokyo - London: -3.1 %``"""
        more, less = (f"{round(100 * share, 1):g} %" for share in (self.factor - 1, 1 - 1 / self.factor))
        begin = {
            "bandwidth": f"{more} more bandwidth on {self.name}",
            "latency": f"{less} less latency on {self.name}",
            "compute": f"{self.name} computing {more} faster",
        }[self.what]
        return f"{begin}: {'no change' if abs(self.change) < TOLD_FROM else f'{100 * self.change:+.2g} %'}"


def sensitivity(
    plan: Plan,
    schedule: str | Schedule | None = None,
    *,
    factor: float = 1.1,
    what: str | Sequence[str] = WHAT,
    **as_simulated: Any,
) -> pd.DataFrame:
    """The table of ``gains``: what, of, name, iteration_s, change_s, change (relative) and a sentence.

    The greatest gain first; an interrupt keeps the rows so far.
    """
    rows: list[Gain] = []
    try:
        for gain in gains(plan, schedule, factor=factor, what=what, **as_simulated):
            rows.append(gain)
    except KeyboardInterrupt:
        if not rows:
            raise
    return sensitivity_table(rows)


def sensitivity_table(rows: Iterable[Gain]) -> pd.DataFrame:
    """One row a gain, the greatest first."""
    table = pd.DataFrame([[getattr(gain, column) for column in COLUMNS] for gain in rows], columns=COLUMNS)
    return table.sort_values("change_s", kind="stable", ignore_index=True)


def gains(
    plan: Plan,
    schedule: str | Schedule | None = None,
    *,
    factor: float = 1.1,
    what: str | Sequence[str] = WHAT,
    **as_simulated: Any,
) -> Iterator[Gain]:
    """Improvement after improvement: links that carry messages, pairs of regions, devices.

    Parameters
    ----------
    factor
        Of bandwidth and speed of computing (coding included); latency is divided by it.
    what
        Any of ``bandwidth``, ``latency`` and ``compute``.
    as_simulated
        ``like``, ``queueing``, ``profile`` and ``efficiency``, as ``simulate`` takes them.

    Raises
    ------
    PlanError
        A factor that improves nothing.
    UnknownName
        Something else than bandwidth, latency or compute.
    LabError
        What ``simulate`` raises, before the first row.
    """
    number = as_number(factor)
    if number is None or not 1 < number < math.inf:
        raise PlanError(f"factor of the sensitivity is {shortened(factor)}; wanted more than 1, such as 1.1")
    chosen = list(what) if isinstance(what, Iterable) and not isinstance(what, str) else [what]
    for name in chosen:
        if name not in WHAT:
            raise unknown("sensitivity", name, WHAT)
    context = simulate(plan, schedule, **as_simulated).context
    plan = cut_subplan(plan, context.rehearsed)
    built = context.recorded_schedule
    n = len(plan.topology)
    links = Links.free(n) if context.links == "real" else Links.of(plan.topology, context.queueing)
    every = context.synchronise_every
    known = as_simulated.get("profile") is not None or as_simulated.get("like") is not None
    parts = []
    for synchronise, share in ((False, 1 - 1 / every), (True, 1 / every)):
        if share > 0:
            programs = programs_of(plan, built, synchronise=synchronise)
            # the trace holds the profile of the iteration that synchronises, whose computations code more
            profile = context.profile if known else analytic(plan, programs, as_simulated.get("efficiency", EFFICIENCY))
            scene = Scene.of(plan, programs, profile)
            parts.append(_Part(share, scene, scene.play(links)))
    return _gains(plan, _Base(tuple(parts), links), number, [one for one in WHAT if one in chosen])


def _gains(plan: Plan, base: _Base, factor: float, what: list[str]) -> Iterator[Gain]:
    before_s = base.iteration_s
    asked = [(one, place) for one in what for place in (_devices(plan) if one == "compute" else _links(plan, base))]
    for number, (one, place) in enumerate(asked, start=1):
        yield Gain(
            what=one,
            of=place.of,
            name=place.name,
            factor=factor,
            before_s=before_s,
            iteration_s=base.improved_s(one, place, factor),
            number=number,
            total=len(asked),
        )


class _Place(NamedTuple):
    """Something that can be improved."""

    of: str
    name: str
    pairs: list[tuple[int, int]]
    """of devices; a device itself is paired with itself"""


class _Part(NamedTuple):
    """One kind of iteration (that synchronises, or not)."""

    share: float
    """of all iterations"""
    scene: Scene
    played: Played

    def may_matter(self, nodes: Mask) -> bool:
        """Whether one of these nodes may be on a critical path."""
        critical: Mask = self.played.slack_s <= NEGLIGIBLE * self.played.makespan_s
        return bool((nodes & critical).any())


@dataclass(frozen=True, eq=False)
class _Base:
    """The iteration as it is, to be played again."""

    parts: tuple[_Part, ...]
    links: Links

    @property
    def iteration_s(self) -> float:
        return sum(part.share * part.played.makespan_s for part in self.parts)

    def improved_s(self, what: str, place: _Place, factor: float) -> float:
        """Seconds of an iteration with one place improved, both directions of a link."""
        where: Mask = np.zeros(self.links.latency_s.shape, dtype=bool)
        i, j = np.array(place.pairs).T
        where[i, j] = where[j, i] = True
        links = self.links
        if what == "latency":
            links = replace(links, latency_s=np.where(where, links.latency_s / factor, links.latency_s))
        elif what == "bandwidth":
            bandwidth = links.bandwidth_bytes_per_s
            links = replace(links, bandwidth_bytes_per_s=np.where(where, bandwidth * factor, bandwidth))
        total_s = 0.0
        for part in self.parts:
            scene = part.scene
            nodes = where[scene.here, scene.there]  # computations are where a device meets itself
            if links.queueing == "pairs" and not part.may_matter(nodes):
                total_s += part.share * part.played.makespan_s
                continue
            if what == "compute":
                scene = replace(scene, compute_s=np.where(nodes, scene.compute_s / factor, scene.compute_s))
            total_s += part.share * scene.play(links).makespan_s
        return total_s


def _devices(plan: Plan) -> list[_Place]:
    """All that serve, in stage order."""
    names = plan.topology.names
    return [_Place("device", names[d], [(d, d)]) for d in plan.placement.devices.ravel().tolist()]


def _links(plan: Plan, base: _Base) -> list[_Place]:
    """Pairs of devices that send each other something, and pairs of regions with several of them."""
    topology = plan.topology
    names = topology.names
    used: set[tuple[int, int]] = set()
    for part in base.parts:
        sends = part.scene.here != part.scene.there
        low, high = np.unique(np.sort([part.scene.here[sends], part.scene.there[sends]], axis=0), axis=1)
        used.update(zip(low.tolist(), high.tolist(), strict=True))
    region = [device.region or device.name for device in topology.devices]
    between: dict[frozenset[str], list[tuple[int, int]]] = defaultdict(list)
    for i, j in sorted(used):
        between[frozenset((region[i], region[j]))].append((i, j))
    links = [_Place("link", f"{names[i]} - {names[j]}", [(i, j)]) for i, j in sorted(used)]
    for some in between.values():
        a, b = (region[d] for d in some[0])
        if len(some) > 1:
            links.append(_Place("regions", f"{a} - {b}" if a != b else f"links within {a}", some))
    return links
