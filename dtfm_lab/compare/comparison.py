"""Compare a prediction with a measurement, row by row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from dtfm_lab.compare.attribution import ACTION
from dtfm_lab.compare.blame import COLUMNS as SUSPECT_COLUMNS
from dtfm_lab.compare.blame import Blame, blame
from dtfm_lab.compare.drift import Drift, drift
from dtfm_lab.compare.errors import (
    ROUNDING,
    format_error,
    iteration_error,
    predicted_by,
    predicted_iteration_s,
)
from dtfm_lab.compare.refit import Refit, refit
from dtfm_lab.domain.errors import TraceError
from dtfm_lab.domain.network import shortened
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import COMPUTE, Kind, Lane
from dtfm_lab.domain.trace import Trace
from dtfm_lab.domain.units import FloatArray, counted, format_range, format_s, plain_rows, signed_share

if TYPE_CHECKING:
    import pandas as pd

LINK_MODEL = "link model"
"""Origin of a measured action's duration: the link model computed it."""
CLOCK = "clock"
"""Origin of a measured action's duration: it was timed."""
SMALL = 0.02
"""An error below this share of the prediction is not explained further if there is no suspect."""
SHOWN = 5
"""Maximum number of suspects in a notebook's output."""
TABLES = ("iterations", "kinds", "stages", "devices", "links")


@dataclass(frozen=True, eq=False)
class Comparison:
    """Every measured action with its prediction, and summaries of the errors.

    Errors are measured minus predicted, in seconds. Relative errors are divided by the prediction.
    """

    predicted: Trace
    measured: Trace
    rows: pd.DataFrame
    """One row per measured action: iteration, replica, stage, device, kind, microbatch, peer, lane and link. start_s,
    end_s and duration_s each have a _predicted, a _measured and an _error column."""

    @property
    def iteration_error(self) -> float:
        """Error of the iteration relative to its prediction: +0.03 means three per cent longer than predicted."""
        return iteration_error(self.predicted, self.measured)

    @property
    def error_s(self) -> float:
        """Seconds by which the iteration is longer than predicted."""
        return self.measured.iteration_s - self.predicted_iteration_s

    @property
    def error_text(self) -> str:
        """The iteration's error in the form that every view uses: ``+43 ms (+9.5 %)``."""
        return format_error(self.error_s, self.predicted_iteration_s)

    @property
    def predicted_iteration_s(self) -> float:
        """Predicted seconds of the iteration that the measured one is compared with: see
        ``errors.predicted_iteration_s``."""
        return predicted_iteration_s(self.predicted, self.measured)

    @cached_property
    def predicted_interval(self) -> tuple[float, float]:
        """The 90 % interval of the prediction in seconds, scaled to ``predicted_iteration_s``. 0 to infinity if no
        spread is known (``Trace.interval``)."""
        low_s, high_s = self.predicted.interval()
        scale = self.predicted_iteration_s / self.predicted.iteration_s if self.predicted.iteration_s > 0 else 1.0
        return low_s * scale, high_s * scale

    @property
    def is_inside(self) -> bool:
        """True if the measured iteration lies in ``predicted_interval``. Also True if no spread is known."""
        low_s, high_s = self.predicted_interval
        return low_s <= self.measured.iteration_s <= high_s

    @property
    def inside_sentence(self) -> str:
        """``Inside the 90 % interval of the modelled prediction, 151 to 170 ms.``; empty if there is no interval."""
        between = format_range(*self.predicted_interval)
        where = "Inside" if self.is_inside else "Outside"
        word = f"{self.predicted.context.basis.word} " if self.predicted.context.basis.word else ""
        return f"{where} the 90 % interval of the {word}prediction, {between}." if between else ""

    @cached_property
    def iterations(self) -> pd.DataFrame:
        """Per iteration: predicted_s, measured_s, error_s, relative_error."""
        import pandas as pd  # takes a while to load

        measured_s = self.measured.iteration_ends_s
        predicted_s: float | FloatArray = self.predicted.iteration_s
        if self.predicted.n_iterations > 1:
            number = predicted_by(self.predicted, self.measured)
            predicted_s = self.predicted.iteration_ends_s[np.searchsorted(np.unique(self.predicted.iteration), number)]
        frame = pd.DataFrame({"predicted_s": predicted_s, "measured_s": measured_s})
        frame.index.name = "iteration"
        return _with_errors(frame)

    @cached_property
    def kinds(self) -> pd.DataFrame:
        """Per kind of action: count, and average predicted and measured seconds of one action.

        ``seconds_by`` says whether actions were timed ("clock") or are messages on emulated links ("link model").
        """
        frame = _mean_durations("kind", self.rows)
        modelled = self.measured.context.links_by_model
        frame["seconds_by"] = [LINK_MODEL if modelled and Kind(kind) not in COMPUTE else CLOCK for kind in frame.index]
        return frame

    @cached_property
    def stages(self) -> pd.DataFrame:
        """Per stage, the seconds of its computations in one iteration: summed over micro-batches, averaged over
        replicas."""
        return self._compute_per(["stage"])

    @cached_property
    def devices(self) -> pd.DataFrame:
        """Per stage and device, the seconds of the stage's computations on that device in one iteration."""
        return self._compute_per(["stage", "device"])

    @cached_property
    def links(self) -> pd.DataFrame:
        """Per directed link: messages per iteration (a fraction if only every H-th synchronises), and average predicted
        and measured seconds from first to last byte. arrival_error_s is the average error of the messages' arrival.

        If seconds_by is "link model", nothing was timed. An emulated link takes what the link model says, so a
        prediction of the same links is exact by construction. On the paced clock, messages may have arrived later.
        """
        import pandas as pd  # takes a while to load

        received = self.rows[self.rows["lane"] == Lane.RECEIVE.value]
        frame = _mean_durations("link", received)
        frame["count"] = pd.to_numeric((frame["count"] / self.measured.n_iterations).round(2), downcast="integer")
        frame["arrival_error_s"] = received.groupby("link")["end_s_error"].mean()
        frame["seconds_by"] = LINK_MODEL if self.measured.context.links_by_model else CLOCK
        return frame

    @cached_property
    def blame(self) -> Blame:
        """The error of an iteration, attributed to links and devices: ``.table``, ``.verdict``.

        Raises TraceError if the measured trace does not contain its schedule, or if its actions are not the schedule's.
        """
        return blame(self.rows, self.measured)

    @property
    def suspects(self) -> pd.DataFrame:
        """The links and devices whose own times explain the iteration's error, worst first, with one sentence each.

        After them come links and devices that are far off but do not change the iteration. Columns as in
        ``Blame.table``. Empty if everything is within noise, or if the error cannot be attributed (``blame_missing``);
        ``verdict`` tells which.
        """
        import pandas as pd  # takes a while to load

        return pd.DataFrame(columns=SUSPECT_COLUMNS) if self.blame_missing else self.blame.suspects

    @property
    def verdict(self) -> str:
        """One sentence on the error of the iteration and its suspects."""
        return self.blame_missing or self.blame.verdict

    @cached_property
    def blame_missing(self) -> str:
        """Why the error cannot be attributed; empty if it can."""
        try:
            _ = self.blame
        except TraceError as error:
            return str(error)
        return ""

    @property
    def error_sentence(self) -> str:
        """``Measured 498 ms, 43 ms longer than predicted (+9.5 %).`` If only a part of the plan ran, it begins with
        that part."""
        part, measured = self.measured.context.part, format_s(self.measured.iteration_s)
        lead = f"{part[0].upper()}{part[1:]}: measured {measured}" if part else f"Measured {measured}"
        of = " for it" if part else ""
        if format_s(abs(self.error_s)) == "0 s" or abs(self.iteration_error) < ROUNDING:
            return f"{lead}, as long as predicted{of}."
        how = "longer" if self.error_s > 0 else "shorter"
        share = signed_share(self.iteration_error)
        return f"{lead}, {format_s(abs(self.error_s))} {how} than predicted{of} ({share})."

    @property
    def headline(self) -> str:
        """The error and its suspect in one or two sentences: ``Measured 498 ms, 43 ms longer than predicted (+9.5 %).
        Suspect: link barbara → katherine: messages take 2.0 times the predicted, 41 ms of an iteration.``"""
        if self.blame_missing:
            return f"{self.error_sentence} No link or device can be suspected: {self.blame_missing}"
        if not len(self.suspects):
            if abs(self.iteration_error) < SMALL or self.predicted_iteration_s <= 0:
                return f"{self.error_sentence} No link and no device stands out."
            larger = "computation" if abs(self.blame.computation_s) > abs(self.blame.messages_s) else "messages"
            return f"{self.error_sentence} Most of it is {larger} everywhere: no link and no device stands out."
        first, n = self.suspects["sentence"].iloc[0], len(self.suspects)
        return f"{self.error_sentence} {'Suspect' if n == 1 else f'{n} suspects, first'}: {first}."

    @cached_property
    def drift(self) -> Drift:
        """Where the iteration departs from its prediction: ``.sentence``, ``.devices``, ``.iterations``."""
        return drift(self.rows, self.iterations, self.predicted_iteration_s)

    def refit(self, plan: Plan, simulate: Callable[..., Trace]) -> Refit:
        """Return the network and the profile that would have predicted the measurement.

        Call ``comparison.refit(plan, lab.simulate)``. Raises TraceError if the measured trace is of another plan, or
        does not contain its schedule.
        """
        return refit(self.measured, self.iteration_error, plan, simulate)

    def summary(self) -> dict[str, Any]:
        """The fields of ``dtfm-lab compare --json``."""
        context = self.measured.context
        return {
            "predicted_iteration_s": self.predicted_iteration_s,
            "measured_iteration_s": self.measured.iteration_s,
            "iteration_error": self.iteration_error,
            "predicted_interval_s": list(self.predicted_interval) if self.inside_sentence else None,
            "basis": self.predicted.context.basis._asdict() if self.predicted.context.basis.word else None,
            "is_inside": self.is_inside if self.inside_sentence else None,
            "clock": context.clock,
            "schedule": context.schedule,
            "rows": len(self.rows),
            "late_messages": context.late_messages,
            "overruns": context.overruns,
            **{table: plain_rows(getattr(self, table).reset_index()) for table in TABLES},
            "suspects": plain_rows(self.suspects),
            "verdict": self.verdict,
            "drift": self.drift.summary(),
        }

    @property
    def sentence(self) -> str:
        """``predicted 160 ms, measured 161 ms (virtual clock, messages by the link model, on CPU): error +1 ms``"""
        return (
            f"predicted {format_s(self.predicted_iteration_s)}, measured {format_s(self.measured.iteration_s)} "
            f"({self.measured.context.provenance}): error {self.error_text}"
        )

    def __repr__(self) -> str:
        return f"<Comparison {self.sentence}>"

    def _repr_html_(self) -> str:
        lines = [self.sentence, self.inside_sentence, self.verdict, *self.suspects["sentence"].head(SHOWN)]
        return f"{''.join(f'<p>{escape(line)}</p>' for line in lines)}{self.kinds.to_html()}"

    def _compute_per(self, by: list[str]) -> pd.DataFrame:
        rows = self.rows[self.rows["lane"] == Lane.COMPUTE.value]
        columns = ["duration_s_predicted", "duration_s_measured"]
        whole = rows.groupby([*by, "replica", "iteration"])[columns].sum().groupby(by).mean()
        return _with_errors(whole.set_axis(["predicted_s", "measured_s"], axis=1))


def compare(predicted: Trace, measured: Trace) -> Comparison:
    """Join two traces by action.

    A single predicted iteration is compared with every measured one. If two were predicted (one that synchronises and
    one that does not), each is compared with the measured iterations of its kind. Otherwise as many iterations must be
    predicted as were measured.

    Raises TraceError if placements, schedules, numbers of micro-batches or iterations do not match, or if an action is
    in only one of the traces. Also raises it for an argument that is not a Trace.
    """
    for what, trace in (("predicted", predicted), ("measured", measured)):
        if not isinstance(trace, Trace):
            raise TraceError(f"{what} is {shortened(trace)}; wanted a Trace")
    if predicted.context.devices != measured.context.devices:
        raise TraceError("the traces are of different placements; wanted two of one plan")
    ours, theirs = predicted.context.schedule, measured.context.schedule
    if ours != theirs:
        raise TraceError(f"predicted ran {ours}, measured {theirs}; wanted two of one schedule")
    if predicted.context.plan.microbatches_per_replica != measured.context.plan.microbatches_per_replica:
        raise TraceError(
            f"predicted ran {predicted.context.plan.microbatches} micro-batches a pipeline, measured "
            f"{measured.context.plan.microbatches}; wanted as many in each pipeline"
        )
    left, right = predicted.to_frame(), measured.to_frame()
    number = np.searchsorted(np.unique(measured.iteration), measured.iteration)
    right["predicted_by"] = predicted_by(predicted, measured)[number]
    left = left[left["iteration"].isin(right["predicted_by"])].rename(columns={"iteration": "predicted_by"})
    # both traces have the same devices and links, so one copy is enough
    left = left.drop(columns=["device", "lane", "link"])
    key = ["predicted_by", *ACTION]
    rows = right.merge(left, on=key, how="outer", suffixes=("_measured", "_predicted"), indicator=True)
    if (stray := rows[rows["_merge"] != "both"]).size:
        first = stray.iloc[0]
        where = {"left_only": "measured", "right_only": "predicted"}[str(first["_merge"])]
        raise TraceError(
            f"{counted(len(stray), 'action')} in one trace only, the first {first['stage']}{first['kind']} in "
            f"the {where} one ({predicted.context.schedule} against {measured.context.schedule}); wanted the same "
            "actions"
        )
    rows = rows.drop(columns=["_merge", "predicted_by"]).sort_values(
        ["iteration", "replica", "start_s_measured"], ignore_index=True
    )
    for which in ("predicted", "measured"):
        rows[f"duration_s_{which}"] = rows[f"end_s_{which}"] - rows[f"start_s_{which}"]
    for what in ("start_s", "end_s", "duration_s"):
        rows[f"{what}_error"] = rows[f"{what}_measured"] - rows[f"{what}_predicted"]
    return Comparison(predicted, measured, rows)


def _mean_durations(by: str, rows: pd.DataFrame) -> pd.DataFrame:
    predicted, measured = "duration_s_predicted", "duration_s_measured"
    means = {"predicted_s": (predicted, "mean"), "measured_s": (measured, "mean")}
    return _with_errors(rows.groupby(by).agg(count=(predicted, "size"), **means))


def _with_errors(frame: pd.DataFrame) -> pd.DataFrame:
    frame["error_s"] = frame["measured_s"] - frame["predicted_s"]
    # what was predicted to take no time has no relative error
    frame["relative_error"] = frame["error_s"] / frame["predicted_s"].where(frame["predicted_s"] > 0)
    return frame
