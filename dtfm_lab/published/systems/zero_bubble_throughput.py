"""Zero Bubble, table 4: samples a second and GPU, of three schedules.

The seconds of a message are the paper's own, profiled. Each row twice: with the share of the peak that other sources
say, and with one efficiency a model, fitted to the other rows of the model.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from dtfm_lab.domain.plan import Plan
from dtfm_lab.published.calibration import leave_one_out
from dtfm_lab.published.evidence import Evidence
from dtfm_lab.published.row import Row
from dtfm_lab.published.sources import published
from dtfm_lab.published.systems.zero_bubble_memory import plan_of
from dtfm_lab.published.tables import numbers
from dtfm_lab.published.units import interval_of, shares_of
from dtfm_lab.simulation import simulate
from dtfm_lab.simulation.simulate import iteration_seconds

TRIED = (0.5, 0.8)
"""Efficiencies at which an iteration is simulated. Between them its seconds are a line in one over the efficiency, to
a tenth of a per cent, as the order of passes stays."""


ONE_EFFICIENCY = ", one efficiency"
ASSUMED = (
    "attention unfused",
    "memory_traffic",
    "transport blocking (the paper's scripts name --no-overlap-p2p-communication)",
    "a message takes what the paper profiled",
    "embedding and head count as a layer each in the cut",
)


@dataclass(frozen=True)
class _PlannedRow:
    """A published row, its plan, and its simulated seconds as a line in one over the efficiency."""

    line: dict[str, str]
    plan: Plan
    slope_s: float
    fixed_s: float

    @classmethod
    def of(cls, line: dict[str, str]) -> "_PlannedRow":
        return cls(line, *_simulated(line["model"], line["schedule"], int(line["microbatches"])))

    @property
    def published(self) -> float:
        return float(self.line["samples_per_gpu_per_s"])

    @property
    def own_efficiency(self) -> float:
        """At which the row would be predicted exactly."""
        return self.slope_s / (self.samples_per_s(1.0) / self.published - self.fixed_s)

    def samples_per_s(self, iteration_s: float) -> float:
        """Samples a second and GPU."""
        return self.plan.job.global_batch / self.plan.job.n_stages / iteration_s

    def row(self, predicted: float, evidence: Evidence, how: str = "", **said: Any) -> Row:
        """The row with a prediction."""
        model = self.line["model"]
        return Row(
            group=model + how,
            setting=f"{model}, {self.line['microbatches']} micro-batches, {self.line['schedule']}{how}",
            quantity="throughput",
            unit="samples/s a GPU",
            published=self.published,
            predicted=predicted,
            evidence=evidence,
            **said,
        )


def _measured() -> dict[str, list[_PlannedRow]]:
    by_model: dict[str, list[_PlannedRow]] = {}
    for line in numbers("zero_bubble_table5.csv"):
        by_model.setdefault(line["model"], []).append(_PlannedRow.of(line))
    return by_model


@cache
def _simulated(model: str, schedule: str, microbatches: int) -> tuple[Plan, float, float]:
    """The plan, and the seconds of an iteration that an efficiency divides and those that it does not."""
    (profile,) = (
        one
        for one in numbers("zero_bubble_profile.csv")
        if (one["model"], int(one["microbatches"])) == (model, microbatches)
    )
    plan = plan_of(
        model,
        schedule,
        microbatches,
        message_s=float(profile["message_ms"]) / 1000,
        memory_traffic=True,
        transport="blocking",
    )
    (x0, s0), (x1, s1) = ((1 / one, iteration_seconds(plan, efficiency=one)) for one in TRIED)
    slope_s = (s1 - s0) / (x1 - x0)
    return plan, slope_s, s0 - slope_s * x0


@published(
    "zero-bubble-throughput",
    title="Zero Bubble, throughput",
    cite="Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, table 4",
    licence="figures of a paper, cited",
    url="https://arxiv.org/abs/2401.10241",
)
def zero_bubble_throughput() -> Iterator[Row]:
    """Throughputs of four models, three numbers of micro-batches and three schedules, twice."""
    for model, rows in _measured().items():
        for row in rows:
            trace = simulate(row.plan)
            predicted = row.samples_per_s(trace.iteration_s)
            interval = interval_of("throughput", predicted, trace)
            assumptions = (*ASSUMED, *shares_of(row.plan))
            yield row.row(predicted, Evidence.PROFILED, interval=interval, assumptions=assumptions)
        fitted = leave_one_out([row.own_efficiency for row in rows])
        for row, efficiency in zip(rows, fitted, strict=True):
            predicted = row.samples_per_s(row.fixed_s + row.slope_s / efficiency)
            said = f"efficiency {efficiency:.3f}, to the other {len(rows) - 1} rows of {model}"
            yield row.row(predicted, Evidence.LEAVE_ONE_OUT, ONE_EFFICIENCY, assumptions=ASSUMED, fitted=said)
