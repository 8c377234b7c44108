"""Refit: find the network and the profile that would have predicted the measurement, and show them next to the
specified ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dtfm_lab.compare.dependencies import programs_of
from dtfm_lab.compare.errors import FEW_ITERATIONS, ConfidenceInterval, around, estimate, iteration_error, theil_sen
from dtfm_lab.domain.job import message_bytes
from dtfm_lab.domain.network import LARGEST, Topology
from dtfm_lab.domain.plan import Plan, check_same_plan, cut_subplan
from dtfm_lab.domain.schedule import SENDS, Kind, Lane
from dtfm_lab.domain.trace import ComputeTime, RunContext, Trace
from dtfm_lab.domain.units import FloatArray, IntArray, format_s, plain_rows, signed_share, to_gbps

if TYPE_CHECKING:
    import pandas as pd

COMPUTE = "compute_s"
UNLIKE = 1.2
"""If the largest message of a real link is at least this many times its smallest, latency and bandwidth are fitted
separately."""
TIMED = "drawn by times of several sizes, fitted as latency and bandwidth"
ONE_SIZE = "messages of one size: latency as drawn"
TOO_QUICK = "quicker than the specified latency: all counted as bandwidth"


class FittedValue(NamedTuple):
    """One fitted value, which is one row of the refit's table."""

    what: str
    """``latency_s``, ``bandwidth_bytes_per_s`` or ``compute_s``."""
    name: str
    """The link, "a -> b", or the device that computes."""
    at: tuple[Any, ...]
    """The link's two device numbers, or stage, replica and kind of a computation."""
    value: ConfidenceInterval
    n: int
    """Number of measurements."""
    note: str = ""
    """A remark, such as that latency and bandwidth could not be separated; empty for an ordinary link."""


def fit_links(plan: Plan, measured: Trace) -> list[FittedValue]:
    """Return the latency and bandwidth of every link that carried messages.

    On emulated links, first bytes give the latency and the rest the bandwidth. On real links only a message's total
    time is known: its latency plus its bytes over the bandwidth. Messages of several sizes separate the two.
    """
    known = measured.context.links != "real"
    # at a NIC first bytes wait for other messages, and the quickest has waited least
    best = np.min if measured.context.has_nics else np.median
    fits = []
    for name, messages in _messages(plan, measured).groupby("link"):
        i, j = at = tuple(plan.topology.index(messages[end].iloc[0]) for end in ("source", "target"))
        n_bytes, iteration, lag_s, moving_s = (
            messages[column].to_numpy() for column in ("n_bytes", "iteration", "lag_s", "moving_s")
        )
        if known:
            slowness = estimate(moving_s / n_bytes, iteration, np.median)
            latency = _above_zero(estimate(lag_s, iteration, best))
            timed = plan.topology.message_s
            note = "" if timed is None or np.isnan(timed[i, j]).all() else TIMED
        else:
            specified_s = float(plan.topology.latency_s[i, j])
            latency, slowness, note = _separated(n_bytes, iteration, lag_s + moving_s, specified_s)
        fits.append(FittedValue("latency_s", str(name), at, latency, len(messages), note))
        fits.append(FittedValue("bandwidth_bytes_per_s", str(name), at, _inverse(slowness), len(messages), note))
    return fits


def fit_computations(measured: Trace) -> list[FittedValue]:
    """Return the seconds of every kind of computation for each stage and replica.

    Means are used, because slow computations add to an iteration too.
    """
    frame = measured.to_frame()
    frame = frame[frame["lane"] == Lane.COMPUTE.value]
    fits = []
    for key, rows in frame.groupby(["stage", "replica", "kind"], sort=True):
        stage, replica, kind = (str(part) for part in key)
        seconds = (rows["end_s"] - rows["start_s"]).to_numpy()
        each = _above_zero(estimate(seconds, rows["iteration"].to_numpy(), np.mean))
        at = int(stage), int(replica), Kind(kind)
        fits.append(FittedValue(COMPUTE, str(rows["device"].iloc[0]), at, each, len(rows)))
    return fits


def _messages(plan: Plan, measured: Trace) -> pd.DataFrame:
    """Return one row per message whose two ends are in the trace.

    Columns: its link with source and target, iteration, n_bytes, lag_s from the send's start to the first byte
    received, and moving_s from there to the last byte.
    """
    import pandas as pd  # takes a while to load

    sent, received = measured.message_rows()
    first_s, frame = measured.start_s[received], measured.to_frame()
    messages = pd.DataFrame(
        {
            "link": frame["link"].to_numpy()[sent],
            "source": frame["device"].to_numpy()[sent],
            "target": frame["device"].to_numpy()[received],
            "iteration": measured.iteration[sent],
            "n_bytes": _sizes(plan, measured)[measured.replica[sent], measured.action[sent]],
            "lag_s": first_s - measured.start_s[sent],
            "moving_s": measured.end_s[received] - first_s,
        }
    )
    return messages[messages["n_bytes"] > 0]


def _sizes(plan: Plan, measured: Trace) -> FloatArray:
    """Return (replicas, actions) the bytes that each action sends; 0 if it is not a send."""
    number = {action: i for i, action in enumerate(measured.actions)}
    every = measured.context.synchronise_every
    sizes = np.zeros((len(measured.context.devices[0]), len(number)))
    for synchronise in np.unique((measured.iteration + 1) % every == 0).tolist():
        programs = programs_of(measured, synchronise=synchronise)
        for position, replica in np.ndindex(programs.n_positions, programs.n_replicas):
            for step in programs.of(position, replica):
                if step.action.kind in SENDS and step.action in number:
                    sizes[replica, number[step.action]] = message_bytes(plan.job, programs.schedule, step)
    return sizes


def _separated(
    n_bytes: FloatArray, iteration: IntArray, whole_s: FloatArray, specified_latency_s: float
) -> tuple[ConfidenceInterval, ConfidenceInterval, str]:
    """Return (latency, seconds per byte, note) of a link, if only the total time of each message is known."""
    if n_bytes.max() >= UNLIKE * n_bytes.min():
        return *_by_size(n_bytes, iteration, whole_s), ""
    size = float(n_bytes.mean())
    whole = _above_zero(estimate(whole_s, iteration, np.median))
    fits = specified_latency_s < whole.value
    latency_s = specified_latency_s if fits else 0.0
    slowness = ConfidenceInterval((whole.value - latency_s) / size, 0.0, whole.high / size)
    return ConfidenceInterval(latency_s, 0.0, whole.high), slowness, ONE_SIZE if fits else TOO_QUICK


def _by_size(
    n_bytes: FloatArray, iteration: IntArray, whole_s: FloatArray
) -> tuple[ConfidenceInterval, ConfidenceInterval]:
    """Return (latency, seconds per byte) from a straight line through seconds by message size.

    The line is fitted to each iteration separately, or to all iterations together if there are few.
    """
    each_iteration = [iteration == number for number in np.unique(iteration)]
    lines = [_line(n_bytes[of_it], whole_s[of_it]) for of_it in each_iteration if np.ptp(n_bytes[of_it]) > 0]
    if len(lines) >= FEW_ITERATIONS:
        latency, per_byte = (_above_zero(around(float(each.mean()), each)) for each in np.array(lines).T)
        return latency, per_byte
    latency_s, slowness = _line(n_bytes, whole_s)
    with np.errstate(invalid="ignore"):  # too few different sizes for an interval
        found = theil_sen(n_bytes, whole_s)
    low, high = np.nan_to_num([found.low_slope, found.high_slope], nan=np.inf).tolist()
    low, high = 0.0 if np.isinf(low) else max(0.0, low), max(0.0, high)
    rest_s = [float(np.median(whole_s - each * n_bytes)) for each in (high, low)]
    return _above_zero(ConfidenceInterval(latency_s, *rest_s)), ConfidenceInterval(
        slowness, min(low, slowness), max(high, slowness)
    )


def _line(n_bytes: FloatArray, whole_s: FloatArray) -> tuple[float, float]:
    """Return (latency, seconds per byte) of the line of Theil and Sen, neither below 0."""
    with np.errstate(invalid="ignore"):
        found = theil_sen(n_bytes, whole_s)
    # larger messages took no longer, so the bandwidth is unknown
    if found.slope <= 0:
        return max(0.0, float(np.median(whole_s))), 0.0
    latency_s = float(np.median(whole_s - found.slope * n_bytes))
    # a latency below 0 is noise, so all seconds count as bandwidth
    if latency_s < 0:
        return 0.0, max(0.0, float(np.median(whole_s / n_bytes)))
    return latency_s, float(found.slope)


def _above_zero(found: ConfidenceInterval) -> ConfidenceInterval:
    return ConfidenceInterval(*(max(0.0, each) for each in found))


def _inverse(slowness: ConfidenceInterval) -> ConfidenceInterval:
    """Convert seconds per byte to bytes per second; LARGEST if bytes took no time."""
    value, low, high = (
        1 / each if each > 1 / LARGEST else LARGEST for each in (slowness.value, slowness.high, slowness.low)
    )
    return ConfidenceInterval(value, 0.0 if np.isinf(slowness.high) else low, np.inf if high >= LARGEST else high)


SAME = 0.005
"""Two relative errors that differ by less than this count as equally good (``Refit.is_worse``)."""
COLUMNS = ["of", "name", "stage", "replica", "kind", "what", "drawn", "fitted", "low", "high", "count", "note"]
ROUNDING = 1e-6
"""Below this relative difference, two numbers count as equal."""


@dataclass(frozen=True, eq=False)
class Refit:
    """Links and devices as measured, next to the specified ones."""

    table: pd.DataFrame
    """Two rows per link that carried messages, and one per kind of computation of a stage and replica:

    * of ("link" or "stage"), name ("a -> b", or the device); stage, replica and kind of a computation
    * what: ``latency_s``, ``bandwidth_bytes_per_s`` or ``compute_s``
    * drawn (a link's specified value, or a computation's seconds known before the run, NaN if unknown), fitted, and low
      to high, the 95 % confidence interval
    * count of measurements; note, if something could not be separated
    """
    topology: Topology
    """The specified network, with fitted links wherever they carried messages."""
    profile: tuple[ComputeTime, ...]
    measured: RunContext
    """Context of the measured trace."""
    predicted: Trace
    """One iteration simulated on ``topology`` with ``profile``."""
    error_before: float
    """Relative error of the original prediction: see ``Comparison.iteration_error``."""
    error: float
    """Relative error of ``predicted`` on the iterations that it was fitted to."""
    checked_error: float | None
    """Relative error of a fit to the first half of the iterations, tested on the second; None if there are too few."""

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
        """True if the fitted network predicts the iteration worse than the specified one.

        ``checked_error`` decides this if it is known, otherwise ``error``.
        """
        after = self.error if self.checked_error is None else self.checked_error
        return abs(after) > abs(self.error_before) + SAME

    @property
    def off(self) -> pd.DataFrame:
        """The rows whose specified value lies outside the fitted interval, the most different first."""
        specified, fitted, low, high = (self.table[c].to_numpy(float) for c in ("drawn", "fitted", "low", "high"))
        with np.errstate(divide="ignore", invalid="ignore"):
            far = np.nan_to_num(np.abs(np.log(fitted / specified)), nan=0.0)
        rows = np.flatnonzero(((specified < low) | (specified > high)) & (far > ROUNDING))
        return self.table.iloc[rows[np.argsort(-far[rows], kind="stable")]].reset_index(drop=True)

    def summary(self) -> dict[str, Any]:
        """Return the fields as plain types, with None for infinite bounds."""
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
        Relative error of the original prediction.
    plan
        The plan that ran, or the whole plan if only a part of it ran.
    simulate
        As ``simulation.simulate``: (plan, schedule, queueing=, profile=) -> Trace.

    Raises
    ------
    TraceError
        The measured trace is of another plan, or does not contain its schedule.
    """
    # A rehearsal ran only a part of the plan.
    plan = cut_subplan(plan, measured.context.rehearsed)
    check_same_plan(plan, measured.context.plan, "n_microbatches", "microbatch_counts")
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
    """Format one value of the table: ``100 Mbit/s``, ``3.2 ms``, or ``no bound`` for an infinite one."""
    if not np.isfinite(value):
        return "no bound"
    if what != "bandwidth_bytes_per_s":
        return format_s(value)
    gbps = to_gbps(value)
    return f"{gbps:.4g} Gbit/s" if gbps >= 1 else f"{gbps * 1e3:.4g} Mbit/s"


def _network(specified: Topology, fits: list[FittedValue]) -> Topology:
    """Return the network with fitted links where they carried messages. Measured times by size of these links are
    dropped."""
    values: dict[str, Any] = {
        "latency_s": specified.latency_s.copy(),
        "bandwidth_bytes_per_s": specified.bandwidth_bytes_per_s.copy(),
    }
    message_s = None if specified.message_s is None else specified.message_s.copy()
    for fit in fits:
        if fit.what != COMPUTE:
            values[fit.what][fit.at] = fit.value.value
            # Times measured by size would contradict the fitted values.
            if message_s is not None:
                message_s[fit.at] = np.nan
    return replace(specified, **values, message_s=message_s)


def _profile(measured: Trace, fits: list[FittedValue]) -> tuple[ComputeTime, ...]:
    """Return fitted compute times, and the previously known ones for computations that were not measured."""
    known = {row[:3]: row for row in measured.context.profile}
    fitted = {fit.at: ComputeTime._make((*fit.at, fit.value.value)) for fit in fits if fit.what == COMPUTE}
    return tuple((known | fitted).values())


def _predicted(
    plan: Plan, measured: Trace, topology: Topology, profile: tuple[ComputeTime, ...], simulate: Callable[..., Trace]
) -> Trace:
    ran = measured.context
    # the plan keeps its old cost, of the specified network; a simulation does not depend on it
    return simulate(plan.changed(topology=topology), ran.recorded_schedule, queueing=ran.queueing, profile=profile)


def _checked(plan: Plan, measured: Trace, simulate: Callable[..., Trace]) -> float | None:
    numbers, every = np.unique(measured.iteration), measured.context.synchronise_every
    # each half needs an iteration that synchronises
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


def _table(plan: Plan, measured: Trace, fits: list[FittedValue]) -> pd.DataFrame:
    import pandas as pd  # takes a while to load

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
