"""The devices that run, a row a pipeline: what each does now, and a menu at each to disturb it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import traitlets

from dtfm_lab.figures.theme import count
from dtfm_lab.widgets.views.devices.snapshot import picture
from dtfm_lab.widgets.views.view import View

State = dict[str, Any]


class DevicesView(View):
    """A tile a device. A click on one selects it and opens its menu; with Shift it is selected as well.

    States stream as messages, of changed devices only; a view that is opened late says hello and is sent all.
    """

    devices = traitlets.List(traitlets.Dict()).tag(sync=True)
    """one {"name", "stage", "stages", "pipeline", "region"} a device, pipeline by pipeline in the order of stages;
    stages in words, where it holds several"""
    actions = traitlets.List(traitlets.Dict()).tag(sync=True)
    """{"do", "name", "says"}: what the menu offers"""
    hint = traitlets.Unicode("").tag(sync=True)
    """what the menu says where nothing can be done"""
    running = traitlets.Bool(False).tag(sync=True)
    selected = traitlets.List(traitlets.Unicode()).tag(sync=True)
    title = traitlets.Unicode("Devices").tag(sync=True)
    caption = traitlets.Unicode("").tag(sync=True)

    def __init__(self, act: Callable[[str, str], None] | None = None, **traits: Any) -> None:
        """``act`` is called with a device and the "do" of what was chosen in its menu."""
        super().__init__(**traits)
        self._act = act
        self.states: dict[str, State] = {}
        """by device: condition, said, does, waits_for, iteration, busy, may, as ``doings.DeviceActivity`` has them"""
        self.on_msg(self._answer)

    def show(self, states: Mapping[str, State]) -> None:
        """Take over states; what did not change is not sent again."""
        changed = {name: state for name, state in states.items() if self.states.get(name) != state}
        if changed:
            self.states |= changed
            self.send({"kind": "states", "states": changed})

    def forget(self) -> None:
        """All devices are as if nothing had ever run."""
        self.states = {}
        self._send_all()

    def picture(self) -> str:
        return picture(self.devices, self.states)

    def words(self) -> str:
        if not self.devices:
            return "Devices: no plan yet"
        told = [f"{name} {state['said']}" for name, state in self.states.items() if state.get("said")]
        pipelines = len({device["pipeline"] for device in self.devices})
        shape = f"{count(len(self.devices), 'device')}, {len(self.devices) // pipelines} a pipeline"
        return "; ".join(filter(None, [f"{self.title}: {shape}", self.caption, *told]))

    def _send_all(self) -> None:
        self.send({"kind": "states", "all": True, "states": self.states})

    def _answer(self, _widget: object, content: dict[str, Any], _buffers: object) -> None:
        match content:
            case {"kind": "hello"}:
                self._send_all()
            case {"kind": "act", "device": str(device), "do": str(do)} if self._act is not None:
                self._act(device, do)
