"""Find the links and devices whose own times make an iteration longer or shorter than predicted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dtfm_lab.compare.attribution import Mask, TimedIterations, owners
from dtfm_lab.compare.dependencies import dependencies_of
from dtfm_lab.compare.errors import half_width
from dtfm_lab.domain.trace import Trace
from dtfm_lab.domain.units import FloatArray, format_s, format_share

if TYPE_CHECKING:
    import pandas as pd

NOTABLE = 0.02
"""A link or device that adds or saves at least this share of the iteration is a suspect. Real runs on the virtual clock
differ by as much."""
OFF = 0.25
"""A link or device that hardly changes the iteration is also a suspect if its own times are off by at least this share
of the predicted ones, and by ``NOTABLE`` of the iteration. CPU seconds on a busy machine differ by a tenth."""
ROUNDING = 1e-6
"""Below this share of the iteration, an error counts as none."""
HIDDEN = 0.001
"""A link or device that changes the iteration by less than this share is reported as hidden behind other work."""
COLUMNS = ["of", "name", "longer_s", "low_s", "high_s", "share", "what", "ratio", "own_s", "sentence"]
WHAT = ("duration", "latency", "delay", "both")
PART = 0.2
"""If duration and latency each cause at least this share of an effect, both are named as its reason."""


@dataclass(frozen=True, eq=False)
class Blame:
    """The error of an iteration, attributed to links and devices."""

    table: pd.DataFrame
    """One row per link or device, worst first:

    * of ("link" or "device"; also "nic" if messages queue at NICs), name
    * longer_s: average seconds that it adds to an iteration compared with the prediction; low_s and high_s: the 95 %
      interval; share: longer_s as a fraction of the measured iteration
    * what: the main reason, "duration", "latency", "both", or "delay"; ratio: its measured seconds divided by the
      predicted ones
    * own_s: seconds by which its own actions in an iteration took longer, whether or not others waited for them
    * sentence: the finding in words; named: True for a suspect
    """
    error_s: float
    """Average seconds by which an iteration is longer than predicted."""
    iteration_s: float
    """Average seconds of a measured iteration."""

    @property
    def suspects(self) -> pd.DataFrame:
        """The rows of ``table`` whose ``named`` is True, without that column."""
        return self.table.loc[self.table["named"], COLUMNS].reset_index(drop=True)

    @property
    def computation_s(self) -> float:
        """Seconds of the error that devices cause. Messages cause the rest."""
        return float(self.table.loc[self.table["of"] == "device", "longer_s"].sum())

    @property
    def messages_s(self) -> float:
        """Seconds of the error that links and NICs cause."""
        return self.error_s - self.computation_s

    @property
    def verdict(self) -> str:
        """The error and its suspects in one sentence."""
        if abs(self.error_s) <= ROUNDING * self.iteration_s:
            return "on average an iteration is as long as predicted"
        how = "longer" if self.error_s > 0 else "shorter"
        predicted_s = self.iteration_s - self.error_s  # errors are always given as shares of the prediction
        share = f" ({format_share(abs(self.error_s) / predicted_s)})" if predicted_s > 0 else ""
        error = f"on average an iteration is {format_s(abs(self.error_s))}{share} {how}"
        explaining = self.table[self.table["named"] & (self.table["share"].abs() >= NOTABLE)]
        parts = f"computations make {_signed(self.computation_s)} of it, messages {_signed(self.messages_s)}"
        if not len(explaining):
            return (
                f"{error} than predicted; {parts}, no link and no device alone "
                f"{format_share(NOTABLE, 0)} of the iteration"
            )
        suspects = "one suspect" if len(explaining) == 1 else f"{len(explaining)} suspects"
        return f"{error} than predicted; {parts}; {suspects} {_signed(float(explaining['longer_s'].sum()))}"


def blame(rows: pd.DataFrame, measured: Trace) -> Blame:
    """Attribute the error of ``rows``, which has one row per measured action with its prediction (``Comparison.rows``).

    Raises TraceError if the measured trace does not contain its schedule, or if its actions are not exactly the
    schedule's.
    """
    one_nic = measured.context.has_nics
    names = owners(rows, one_nic=one_nic)
    numbers, every = np.unique(measured.iteration), measured.context.synchronise_every
    shape = 3, len(names), len(numbers)
    longer_s, predicted_s, measured_s = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    together = (numbers + 1) % every == 0
    # Iterations that average have other dependencies than those that do not.
    for synchronise in np.unique(together).tolist():
        which = together == synchronise
        dependencies = dependencies_of(measured, synchronise=synchronise)
        timed = TimedIterations.of(rows, dependencies, numbers[which], names, one_nic=one_nic)
        longer_s[:, :, which] = timed.longer_s(len(names))
        predicted_s[:, :, which] = timed.own_s(timed.predicted, len(names))
        measured_s[:, :, which] = timed.own_s(timed.measured, len(names))
    iterations = _Iterations(measured.iteration_weights, together)
    iteration_s = float(iterations.weight @ measured.iteration_ends_s)
    table = _table(names, iterations, iteration_s, longer_s, predicted_s, measured_s)
    return Blame(table, float(table["longer_s"].sum()), iteration_s)


@dataclass(frozen=True, eq=False)
class _Iterations:
    """Averages over iterations, with intervals."""

    weight: FloatArray
    """(iterations,) weights of the average: see ``TraceColumns.iteration_weights``."""
    together: Mask
    """(iterations,) True if the replicas synchronise in the iteration."""

    def mean(self, seconds: FloatArray) -> FloatArray:
        """Return the weighted average over the last axis."""
        return np.asarray(seconds @ self.weight)

    def half_width(self, seconds: FloatArray) -> FloatArray:
        """Return (groups,) half widths of the intervals around the averages of (groups, iterations).

        They follow from differences between iterations of one kind (``together`` or not). They are infinite if no kind
        has two iterations.
        """
        kinds = [kind for kind in (self.together, ~self.together) if kind.any()]
        freedom = len(self.weight) - len(kinds)
        if freedom < 1:
            return np.full(len(seconds), np.inf)
        rest_s = seconds.copy()
        for kind in kinds:
            rest_s[:, kind] -= seconds[:, kind].mean(axis=1, keepdims=True)
        deviation_s: FloatArray = np.sqrt((rest_s**2).sum(axis=1) / freedom * (self.weight**2).sum())
        return half_width(1.0, freedom) * deviation_s


def _table(
    names: pd.DataFrame,
    iterations: _Iterations,
    iteration_s: float,
    longer_s: FloatArray,
    predicted_s: FloatArray,
    measured_s: FloatArray,
) -> pd.DataFrame:
    """Build ``Blame.table`` from (3, groups, iterations) arrays, whose first axis is duration, latency and delay.

    ``longer_s`` has the seconds by which each group (link, device or NIC) lengthens the iteration. ``predicted_s`` and
    ``measured_s`` have each group's own seconds.
    """
    share_s, share_half_s = iterations.mean(longer_s.sum(axis=0)), iterations.half_width(longer_s.sum(axis=0))
    # delays do not count as own time: they may come from another order of messages
    own = (measured_s - predicted_s)[:2].sum(axis=0)
    own_s, own_half_s = iterations.mean(own), iterations.half_width(own)
    notable_s = NOTABLE * iteration_s
    explains = np.abs(share_s) >= notable_s
    parts, own_parts = np.abs(iterations.mean(longer_s)), np.abs(iterations.mean(measured_s - predicted_s))[:2]
    what = np.where(explains, parts.argmax(axis=0), own_parts.argmax(axis=0))
    what[names["of"] == "nic"] = WHAT.index("delay")
    what[explains & (parts[:2].min(axis=0) >= PART * np.abs(share_s))] = WHAT.index("both")
    pick = what, np.arange(len(names))
    before_s, after_s = (
        np.vstack([mean_s := iterations.mean(seconds), mean_s[:2].sum(axis=0)])[pick]
        for seconds in (predicted_s, measured_s)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(before_s > 0, after_s / before_s, np.nan)
    sure = _beyond(share_s, share_half_s)
    apart = ~explains & (np.abs(own_s) >= notable_s) & _beyond(own_s, own_half_s) & (np.abs(ratio - 1) >= OFF)
    table = names.assign(
        longer_s=share_s,
        low_s=share_s - share_half_s,
        high_s=share_s + share_half_s,
        share=share_s / iteration_s if iteration_s > 0 else 0.0,
        what=[WHAT[w] for w in what],
        ratio=ratio,
        own_s=own_s,
        named=(explains & sure) | apart,
    )
    table["sentence"] = [_sentence(*row) for row in zip(*(table[c] for c in SENTENCE), after_s, strict=True)]
    # the order on a NIC is never a cause: it changes because some message was late
    last = (table["of"] == "nic").to_numpy()
    worst = np.lexsort((-np.abs(own_s), -np.where(apart, 0.0, np.abs(share_s)), last, ~table["named"].to_numpy()))
    return table.iloc[worst].reset_index(drop=True)


def _beyond(seconds: FloatArray, half_s: FloatArray) -> Mask:
    """Return True where seconds differ from 0 by more than the half width of their interval.

    An infinite half width, from too few iterations, counts as 0.
    """
    return np.asarray(np.abs(seconds) > np.where(np.isinf(half_s), 0.0, half_s))


SENTENCE = ["of", "name", "longer_s", "share", "what", "ratio"]


def _sentence(of: str, name: str, longer_s: float, share: float, what: str, ratio: float, after_s: float) -> str:
    """Return a sentence such as ``link ada → bob: messages take 2.0 times the predicted, 0.41 s of an iteration``."""
    many = "messages" if of == "link" else "computations"
    if of == "nic":
        did = "messages come in another order than predicted"
    elif what == "delay":
        did = f"{many} begin later than they could" if longer_s > 0 else f"{many} begin earlier than predicted"
    else:
        subject = "its latency is" if what == "latency" else f"{many} take"
        times = f"{ratio:.1f}" if ratio >= 9.95 or abs(ratio - 1) >= 0.095 else f"{ratio:.2f}"
        did = f"{subject} {times} times the predicted"
        if np.isnan(ratio):
            did = f"{subject} {format_s(after_s)}, predicted none"
    if abs(share) < HIDDEN:
        effect = "hidden behind other work"
    elif longer_s > 0:
        effect = f"{format_s(longer_s)} of an iteration"
    else:
        effect = f"which saves {format_s(-longer_s)} of an iteration"
    return f"{of + ' ' if of != 'nic' else 'NIC of '}{name.replace('->', '→')}: {did}, {effect}"


def _signed(seconds: float) -> str:
    text = format_s(seconds)
    return text if seconds <= 0 or text == "0 s" else f"+{text}"
