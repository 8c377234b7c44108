"""Fit latencies, bandwidths and compute times to a measured trace, each with an interval."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from dtfm_lab.compare.dependencies import programs_of
from dtfm_lab.compare.errors import FEW_ITERATIONS, Estimate, around, estimate, theil_sen
from dtfm_lab.domain.job import message_bytes
from dtfm_lab.domain.network import LARGEST
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import SENDS, Kind, Lane
from dtfm_lab.domain.trace import Trace
from dtfm_lab.domain.units import FloatArray, IntArray

COMPUTE = "compute_s"
LINK = " -> "
"""Between the names of a link's two devices."""
UNLIKE = 1.2
"""Ratio of a link's largest to its smallest message from which size separates latency from bandwidth."""
TIMED = "drawn by times of several sizes, fitted as latency and bandwidth"
ONE_SIZE = "messages of one size: latency as drawn"
TOO_QUICK = "quicker than the drawn latency: all counted as bandwidth"


class Fit(NamedTuple):
    """One fitted value, a row of the refit's table."""

    what: str
    """``latency_s``, ``bandwidth_bytes_per_s`` or ``compute_s``."""
    name: str
    """The link, "a -> b", or the device that computes."""
    at: tuple[Any, ...]
    """The link's devices by number, or stage, replica and kind of a computation."""
    value: Estimate
    n: int
    """Number of measurements."""
    note: str = ""
    """What could not be separated, or was drawn in another way; empty for an ordinary link."""


def fit_links(plan: Plan, measured: Trace) -> list[Fit]:
    """Latency and bandwidth of every link that carried messages.

    On emulated links, first bytes give the latency and the rest the bandwidth. On real ones only the whole time of a
    message is known, its latency plus its bytes over the bandwidth; messages of several sizes separate the two.
    """
    known = measured.context.links != "real"
    best = np.min if measured.context.has_cards else np.median
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
            drawn_s = float(plan.topology.latency_s[i, j])
            latency, slowness, note = _separated(n_bytes, iteration, lag_s + moving_s, drawn_s)
        fits.append(Fit("latency_s", str(name), at, latency, len(messages), note))
        fits.append(Fit("bandwidth_bytes_per_s", str(name), at, _inverse(slowness), len(messages), note))
    return fits


def fit_computations(measured: Trace) -> list[Fit]:
    """Seconds of every kind of computation of each stage and replica, by means, since an iteration adds up slow ones
    too."""
    frame = measured.to_frame()
    frame = frame[frame["lane"] == Lane.COMPUTE.value]
    fits = []
    for key, rows in frame.groupby(["stage", "replica", "kind"], sort=True):
        stage, replica, kind = (str(part) for part in key)
        seconds = (rows["end_s"] - rows["start_s"]).to_numpy()
        each = _above_zero(estimate(seconds, rows["iteration"].to_numpy(), np.mean))
        at = int(stage), int(replica), Kind(kind)
        fits.append(Fit(COMPUTE, str(rows["device"].iloc[0]), at, each, len(rows)))
    return fits


def _messages(plan: Plan, measured: Trace) -> pd.DataFrame:
    """A row for each message of which both ends are in the trace: its link with source and target, iteration, n_bytes,
    lag_s from the send's start to the first byte received, and moving_s from there to the last byte."""
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
    """(replicas, actions) bytes of what each sends; 0 for an action that is no send."""
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
    n_bytes: FloatArray, iteration: IntArray, whole_s: FloatArray, drawn_latency_s: float
) -> tuple[Estimate, Estimate, str]:
    """(latency, seconds a byte, note) where only the whole time of messages is known."""
    if n_bytes.max() >= UNLIKE * n_bytes.min():
        return *_by_size(n_bytes, iteration, whole_s), ""
    size = float(n_bytes.mean())
    whole = _above_zero(estimate(whole_s, iteration, np.median))
    fits = drawn_latency_s < whole.value
    latency_s = drawn_latency_s if fits else 0.0
    slowness = Estimate((whole.value - latency_s) / size, 0.0, whole.high / size)
    return Estimate(latency_s, 0.0, whole.high), slowness, ONE_SIZE if fits else TOO_QUICK


def _by_size(n_bytes: FloatArray, iteration: IntArray, whole_s: FloatArray) -> tuple[Estimate, Estimate]:
    """(latency, seconds a byte) of a line through size and seconds, one for each iteration, or for all if few."""
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
    return _above_zero(Estimate(latency_s, *rest_s)), Estimate(slowness, min(low, slowness), max(high, slowness))


def _line(n_bytes: FloatArray, whole_s: FloatArray) -> tuple[float, float]:
    """(latency, seconds a byte) by the medians of Theil and Sen, neither below 0."""
    with np.errstate(invalid="ignore"):
        found = theil_sen(n_bytes, whole_s)
    if found.slope <= 0:
        return max(0.0, float(np.median(whole_s))), 0.0
    latency_s = float(np.median(whole_s - found.slope * n_bytes))
    if latency_s < 0:
        return 0.0, max(0.0, float(np.median(whole_s / n_bytes)))
    return latency_s, float(found.slope)


def _above_zero(found: Estimate) -> Estimate:
    return Estimate(*(max(0.0, each) for each in found))


def _inverse(slowness: Estimate) -> Estimate:
    """Bytes a second from seconds a byte; LARGEST where bytes took no time."""
    value, low, high = (
        1 / each if each > 1 / LARGEST else LARGEST for each in (slowness.value, slowness.high, slowness.low)
    )
    return Estimate(value, 0.0 if np.isinf(slowness.high) else low, np.inf if high >= LARGEST else high)
