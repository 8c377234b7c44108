"""The runs of a sweep that differ in their seed alone, as one row: mean and Student's interval."""

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.network import as_number, shortened
from dtfm_lab.domain.registry import unknown
from dtfm_lab.simulation.sweeps import OUTCOMES

REPEATED = "seed"
"""The setting in which the runs of one row differ."""


def sweep_summary(table: pd.DataFrame, y: str = "iteration_s", *, confidence: float = 0.95) -> pd.DataFrame:
    """One row for each combination of settings but the seed, of the table that ``lab.sweep`` returns.

    Columns: the settings; n, the runs with a result; failed, those without; mean, and low to high, Student's interval
    of the mean with this confidence (missing for a single run); least and most, the extremes of the runs. All in the
    unit of the column ``y``. Runs of one seed are the same number again, so an interval needs several seeds.

    Raises
    ------
    UnknownName
        No such column of results.
    PlanError
        A confidence that is not between 0 and 1.
    """
    share = as_number(confidence)
    if share is None or not 0 < share < 1:
        raise PlanError(f"confidence is {shortened(confidence)}; wanted more than 0 and less than 1")
    settings = [name for name in table.attrs.get("settings", []) if name in table.columns]
    settings = settings or [str(name) for name in table.columns[: list(table.columns).index(OUTCOMES[0])]]
    results = [str(name) for name in table.columns if name not in (*settings, "error")]
    if y not in results:
        raise unknown("result of a sweep", y, results)
    cells = [name for name in settings if name != REPEATED]
    groups = table.groupby(cells, dropna=False, sort=False) if cells else [((), table)]
    rows = []
    for key, rows_of_cell in groups:
        named = dict(zip(cells, key if isinstance(key, tuple) else (key,), strict=True))
        rows.append(named | _interval(rows_of_cell[y].dropna().astype(float).to_numpy(), len(rows_of_cell), share))
    summary = pd.DataFrame(rows, columns=[*cells, "n", "failed", "mean", "low", "high", "least", "most"])
    summary.attrs["settings"] = cells
    return summary


def _interval(values: np.ndarray, n_rows: int, confidence: float) -> dict[str, float]:
    n = len(values)
    row = {"n": n, "failed": n_rows - n} | dict.fromkeys(("mean", "low", "high", "least", "most"), np.nan)
    if not n:
        return row
    mean = float(values.mean())
    row |= {"mean": mean, "least": float(values.min()), "most": float(values.max())}
    if n > 1:
        half = float(stdtrit(n - 1, (1 + confidence) / 2)) * float(values.std(ddof=1)) / np.sqrt(n)
        row |= {"low": mean - half, "high": mean + half}
    return row
