"""The values of controls as plain data, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ipywidgets as w
import traitlets


def values_of(controls: Mapping[str, w.ValueWidget]) -> dict[str, Any]:
    """Return the value of each control, by name."""
    return {name: control.value for name, control in controls.items()}


def restore_values(controls: Mapping[str, w.ValueWidget], values: object) -> None:
    """Set each control that has a value; unknown names and impossible values are ignored."""
    if not isinstance(values, Mapping):
        return
    for name, control in controls.items():
        if name in values and _is_possible(control, values[name]):
            try:
                control.value = values[name]
            except (traitlets.TraitError, TypeError, ValueError):
                continue


def _is_possible(control: w.ValueWidget, value: object) -> bool:
    """Whether the value has the control's kind and bounds; a bounded number would silently be moved to its bound."""
    if not isinstance(value, str | int | float) or isinstance(value, bool) != isinstance(control.value, bool):
        return False
    low, high = getattr(control, "min", None), getattr(control, "max", None)
    if low is None or high is None:
        return True
    return isinstance(value, int | float) and low <= value <= high
