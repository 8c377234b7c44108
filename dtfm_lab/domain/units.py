"""Convert between the units that people write and SI units, which all other code uses; format numbers; small helpers
for rows and pairs."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pandas as pd

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

GB = 10**9
GiB = 2**30
TERA = 10**12


Number = TypeVar("Number", float, FloatArray)
Key = TypeVar("Key")
Value = TypeVar("Value")


def from_ms(ms: Number) -> Number:
    """Convert milliseconds to seconds."""
    return ms / 1e3


def to_ms(seconds: Number) -> Number:
    """Convert seconds to milliseconds."""
    return seconds * 1e3


def from_gbps(gigabits_per_s: Number) -> Number:
    """Convert network gigabits (10^9 bits) per second to bytes per second."""
    return gigabits_per_s * 1e9 / 8


def to_gbps(bytes_per_s: Number) -> Number:
    """Convert bytes per second to network gigabits (10^9 bits) per second."""
    return bytes_per_s * 8 / 1e9


MINUTES_FROM_S = 119.95
"""Durations of this many seconds or more are written in minutes, hours or days. Four digits would round them to 120 s
or more."""


def format_s(seconds: float) -> str:
    """Seconds as text: ``3.44 s``, ``12.1 ms``, ``840 µs``, ``1 h 28 min``; rounding noise as ``0 s``."""
    # The difference of equal times is rounding noise.
    if abs(seconds) < 1e-9:
        return "0 s"
    if MINUTES_FROM_S <= abs(seconds) < math.inf:
        return f"{'-' if seconds < 0 else ''}{_format_long(abs(seconds))}"
    if abs(seconds) >= 0.9995:  # from 999.5 ms on, three digits would give 1e+03 ms
        return f"{seconds:.4g} s"
    if abs(seconds) >= 0.9995e-3:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds * 1e6:.3g} µs"


def _format_long(seconds: float) -> str:
    """Two units, as people say it: ``12 min 5 s``, ``1 h 28 min``, ``2 d 3 h``."""
    # Rounded first, or 59 min 59.7 s would read "59 min 60 s".
    n_s, n_min, n_h = (round(seconds / unit_s) for unit_s in (1, 60, 3600))
    if n_s < 3600:
        whole, each, large, small = n_s, 60, "min", "s"
    elif n_min < 24 * 60:
        whole, each, large, small = n_min, 60, "h", "min"
    else:
        whole, each, large, small = n_h, 24, "d", "h"
    return f"{whole // each:,} {large}" + (f" {whole % each} {small}" if whole % each else "")


def format_range(low_s: float, high_s: float) -> str:
    """Format a range of seconds in one unit: ``3.1 to 3.62 s``; empty if its end is infinite."""
    if not high_s < float("inf"):
        return ""
    scale, unit = next(((s, u) for s, u in ((1.0, "s"), (1e3, "ms")) if high_s * s >= 1), (1e6, "µs"))
    low, high = (f"{n:,.0f}" if n >= 99.5 else f"{n:.3g}" for n in (low_s * scale, high_s * scale))
    return f"{high} {unit}" if low == high else f"{low} to {high} {unit}"


def format_gbps(gbps: float) -> str:
    """Format bandwidth in Gbit/s with three digits, or as a whole number from 1,000 on: ``0.52 Gbit/s``, ``3,600
    Gbit/s``."""
    return f"{gbps:.3g} Gbit/s" if gbps < 999.5 else f"{gbps:,.0f} Gbit/s"


def format_bytes(n_bytes: float) -> str:
    """Format bytes: ``31.2 GiB``, ``16 GiB``, ``840 MiB``."""
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if n_bytes >= 1024**power:
            return f"{n_bytes / 1024**power:.1f}".removesuffix(".0") + f" {unit}"
    return f"{n_bytes:.0f} bytes"


def format_share(share: float, digits: int = 1) -> str:
    """Format a fraction as a percentage: ``3.1 %``, or ``3 %`` with no digits."""
    return f"{100 * share:.{digits}f} %"


def signed_share(share: float, digits: int = 1) -> str:
    """Format a difference as a percentage: ``+1.2 %``, ``−14.6 %``, ``0.0 %``."""
    text = format_share(abs(share), digits)
    if text == format_share(0.0, digits):
        return text
    return f"\N{MINUS SIGN}{text}" if share < 0 else f"+{text}"


TIMES = 10
"""Factors from this one on are shown without decimals."""
FAR_TIMES = 100
"""Above this multiple of its bound, a value is shown as "far above the bound", without the factor. So loose a bound
carries no information."""
LOOSE_TIMES = 1.5
"""Above this multiple of its lower bound, an iteration is shown with the words "the bound is loose". "At most 98 times
faster" would read as a promise, although the bound leaves out what takes the time."""


def format_times(times: float) -> str:
    """Format a factor as ``1.23`` or ``12``, rounded up because it follows the words "at most"."""
    digits = 2 if times < TIMES else 0
    rounded = round(times, digits)
    step = 10.0**-digits
    return f"{rounded if rounded >= times * (1 - 1e-12) else rounded + step:,.{digits}f}"


def counted(n: int, noun: str) -> str:
    """Format a number with its noun: ``1 hop``, ``7 hops``, ``1,024 losses``."""
    return f"{n} {noun}" if n == 1 else f"{n:,} {noun}{'es' if noun.endswith(('ch', 's')) else 's'}"


MOST_COUNTS = 16
"""Up to this many counts are listed one by one."""


def compact_counts(counts: tuple[int, ...]) -> str:
    """Format counts: ``6 2 2 5``; ``4 each`` if all are equal; the smallest and largest if there are many."""
    if len(set(counts)) == 1:
        return f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} each"
    if len(counts) > MOST_COUNTS:
        return f"{min(counts):,} to {max(counts):,}"
    return " ".join(map(str, counts))


CENT = 0.01


def money(dollars: float) -> str:
    """Format dollars: ``$9.55``, ``$234``, ``under $0.01``."""
    few = f"${dollars:,.2f}" if dollars >= CENT or not dollars else f"under ${CENT}"
    return few if dollars < 99.5 else f"${dollars:,.0f}"


def is_of_pandas(kind: str, value: object) -> bool:
    """Return True if a value is a ``DataFrame``, a ``Series`` or another pandas type, without importing pandas."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(value, getattr(pandas, kind))


def plain_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return rows as plain dictionaries, with None for missing values."""
    flat = frame.astype(object)
    return [{str(k): v for k, v in row.items()} for row in flat.where(flat.notna(), None).to_dict("records")]


def in_figures(value: float, digits: int = 3) -> str:
    """Format a number with ``digits`` significant digits: ``0.026``, ``1,235,000``. It has an exponent only below
    0.0001 and from 10^13 on."""
    if value == 0 or not math.isfinite(value):
        return f"{value:.0f}"
    size = math.floor(math.log10(abs(value)))
    if not -5 < size < 13:
        return f"{value:.{digits}g}"
    rounded = round(value, digits - 1 - size)
    text = f"{rounded:,.{max(0, digits - 1 - size)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def by_key(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """Group pairs by key. Values keep their order, and keys the order of first appearance."""
    found: dict[Key, list[Value]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found
