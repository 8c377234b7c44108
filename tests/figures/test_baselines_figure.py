"""The figure of placements tells what the table holds."""

from __future__ import annotations

import pandas as pd
import pytest

from dtfm_lab.domain.errors import TraceError
from dtfm_lab.figures.results.alternatives import baselines
from dtfm_lab.figures.theme import alt_text
from dtfm_lab.runtime.client.baselines import COLUMNS

NO_RUN = "job a<b>: its micro-batches, 1 in all, cannot be shared out evenly to 2 of 8 devices or more; wanted another"


@pytest.fixture
def table() -> pd.DataFrame:
    rows = [
        {"placement": "this plan", "predicted_s": 1.9, "measured_s": 2.0, "reason": ""},
        {"placement": "random placement", "predicted_s": 5.0, "measured_s": 5.0, "reason": ""},
        {"placement": "data parallel only", "reason": NO_RUN},
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)


def test_bars_are_the_seconds_and_the_title_compares_with_the_best_other(table: pd.DataFrame) -> None:
    figure = baselines(table)
    bars = {bar.name: list(bar.x) for bar in figure.data}
    assert bars["measured"][:2] == [2.0, 5.0]
    assert bars["predicted"][:2] == [1.9, 5.0]
    assert figure.layout.title.text == "this plan: 2 s an iteration; random placement: 5 s, 2.50 times as long"
    assert "data parallel only not measured" in alt_text(figure)


def test_a_reason_stands_where_a_bar_would_and_no_name_is_markup(table: pd.DataFrame) -> None:
    (annotation,) = baselines(table).layout.annotations
    assert annotation.y == 2
    assert "a&lt;b&gt;" in annotation.text
    assert len(annotation.text) < 110


def test_one_row_and_none(table: pd.DataFrame) -> None:
    assert baselines(table.iloc[:1]).layout.title.text == "this plan: 2 s an iteration"
    assert baselines(table.iloc[2:]).layout.title.text == "data parallel only: not measured"
    with pytest.raises(TraceError, match="has no rows"):
        baselines(table.iloc[:0])
    with pytest.raises(TraceError, match="has no column measured_s; wanted what lab"):
        baselines(table.drop(columns="measured_s"))
