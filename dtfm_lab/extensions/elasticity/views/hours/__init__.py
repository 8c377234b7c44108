"""Who is there when: a row for each device, whose comings and goings are dragged, added and removed by hand."""

from collections.abc import Callable, Sequence
from typing import Any

import traitlets

from dtfm_lab.domain.units import counted
from dtfm_lab.widgets.views.view import View


class HoursView(View):
    """Draws ``stays``. The page sends {"kind": "stays", "stays", "phase": "begin" | "move" | "end"} as an end of a stay
    is dragged, {"kind": "toggle", "device", "time_s"} for a device that shall leave, or come, at a moment, and
    {"kind": "remove", "stay", "leaves"} for a departure, or a coming, that shall not be.
    """

    devices = traitlets.List(traitlets.Unicode()).tag(sync=True)
    stays = traitlets.List(traitlets.List()).tag(sync=True)
    """[device, second in which it comes, second in which it leaves] of each stay, by device and time."""
    end_s = traitlets.Float(0.0).tag(sync=True)
    in_s = traitlets.Float(3600.0).tag(sync=True)
    """Seconds of a unit of the axis, ``unit``."""
    unit = traitlets.Unicode("h").tag(sync=True)
    room = traitlets.List(traitlets.Int(), [0, 0]).tag(sync=True)
    """Pixels at the left and the right of the axis of time."""
    moment_s = traitlets.Float(-1.0).tag(sync=True)
    """The second that is looked at; -1 for none. The page sets it, and whoever knows better."""
    said = traitlets.Unicode("").tag(sync=True)
    """What is so at that moment."""
    chosen = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """Names of the devices that are selected elsewhere."""

    def __init__(self, edit: Callable[[dict[str, Any]], None] = lambda _: None, **traits: Any) -> None:
        """``edit`` is called with what the page sends."""
        self._edit = edit
        super().__init__(**traits)

    def received(self, content: dict[str, Any], buffers: Sequence[Any]) -> None:
        self._edit(content)

    def alt_text(self) -> str:
        return (
            f"{counted(len(self.devices), 'device')} in {self.end_s / self.in_s:.3g} {self.unit}: {len(self.stays)} "
            "stays"
        )
