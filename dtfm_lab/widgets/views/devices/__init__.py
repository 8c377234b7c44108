"""The devices of a run: what each does now, and a button with a menu to kill, pause or slow one."""

import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import traitlets

from dtfm_lab.figures.palette import GREEN, GREY, LINE_GREY, ORANGE, VERMILLION, stage_color
from dtfm_lab.figures.theme import count, literal
from dtfm_lab.widgets.views.view import Figure, View

State = dict[str, Any]
EDGES = {"killed": VERMILLION, "lost": VERMILLION, "paused": GREY, "slow": ORANGE, "recovered": GREEN}
"""Colours around the tiles of devices that were disturbed."""
LETTERS = 17
"""Letters of a line of a tile in the still picture."""


class DevicesView(View):
    """Draws a button whose menu has the selected device, the others to choose from, and what can be done to it.

    States are sent as messages, of changed devices only; a page that opens late sends ``hello`` and is sent all.
    """

    devices = traitlets.List(traitlets.Dict()).tag(sync=True)
    """One {"name", "stage", "stages", "pipeline", "region"} a device, pipeline by pipeline in the order of stages.
    "stages" is text, for a device that holds several."""
    actions = traitlets.List(traitlets.Dict()).tag(sync=True)
    """The entries of the menu, {"do", "name", "says", "done"} each."""
    hint = traitlets.Unicode("").tag(sync=True)
    """Why no action is possible, where none is."""
    running = traitlets.Bool(False).tag(sync=True)
    selected = traitlets.List(traitlets.Unicode()).tag(sync=True)
    title = traitlets.Unicode("Devices").tag(sync=True)
    caption = traitlets.Unicode("").tag(sync=True)

    def __init__(self, act: Callable[[str, str], None] | None = None, **traits: Any) -> None:
        """``act`` is called with a device and the "do" of what was chosen in its menu."""
        super().__init__(**traits)
        self._act = act
        self.states: dict[str, State] = {}
        """By device: condition, said, does, waits_for, iteration, busy and may, as in ``DeviceActivity``."""

    def show(self, states: Mapping[str, State]) -> None:
        """Set the states of devices; only those that changed are sent."""
        changed = {name: state for name, state in states.items() if self.states.get(name) != state}
        if changed:
            self.states |= changed
            self.send({"kind": "states", "states": changed})

    def forget(self) -> None:
        """Remove all states, as before any run."""
        self.states = {}
        self._send_all()

    def figure(self) -> Figure | None:
        if not self.devices:
            return None
        rows = list(dict.fromkeys(device["pipeline"] for device in self.devices))
        columns = len(self.devices) // len(rows)
        shapes, texts = [], []
        n_stages = 1 + max(device["stage"] for device in self.devices)
        for at, device in enumerate(self.devices):
            y, x = divmod(at, columns)
            state = self.states.get(device["name"], {})
            edge = EDGES.get(state.get("condition", ""), LINE_GREY)
            tile = {"type": "rect", "x0": x - 0.46, "x1": x + 0.46, "y0": y - 0.44, "y1": y + 0.44}
            shapes += [
                tile | {"line": {"color": edge, "width": 1.5 if edge != LINE_GREY else 0.6}},
                tile | {"x1": x - 0.42, "fillcolor": stage_color(device["stage"], n_stages), "line": {"width": 0}},
            ]
            if (busy := state.get("busy")) is not None:
                bar = {"x0": x - 0.36, "x1": x - 0.36 + 0.78 * busy, "y0": y + 0.3, "y1": y + 0.35}
                shapes.append(tile | bar | {"fillcolor": LINE_GREY, "line": {"width": 0}})
            lines = (device["name"], state.get("said") or device["region"])
            name, below = (literal(textwrap.shorten(line, LETTERS, placeholder="…")) for line in lines)
            texts.append({"x": x - 0.36, "y": y, "text": f"<b>{name}</b><br>{below}", "xanchor": "left"})
        stages = [f"stage {device['stages']}" for device in self.devices[:columns]]
        names = [f"pipeline {row}" for row in rows]
        plain = {"showgrid": False}
        return {
            "data": [],
            "layout": {
                "title": {"text": literal(self.title)},
                "width": 130 + 150 * columns,
                "height": 100 + 56 * len(rows),
                "margin": {"b": 30, "t": 50},
                "shapes": shapes,
                "annotations": texts,
                "xaxis": {"range": [-0.5, columns - 0.5], "tickvals": [*range(columns)], "ticktext": stages, **plain},
                "yaxis": {
                    "range": [len(rows) - 0.5, -0.5],
                    "tickvals": [*range(len(rows))],
                    "ticktext": names,
                    **plain,
                },
            },
        }

    def alt_text(self) -> str:
        if not self.devices:
            return "Devices: no plan yet"
        conditions = [f"{name} {state['said']}" for name, state in self.states.items() if state.get("said")]
        pipelines = len({device["pipeline"] for device in self.devices})
        shape = f"{count(len(self.devices), 'device')}, {len(self.devices) // pipelines} a pipeline"
        return "; ".join(filter(None, [f"{self.title}: {shape}", self.caption, *conditions]))

    def _send_all(self) -> None:
        self.send({"kind": "states", "all": True, "states": self.states})

    def received(self, content: dict[str, Any], buffers: Sequence[Any]) -> None:
        match content:
            case {"kind": "hello"}:
                self._send_all()
            case {"kind": "act", "device": str(device), "do": str(do)} if self._act is not None:
                self._act(device, do)
