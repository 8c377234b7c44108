"""Zero Bubble, table 4: samples a second and GPU, of three schedules.

The seconds of a message are the paper's own, profiled; how fast a device computes is fitted, one efficiency a model, to
the other rows of the model.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from dtfm_lab.published.calibration import leave_one_out, median
from dtfm_lab.published.row import Band, KnownMiss, Row
from dtfm_lab.published.sources import published
from dtfm_lab.published.tables import numbers
from dtfm_lab.published.zero_bubble_plans import plan_of
from dtfm_lab.simulation import simulate

BAND = Band.share(0.03)
TRIED = (0.5, 0.8)
"""Efficiencies at which an iteration is simulated. Between them its seconds are a line in one over the efficiency, to
a tenth of a per cent, as the order of passes stays."""
LONG_FORWARDS = (
    "the paper profiles forwards as long as backwards to the inputs and nearly twice those to the weights, more than "
    "FLOP and memory's traffic say, so the bubble of ZB-H1 is larger than ours"
)
LIGHT_HEAD = (
    "the paper's profile has all stages alike, ours a last stage a fifth slower, for the head, which counts the "
    "more the more micro-batches there are"
)
UNEXPLAINED = "unexplained: interleaved rows of this model gain on the others with more micro-batches"


@dataclass(frozen=True)
class _Measured:
    """A published row, and its simulated seconds as a line in one over the efficiency."""

    line: dict[str, str]
    samples: int
    n_gpus: int
    slope_s: float
    fixed_s: float

    @classmethod
    def of(cls, line: dict[str, str]) -> "_Measured":
        return cls(line, *_simulated(line["model"], line["schedule"], int(line["microbatches"])))

    @property
    def published(self) -> float:
        return float(self.line["samples_per_gpu_per_s"])

    @property
    def own_efficiency(self) -> float:
        """At which the row would be predicted exactly."""
        return self.slope_s / (self.samples / self.n_gpus / self.published - self.fixed_s)

    def predicted(self, efficiency: float) -> float:
        """Samples a second and GPU."""
        return self.samples / self.n_gpus / (self.fixed_s + self.slope_s / efficiency)


def _measured() -> dict[str, list[_Measured]]:
    by_model: dict[str, list[_Measured]] = {}
    for line in numbers("zero_bubble_table5.csv"):
        by_model.setdefault(line["model"], []).append(_Measured.of(line))
    return by_model


def megatron_efficiency() -> float:
    """The share of an A100's peak that matrix products reach under Megatron-LM, fitted to all these rows."""
    return median([row.own_efficiency for rows in _measured().values() for row in rows])


@cache
def _simulated(model: str, schedule: str, microbatches: int) -> tuple[int, int, float, float]:
    """Sequences of an iteration, GPUs, and the seconds that an efficiency divides and those that it does not."""
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
    (x0, s0), (x1, s1) = ((1 / one, simulate(plan, efficiency=one).iteration_s) for one in TRIED)
    slope_s = (s1 - s0) / (x1 - x0)
    return plan.job.global_batch, plan.job.n_stages, slope_s, s0 - slope_s * x0


@published(
    "zero-bubble-throughput",
    title="Zero Bubble, throughput",
    cite="Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, table 4",
    licence="figures of a paper, cited",
    url="https://arxiv.org/abs/2401.10241",
    known_misses={
        ("1.5B, 24 micro-batches, ZB-H1", "throughput"): KnownMiss(1.0461, LONG_FORWARDS),
        ("6.2B, 24 micro-batches, ZB-H1", "throughput"): KnownMiss(1.0333, LONG_FORWARDS),
        ("1.5B, 64 micro-batches, 1F1B-I", "throughput"): KnownMiss(0.9463, LIGHT_HEAD),
        ("14.6B, 48 micro-batches, 1F1B-I", "throughput"): KnownMiss(1.0383, UNEXPLAINED),
    },
)
def zero_bubble_throughput() -> Iterator[Row]:
    """Throughputs of four models, three numbers of micro-batches and three schedules."""
    for model, rows in _measured().items():
        fitted = leave_one_out([row.own_efficiency for row in rows])
        for row, efficiency in zip(rows, fitted, strict=True):
            yield Row(
                group=model,
                setting=f"{model}, {row.line['microbatches']} micro-batches, {row.line['schedule']}",
                quantity="throughput",
                unit="samples/s a GPU",
                published=row.published,
                predicted=row.predicted(efficiency),
                band=BAND,
                assumptions=(
                    "attention unfused",
                    "memory_traffic",
                    "transport blocking (the paper's scripts name --no-overlap-p2p-communication)",
                    "a message takes what the paper profiled",
                    "embedding and head count as a layer each in the cut",
                ),
                fitted=f"efficiency {efficiency:.3f}, to the other {len(rows) - 1} rows of {model}",
            )
