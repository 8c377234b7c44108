"""The rows of a Gantt chart: one for each lane of each device, first stage on top."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dtfm_lab.domain.schedule import ACROSS_STAGES, LANE, Action, Kind, Lane
from dtfm_lab.figures.theme import literal

LANE_PX = {Lane.COMPUTE: 24, Lane.SEND: 18, Lane.RECEIVE: 18}
CROWDED_PX = 11
"""Height of a row where there are many devices."""
MANY_DEVICES = 24
BETWEEN_DEVICES_PX = 4
BETWEEN_STAGES_PX = 12
STAGES_NAMED = 3
"""Most stages of a device that its label lists; of more it has the first and the last."""
FILLED = 0.88
"""Share of a lane's height that bars fill; the rest separates lanes."""


class Strip(NamedTuple):
    """The place of a bar: its middle, in pixels from the top, and its height in pixels."""

    middle: float
    height: float


class Rows:
    """The place of each lane of each device, in pixels from the top."""

    def __init__(
        self,
        devices: tuple[tuple[str, ...], ...],
        lanes: tuple[Lane, ...],
        n_sides: int = 1,
        stages_per_device: int = 1,
        lane_px: float | None = None,
    ) -> None:
        """``lane_px`` is the height of every lane; None chooses heights that are easy to read."""
        self._devices = [[literal(name) for name in group] for group in devices]
        self._stages_per_device = stages_per_device
        self._lanes = lanes
        many = sum(map(len, devices)) > MANY_DEVICES
        crowded_px = CROWDED_PX * (1 + n_sides) / 2
        self._lane_px = {lane: lane_px or (crowded_px if many else LANE_PX[lane]) for lane in lanes}
        self._n_sides = n_sides
        self._top: dict[tuple[int, int, Lane], float] = {}
        between_px = BETWEEN_STAGES_PX if lane_px is None else 0
        at = 0.0
        for position, group in enumerate(devices):
            for replica in range(len(group)):
                for lane in lanes:
                    self._top[position, replica, lane] = at
                    at += self._lane_px[lane]
                at += 0 if many or len(lanes) == 1 else BETWEEN_DEVICES_PX
            at += between_px
        self.height_px = at - between_px

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """The lanes of each device, from top to bottom."""
        return self._lanes

    def strip(self, action: Action, replica: int, side: int) -> Strip:
        """The place of an action's bar. Messages between stages overlap in time with those of the other direction, so
        they take half of their lane: the upper half forward, the lower half backward."""
        middle, height = self._whole(action.stage, replica, action.lane, side)
        top = middle - height / 2
        if action.kind in ACROSS_STAGES:
            height /= 2
            top += 0 if action.kind in (Kind.SEND_F, Kind.RECV_F) else height
        return Strip(top + height / 2, height)

    def named(self, kind: Kind) -> bool:
        """Whether the axis names the device beside the bars of this kind."""
        return self._n_sides == 1 and LANE[kind] is self._lanes[0] is Lane.COMPUTE

    def first(self, stage: int, replica: int, side: int) -> Strip:
        """The place of the topmost lane of the device that holds this stage."""
        return self._whole(stage, replica, self._lanes[0], side)

    def _whole(self, stage: int, replica: int, lane: Lane, side: int) -> Strip:
        height = self._lane_px[lane] * FILLED / self._n_sides
        top = self._top[stage % len(self._devices), replica, lane] + side * height
        return Strip(top + height / 2, height)

    def axis(self) -> dict[str, Any]:
        """The y axis: "stage · device" at the first lane, the other lanes by name and small."""
        places, labels = [], []
        for (position, replica, lane), top in self._top.items():
            places.append(top + self._lane_px[lane] * FILLED / 2)
            name = f"{self._stages(position)} · {self._devices[position][replica]}"
            if lane is not self._lanes[0]:
                name = f'<span style="font-size:9px">{lane.value}</span>'
            elif lane is not Lane.COMPUTE:
                name += f" {lane.value}"
            labels.append(name)
        crowded = min(self._lane_px.values()) < LANE_PX[Lane.SEND]
        return {
            "range": [self.height_px, -2],
            "tickvals": np.array(places, dtype=np.float32),
            "ticktext": labels,
            "tickfont_size": 9 if crowded else 11,
            "showgrid": False,
            "zeroline": False,
        }

    def _stages(self, position: int) -> str:
        """The stages of a device: ``1``, or ``1, 5`` where it holds two, or ``1…13`` where it holds many."""
        n_positions = len(self._devices)
        stages = range(position, n_positions * self._stages_per_device, n_positions)
        return ", ".join(map(str, stages)) if len(stages) <= STAGES_NAMED else f"{stages[0]}…{stages[-1]}"
