"""Iteration times of plans if links and devices differ from what the network says: all plans on the same random draws.

In a draw, each device's speed is multiplied by a random factor. All links between two regions, or within one, share a
factor for bandwidth and one for latency. A device without a region counts as a region. A factor is exp(spread x a
normal number): its median is 1, and the spread is one standard deviation of its logarithm, as for
``Topology.link_spread``. A plan keeps its devices, cut, shares and order of passes.

All plans get the same draws (common random numbers). Their differences then need far fewer draws than their own spreads
would: how often two plans change order, and by how much one is slower on average.

A search minimises nominal seconds. It ends with the best plans of each shape, micro-batch and checkpointing.
``plan_for_draws`` picks the one with the smallest mean over the draws (sample average approximation: Kleywegt, Shapiro
and Homem-de-Mello 2002). A small number of draws selects a few plans, which then get more draws.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dtfm_lab.domain.errors import LabError, PlanError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import MOST_SPREAD, Topology, as_number, shortened
from dtfm_lab.domain.options import Option
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.registry import unknown
from dtfm_lab.domain.units import FloatArray, IntArray, format_s
from dtfm_lab.planning.iteration.replayed_plan import ReplayedPlan
from dtfm_lab.planning.search import PlanStep, last_step
from dtfm_lab.simulation.sensitivity import WHAT
from dtfm_lab.simulation.simulate import SimulatedIterations, simulated_iterations

if TYPE_CHECKING:
    import pandas as pd

GivenSpread = float | Mapping[str, float]
"""Standard deviation of the logarithm: one number for bandwidth, latency and computing speed, or a mapping with a
number for each of ``bandwidth``, ``latency`` and ``compute``."""
DRAWS = 1000
"""Default number of draws. A share of one half then has a standard error of 1.6 percentage points."""
CONFIDENCE = 0.95
"""Confidence level of the interval of an ``Overtaking``."""
QUANTILES = {"low_s": 0.05, "median_s": 0.5, "high_s": 0.95}
"""Column of the table of plans -> share of draws in which the plan takes at most the seconds in this column."""


class Overtaking(NamedTuple):
    """How often a plan is faster than another plan that is nominally at least as fast."""

    share: float
    """Share of draws. A draw in which both take equally long counts half."""
    low: float
    high: float
    """Ends of the exact 95 % confidence interval of ``share``: ``low`` and ``high`` (Clopper and Pearson 1934)."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Draws:
    """Iteration times of some plans on the same draws of their network."""

    plans: tuple[Plan, ...]
    spread: Mapping[str, float]
    """One standard deviation of the logarithm of each of ``bandwidth``, ``latency`` and ``compute``."""
    nominal_s: FloatArray
    """(P,) seconds of each plan on the network as specified."""
    seconds: FloatArray
    """(n, P) seconds of each plan in each draw."""

    def __len__(self) -> int:
        return len(self.seconds)

    def __repr__(self) -> str:
        return f"<Draws: {self.sentence}>"

    @cached_property
    def mean_s(self) -> FloatArray:
        """(P,) expected seconds of each plan."""
        return np.asarray(self.seconds.mean(axis=0))

    @property
    def expected_best(self) -> int:
        """Index of the plan with the smallest expected seconds. Ties go to the nominally fastest."""
        return int(np.lexsort((self.nominal_s, self.mean_s))[0])

    def quantile_s(self, share: float) -> FloatArray:
        """Return (P,) seconds that each plan does not exceed in this share of the draws. Raises PlanError outside 0
        to 1."""
        number = as_number(share)
        if number is None or not 0 <= number <= 1:
            raise PlanError(f"share of draws is {shortened(share)}; wanted 0 to 1")
        return np.asarray(np.quantile(self.seconds, number, axis=0))

    def overtaking(self, first: int = 0, second: int = 1) -> Overtaking:
        """Return how often the nominally slower of two plans is faster. If their nominal times are equal, ``second``
        counts as the slower one."""
        slow, fast = (first, second) if self.nominal_s[first] > self.nominal_s[second] else (second, first)
        ahead = self.seconds[:, slow], self.seconds[:, fast]
        k = float((ahead[0] < ahead[1]).sum() + 0.5 * (ahead[0] == ahead[1]).sum())
        return Overtaking(k / len(self), *binomial_interval(k, len(self)))

    def to_frame(self, what: str = "plans") -> pd.DataFrame:
        """Return a table of ``plans`` or of ``pairs``.

        ``plans`` has one row per plan:

        - plan (its number), stages, replicas, nominal_s, mean_s and error_s (standard error of the mean)
        - low_s, median_s and high_s: the seconds not exceeded in 5, 50 and 95 % of the draws
        - fastest: the share of draws in which no other plan is faster

        ``pairs`` has one row for every two plans:

        - faster and slower (nominally)
        - change (relative change of the mean from the first to the second) and its standard error
        - overtakes: the share of draws in which the second is faster; low and high, the interval of that share

        Raises UnknownName for another table.
        """
        import pandas as pd  # takes a while to load

        if what == "pairs":
            return pd.DataFrame(self._pairs())
        if what != "plans":
            raise unknown("table of draws", what, ("plans", "pairs"))
        n = len(self)
        shape = np.array([plan.placement.devices.shape for plan in self.plans])
        return pd.DataFrame(
            {
                "plan": np.arange(len(self.plans)),
                "stages": shape[:, 0],
                "replicas": shape[:, 1],
                "nominal_s": self.nominal_s,
                "mean_s": self.mean_s,
                "error_s": self.seconds.std(axis=0, ddof=1 if n > 1 else 0) / n**0.5,
                **{name: self.quantile_s(share) for name, share in QUANTILES.items()},
                "fastest": (self.seconds == self.seconds.min(axis=1, keepdims=True)).mean(axis=0),
            }
        )

    def _pairs(self) -> Iterator[dict[str, float]]:
        order, n = np.argsort(self.nominal_s, kind="stable").tolist(), len(self)
        for i, fast in enumerate(order):
            for slow in order[i + 1 :]:
                by = (self.seconds[:, slow] - self.seconds[:, fast]) / self.mean_s[fast]
                error = by.std(ddof=1 if n > 1 else 0) / n**0.5
                found = self.overtaking(fast, slow)
                share = {"overtakes": found.share, "low": found.low, "high": found.high}
                yield {"faster": fast, "slower": slow, "change": by.mean(), "error": error, **share}

    @property
    def sentence(self) -> str:
        """The plan with the smallest expected seconds, and how often it is faster than the nominally best plan. If they
        are the same plan: how often the nominally second one is faster. A single plan gets only its seconds."""
        best = self.expected_best
        low_s, high_s = self.quantile_s(0.05)[best], self.quantile_s(0.95)[best]
        drawn = f"{format_s(self.mean_s[best])} expected, {format_s(low_s)} to {format_s(high_s)} in nine draws of ten"
        words = f"{drawn}, {format_s(self.nominal_s[best])} nominally"
        if len(self.plans) == 1:
            return f"{words}."
        first, second = np.argsort(self.nominal_s, kind="stable")[:2].tolist()
        other = second if best == first else best
        found = self.overtaking(first, other)
        return (
            f"Plan {best} is best: {words}. Plan {other}, nominally "
            f"{100 * (self.nominal_s[other] / self.nominal_s[first] - 1):.2g} % slower than plan {first}, is faster in "
            f"{100 * found.share:.3g} % of {len(self):,} draws ({100 * found.low:.3g} to {100 * found.high:.3g} %)."
        )


def binomial_interval(k: float, n: int) -> tuple[float, float]:
    """Return the exact 95 % confidence interval of a probability, given k successes in n draws (Clopper and Pearson
    1934)."""
    from scipy.special import betaincinv  # loading it takes a while

    tail = (1 - CONFIDENCE) / 2
    low = float(betaincinv(k, n - k + 1, tail)) if k > 0 else 0.0
    return low, float(betaincinv(k + 1, n - k, 1 - tail)) if k < n else 1.0


def drawn(given: Sequence[Plan], spread: GivenSpread, *, n: int = DRAWS, seed: int = 0) -> Draws:
    """Return the seconds of plans of one network in n random draws of it. The same seed gives the same draws for any
    plans.

    Raises PlanError if there are no plans, if they belong to several networks, or if spread, n or seed is out of range.
    Raises UnknownName for an unknown name of a spread, and whatever ``simulate`` raises.
    """
    spreads = checked_spread(spread)
    n, seed = (_COUNTS[what].checked(value, error=PlanError) for what, value in (("draws", n), ("seed", seed)))
    plans = tuple(given)
    if not plans:
        raise PlanError("no plans; wanted one at least")
    network = plans[0].topology
    for plan in plans:
        if (plan.topology.names, plan.topology.fingerprint) != (network.names, network.fingerprint):
            both = f"{network.name} and of {plan.topology.name}"
            raise PlanError(f"plans of {both}, which differ; wanted plans of one network")
    each = [(simulated_iterations(plan), ReplayedPlan.of(plan)) for plan in plans]
    nominal_s = np.array([base.iteration_s for base, _ in each])
    found = np.tile(nominal_s, (n, 1))
    if any(spreads.values()):
        found = np.array([[_seconds(*one, factors) for one in each] for factors in _factors(network, spreads, n, seed)])
    return Draws(plans=plans, spread=spreads, nominal_s=nominal_s, seconds=found)


def checked_spread(given: object) -> dict[str, float]:
    """Return the spread of each of ``bandwidth``, ``latency`` and ``compute``; 0 if not given. Raises PlanError or
    UnknownName."""
    named: Mapping[Any, object] = given if isinstance(given, Mapping) else dict.fromkeys(WHAT, given)
    found = dict.fromkeys(WHAT, 0.0)
    for what, value in named.items():
        if what not in found:
            raise unknown("spread", what, WHAT)
        number = as_number(value)
        if number is None or not 0 <= number <= MOST_SPREAD:
            raise PlanError(f"spread of {what} is {shortened(value)}; wanted 0 to {MOST_SPREAD:g}")
        found[what] = number
    return found


_COUNTS = {what: Option(help=what, name=what, type=int, least=least) for what, least in (("draws", 1), ("seed", 0))}


class Factors(NamedTuple):
    """One draw of a network: factors for its links and devices."""

    bandwidth: FloatArray
    latency: FloatArray
    """(N, N) factor of each directed pair of devices."""
    speed: FloatArray
    """(N,) factor of each device."""


def _factors(network: Topology, spreads: Mapping[str, float], n: int, seed: int) -> Iterator[Factors]:
    regions: dict[str, int] = {}
    of = np.array([regions.setdefault(d.region or d.name, len(regions)) for d in network.devices])
    low, high = np.minimum.outer(of, of), np.maximum.outer(of, of)
    # number of each unordered pair of regions
    pair: IntArray = high * (high + 1) // 2 + low
    n_pairs = len(regions) * (len(regions) + 1) // 2
    for number in range(n):
        rng = np.random.default_rng((seed, number))  # draw i is the same for any number of draws
        bandwidth, latency = (np.exp(spreads[what] * rng.standard_normal(n_pairs)) for what in WHAT[:2])
        yield Factors(bandwidth[pair], latency[pair], np.exp(spreads["compute"] * rng.standard_normal(len(of))))


def _seconds(base: SimulatedIterations, replay: ReplayedPlan | None, factors: Factors) -> float:
    """Return the seconds of a plan on a draw: from the compiled replay if it covers the plan, else simulated."""
    if replay is not None and not replay.codes:
        return replay.seconds(*factors)
    latency_s, bandwidth = base.links.latency_s * factors.latency, base.links.bandwidth_bytes_per_s * factors.bandwidth
    links = replace(base.links, latency_s=latency_s, bandwidth_bytes_per_s=bandwidth)
    return base.changed_s(links, factors.speed)


FIRST_DRAWS = 48
"""Number of draws for all plans that a search ends with, if they are more than ``LEFT`` + 1."""
THEN_DRAWS = 400
"""Number of draws for the few plans that remain after the first draws."""
NEAR = 1.25
"""Plans whose nominal seconds exceed this factor times the best's are not considered."""
LEFT = 5
"""Number of plans that get the second, larger number of draws, in addition to the nominally best."""
OF_THE_CHOICE = 10**9
"""Seed of the draws that ``plan_for_draws`` decides by. A user's evaluation with any other seed uses fresh draws."""


def plan_for_draws(
    topology: Topology, job: Job, planner: str = "evolutionary", *, spread: GivenSpread, **options: Any
) -> Plan:
    """Search, then compare the plans that the search holds at its end on random draws. Return the one with the smallest
    expected seconds. See ``search`` for the options.

    Raises PlanError unless ``objective`` is ``iteration``, and whatever ``search`` and ``drawn`` raise.
    """
    checked_spread(spread)
    if options.get("objective") != "iteration":
        raise PlanError(f"spread with the objective {options.get('objective')}; wanted iteration")
    step = last_step(topology, job, planner, **options)
    plans = held_plans(step, options.get("max_iteration_s") or inf)
    if len(plans) > LEFT + 1:
        first = drawn(plans, spread, n=FIRST_DRAWS, seed=OF_THE_CHOICE)
        plans = [plans[i] for i in sorted({0, *np.argsort(first.mean_s, kind="stable")[:LEFT].tolist()})]
    if len(plans) > 1:
        return plans[drawn(plans, spread, n=THEN_DRAWS, seed=OF_THE_CHOICE).expected_best]
    return plans[0]


def held_plans(step: PlanStep, most_s: float = inf) -> list[Plan]:
    """Return the best plan of a search, then the other plans that the search holds, all simulated.

    Other plans are left out if they are impossible, take more than ``most_s`` seconds, or cost more than ``NEAR`` times
    the best. So are plans of a search that chooses only devices (``Individual.chosen``).
    """
    found, others = [step.plan], () if step.held is None else step.held().individuals[1:]  # the first is the best
    for one in others:
        if one.chosen is not None and one.cost_s <= NEAR * step.best_s:
            try:
                other = replace(step, best=one.grid, job=one.chosen()).plan
            except LabError:  # the search only estimated it; the simulation may find it impossible
                continue
            if (other.iteration_s or inf) <= most_s:
                found.append(other)
    return found
