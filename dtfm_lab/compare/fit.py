"""Fit latencies, bandwidths and compute times to a measured trace, each with an interval."""

from typing import NamedTuple

import numpy as np
import pandas as pd

from dtfm_lab.compare.dependencies import programs_of
from dtfm_lab.compare.errors import FEW_ITERATIONS, Estimate, around, estimate, theil_sen
from dtfm_lab.domain.job import message_bytes
from dtfm_lab.domain.network import LARGEST
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import SENDS, Action, Kind, Lane
from dtfm_lab.domain.trace import Trace
from dtfm_lab.domain.units import FloatArray, IntArray

UNLIKE = 1.2
"""Ratio of a link's largest to its smallest message from which size separates latency from bandwidth."""
TIMED = "drawn by times of several sizes, fitted as latency and bandwidth"
ONE_SIZE = "messages of one size: latency as drawn"
TOO_QUICK = "quicker than the drawn latency: all counted as bandwidth"


class LinkFit(NamedTuple):
    """Fitted latency and bandwidth of one directed link."""

    source: str
    target: str
    messages: int
    latency_s: Estimate
    bandwidth_bytes_per_s: Estimate
    note: str
    """What could not be separated, or was drawn in another way; empty for an ordinary link."""


class ComputeFit(NamedTuple):
    """Fitted seconds of one kind of computation of one stage and replica."""

    stage: int
    replica: int
    kind: Kind
    device: str
    n: int
    seconds: Estimate


class LinkMessages(NamedTuple):
    """The messages of one link. Columns by message."""

    iteration: IntArray
    n_bytes: FloatArray
    lag_s: FloatArray
    """Seconds from the send's start to the first byte received."""
    moving_s: FloatArray
    """Seconds from the first byte received to the last."""


def fit_links(plan: Plan, measured: Trace) -> list[LinkFit]:
    """Fit every link that carried messages.

    On emulated links, first bytes give the latency and the rest the bandwidth. On real ones only the whole time of a
    message is known, its latency plus its bytes over the bandwidth; messages of several sizes separate the two.
    """
    known = measured.context.links != "real"
    best = np.min if measured.context.has_cards else np.median
    fits = []
    for link, messages in _messages(plan, measured).items():
        source, target = link
        i, j = plan.topology.index(source), plan.topology.index(target)
        if known:
            slowness = estimate(messages.moving_s / messages.n_bytes, messages.iteration, np.median)
            latency = _above_zero(estimate(messages.lag_s, messages.iteration, best))
            timed = plan.topology.message_s
            note = "" if timed is None or np.isnan(timed[i, j]).all() else TIMED
        else:
            latency, slowness, note = _separated(messages, float(plan.topology.latency_s[i, j]))
        fits.append(LinkFit(source, target, len(messages.n_bytes), latency, _inverse(slowness), note))
    return fits


def fit_computations(measured: Trace) -> list[ComputeFit]:
    """Fit every kind of computation on every device, by means, since an iteration adds up slow ones too."""
    frame = measured.to_frame()
    frame = frame[frame["lane"] == Lane.COMPUTE.value]
    fits = []
    for key, rows in frame.groupby(["stage", "replica", "kind"], sort=True):
        stage, replica, kind = (str(part) for part in key)
        seconds = (rows["end_s"] - rows["start_s"]).to_numpy()
        each = _above_zero(estimate(seconds, rows["iteration"].to_numpy(), np.mean))
        fits.append(ComputeFit(int(stage), int(replica), Kind(kind), str(rows["device"].iloc[0]), len(rows), each))
    return fits


def _messages(plan: Plan, measured: Trace) -> dict[tuple[str, str], LinkMessages]:
    """By link, the messages of which both ends are in the trace."""
    n_replicas = len(measured.context.devices[0])
    number = {action: i for i, action in enumerate(measured.actions)}
    sent = []
    for (replica, action), n_bytes in _sizes(plan, measured).items():
        there = action.counterpart()
        if n_bytes > 0 and action in number and there in number:
            _, other = action.other_end(replica, n_replicas)
            link = measured.device(action, replica), measured.device(there, other)
            sent.append((*link, n_bytes, replica, number[action], other, number[there]))
    ends = ["replica", "action", "other_replica", "other_action"]
    columns = {"iteration": measured.iteration, "replica": measured.replica, "action": measured.action}
    rows = pd.DataFrame(columns | {"start_s": measured.start_s, "end_s": measured.end_s})
    received = rows.rename(columns={"replica": "other_replica", "action": "other_action"})
    messages = (
        pd.DataFrame(sent, columns=["source", "target", "n_bytes", *ends])
        .merge(rows, on=["replica", "action"])
        .merge(received, on=["iteration", "other_replica", "other_action"], suffixes=("_sent", "_received"))
    )
    messages["lag_s"] = messages["start_s_received"] - messages["start_s_sent"]
    messages["moving_s"] = messages["end_s_received"] - messages["start_s_received"]
    return {
        (str(source), str(target)): LinkMessages(*(of_link[name].to_numpy() for name in LinkMessages._fields))
        for (source, target), of_link in messages.groupby(["source", "target"], sort=False)
    }


def _sizes(plan: Plan, measured: Trace) -> dict[tuple[int, Action], float]:
    """Bytes of every message, by the sending replica and its action."""
    every = measured.context.synchronise_every
    kinds = np.unique((measured.iteration + 1) % every == 0)
    sizes = {}
    for synchronise in kinds.tolist():
        programs = programs_of(measured, synchronise=synchronise)
        for position in range(programs.n_positions):
            for replica in range(programs.n_replicas):
                for step in programs.of(position, replica):
                    if step.action.kind in SENDS:
                        sizes[replica, step.action] = float(message_bytes(plan.job, programs.schedule, step))
    return sizes


def _separated(messages: LinkMessages, drawn_latency_s: float) -> tuple[Estimate, Estimate, str]:
    """(latency, seconds a byte, note) where only the whole time of messages is known."""
    whole_s = messages.lag_s + messages.moving_s
    if messages.n_bytes.max() >= UNLIKE * messages.n_bytes.min():
        return *_by_size(messages, whole_s), ""
    n_bytes = float(messages.n_bytes.mean())
    whole = _above_zero(estimate(whole_s, messages.iteration, np.median))
    fits = drawn_latency_s < whole.value
    latency_s = drawn_latency_s if fits else 0.0
    slowness = Estimate((whole.value - latency_s) / n_bytes, 0.0, whole.high / n_bytes)
    return Estimate(latency_s, 0.0, whole.high), slowness, ONE_SIZE if fits else TOO_QUICK


def _by_size(messages: LinkMessages, whole_s: FloatArray) -> tuple[Estimate, Estimate]:
    """(latency, seconds a byte) of a line through size and seconds, one for each iteration, or for all if few."""
    numbers = np.unique(messages.iteration)
    lines = []
    for number in numbers:
        of_it = messages.iteration == number
        if np.ptp(messages.n_bytes[of_it]) > 0:
            lines.append(_line(messages.n_bytes[of_it], whole_s[of_it]))
    if len(lines) >= FEW_ITERATIONS:
        latency, per_byte = (_above_zero(around(float(each.mean()), each)) for each in np.array(lines).T)
        return latency, per_byte
    latency_s, slowness = _line(messages.n_bytes, whole_s)
    with np.errstate(invalid="ignore"):  # too few different sizes for an interval
        found = theil_sen(messages.n_bytes, whole_s)
    low, high = np.nan_to_num([found.low_slope, found.high_slope], nan=np.inf).tolist()
    low, high = 0.0 if np.isinf(low) else max(0.0, low), max(0.0, high)
    rest_s = [float(np.median(whole_s - each * messages.n_bytes)) for each in (high, low)]
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
