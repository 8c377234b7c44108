"""What a person does to a device while it runs, and what became of it."""

from __future__ import annotations

from collections.abc import Callable
from html import escape

import ipywidgets as w

from dtfm_lab.domain.errors import LabError
from dtfm_lab.runtime import telling
from dtfm_lab.runtime.run import Run
from dtfm_lab.widgets import markup

TIMES_SLOWER = 2.0
LINES_SHOWN = 5


class FaultControls:
    """A device and four buttons, enabled while ``watch``'s run goes on; below, what happened."""

    def __init__(self, complain: Callable[[str], None]) -> None:
        self._complain = complain
        self._run: Run | None = None
        self.device = w.Dropdown(
            description="Device", layout=w.Layout(width="240px"), style={"description_width": "52px"}, disabled=True
        )
        self.kill = _button("Kill", "bolt", "End its worker (SIGKILL), as a power cut would")
        self.pause = _button("Pause", "pause", "Let it stand still, as a host that no longer answers")
        self.resume = _button("Resume", "play", "Let it go on, at its own speed")
        self.slow = _button("Slow", "hourglass-half", f"Let it compute {TIMES_SLOWER:g} times slower than it does now")
        self.log = w.HTML()
        self.buttons = (self.kill, self.pause, self.resume, self.slow)
        self.view = w.VBox([self.device, w.HBox(self.buttons), self.log])
        self._slower: dict[str, float] = {}
        for button, disturb in zip(self.buttons, (Run.kill, Run.pause, self._resume, self._slow), strict=True):
            button.on_click(lambda _, disturb=disturb: self._do(disturb))

    def watch(self, run: Run) -> None:
        """From now on the buttons are about this run."""
        self._run = run
        self._slower = {}
        self.log.value = ""
        self._choose_from(list(run.ranks))
        self.show()

    def offer(self, devices: list[str]) -> None:
        """Of a plan, as long as nothing runs."""
        if self._run is None or not self._run.running:
            self._choose_from(devices)

    def show(self) -> None:
        """What happened so far, the newest last; a line that did not change is not sent again."""
        run = self._run
        if run is None:
            return
        for control in (self.device, *self.buttons):
            control.disabled = not run.running
        said = [telling.fault(fault) for fault in run.faults]
        if run.running:
            said += [f"{name} is {state}" for name, state in list(run.conditions.items()) if state != "back"]
        self.log.value = "".join(markup.line(escape(line)) for line in said[-LINES_SHOWN:])

    def _choose_from(self, devices: list[str]) -> None:
        chosen = self.device.value
        self.device.options = devices
        self.device.value = chosen if chosen in devices else devices[0]

    def _do(self, disturb: Callable[[Run, str], None]) -> None:
        if self._run is None:
            return
        try:
            disturb(self._run, self.device.value)
        except LabError as error:
            self._complain(str(error))
        self.show()

    def _slow(self, run: Run, device: str) -> None:
        times = self._slower.get(device, 1.0) * TIMES_SLOWER
        run.slow(device, times)
        self._slower[device] = times

    def _resume(self, run: Run, device: str) -> None:
        run.resume(device)
        if self._slower.pop(device, None) is not None:
            run.slow(device, 1.0)


def _button(name: str, icon: str, tooltip: str) -> w.Button:
    return w.Button(description=name, icon=icon, tooltip=tooltip, layout=w.Layout(width="92px"), disabled=True)
