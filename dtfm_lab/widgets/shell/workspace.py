"""The whole lab as a file: what is in the lab's state and what every panel is set to, saved and put back."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import os
import tempfile
from collections.abc import Coroutine, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import ipywidgets as w

from dtfm_lab import lab
from dtfm_lab.domain.errors import FileError, LabError
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.trace import Trace
from dtfm_lab.domain.units import format_bytes
from dtfm_lab.files.reading import reason_of, write_bytes
from dtfm_lab.files.workspaces import WorkspaceState, load_workspace, save_workspace
from dtfm_lab.widgets import markup
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.tasks import begin

MOST_DOWNLOADED = 4_000_000
"""bytes that a link on the page may carry; a larger file is on the disk"""
ENDING = ".json"
ENDS_IN_NOUNS = {"plan": "a search", "run": "a run"}
"""steps at work whose end sets a plan or a measurement"""

logger = logging.getLogger(__name__)


def state_of(lab_state: LabState, panels: Mapping[str, Any]) -> WorkspaceState:
    """All that there is, at once and without copying; ``save_workspace`` may take its time on a thread."""
    return WorkspaceState(
        topology=lab_state.topology,
        job=lab_state.job,
        plan=lab_state.plan,
        schedule=lab_state.schedule,
        queueing=lab_state.queueing,
        choices=dict(lab_state.choices),
        predicted=lab_state.predicted,
        measured=lab_state.measured,
        settings={name: dict(panel.settings()) for name, panel in panels.items() if hasattr(panel, "settings")},
    )


def put(state: WorkspaceState, lab_state: LabState, panels: Mapping[str, Any]) -> None:
    """Make it so, all or nothing. Call it on the event loop; what was measured is compared anew, on a thread.

    Raises LabError, and leaves everything as it was, while a search or a run goes on, whose end would mix with what
    is put back; and where something of the state cannot be shown.
    """
    for step, what in ENDS_IN_NOUNS.items():
        if step in lab_state.busy:
            raise LabError(f"{what} is going on; wait for its end or stop it, then restore")
    before = state_of(lab_state, panels)
    try:
        _put(state, lab_state, panels)
    except Exception as error:
        logger.exception("a workspace could not be put back")
        _put(before, lab_state, panels)
        raise LabError(f"cannot be put back, so nothing was changed: {reason_of(error)}") from None


def _put(state: WorkspaceState, lab_state: LabState, panels: Mapping[str, Any]) -> None:
    """First what a panel draws, then the noun that is made of it (to the bit, where that is not what the panel made),
    then what is made of that."""
    lab_state.plan = None  # nobody shall plan the old for the new
    lab_state.predicted = lab_state.measured = lab_state.comparison = lab_state.ran = None
    _restore("network", state, panels)
    if _fingerprint(lab_state.topology) != _fingerprint(state.topology):
        lab_state.topology = state.topology
    _restore("plan", state, panels)
    if lab_state.job != state.job:
        lab_state.job = state.job
    lab_state.plan = state.plan
    for name in panels:
        if name not in ("network", "plan"):
            _restore(name, state, panels)
    lab_state.schedule, lab_state.queueing, lab_state.choices = state.schedule, state.queueing, dict(state.choices)
    lab_state.predicted, lab_state.measured = state.predicted, state.measured
    with contextlib.suppress(LabError):  # choices that the job does not allow
        lab_state.ran = None if state.measured is None else lab_state.chosen_plan
    lab_state.message = ""
    if state.predicted is not None and state.measured is not None:
        begin(
            _compare(lab_state, state.predicted, state.measured), lambda line: lab_state.report_error("compare", line)
        )


async def _compare(lab_state: LabState, predicted: Trace, measured: Trace) -> None:
    with contextlib.suppress(LabError):  # a prediction that was made anew since is of something else
        comparison = await asyncio.to_thread(lab.compare, predicted, measured)
        if lab_state.measured is measured and lab_state.comparison is None:
            lab_state.comparison = comparison


def _fingerprint(topology: Topology | None) -> str:
    return "" if topology is None else topology.fingerprint


def _restore(name: str, state: WorkspaceState, panels: Mapping[str, Any]) -> None:
    restore = getattr(panels.get(name), "restore", None)
    if restore is None or name not in state.settings:
        return
    try:
        restore(dict(state.settings[name]))
    except Exception:  # controls are the least of a workspace: what is wrong with them must not cost the rest
        logger.warning("settings of %s could not be put back", name, exc_info=True)


class Workspace:
    """``view``: a file's name, Save and Restore, a file of one's own to send, and a line on what came of it."""

    def __init__(self, lab_state: LabState, panels: Mapping[str, Any]) -> None:
        self._lab_state, self._panels = lab_state, panels
        self.path = w.Text(
            "lab.json",
            description="File",
            tooltip="Where the whole lab is kept: network, plan, settings, prediction and measurement",
            style={"description_width": "32px"},
            layout=w.Layout(width="230px"),
        )
        self.save = _button("Save", "save", "Write the whole lab into this file")
        self.restore = _button("Restore", "folder-open", "Put back what this file holds")
        self.upload = w.FileUpload(
            accept=ENDING,
            multiple=False,
            description="From my computer",
            tooltip="Put back what a file on your computer holds",
            layout=w.Layout(width="auto"),
        )
        self.status = w.HTML()
        self.view = w.HBox([self.path, self.save, self.restore, self.upload, self.status])
        self.save.on_click(lambda _: self._begin(self._save()))
        self.restore.on_click(lambda _: self._begin(self._load()))
        self.upload.observe(lambda change: self._sent(change["new"]), "value")

    def _sent(self, files: Sequence[Mapping[str, Any]]) -> None:
        if files:
            self._begin(self._take(files[0]))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._allow(False)
        begin(self._alone(work), self._report_error)

    async def _alone(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        finally:
            self._allow(True)

    def _allow(self, allowed: bool) -> None:
        self.save.disabled = self.restore.disabled = self.upload.disabled = not allowed

    async def _save(self) -> None:
        self._tell("saving…")
        path = self._named()
        state = state_of(self._lab_state, self._panels)
        await asyncio.to_thread(save_workspace, state, path)
        link, size = await asyncio.to_thread(_link, path)
        left = "".join(f"; {line}" for line in state.left_out)
        self._tell(f"saved as {path}, {size}{left}", link)

    async def _load(self, path: Path | None = None) -> None:
        """From the file that is named in the row, where none is given."""
        self._tell("reading…")
        path = self._named() if path is None else path
        state = await asyncio.to_thread(load_workspace, path)
        put(state, self._lab_state, self._panels)
        self._tell(f"restored {_what(state)} from {path.name}")

    async def _take(self, file: Mapping[str, Any]) -> None:
        """A file that the page sent, read like any other."""
        name = Path(str(file["name"])).name or "workspace.json"
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, name if name.lower().endswith(ENDING) else f"{name}{ENDING}")
            try:
                await asyncio.to_thread(write_bytes, path, bytes(file["content"]))
                await self._load(path)
            except LabError as error:  # where it lay meanwhile is of no use to anybody
                raise FileError(str(error).replace(f"{folder}{os.sep}", "")) from None
            finally:
                self.upload.value = ()

    def _named(self) -> Path:
        name = self.path.value.strip()
        if not name:
            raise FileError("no file name; wanted one such as lab.json")
        return Path(name if name.lower().endswith(ENDING) else f"{name}{ENDING}")

    def _tell(self, text: str, link: str = "") -> None:
        self.status.value = markup.line(escape(text) + (f" · {link}" if link else ""))

    def _report_error(self, message: str) -> None:
        self.status.value = markup.line(escape(message), "warning")


def _what(state: WorkspaceState) -> str:
    parts = [state.topology.name if state.topology is not None else "a blank canvas"]
    parts += ["its plan"] if state.plan is not None else []
    parts += ["what was measured"] if state.measured is not None else []
    return ", ".join(parts)


def _link(path: Path) -> tuple[str, str]:
    """A download of the file as it is on the disk, where it is not too large; and its size."""
    data = path.read_bytes()
    size = format_bytes(len(data))
    if len(data) > MOST_DOWNLOADED:
        return "", size
    packed = base64.b64encode(data).decode("ascii")
    name = escape(path.name, quote=True)
    return f'<a class="dtfm-download" download="{name}" href="data:application/json;base64,{packed}">download</a>', size


def _button(text: str, icon: str, tooltip: str) -> w.Button:
    return w.Button(description=text, icon=icon, tooltip=tooltip, layout=w.Layout(width="105px"))
