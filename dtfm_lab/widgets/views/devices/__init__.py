"""The devices of a run: the condition of each, and a button with a menu to kill, pause or slow one."""

from collections.abc import Callable, Sequence
from typing import Any

import traitlets

from dtfm_lab.domain.units import counted
from dtfm_lab.widgets.views.view import View


class DevicesView(View):
    """Draws a button whose menu has the selected device, the others to choose from, and the possible actions."""

    devices = traitlets.List(traitlets.Dict()).tag(sync=True)
    """{"name", "stage", "stages", "pipeline", "region"} of each device, pipeline by pipeline in the order of stages.

    "stages" is text, because a device may hold several.
    """
    actions = traitlets.List(traitlets.Dict()).tag(sync=True)
    """The entries of the menu, {"do", "name", "says", "done"} each."""
    hint = traitlets.Unicode("").tag(sync=True)
    """The reason to show when no action is possible."""
    running = traitlets.Bool(False).tag(sync=True)
    states = traitlets.Dict().tag(sync=True)
    """{device: {"condition", "said", "busy", "may"}}.

    ``condition`` is empty or one of slow, paused, killed, gone, recovered and lost (not yet replaced). ``said`` is the
    same in words, with seconds. ``busy`` is the share of the last complete iteration spent computing, None before one.
    ``may`` lists the possible actions.
    """
    selected = traitlets.List(traitlets.Unicode()).tag(sync=True)
    title = traitlets.Unicode("Devices").tag(sync=True)
    caption = traitlets.Unicode("").tag(sync=True)

    def __init__(self, act: Callable[[str, str], None] | None = None, **traits: Any) -> None:
        """``act`` is called with a device and the "do" of the action chosen in its menu."""
        super().__init__(**traits)
        self._act = act

    def alt_text(self) -> str:
        if not self.devices:
            return "Devices: no plan yet"
        conditions = [f"{name} {state['said']}" for name, state in self.states.items() if state.get("said")]
        pipelines = len({device["pipeline"] for device in self.devices})
        shape = f"{counted(len(self.devices), 'device')}, {len(self.devices) // pipelines} per pipeline"
        return "; ".join(filter(None, [f"{self.title}: {shape}", self.caption, *conditions]))

    def received(self, content: dict[str, Any], buffers: Sequence[Any]) -> None:
        match content:
            case {"kind": "act", "device": str(device), "do": str(do)} if self._act is not None:
                self._act(device, do)
