"""The rows of a Gantt chart: a lane of a device each, first stage on top."""

from __future__ import annotations

from typing import Any, NamedTuple

from dtfm_lab.domain.schedule import SYNCHRONISATION, Action, Kind, Lane
from dtfm_lab.figures.theme import literal

LANE_PX = {Lane.COMPUTE: 24, Lane.SEND: 18, Lane.RECEIVE: 18}
CROWDED_PX = 11
"""a device's computations, where there are many devices"""
MANY_DEVICES = 24
BETWEEN_DEVICES_PX = 4
BETWEEN_STAGES_PX = 12
FILLED = 0.88
"""of a lane's height; the rest keeps lanes apart"""


class Strip(NamedTuple):
    """Where bars go: middle and height, in pixels from the top."""

    middle: float
    height: float


class Rows:
    """Where each lane of each device stands, in pixels from the top."""

    def __init__(self, devices: tuple[tuple[str, ...], ...], lanes: tuple[Lane, ...], n_sides: int = 1) -> None:
        self._devices = [[literal(name) for name in group] for group in devices]
        self._lanes = lanes
        many = sum(map(len, devices)) > MANY_DEVICES
        self._lane_px = {lane: CROWDED_PX * (1 + n_sides) / 2 if many else LANE_PX[lane] for lane in lanes}
        self._n_sides = n_sides
        self._top: dict[tuple[int, int, Lane], float] = {}
        at = 0.0
        for stage, group in enumerate(devices):
            for replica in range(len(group)):
                for lane in lanes:
                    self._top[stage, replica, lane] = at
                    at += self._lane_px[lane]
                at += 0 if many or len(lanes) == 1 else BETWEEN_DEVICES_PX
            at += BETWEEN_STAGES_PX
        self.height_px = at - BETWEEN_STAGES_PX

    def strip(self, action: Action, replica: int, side: int) -> Strip:
        """Of an action's bar. Messages of the pipeline go forward in the upper half of their lane and
        backward in the lower: the two directions overlap in time."""
        top = self._top[action.stage, replica, action.lane]
        height = self._lane_px[action.lane] * FILLED / self._n_sides
        top += side * height
        if action.lane is not Lane.COMPUTE and action.kind not in SYNCHRONISATION:
            height /= 2
            top += 0 if action.kind in (Kind.SEND_F, Kind.RECV_F) else height
        return Strip(top + height / 2, height)

    def axis(self) -> dict[str, Any]:
        """The y axis: "stage · device" at the first lane, the other lanes by name and small."""
        places, labels = [], []
        for (stage, replica, lane), top in self._top.items():
            places.append(top + self._lane_px[lane] * FILLED / 2)
            name = f"{stage} · {self._devices[stage][replica]}"
            if lane is not self._lanes[0]:
                name = f'<span style="font-size:9px">{lane.value}</span>'
            elif lane is not Lane.COMPUTE:
                name += f" {lane.value}"
            labels.append(name)
        crowded = min(self._lane_px.values()) < LANE_PX[Lane.SEND]
        return {
            "range": [self.height_px, -2],
            "tickvals": places,
            "ticktext": labels,
            "tickfont_size": 9 if crowded else 11,
            "showgrid": False,
            "zeroline": False,
        }
