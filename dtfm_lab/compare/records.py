"""Convert tables to plain types."""

from __future__ import annotations

from typing import Any

import pandas as pd


def records(frame: pd.DataFrame, *, index: bool = True) -> list[dict[str, Any]]:
    """Rows as plain dictionaries, with None for NaN."""
    flat = (frame.reset_index() if index else frame).astype(object)
    return [{str(k): v for k, v in row.items()} for row in flat.where(flat.notna(), None).to_dict("records")]
