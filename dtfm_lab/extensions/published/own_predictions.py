"""Predict your own rows, with the functions that plan and simulate everything else."""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from dtfm_lab.costs.efficiency import GivenEfficiency
from dtfm_lab.domain.errors import FileError, LabError
from dtfm_lab.domain.plan import Plan
from dtfm_lab.extensions.published.calibration import median, own_factor
from dtfm_lab.extensions.published.own import LISTED, OwnRow
from dtfm_lab.extensions.published.row import Evidence, Row
from dtfm_lab.extensions.published.units import UNITS, Prediction, interval_of, shares_of
from dtfm_lab.planning import default_objective, evaluate
from dtfm_lab.planning import plan as best_plan
from dtfm_lab.simulation import simulate

SEARCH_STEPS = 4
"""Generations of the search that places a row without a rank map. A fixed number gives the same row the same plan every
time."""


def predict_rows(rows: Sequence[OwnRow]) -> Iterator[Row]:
    """Yield each row with its prediction, in order. Raises FileError that names a row that cannot be predicted.

    If a row says ``fit``, its efficiency is the median over the group's other rows that say ``fit``. Each of these
    contributes the efficiency that predicts it exactly.
    """
    plans = {id(row): located_plan(row) for row in rows}
    own = {id(row): own_efficiency(row, plans[id(row)]) for row in rows if row.fitted}
    for row in rows:
        efficiency, fitted = row.efficiency, ""
        if row.fitted:
            # Of the same group only: other hardware has another efficiency.
            others = [one for one in rows if one is not row and id(one) in own and one.group == row.group]
            if not others:
                raise FileError(f"{row.where}, column efficiency: fit, of no other row; wanted two or more in a group")
            efficiency = median([own[id(one)] for one in others])
            fitted = f"efficiency {efficiency:.3g}, fitted to {len(others)} other rows of {row.group}"
        value, interval = predicted_with_interval(row, plans[id(row)], efficiency)
        yield Row(
            group=row.group,
            setting=row.setting,
            quantity=row.quantity,
            unit=row.unit,
            published=row.published,
            predicted=value,
            interval=None if fitted else interval,
            evidence=evidence_of(row),
            band=row.band,
            theirs=row.theirs,
            assumptions=assumptions_of(row, plans[id(row)]),
            fitted=fitted,
            note=row.note,
            cite=row.cite,
        )


def evidence_of(row: OwnRow) -> Evidence:
    """Return the class of a row's evidence. It depends on whether its prediction needs an efficiency, and where that
    comes from."""
    if row.fitted:
        return Evidence.LEAVE_ONE_OUT
    if row.quantity == "memory":
        return Evidence.PURE
    if row.efficiency is not None:  # the given number may come from this very row
        return Evidence.FITTED
    return Evidence.PURE if row.quantity == "bubble" else Evidence.TRANSFERRED


def assumptions_of(row: OwnRow, plan: Plan) -> tuple[str, ...]:
    """Return what the row sets, and which share of the peak is assumed and from where. A fitted share is not an
    assumption."""
    shares: tuple[str, ...] = () if row.fitted or row.quantity == "memory" else shares_of(plan)
    if row.efficiency is not None:
        shares = (f"efficiency {row.efficiency:g}",)
    return (*row.given, *([f"schedule {row.schedule}"] if row.schedule else []), *shares)


def located_plan(row: OwnRow) -> Plan:
    """Return the plan of a row: from its rank map, or from a short search. Raises FileError that names the row."""
    try:
        job = row.job if row.schedule is None else row.job.with_fields(schedule=row.schedule)
        job.modelled()
        if row.listed:
            if job.n_stages is None or job.n_replicas is None:
                raise LabError(f"rank_map is {LISTED}, without n_stages or n_replicas; wanted both")
            # Ranks in order fill the replicas of a stage first.
            stage, replica = np.divmod(np.arange(job.n_stages * job.n_replicas), job.n_replicas)
            return evaluate(row.topology, job, rank_map=(replica * job.n_stages + stage).tolist())
        if row.rank_map is not None:
            return evaluate(row.topology, job, rank_map=row.rank_map)
        return best_plan(
            row.topology,
            job,
            objective=default_objective(job),
            steps=SEARCH_STEPS,
            queueing=row.queueing,
            improve_bound=False,  # a row does not show how near its plan is to the bound
        )
    except LabError as error:
        raise FileError(f"{row.where}: {error}") from None


def predicted(row: OwnRow, plan: Plan, efficiency: GivenEfficiency) -> float:
    """Return the row's quantity in its unit at this efficiency."""
    return predicted_with_interval(row, plan, efficiency)[0]


def predicted_with_interval(
    row: OwnRow, plan: Plan, efficiency: GivenEfficiency
) -> tuple[float, tuple[float, float] | None]:
    """Return the row's quantity in its unit, and the range that should hold it in 9 of 10 cases. Without a known
    spread, the range is missing (None). Raises FileError if the row cannot be predicted."""
    try:
        trace = simulate(plan, row.schedule, queueing=row.queueing, efficiency=efficiency)
        value = UNITS[row.quantity][row.unit](Prediction(plan, trace))
        return value, interval_of(row.quantity, value, trace)
    except LabError as error:
        raise FileError(f"{row.where}: {error}") from None


def own_efficiency(row: OwnRow, plan: Plan) -> float:
    """Return the efficiency that predicts the row exactly.

    Raises FileError for memory, which does not depend on it, and if no efficiency predicts the row.
    """
    if row.quantity == "memory":
        raise FileError(f"{row.where}, column efficiency: fit, but memory depends on no efficiency; wanted nothing")
    try:
        return own_factor(partial(predicted, row, plan), row.published)
    except FileError:
        raise
    except LabError as error:
        raise FileError(f"{row.where}, column published: {error}") from None
