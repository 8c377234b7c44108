"""A comparison as tables of residuals, measured minus predicted, with intervals. It contains no widget."""

from typing import Any

import numpy as np
import pandas as pd

from dtfm_lab.compare import Comparison
from dtfm_lab.compare.errors import signed_share
from dtfm_lab.compare.intervals import Estimate, estimate
from dtfm_lab.domain.schedule import Kind, Lane
from dtfm_lab.figures.palette import KIND_NAMES
from dtfm_lab.widgets.views.gantt.bars import DRAWN

MOST_ROWS = 200
"""Most rows of a table; those with the largest errors are kept."""
ROUNDING = 1e-9
"""Relative difference of two times that counts as none."""

Table = dict[str, Any]


def tables(comparison: Comparison) -> list[Table]:
    """Return {"key", "name", "noun", "count", "rows"} of links, messages, devices, stages and kinds. Slow.

    Rows have id, label, predicted_s, measured_s, error_s and its 95 % interval over iterations, low_s to high_s (None
    after a single iteration); relative, to the predicted (None where that is 0); and ``selects``, whether a click
    selects something in the network. The largest error comes first.
    """
    rows = comparison.rows
    received, computed = rows[rows["lane"] == Lane.RECEIVE.value], rows[rows["lane"] == Lane.COMPUTE.value]
    whole = computed.groupby(["stage", "device", "replica", "iteration"], as_index=False)[
        ["duration_s_predicted", "duration_s_measured"]
    ].sum()
    by_device = whole.groupby(["device", "iteration"], as_index=False)[
        ["duration_s_predicted", "duration_s_measured"]
    ].sum()
    drawn = rows[rows["kind"].isin([str(kind) for kind in DRAWN])]
    return [
        _table("links", "Arrival, per link", "link", _of(received, "link", "end_s"), _arrow, selects=True),
        _table("messages", "Duration, per link", "link", _of(received, "link", "duration_s"), _arrow, selects=True),
        _table("devices", "Computing, per device", "device", _of(by_device, "device", "duration_s"), str, selects=True),
        _table("stages", "Computing, per stage", "stage", _of(whole, "stage", "duration_s"), _stage, selects=True),
        _table("kinds", "One action, per kind", "kind", _of(drawn, "kind", "duration_s"), _kind, selects=False),
    ]


def relative(row: Table) -> str:
    """Return ``+3.1 %``; empty where 0 was predicted."""
    return "" if row["relative"] is None else signed_share(row["relative"])


def _of(rows: pd.DataFrame, by: str, what: str) -> list[Table]:
    """Return rows with the means of what was predicted and measured, and the error's interval."""
    found = []
    for key, group in rows.groupby(by):
        predicted, measured = (group[f"{what}_{which}"].to_numpy(float) for which in ("predicted", "measured"))
        error = estimate(measured - predicted, group["iteration"].to_numpy(), np.mean)
        measured_s, error_s = float(measured.mean()), float(measured.mean() - predicted.mean())
        has_interval = np.isfinite(error.low) and np.isfinite(error.high)
        if np.abs(predicted - measured).max() <= ROUNDING * abs(measured_s):
            error, error_s = Estimate(0.0, 0.0, 0.0), 0.0
        found.append(
            {
                "id": str(key),
                "predicted_s": float(predicted.mean()),
                "measured_s": measured_s,
                "error_s": error_s,
                "low_s": float(error.low) if has_interval else None,
                "high_s": float(error.high) if has_interval else None,
                "relative": error_s / predicted.mean() if predicted.mean() > 0 else None,
            }
        )
    return sorted(found, key=lambda row: -abs(row["error_s"]))


def _table(key: str, name: str, noun: str, rows: list[Table], label: Any, *, selects: bool) -> Table:
    shown = [row | {"label": label(row["id"]), "selects": selects} for row in rows[:MOST_ROWS]]
    return {"key": key, "name": name, "noun": noun, "count": len(rows), "rows": shown}


def _arrow(link: str) -> str:
    return link.replace("->", "→")


def _stage(stage: str) -> str:
    return f"stage {stage}"


def _kind(kind: str) -> str:
    return KIND_NAMES[Kind(kind)]
