"""Numbers that may be given in either of two units: the one people write or SI, told apart by their names."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from dtfm_lab.domain.errors import TopologyError
from dtfm_lab.domain.network.device import as_number, shortened
from dtfm_lab.domain.units import TERA, GiB, from_gbps, from_ms

OTHER_UNIT: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "latency_s": ("latency_ms", from_ms),
    "bandwidth_bytes_per_s": ("bandwidth_gbps", from_gbps),
    "message_s": ("message_ms", from_ms),
    "peak_flop_per_s": ("peak_tflops", lambda tflops: tflops * TERA),
    "memory_bytes": ("memory_gib", lambda gib: gib * GiB),
}
"""Names in SI -> the name in the unit that people write, and the function from that unit to SI."""
LINKS = ("latency_s", "bandwidth_bytes_per_s")


class Given(NamedTuple):
    """A number, or an array of numbers, as it was given."""

    name: str
    """Its name, which holds the unit."""
    value: Any
    in_si: Callable[[Any], Any]
    """Converts the checked value to the SI unit."""


def either(what: str, given: Mapping[str, Any], thing: str = "", wanted: str = "") -> Given:
    """What ``given`` holds under the SI name ``what`` or under the name in the other unit; None counts as not given.

    Raises TopologyError, which begins with ``thing``, where both or neither are given.
    """
    other, convert = OTHER_UNIT[what]
    found = [name for name in (what, other) if given.get(name) is not None]
    begin = f"{thing}: " if thing else ""
    if len(found) == 2:
        raise TopologyError(f"{begin}both {other} and {what} are given; wanted one of them")
    if not found:
        there = f" among {shortened(', '.join(map(str, given)))}" if any(v is not None for v in given.values()) else ""
        raise TopologyError(f"{begin}no {what} and no {other}{there}; wanted {wanted or 'one of them'}")
    return Given(found[0], given[found[0]], _same if found[0] == what else convert)


def fields_in_si(fields: Mapping[str, Any], known: Mapping[str, Any], thing: str = "") -> dict[str, Any]:
    """The fields of devices that are among ``known``, in SI; what is no number stays, for Device to refuse."""
    kept = {name: value for name, value in fields.items() if name in known}
    for what, (other, convert) in OTHER_UNIT.items():
        if what in known and other in fields:
            value = either(what, fields, thing, f"a number for {other}").value
            column = [_converted(each, convert) for each in value] if is_column(value) else None
            kept[what] = _converted(value, convert) if column is None else column
    return kept


def is_column(value: object) -> bool:
    """Whether a value is a list of values, one for each device."""
    return isinstance(value, list | tuple | np.ndarray | pd.Series)


def changes_in_si(given: Mapping[str, Any], thing: str) -> dict[str, Any]:
    """The latency_s and bandwidth_bytes_per_s of a link that may be given in either unit; None where not given."""
    changes: dict[str, Any] = dict.fromkeys(LINKS)
    for what in LINKS:
        if given.get(what) is not None or given.get(OTHER_UNIT[what][0]) is not None:
            found = either(what, given, thing)
            changes[what] = found.in_si(found.value)
    return changes


def _converted(value: Any, convert: Callable[[Any], Any]) -> Any:
    return value if (number := as_number(value)) is None else convert(number)


def _same(value: Any) -> Any:
    return value
