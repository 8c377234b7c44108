"""Shows when devices are online, with one row per device. The user drags, adds and removes arrivals and departures."""

from collections.abc import Callable, Sequence
from typing import Any

import traitlets

from dtfm_lab.domain.units import counted
from dtfm_lab.widgets.views.view import View


class HoursView(View):
    """Displays ``stays`` and reports edits.

    The page sends {"kind": "stays", "stays", "phase": "begin" | "move" | "end"} while the user moves an end of a stay,
    by dragging or with the keyboard. It sends {"kind": "toggle", "device", "time_s"} to let a device leave or arrive at
    a moment, and {"kind": "remove", "stay", "leaves"} to remove a departure or an arrival.
    """

    devices = traitlets.List(traitlets.Unicode()).tag(sync=True)
    stays = traitlets.List(traitlets.List()).tag(sync=True)
    """Each stay as [index into ``devices``, arrival in seconds, departure in seconds], sorted by device and time. The
    departure is ``end_s`` if the device stays to the end."""
    end_s = traitlets.Float(0.0).tag(sync=True)
    in_s = traitlets.Float(3600.0).tag(sync=True)
    """Seconds per ``unit`` of the axis."""
    unit = traitlets.Unicode("h").tag(sync=True)
    room = traitlets.List(traitlets.Int(), [0, 0]).tag(sync=True)
    """Pixels to the left and right of the axis of time."""
    moment_s = traitlets.Float(-1.0).tag(sync=True)
    """The selected second, -1 for none. Set by the page or from Python."""
    said = traitlets.Unicode("").tag(sync=True)
    """What happens at the selected second, in words."""
    chosen = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """Names of the devices that are selected on the network."""

    def __init__(self, edit: Callable[[dict[str, Any]], None] = lambda _: None, **traits: Any) -> None:
        """``edit`` is called with each message that the page sends."""
        self._edit = edit
        super().__init__(**traits)

    def received(self, content: dict[str, Any], buffers: Sequence[Any]) -> None:
        self._edit(content)

    def alt_text(self) -> str:
        return (
            f"{counted(len(self.devices), 'device')} in {self.end_s / self.in_s:.3g} {self.unit}: {len(self.stays)} "
            "stays"
        )
