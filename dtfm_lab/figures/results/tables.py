"""Rows of tables, typed for use in figures: pandas' own types allow for more than a column holds."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from dtfm_lab.compare import Comparison


def rows_of(table: pd.DataFrame) -> Iterator[Any]:
    """The rows of a table, each with its columns as attributes."""
    return table.itertuples(index=False)


def row_at(table: pd.DataFrame, label: Any) -> pd.Series:
    """The row with this label."""
    row: pd.Series = table.loc[label]
    return row


def largest(values: pd.Series) -> float:
    """The largest absolute value, without NaN; 0 where there is none."""
    return float(values.abs().max()) if values.notna().any() else 0.0


def what_ran(comparison: Comparison) -> str:
    """Provenance, schedule, job and network of what was measured, for a subtitle."""
    context = comparison.measured.context
    return f"{context.provenance} · {context.schedule} · {context.job} on {context.topology}"
