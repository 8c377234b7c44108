"""The frontier of seconds and dollars: plans that no other plan beats in both speed and price.

A plan is on the *frontier by the hour* if no other plan is both as fast and as cheap per hour. Dollars per billion
tokens are proportional to dollars per hour times seconds per iteration. So the plans that no other beats in both speed
and price per token are a part of this frontier: the *frontier by the token*. If a small budget slows training so much
that tokens cost more, a plan is on the first frontier but not on the second.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from dtfm_lab.costs.basis import basis_of
from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology, shortened
from dtfm_lab.domain.network.device import gpus_of
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.registry import in_a_row
from dtfm_lab.domain.units import counted, format_s, money, plain_rows
from dtfm_lab.planning.iteration.bounds.iteration_bound import PriceBound

if TYPE_CHECKING:
    import pandas as pd


SAME = 1e-9
"""Two prices count as equal up to this relative difference. Sums of the same prices in another order differ by
rounding."""
UNITS = {
    "global_batch": "sequences per iteration",
    "iteration_s": "seconds of the simulated iteration",
    "basis": "whether the seconds are calibrated, modelled or guessed, and why",
    "price_per_hour": "US dollars per hour for all devices in use",
    "price_per_billion_tokens": "US dollars",
    "tokens_per_s": "tokens per second, or samples per second of your own module",
    "lower_bound_s": "seconds; no plan of at most this price per hour is faster",
    "cheaper_by_token": "true if every faster plan costs more per token",
    "n_stages": "stages",
    "n_replicas": "pipelines",
    "microbatch": "sequences per micro-batch",
    "devices": "devices in use",
    "idle": "devices not in use",
    "without_price": "devices in use without a price, counted as free",
    "gpus": "GPUs in use",
}
"""Column of the table of a frontier -> its unit, or what it holds."""


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Frontier:
    """Plans of one network. No plan is both slower and more expensive than another of the same global batch."""

    topology: Topology
    job: Job
    """The requested job. Each plan's job also has everything that was chosen for it."""
    plans: tuple[Plan, ...]
    """Plans by global batch, the fastest first, so that dollars per hour fall. Each fits the memory of its devices."""
    lower_bounds_s: Mapping[int, float] = field(default_factory=dict)
    """Seconds of an iteration that no plan of any price can beat, by global batch."""
    searches: int = 0
    """Number of searches done so far, including those skipped because no price limit was left to try."""
    n_searches: int = 0
    """Maximum number of searches of all batches together."""
    latest: str = ""
    """A description of the newest search."""
    evaluations: int = 0
    """Number of plans priced so far."""
    seconds: float = 0.0
    """Seconds spent so far."""

    def __repr__(self) -> str:
        return f"<Frontier of {self.job.name} on {self.topology.name}: {self.sentence}>"

    def __len__(self) -> int:
        return len(self.plans)

    def __iter__(self) -> Iterator[Plan]:
        return iter(self.plans)

    @property
    def batches(self) -> tuple[int, ...]:
        """The global batches that have plans, ascending."""
        return tuple(sorted({plan.job.global_batch for plan in self.plans}))

    def of_batch(self, global_batch: int) -> Self:
        """Return the frontier of one global batch. Raises PlanError if that batch has no plan."""
        if global_batch not in self.batches:
            found = ", ".join(map(str, self.batches))
            raise PlanError(f"frontier of a global batch of {shortened(global_batch)}; wanted one of {found}")
        some = tuple(plan for plan in self.plans if plan.job.global_batch == global_batch)
        return replace(self, plans=some, job=self.job.with_fields(global_batch=global_batch))

    @property
    def fastest(self) -> Plan:
        """The plan with the fewest seconds per iteration. With several batches, the one with the most tokens per
        second."""
        return min(self.plans, key=lambda plan: iteration_s(plan) / plan.job.tokens)

    @property
    def cheapest(self) -> Plan:
        """The plan with the fewest dollars per billion tokens. Ties go to the fastest."""
        return min(self.plans, key=lambda plan: (price_of_tokens(plan), iteration_s(plan) / plan.job.tokens))

    def at(self, price_per_hour: float, global_batch: int | None = None) -> Plan:
        """Return the fastest plan of at most ``price_per_hour`` US dollars per hour.

        Raises PlanError if every plan found costs more, or if there are several batches and none is named.
        """
        some = self if global_batch is None else self.of_batch(global_batch)
        if len(some.batches) > 1:
            found = ", ".join(map(str, some.batches))
            raise PlanError(f"frontier of global batches {found}; wanted one, global_batch=")
        for plan in some.plans:
            if plan.price_per_hour <= price_per_hour * (1 + SAME):
                return plan
        least = some.plans[-1].price_per_hour
        raise PlanError(f"no plan for ${shortened(price_per_hour)} an hour; wanted at least ${least:,.2f}")

    def by_token(self) -> Self:
        """Return the frontier by the token: without plans that are slower than another and no cheaper per billion
        tokens."""
        cheaper = [plan for plan, pays in zip(self.plans, _cheaper_by_token(self.plans), strict=True) if pays]
        return replace(self, plans=tuple(cheaper))

    def lower_bound_s(self, price_per_hour: float = math.inf, global_batch: int | None = None) -> float:
        """Return seconds of an iteration that no plan of at most ``price_per_hour`` US dollars per hour can beat.
        ``global_batch`` is the job's by default."""
        batch = self.job.global_batch if global_batch is None else global_batch
        bound = PriceBound.of(self.topology, self.job)
        spent = bound.iteration_s(self.job.with_fields(global_batch=batch).flop, price_per_hour)
        return max(self.lower_bounds_s.get(batch, 0.0), spent)

    @property
    def without_price(self) -> tuple[str, ...]:
        """Names of the devices without a price, which count as free."""
        return tuple(device.name for device in self.topology.devices if not device.price_per_hour)

    @property
    def note(self) -> str:
        """A sentence saying that devices without a price count as free; empty if all have a price."""
        free = self.without_price
        if not free:
            return ""
        without = f"{len(free)} of {counted(len(self.topology), 'device')}"
        return f"{without} have no price and count as free: {in_a_row(free, 3)}"

    @property
    def sentence(self) -> str:
        """The number of plans, and the fastest and the cheapest of them."""
        if len(self.plans) == 1:
            return f"one plan, the fastest and the cheapest: {described(self.fastest)}"
        return f"{counted(len(self.plans), 'plan')} from {described(self.fastest)} to {described(self.cheapest)}"

    def to_frame(self) -> pd.DataFrame:
        """Return one row per plan, in the order of ``plans``. The columns and their units are in ``attrs["units"]``."""
        import pandas as pd  # takes a while to load

        bound, rows = PriceBound.of(self.topology, self.job), []
        for plan, pays in zip(self.plans, _cheaper_by_token(self.plans), strict=True):
            job, used = plan.job, [self.topology.devices[int(d)] for d in plan.placement.devices.flat]
            spent_s = bound.iteration_s(job.flop, plan.price_per_hour)
            rows.append(
                {
                    "global_batch": job.global_batch,
                    "iteration_s": iteration_s(plan),
                    "basis": basis_of(plan).sentence,
                    "price_per_hour": plan.price_per_hour,
                    "price_per_billion_tokens": price_of_tokens(plan),
                    "tokens_per_s": job.tokens / iteration_s(plan),
                    "lower_bound_s": max(self.lower_bounds_s.get(job.global_batch, 0.0), spent_s),
                    "cheaper_by_token": pays,
                    "n_stages": job.n_stages,
                    "n_replicas": job.n_replicas,
                    "microbatch": job.microbatch,
                    "devices": len(used),
                    "idle": len(plan.idle_devices),
                    "without_price": sum(not device.price_per_hour for device in used),
                    "gpus": gpus(plan),
                }
            )
        table = pd.DataFrame(rows, columns=[*UNITS])
        table.attrs.update(units=dict(UNITS), note=self.note)
        return table

    def summary(self) -> dict[str, Any]:
        """Return the fields of ``dtfm-lab frontier --json``: plain types, seconds and US dollars."""
        rows = plain_rows(self.to_frame())
        return {
            "topology": self.topology.name,
            "job": self.job.name,
            "sentence": self.sentence,
            "note": self.note,
            "lower_bounds_s": {str(batch): bound_s for batch, bound_s in self.lower_bounds_s.items()},
            "units": UNITS,
            "points": [{**row, "plan": plan.summary()} for row, plan in zip(rows, self.plans, strict=True)],
            "searches": self.searches,
            "evaluations": self.evaluations,
            "seconds": self.seconds,
        }

    def _repr_html_(self) -> str:
        return str(self.to_frame().to_html(index=False, float_format=lambda number: f"{number:.6g}"))


def non_dominated(plans: Iterable[Plan]) -> tuple[Plan, ...]:
    """Return the plans on the frontier by the hour, for each batch separately: the fastest first, every next one
    cheaper."""
    order = sorted(plans, key=lambda plan: (plan.job.global_batch, iteration_s(plan), plan.price_per_hour))
    kept: list[Plan] = []
    for plan in order:
        before = kept[-1] if kept and kept[-1].job.global_batch == plan.job.global_batch else None
        if before is None or plan.price_per_hour < before.price_per_hour * (1 - SAME):
            kept.append(plan)
    return tuple(kept)


def _cheaper_by_token(plans: Iterable[Plan]) -> list[bool]:
    """Return for each plan of a frontier by the hour whether it is also on the frontier by the token."""
    least: dict[int, float] = {}
    pays = []
    for plan in plans:
        batch, price = plan.job.global_batch, price_of_tokens(plan)
        pays.append(batch not in least or price < least[batch] * (1 - SAME))
        least[batch] = min(price, least.get(batch, math.inf))
    return pays


def iteration_s(plan: Plan) -> float:
    """Return the seconds of a simulated plan's iteration."""
    assert plan.iteration_s is not None, "plans of a frontier are simulated"
    return plan.iteration_s


def price_of_tokens(plan: Plan) -> float:
    """Return US dollars per billion tokens of a simulated plan."""
    assert plan.price_per_billion_tokens is not None, "plans of a frontier are simulated"
    return plan.price_per_billion_tokens


def described(plan: Plan) -> str:
    """Return a plan's time and price in words: ``16.7 s at $12.34 an hour ($5.60 a billion tokens)``."""
    tokens = f"{money(price_of_tokens(plan))} a billion {plan.job.counted}"
    return f"{format_s(iteration_s(plan))} at ${plan.price_per_hour:,.2f} an hour ({tokens})"


def gpus(plan: Plan) -> str:
    """Return the GPUs in use by model, such as ``8 A100, 4 T4``. Every GPU of a group counts."""
    counts = gpus_of(plan.topology.devices[int(number)] for number in plan.placement.devices.flat)
    return ", ".join(f"{n} {gpu}" for gpu, n in counts.most_common())
