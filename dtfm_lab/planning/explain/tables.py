"""Tables of devices: columns of whole numbers that may be missing, and rows for JSON."""

from typing import Any

import numpy as np
import pandas as pd

from dtfm_lab.domain.units import IntArray


def whole_numbers(numbers: IntArray) -> pd.arrays.IntegerArray:
    """A column of whole numbers, missing where negative, such as the stage of an idle device."""
    return pd.arrays.IntegerArray(numbers.astype(np.int64), numbers < 0)


def plain_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as plain dictionaries, with None for missing values."""
    flat = frame.astype(object)
    return [{str(k): v for k, v in row.items()} for row in flat.where(flat.notna(), None).to_dict("records")]
