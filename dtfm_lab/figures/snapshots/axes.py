"""Axes of a figure: their ranges, their pixels, their ticks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dtfm_lab.domain.units import FloatArray
from dtfm_lab.figures.snapshots.shapes import GRID, LETTER_PX, SOFT, decoded, numbers, path, text

Part = Mapping[str, Any]
TICK_PX = 90
"""Pixels between ticks of numbers, at least."""


@dataclass
class Axis:
    """One axis of one panel. Its units are numbers, logarithms to base 10, or indices of names."""

    look: Part
    across: bool
    low: float = 0.0
    high: float = 1.0
    start_px: float = 0.0
    end_px: float = 1.0
    names: dict[str, int] = field(default_factory=dict)

    @property
    def is_log(self) -> bool:
        return self.look.get("type") == "log"

    @property
    def is_drawn(self) -> bool:
        return self.look.get("visible", True) is not False

    @property
    def title(self) -> str:
        title = self.look.get("title") or ""
        return str(title if isinstance(title, str) else title.get("text") or "")

    @property
    def unit_px(self) -> float:
        """Pixels of one unit, negative where values grow to the left or downwards."""
        return (self.end_px - self.start_px) / ((self.high - self.low) or 1.0)

    def units(self, values: Any) -> FloatArray:
        found = numbers(values, self.names)
        return np.log10(np.maximum(found, 1e-300)) if self.is_log else found

    def px(self, values: Any) -> FloatArray:
        return self.start_px + (self.units(values) - self.low) * self.unit_px

    def at(self, unit: float) -> float:
        return self.start_px + (unit - self.low) * self.unit_px

    def ticks(self, length_px: float = 0.0) -> list[tuple[float, str]]:
        """Return positions in axis units and their labels, so few that none covers another."""
        low, high = sorted((self.low, self.high))
        length = length_px or abs(self.end_px - self.start_px)
        if self.look.get("tickvals") is not None:
            units = self.units(self.look["tickvals"]).tolist()
            texts = [str(text) for text in decoded(self.look.get("ticktext", [f"{u:g}" for u in units]))]
        elif self.names:
            units, texts = [float(at) for at in self.names.values()], list(self.names)
        elif self.is_log:
            leads = (1, 2, 5) if high - low < 2 else (1,)
            values = [lead * 10.0**power for power in range(math.floor(low), math.ceil(high) + 1) for lead in leads]
            units, texts = [math.log10(value) for value in values], [f"{value:,.10g}" for value in values]
        else:
            step = nice_step((high - low) / max(2.0, length / (TICK_PX if self.across else TICK_PX / 2)))
            step = max(step, 1.0) if self.look.get("tickformat") == "d" else step
            units = [n * step for n in range(math.ceil(low / step), math.floor(high / step + 1e-9) + 1)]
            decimals = max(0, -math.floor(math.log10(step) + 1e-9))
            texts = [f"{unit:,.{decimals}f}{self.look.get('ticksuffix', '')}" for unit in units]
        inside = [(u, t) for u, t in zip(units, texts, strict=False) if low - 1e-9 <= u <= high + 1e-9]
        needed = max((LETTER_PX * len(text) + 10 for _, text in inside), default=1.0) if self.across else 11.0
        return inside[:: max(1, math.ceil(needed * len(inside) / (length + needed)))]

    def drawn(self, other: Axis) -> str:
        """Return grid, labels and title as SVG; ``other`` is the axis perpendicular to this one."""
        a, b = other.start_px, other.end_px
        parts = []
        ticks = [(self.at(unit), label) for unit, label in self.ticks()]
        if self.look.get("showgrid", True) and not self.names:
            parts.append(
                path(
                    "".join(
                        f"M{x:.1f} {a:.0f}V{b:.0f}" if self.across else f"M{a:.0f} {x:.1f}H{b:.0f}" for x, _ in ticks
                    ),
                    GRID,
                    1,
                )
            )
        if self.look.get("showticklabels", True):
            for x, label in ticks:
                place = (x, a + 17, "middle") if self.across else (a - 8, x + 4, "end")
                parts.append(text(place[0], place[1], label, SOFT, size=11, anchor=place[2]))
        middle = (self.start_px + self.end_px) / 2
        if self.title and self.across:
            parts.append(text(middle, a + 36, self.title, anchor="middle"))
        elif self.title:
            turned = text(0, 0, self.title, anchor="middle")
            parts.append(f'<g transform="translate(14 {middle:.0f}) rotate(-90)">{turned}</g>')
        return "".join(parts)


def nice_step(rough: float) -> float:
    """Return ``rough`` rounded up to 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(rough)) if rough > 0 else 1.0
    return power * next(lead for lead in (1, 2, 5, 10) if lead >= rough / power - 1e-9)


def axis_of(key: str, layout: Part, traces: Sequence[Part]) -> Axis:
    """Return the axis with this key of the layout, with the range stated there, or else one that fits its contents."""
    name, letter = key[0] + key[5:], key[0]
    axis = Axis(layout.get(key) or {}, letter == "x")
    mine = [trace for trace in traces if trace.get(f"{letter}axis", letter) == name]
    columns = [decoded(trace[letter]) for trace in mine if trace.get(letter) is not None]
    words = [
        value for column in columns if not isinstance(column, np.ndarray) for value in column if isinstance(value, str)
    ]
    axis.names = {word: at for at, word in enumerate(dict.fromkeys(words))}
    if axis.look.get("range") is not None:
        axis.low, axis.high = map(float, axis.look["range"])
        return axis
    found = [axis.units(column) for column in columns]
    for trace in mine:
        found += _extents(axis, trace, letter)
    for part in (*layout.get("shapes", ()), *layout.get("annotations", ())):
        if part.get(f"{letter}ref", letter) == name:
            found += [axis.units(part[k]) for k in (letter, f"{letter}0", f"{letter}1") if part.get(k) is not None]
    values = np.concatenate([np.ravel(part) for part in found]) if found else np.zeros(0)
    values = values[np.isfinite(values)]
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    tight = any(trace.get("type") in ("bar", "heatmap") for trace in mine)
    margin = 0.0 if tight else 0.06 * (high - low)
    low, high = (low - margin, high + margin) if high > low else (low - 0.5, high + 0.5)
    axis.low, axis.high = (high, low) if axis.look.get("autorange") == "reversed" else (low, high)
    return axis


def _extents(axis: Axis, trace: Part, letter: str) -> Iterator[FloatArray]:
    """Yield values that a bar or a heatmap covers beyond its own."""
    match trace.get("type"):
        case "bar" if axis.across:
            base = numbers(trace.get("base", 0.0))
            yield base
            yield base + numbers(trace[letter])
        case "bar":
            yield from (axis.units(trace[letter]) + side for side in (-0.5, 0.5))
        case "heatmap":
            yield np.array([-0.5, np.shape(decoded(trace["z"]))[int(axis.across)] - 0.5])


def share_scales(axes: Mapping[str, Axis]) -> None:
    """Shorten axes in the picture whose units are tied to those of another, so that both have one scale."""
    for axis in axes.values():
        other = axes.get(str(axis.look.get("scaleanchor", "")))
        if other is None:
            continue
        spans = abs(other.high - other.low), abs(axis.high - axis.low) * float(axis.look.get("scaleratio") or 1.0)
        sides = other.end_px - other.start_px, axis.end_px - axis.start_px
        unit = min(abs(side) / (span or 1.0) for side, span in zip(sides, spans, strict=True))
        for one, span, side in zip((other, axis), spans, sides, strict=True):
            spare = math.copysign((abs(side) - unit * span) / 2, side)
            one.start_px, one.end_px = one.start_px + spare, one.end_px - spare
