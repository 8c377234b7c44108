"""The rows of a sweep in words: their settings and their results."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from dtfm_lab.domain.errors import TraceError
from dtfm_lab.domain.units import format_bytes, format_s
from dtfm_lab.figures.theme import literal
from dtfm_lab.planning.sweeps import PLANNED
from dtfm_lab.simulation.variations import OUTCOMES

MOST_VARIED = 3


class Result(NamedTuple):
    """A result of a combination of settings: a column of the table."""

    word: str
    unit: str = ""
    scale: float = 1.0
    more_is_better: bool = False

    @property
    def label(self) -> str:
        """Title of its axis."""
        return f"{self.word} ({self.unit})" if self.unit else self.word


RESULTS = {
    "iteration_s": Result("iteration", "s"),
    "tokens_per_s": Result("tokens per second", more_is_better=True),
    "mfu": Result("model FLOP utilisation", "%", 100, more_is_better=True),
    "pflops": Result("PFLOP/s", more_is_better=True),
    "bubble_share": Result("bubble", "%", 100),
    "peak_memory_bytes": Result("peak memory", "bytes"),
    "over_bytes": Result("memory lacking", "bytes"),
    "peak_activations": Result("activations held at most"),
    "price_per_million_tokens": Result("price of a million tokens"),
    "communication_cost_s": Result("communication cost", "s"),
    "iteration_lower_bound_s": Result("lower bound of the iteration", "s"),
    "plan_devices": Result("devices that serve"),
    "planning_s": Result("search", "s"),
}
NO_SETTING = {*RESULTS, *OUTCOMES, *PLANNED, "error"}
FACTORS = ("bandwidth", "latency")
WORDS = {
    "microbatch": "micro-batch (sequences)",
    "global_batch": "global batch (sequences)",
    "bandwidth": "bandwidth of all links (factor)",
    "latency": "latency of all links (factor)",
    "synchronise_every": "synchronising every (iterations)",
    "efficiency": "efficiency (share of peak)",
    "codec_bytes_per_s": "codec (bytes/s)",
}
UNITS = {"s": (("s", 1.0), ("ms", 1e-3)), "bytes": (("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10))}


def shown(y: str, highest: float) -> Result:
    """A result in the unit that suits its highest value."""
    result = RESULTS[y]
    units = UNITS.get(result.unit, ())
    fitting = next(((unit, size) for unit, size in units if highest >= size), units[-1] if units else None)
    return result if fitting is None else result._replace(unit=fitting[0], scale=1 / fitting[1])


def settings(frame: pd.DataFrame) -> list[str]:
    """Names of the columns that hold settings."""
    return [str(name) for name in frame.columns if name not in NO_SETTING]


def varied(frame: pd.DataFrame) -> list[str]:
    """The settings with more than one value.

    Raises TraceError where there is no row, or where more settings vary than a figure can show.
    """
    if not len(frame):
        raise TraceError("sweep has no rows; wanted at least one")
    found = [name for name in settings(frame) if len(values(frame, name)) > 1]
    if len(found) > MOST_VARIED:
        raise TraceError(
            f"sweep varies {len(found)} settings ({', '.join(found)}); wanted at most {MOST_VARIED} to draw: "
            f"choose rows of one {found[-1]}"
        )
    return found


def values(frame: pd.DataFrame, setting: str) -> list[Any]:
    """The values of a setting: numbers sorted, names in the table's order. None is a value, too."""
    found = list(dict.fromkeys(None if pd.isna(value) else value for value in frame[setting]))
    return sorted(found) if by_number(frame, setting) else found


def by_number(frame: pd.DataFrame, setting: str) -> bool:
    """Whether all values of a setting are numbers."""
    column = frame[setting]
    numeric = pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)
    return bool(numeric and column.notna().all())


def equal(column: pd.Series, value: object) -> pd.Series:
    """Whether each row has this value, None included."""
    return column.isna() if value is None else column == value


def fits(rows: pd.DataFrame) -> list[bool]:
    """Whether each row fits in memory; a row without an answer counts as fitting."""
    return [pd.isna(fit) or bool(fit) for fit in rows["fits"]] if "fits" in rows else [True] * len(rows)


def word(setting: str) -> str:
    """A setting's name for people."""
    return WORDS.get(setting, setting.replace("_", " "))


def value_text(value: Any) -> str:
    """A setting's value for people."""
    if value is None or pd.isna(value):
        return "default"
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def settings_text(row: pd.Series, names: Sequence[str]) -> str:
    """The settings of a row, such as ``schedule zb-h1, bandwidth × 4``."""
    return ", ".join(
        f"{word(name).partition(' (')[0] if name not in FACTORS else f'{name} ×'} {value_text(row[name])}"
        for name in names
    )


def value(y: str, number: float) -> str:
    """A result with its unit."""
    unit = RESULTS[y].unit
    if unit == "s":
        return format_s(number)
    if unit == "bytes":
        return format_bytes(number)
    scaled = number * RESULTS[y].scale
    digits = f"{scaled:,.0f}" if abs(scaled) >= 1000 else f"{scaled:.4g}"
    return f"{digits} {unit}" if unit else digits


def hover(rows: pd.DataFrame) -> list[str]:
    """The settings and results of each combination, a line each."""
    names = settings(rows)
    texts = []
    for _, row in rows.iterrows():
        lines = [f"{literal(word(name))}: {literal(value_text(row[name]))}" for name in names]
        for y, result in RESULTS.items():
            if y in row and not pd.isna(row[y]) and (y != "over_bytes" or row[y]):
                lines.append(f"{result.word}: {value(y, float(row[y]))}")
        texts.append("<br>".join(lines))
    return texts
