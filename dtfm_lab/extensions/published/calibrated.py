"""Fit the efficiency of GPUs to measured rows, with its range, and test it on rows that it was not fitted to."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from html import escape
from typing import Any

import numpy as np
import pandas as pd

from dtfm_lab.costs.efficiency import GivenEfficiency, ShareFactor, share_of
from dtfm_lab.domain.errors import LabError, TraceError
from dtfm_lab.domain.network import as_number, shortened
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Lane
from dtfm_lab.domain.trace import Trace
from dtfm_lab.domain.units import by_key, format_s, format_share
from dtfm_lab.extensions.published.calibration import CLOSE, leave_one_out, median, own_factor
from dtfm_lab.extensions.published.own import OwnRow, read_rows
from dtfm_lab.extensions.published.own_predictions import located_plan, own_efficiency, predicted
from dtfm_lab.simulation.simulate import iteration_seconds

TIMED = ("iteration", "throughput", "utilisation", "compute", "bubble")
"""Quantities in a file of your own rows to which an efficiency can be fitted."""
BY = ("gpu", "model", "size", "group")
REPEATED = 0.035
"""Assumed relative standard deviation of one measurement: 5 % / sqrt(2). Identical plans that Sailor's authors measured
twice differ by 5 % on average."""
ONE_ROW = 0.06
"""Assumed ``Calibration.spread`` after calibrating with one row: standard deviation of the log of another plan's
seconds.

It lies between the two values that result if each SC21 row on Selene, or each Zero Bubble row, is predicted from one
other row.
"""
Predict = Callable[[GivenEfficiency], float]
Measured = Trace | tuple[Plan, float] | tuple[Plan, Trace] | OwnRow


@dataclass(frozen=True)
class MeasuredRow:
    """A measured number, the efficiency that predicts it exactly, and its prediction from the other rows."""

    name: str
    gpu: str
    """Names of the kinds of GPU in use; empty if unknown."""
    model: str
    size: str
    """Number of the model's parameters, such as 1.3B; empty if unknown."""
    group: str
    unit: str
    measured: float
    efficiency: float
    """The efficiency that predicts this row exactly."""
    from_others: float | None = None
    """The efficiency for this row that follows from all other rows; None without other rows."""
    predicted: float | None = None
    """The prediction with ``from_others``, in ``unit``; None if there are no other rows."""
    factor: float | None = None
    """Number by which the lab's own efficiency must be multiplied to predict this row exactly; None if the plan is
    unknown."""

    @property
    def error(self) -> float | None:
        """Relative error of the prediction from the other rows: +0.03 is three per cent too much. None without other
        rows."""
        return None if self.predicted is None else self.predicted / self.measured - 1


@dataclass(frozen=True, repr=False)
class Calibration:
    """The share of their peak that devices reach, fitted to measured rows.

    ``lab.simulate(plan, efficiency=calibration)`` starts from the lab's own efficiency for each GPU and matrix shape,
    and multiplies it by ``factor``. So the calibration also holds for other micro-batches and models. If ``factor`` is
    None, all devices get ``efficiency``.
    """

    efficiency: float
    """Median of the rows' efficiencies on a log scale. Each predicts its row exactly."""
    low: float
    """Lowest efficiency of all rows."""
    high: float
    rows: tuple[MeasuredRow, ...]
    factor: float | None = None
    """Median of the rows' own factors on a log scale; None if the plan of any row is unknown."""
    _predict: tuple[Predict, ...] = field(default=(), compare=False)

    def __float__(self) -> float:
        return self.efficiency

    def __repr__(self) -> str:
        return f"<Calibration: {self.sentence}>"

    @property
    def mean_error(self) -> float | None:
        """Mean absolute relative error of the rows, each predicted from all others; None for a single row."""
        errors = [abs(row.error) for row in self.rows if row.error is not None]
        return sum(errors) / len(errors) if errors else None

    @property
    def spread(self) -> float:
        """One standard deviation of the log of another plan's seconds. It is the error of predicting each row from all
        others, but at least the spread of a single measurement. With one row it is ``ONE_ROW``."""
        errors = [math.log1p(row.error) for row in self.rows if row.error is not None]
        return max(ONE_ROW if not errors else REPEATED, float(np.sqrt(np.mean(np.square(errors)))) if errors else 0.0)

    @property
    def sentence(self) -> str:
        """The efficiency, its range, and how well it predicts rows that it was not fitted to."""
        n = len(self.rows)
        line = f"efficiency {self.efficiency:.3g}"
        if self.mean_error is None:
            return f"{line} from one row, {self.rows[0].name}, and judged on none"
        return (
            f"{line}, {self.low:.3g} to {self.high:.3g} over {n} rows; each from the others: "
            f"{format_share(self.mean_error)} off"
        )

    def by(self, what: str) -> Mapping[str, Calibration]:
        """Return a calibration for each ``gpu``, ``model``, ``size`` or ``group`` of the rows. Each row is judged by
        the other rows of the same calibration.

        Raises LabError for another name.
        """
        if what not in BY:
            raise LabError(f"by is {shortened(what)}; wanted one of {', '.join(BY)}")
        parts = by_key((getattr(row, what), index) for index, row in enumerate(self.rows))
        return {key: _judged([self.rows[i] for i in at], [self._predict[i] for i in at]) for key, at in parts.items()}

    def to_frame(self) -> pd.DataFrame:
        """Return one row per measured row: name, gpu, model, size, group, unit, measured, its own efficiency, the
        efficiency from all others, the prediction from that, factor and error."""
        columns = [*MeasuredRow.__dataclass_fields__, "error"]
        return pd.DataFrame([{name: getattr(row, name) for name in columns} for row in self.rows])

    def _repr_html_(self) -> str:
        table = self.to_frame().to_html(index=False, float_format=lambda number: f"{number:.4g}", na_rep="")
        return f"<p>{escape(self.sentence)}</p>{table}"


def calibrate(measured: str | os.PathLike[str] | Iterable[Measured]) -> Calibration:
    """Return the efficiency that predicts measured rows best.

    Parameters
    ----------
    measured
        One of three: traces of real runs, each alone or in a pair (plan, trace); pairs (plan, measured seconds per
        iteration); or a file of your own rows, as for ``reproduce``. Of a trace, only the time in which devices compute
        counts. Its efficiency can be above 1 if the run was on the virtual clock and this machine is faster than the
        specified devices.

    Raises
    ------
    LabError
        There are no rows, a row has another type, or no efficiency predicts its number.
    """
    given: list[Any] = []
    if isinstance(measured, str | os.PathLike):
        given += [row for row in read_rows(measured) if row.quantity in TIMED]
    elif isinstance(measured, Trace):
        given.append(measured)
    elif isinstance(measured, Iterable):
        given += measured
    else:
        raise LabError(
            f"measured is {shortened(measured)}; wanted traces, pairs of a plan and seconds in a list, or a file"
        )
    if not given:
        raise LabError(
            "no measured rows to fit an efficiency to; wanted traces, pairs of a plan and seconds, or a file"
        )
    described = [_described(each, number) for number, each in enumerate(given, 1)]
    return _judged([row for row, _ in described], [predict for _, predict in described])


def _judged(rows: list[MeasuredRow], predict: list[Predict]) -> Calibration:
    """Return the fit to all rows, with each row predicted by the fit to all others. A single row is not predicted."""
    own = [row.efficiency for row in rows]
    factors = [row.factor for row in rows if row.factor is not None]
    # A factor also holds for other shapes. It is used only if all rows have one, because factors and efficiencies have
    # no common median.
    scales = factors if len(factors) == len(rows) else own
    judged = rows
    if len(rows) > 1:
        judged = []
        for row, mine, others, function in zip(rows, scales, leave_one_out(scales), predict, strict=True):
            # Each row is predicted by the others, since a fit to itself would always be right.
            given: GivenEfficiency = ShareFactor(others) if scales is factors else others
            judged.append(replace(row, from_others=row.efficiency * others / mine, predicted=function(given)))
    factor = median(factors) if scales is factors else None
    return Calibration(median(own), min(own), max(own), tuple(judged), factor, tuple(predict))


def _described(given: object, number: int) -> tuple[MeasuredRow, Predict]:
    if isinstance(given, Trace):
        return _of_trace(given, number)
    if isinstance(given, OwnRow):
        plan, own = (located := located_plan(given)), own_efficiency(given, located)
        predict: Predict = partial(predicted, given, plan)
        factor = _factor(predict, plan, given.published)
        return MeasuredRow(
            given.setting, *_kinds(plan), given.group, given.unit, given.published, own, factor=factor
        ), predict
    if not isinstance(given, tuple | list) or len(given) != 2 or not isinstance(given[0], Plan):
        raise LabError(f"row {number} is {shortened(given)}; wanted a measured Trace, or a pair of a Plan and seconds")
    if isinstance(given[1], Trace):
        row, predict = _of_trace(given[1], number)
        gpu, model, size = _kinds(given[0])
        return replace(row, gpu=gpu, model=model, size=size), predict
    seconds = as_number(given[1])
    if seconds is None or not 0 < seconds < np.inf:
        raise LabError(f"row {number}: seconds are {shortened(given[1])}; wanted a number above 0")
    return _of_plan(given[0], seconds)


def _of_plan(plan: Plan, measured_s: float) -> tuple[MeasuredRow, Predict]:
    def predict(efficiency: GivenEfficiency) -> float:
        return iteration_seconds(plan, efficiency=efficiency)

    fastest_s = predict(1.0)
    # Faster than at the peak: the peak or the measurement is wrong, and no efficiency helps.
    if measured_s < fastest_s * (1 - CLOSE):
        raise LabError(
            f"{plan.job.name} on {plan.topology.name} took {format_s(measured_s)}; wanted at least the "
            f"{format_s(fastest_s)} that it takes at the peak"
        )
    own = own_factor(predict, measured_s)
    factor = _factor(predict, plan, measured_s)
    return MeasuredRow(plan.job.name, *_kinds(plan), plan.topology.name, "s", measured_s, own, factor=factor), predict


def _factor(predict: Predict, plan: Plan, measured: float) -> float:
    """Return the factor by which to multiply the lab's efficiency, so that it predicts the measured number."""
    used = {int(i) for i in plan.placement.devices.flat}
    least = min(share_of(plan.job, plan.topology.devices[i]) for i in used)
    return own_factor(lambda factor: predict(ShareFactor(factor)), measured, high=1 / least)


def _of_trace(trace: Trace, number: int) -> tuple[MeasuredRow, Predict]:
    """Return the row of a run. Its efficiency is the run's FLOP, divided by what its devices could do at their peak in
    the time in which they computed. Raises TraceError for a simulated trace, and for one without FLOP and peaks."""
    context = trace.context
    if context.source != "measured":
        raise TraceError(f"row {number} is a simulated trace; wanted a measured one")
    # A stand-in's seconds say nothing about the job's own model.
    if not context.plan.flop or not context.plan.peak_flop_per_s or context.stand_in:
        raise TraceError(
            f"row {number}: the trace of {context.job} does not know its FLOP and peaks; wanted a run that does"
        )
    computing = np.array([action.lane is Lane.COMPUTE for action in trace.actions])[trace.action]
    stages = np.array([action.stage for action in trace.actions])[trace.action] % len(context.devices)
    # Traces may keep only some iterations, which then stand for several.
    weights = trace.iteration_weights[np.unique(trace.iteration, return_inverse=True)[1]]
    peaks = np.array(context.plan.peak_flop_per_s)[stages, trace.replica]
    seconds = (trace.end_s - trace.start_s) * weights
    possible = float((seconds * peaks)[computing].sum())
    own, busy_s = context.plan.flop / possible, float(seconds[computing].sum())
    name = f"{context.job}, {context.schedule}, {context.clock} clock"
    row = MeasuredRow(name, context.runs_on, context.job, "", context.topology, "s", busy_s, own)
    return row, lambda efficiency: busy_s * own / float(efficiency)


def _kinds(plan: Plan) -> tuple[str, str, str]:
    """Return names of the kinds of GPU in a plan, the model's name, and its number of parameters as text."""
    used = {plan.topology.devices[int(i)].gpu for i in plan.placement.devices.flat}
    model = plan.job.modelled()
    return ", ".join(sorted(used)), model.name, f"{model.parameters / 1e9:.2g}B"
