"""Controls as plain values, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ipywidgets as w
import traitlets


def settings(controls: Mapping[str, w.ValueWidget]) -> dict[str, Any]:
    """The value of each control, by name."""
    return {name: control.value for name, control in controls.items()}


def restore(controls: Mapping[str, w.ValueWidget], values: object) -> None:
    """Set what is there; names that no control has, and values that it cannot have, are passed over."""
    if not isinstance(values, Mapping):
        return
    for name, control in controls.items():
        if name in values and _is_possible(control, values[name]):
            try:
                control.value = values[name]
            except (traitlets.TraitError, TypeError, ValueError):
                continue


def _is_possible(control: w.ValueWidget, value: object) -> bool:
    """A bounded number would be moved to its bound in silence."""
    if not isinstance(value, str | int | float) or isinstance(value, bool) != isinstance(control.value, bool):
        return False
    low, high = getattr(control, "min", None), getattr(control, "max", None)
    if low is None or high is None:
        return True
    return isinstance(value, int | float) and low <= value <= high
