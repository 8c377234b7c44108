"""Named changes of a plan that keep its placement, and the outcome of one iteration under them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import QUEUEING, Topology
from dtfm_lab.domain.options import Option, options_of
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Schedule
from dtfm_lab.simulation.memory import memory
from dtfm_lab.simulation.schedules import peak_activations, schedules
from dtfm_lab.simulation.simulate import simulate

_SIMULATION = (
    Option(
        name="schedule",
        help="Pipeline schedule, by name or a Schedule.",
        type=Schedule,
        choices=schedules,
        may_be_none=True,
    ),
    Option(name="queueing", help="Which messages wait for each other.", choices=QUEUEING, may_be_none=True),
    Option(name="efficiency", help="Share of its peak that a device reaches.", type=float, above=0, most=1),
)
_JOB = tuple(option for option in options_of(Job) if option.varies)
_LINKS = (
    Option(name="bandwidth", help="Factor on the bandwidth of all links.", type=float, above=0),
    Option(name="latency", help="Factor on the latency of all links.", type=float, least=0),
)
OF_THE_SIMULATION, OF_THE_JOB, OF_THE_LINKS = (tuple(o.name for o in each) for each in (_SIMULATION, _JOB, _LINKS))
"""Names of the options that may vary. ``OF_THE_JOB`` has the fields of a job that can change without changing a plan's
placement."""
VARIED = {option.name: option for option in (*_SIMULATION, *_JOB, *_LINKS)}
"""All options that may vary for a given plan, by name. A new field of a job that varies is included automatically."""


@dataclass(frozen=True, kw_only=True)
class SimulatedOutcome:
    """The results of one simulated iteration. NaN if a number is unknown, such as a price."""

    iteration_s: float
    tokens_per_s: float
    mfu: float
    """Model FLOP/s utilisation: the model's FLOP per second as a share of the peak of all devices of the plan."""
    pflops: float
    """The model's FLOP per second, in petaFLOP/s (1e15)."""
    bubble_share: float
    """Share of the time of all devices together in which they do not compute."""
    peak_memory_bytes: float
    """Peak memory of the device that holds most."""
    over_bytes: float
    """Bytes that the device with the largest shortage lacks; 0 if all fit."""
    fits: bool
    peak_activations: int
    """Maximum number of micro-batches whose activations a device holds at once, counted once per stage of the
    device."""
    price_per_million_tokens: float
    iteration_low_s: float = math.nan
    """Lower end of the interval that holds the iteration's seconds with 90 % confidence: see ``Trace.interval``."""
    iteration_high_s: float = math.nan
    basis: str = ""
    """How far to trust the seconds, in a word, and why: ``guessed: the model has ...``."""


OUTCOMES = tuple(each.name for each in fields(SimulatedOutcome))


@dataclass(frozen=True)
class Variation:
    """Changes of a job, of all links of a network, or of how both are simulated. ``values`` are new values by the names
    of ``VARIED``."""

    values: Mapping[str, Any]

    def job(self, job: Job) -> Job:
        """Return the job with its varied fields changed. Raises JobError if the values do not go together."""
        return job.with_fields(**self._of(OF_THE_JOB))

    def network(self, topology: Topology) -> Topology:
        """Return the network with its bandwidths and latencies multiplied by the factors that vary."""
        factors = {what: float(value) for what, value in self._of(OF_THE_LINKS).items() if value != 1}
        with np.errstate(over="ignore"):  # infinite results are refused by Topology
            return topology.scaled(**factors) if factors else topology

    def on(self, plan: Plan) -> Plan:
        """Return the plan with the changed job and network. Its communication cost is not computed again, because a
        simulation does not need it."""
        return plan.changed(job=self.job(plan.job), topology=self.network(plan.topology))

    def outcome(self, plan: Plan) -> SimulatedOutcome:
        """Return the outcome of an iteration of the plan. Raises LabError if it cannot be simulated."""
        changed = self.on(plan)
        trace = simulate(changed, **self._of(OF_THE_SIMULATION))
        report = memory(changed, trace=trace)
        low_s, high_s = trace.interval()
        metrics = {what: math.nan if value is None else float(value) for what, value in trace.metrics.items()}
        return SimulatedOutcome(
            **{what: metrics[what] for what in ("tokens_per_s", "mfu", "pflops", "price_per_million_tokens")},
            iteration_s=trace.iteration_s,
            bubble_share=1 - trace.compute_share if trace.iteration_s > 0 else 0.0,
            peak_memory_bytes=float(report.peak_bytes.max()),
            over_bytes=float(report.over_bytes.max()),
            fits=report.fits,
            peak_activations=max(peak_activations(trace.context.recorded_schedule)),
            iteration_low_s=low_s,
            iteration_high_s=high_s,
            basis=trace.context.basis.sentence,
        )

    def _of(self, names: tuple[str, ...]) -> dict[str, Any]:
        return {what: self.values[what] for what in names if what in self.values}


def checked_value(option: Option, value: Any) -> Any:
    """Return the value of an option as a plain Python value.

    Raises LabError for a value that is wrong in every combination. A value that is wrong only together with others is
    found when that combination is simulated.
    """
    value = value.item() if isinstance(value, np.generic) else value
    return value if isinstance(value, Schedule) else option.checked(value, error=LabError)
