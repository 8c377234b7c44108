"""Refit: the network and the profile that would have predicted what was measured, beside the drawn ones."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from dtfm_lab.compare.errors import iteration_error, signed_share
from dtfm_lab.compare.fit import COMPUTE, Fit, fit_computations, fit_links
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan, check_same_plan, cut_subplan
from dtfm_lab.domain.trace import ComputeTime, RunContext, Trace
from dtfm_lab.domain.units import format_s, plain_rows, to_gbps

SAME = 0.005
"""Difference of two errors, as shares of the prediction, below which neither is worse."""
COLUMNS = ["of", "name", "stage", "replica", "kind", "what", "drawn", "fitted", "low", "high", "count", "note"]
ROUNDING = 1e-6
"""Relative difference of two numbers below which they count as equal."""


@dataclass(frozen=True, eq=False)
class Refit:
    """Links and devices as measured, beside the same as drawn."""

    table: pd.DataFrame
    """Two rows a link that carried messages, one a kind of computation of a stage and replica:

    * of ("link" or "stage"), name ("a -> b", or the device); stage, replica and kind of computations
    * what: ``latency_s``, ``bandwidth_bytes_per_s`` or ``compute_s``
    * drawn, fitted, and low to high, the interval with 95 % confidence
    * count of measurements; note, where something could not be separated
    """
    topology: Topology
    """The drawn network, with fitted links where they carried messages."""
    profile: tuple[ComputeTime, ...]
    measured: RunContext
    """Context of the measured trace."""
    predicted: Trace
    """One simulated iteration on that network with that profile."""
    error_before: float
    """Relative error of the iteration as predicted: see ``Comparison.iteration_error``."""
    error: float
    """Relative error of ``predicted`` on the iterations that it was fitted to."""
    checked_error: float | None
    """The same, fitted to the first half of the iterations and compared with the second; None for too few."""

    @property
    def sentence(self) -> str:
        checked = ""
        if self.checked_error is not None:
            checked = f", {signed_share(self.checked_error)} on iterations not fitted to"
        before, after = signed_share(self.error_before), signed_share(self.error)
        worse = "the refit predicts worse than what was drawn: " if self.is_worse else ""
        return f"{worse}error of the iteration {before} as drawn, {after} as fitted{checked}"

    @property
    def is_worse(self) -> bool:
        """Whether the fitted network predicts the iteration worse than the drawn one, on what neither was fitted to."""
        after = self.error if self.checked_error is None else self.checked_error
        return abs(after) > abs(self.error_before) + SAME

    @property
    def off(self) -> pd.DataFrame:
        """The rows whose drawn value is outside the fitted interval, the most different first."""
        drawn, fitted, low, high = (self.table[c].to_numpy(float) for c in ("drawn", "fitted", "low", "high"))
        with np.errstate(divide="ignore", invalid="ignore"):
            far = np.nan_to_num(np.abs(np.log(fitted / drawn)), nan=0.0)
        rows = np.flatnonzero(((drawn < low) | (drawn > high)) & (far > ROUNDING))
        return self.table.iloc[rows[np.argsort(-far[rows], kind="stable")]].reset_index(drop=True)

    def summary(self) -> dict[str, Any]:
        """The fields as plain types, with None for infinite bounds."""
        return {
            "error_before": self.error_before,
            "error": self.error,
            "checked_error": self.checked_error,
            "values": plain_rows(self.table.astype(object).replace([np.inf, -np.inf], None)),
            "sentence": self.sentence,
        }

    def __repr__(self) -> str:
        return f"<Refit {self.sentence}>"

    def _repr_html_(self) -> str:
        return f"<p>{self.sentence}</p>{self.table.to_html(index=False)}"


def refit(measured: Trace, error_before: float, plan: Plan, simulate: Callable[..., Trace]) -> Refit:
    """Fit links and computations to a measured trace, and simulate the iteration with them.

    Parameters
    ----------
    error_before
        Relative error of the iteration as it was predicted.
    plan
        The plan that ran, or the whole plan of which a subplan ran.
    simulate
        As ``simulation.simulate``: (plan, schedule, queueing=, profile=) -> Trace.

    Raises
    ------
    TraceError
        The measured trace is of another plan, or does not hold its schedule.
    """
    plan = cut_subplan(plan, measured.context.rehearsed)
    check_same_plan(plan, measured.context, "n_microbatches", "microbatch_counts")
    fits = [*fit_links(plan, measured), *fit_computations(measured)]
    topology, profile = _network(plan.topology, fits), _profile(measured, fits)
    predicted = _predicted(plan, measured, topology, profile, simulate)
    return Refit(
        table=_table(plan, measured, fits),
        topology=topology,
        profile=profile,
        measured=measured.context,
        predicted=predicted,
        error_before=error_before,
        error=iteration_error(predicted, measured),
        checked_error=_checked(plan, measured, simulate),
    )


def in_units(what: str, value: float) -> str:
    """One value of the table as text: ``100 Mbit/s``, ``3.2 ms``, or ``no bound`` for an infinite one."""
    if not np.isfinite(value):
        return "no bound"
    if what != "bandwidth_bytes_per_s":
        return format_s(value)
    gbps = to_gbps(value)
    return f"{gbps:.4g} Gbit/s" if gbps >= 1 else f"{gbps * 1e3:.4g} Mbit/s"


def _network(drawn: Topology, fits: list[Fit]) -> Topology:
    """The network with fitted links where they carried messages; their measured times by size are dropped."""
    values: dict[str, Any] = {
        "latency_s": drawn.latency_s.copy(),
        "bandwidth_bytes_per_s": drawn.bandwidth_bytes_per_s.copy(),
    }
    message_s = None if drawn.message_s is None else drawn.message_s.copy()
    for fit in fits:
        if fit.what != COMPUTE:
            values[fit.what][fit.at] = fit.value.value
            if message_s is not None:
                message_s[fit.at] = np.nan
    return replace(drawn, **values, message_s=message_s)


def _profile(measured: Trace, fits: list[Fit]) -> tuple[ComputeTime, ...]:
    """Fitted compute times; those known before for computations that were not measured."""
    known = {row[:3]: row for row in measured.context.profile}
    fitted = {fit.at: ComputeTime._make((*fit.at, fit.value.value)) for fit in fits if fit.what == COMPUTE}
    return tuple((known | fitted).values())


def _predicted(
    plan: Plan, measured: Trace, topology: Topology, profile: tuple[ComputeTime, ...], simulate: Callable[..., Trace]
) -> Trace:
    ran = measured.context
    # the plan keeps the cost of the drawn network, on which a simulation does not depend
    return simulate(plan.changed(topology=topology), ran.recorded_schedule, queueing=ran.queueing, profile=profile)


def _checked(plan: Plan, measured: Trace, simulate: Callable[..., Trace]) -> float | None:
    numbers, every = np.unique(measured.iteration), measured.context.synchronise_every
    if len(numbers) < 2 * every:
        return None
    first, second = (_only(measured, half) for half in np.split(numbers, [(len(numbers) + 1) // 2]))
    topology = _network(plan.topology, fit_links(plan, first))
    profile = _profile(measured, fit_computations(first))
    return iteration_error(_predicted(plan, measured, topology, profile, simulate), second)


def _only(trace: Trace, numbers: np.ndarray) -> Trace:
    keep = np.isin(trace.iteration, numbers)
    columns = {c: getattr(trace, c)[keep] for c in ("iteration", "replica", "action", "start_s", "end_s")}
    return replace(trace, **columns, after=None)


def _table(plan: Plan, measured: Trace, fits: list[Fit]) -> pd.DataFrame:
    before = {row[:3]: row.seconds for row in measured.context.profile}
    rows: list[dict[str, Any]] = []
    for fit in fits:
        row = {"what": fit.what, "name": fit.name, "count": fit.n, "note": fit.note, "fitted": fit.value.value}
        row |= {"low": fit.value.low, "high": fit.value.high}
        if fit.what == COMPUTE:
            stage, replica, kind = fit.at
            row |= {"of": "stage", "stage": stage, "replica": replica, "kind": kind.value}
            row["drawn"] = before.get(fit.at, np.nan)
        else:
            row |= {"of": "link", "drawn": float(getattr(plan.topology, fit.what)[fit.at])}
        rows.append(row)
    return pd.DataFrame(rows, columns=COLUMNS).astype({"stage": "Int64", "replica": "Int64"})
