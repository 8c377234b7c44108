"""Save and restore the whole lab as a file: its state and every panel's settings. Save its plan as a page."""

import asyncio
import contextlib
import logging
import os
import tempfile
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from html import escape
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any

from dtfm_lab import lab
from dtfm_lab.domain.errors import FileError, LabError
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.trace import Trace
from dtfm_lab.domain.units import format_bytes
from dtfm_lab.files.reading import reason_of, write_bytes, write_text
from dtfm_lab.files.workspaces import (
    MARK,
    PICTURE,
    WorkspaceState,
    link_of,
    load_workspace,
    save_workspace,
    state_from_link,
)
from dtfm_lab.simulation import simulate
from dtfm_lab.widgets import markup
from dtfm_lab.widgets import quiet as w
from dtfm_lab.widgets.controls import Panel, button, labelled
from dtfm_lab.widgets.lab_state import LabState, is_profiled, run_staleness, shown_prediction
from dtfm_lab.widgets.shell.still_page import still_page
from dtfm_lab.widgets.shell.still_page.linked import picture_of
from dtfm_lab.widgets.tasks import begin

VIEWER = "lab/open.html"
"""Path on the project's site of the page that shows the plan in a shared link (a URL)."""
MOST_DOWNLOADED = 4_000_000
"""Maximum bytes of a download link on the page. A larger file is only on the disk."""
WIDEST = "440px"
"""Width of the line that reports a result: as wide as the rows above it, so that the menu stays on the screen."""
ENDING = ".json"
BLOCKING_STEPS = {"plan": "a search", "run": "a run"}
"""Steps that set a plan or a measurement when they end. Nothing is restored while one is busy."""
NOUNS = tuple(name for name in WorkspaceState.model_fields if name != "settings")
"""Traits of the lab's state that a workspace keeps."""

logger = logging.getLogger(__name__)


def site_address() -> str:
    """Return the address of the project's site, which the package names if the project has one. Empty otherwise."""
    with contextlib.suppress(PackageNotFoundError):
        named = [url.partition(", ") for url in metadata("dtfm_lab").get_all("Project-URL") or ()]
        return next((address for what, _, address in named if what == "Documentation"), "")
    return ""


def state_of(lab_state: LabState, panels: Mapping[str, Panel]) -> WorkspaceState:
    """Return everything that a workspace keeps, without copying arrays. ``save_workspace`` may then run on a thread."""
    nouns = {name: getattr(lab_state, name) for name in NOUNS} | {"choices": dict(lab_state.choices)}
    return WorkspaceState(**nouns, settings={name: dict(panel.settings()) for name, panel in panels.items()})


def restore_state(state: WorkspaceState, lab_state: LabState, panels: Mapping[str, Panel]) -> None:
    """Put a saved state on the screen, all or nothing. Call it on the event loop.

    The comparison is not saved. It is computed again on a thread.

    Raises LabError, and leaves everything as it was, if a part of the state cannot be shown. It also does so while a
    search or a run is in progress, because its end would overwrite the restored state.
    """
    for step, what in BLOCKING_STEPS.items():
        if step in lab_state.busy:
            raise LabError(f"{what} is in progress; stop it or wait until it ends, then restore")
    # Kept, because a saved state may fail halfway, and half a state is worse than none.
    before = state_of(lab_state, panels)
    try:
        _restore_all(state, lab_state, panels)
    except Exception as error:
        logger.exception("a workspace could not be restored")
        _restore_all(before, lab_state, panels)
        raise LabError(f"cannot be restored, so nothing was changed: {reason_of(error)}") from None


def _restore_all(state: WorkspaceState, lab_state: LabState, panels: Mapping[str, Panel]) -> None:
    """Restore in the order of dependence: network, job, plan, then everything made from the plan.

    A panel's settings are restored before the network, the job or the plan that the panel sets. If the settings lead to
    another one, the saved one replaces it.
    """
    lab_state.plan = None  # else replanning would search for the old plan on the new network
    lab_state.predicted = lab_state.measured = lab_state.comparison = lab_state.ran = None
    _restore_panel("network", state, panels)
    # Setting an equal network would still tell all panels that it is new.
    if _fingerprint(lab_state.topology) != _fingerprint(state.topology):
        lab_state.topology = state.topology
    _restore_panel("plan", state, panels)
    if (
        state.job is not None and lab_state.job != state.job
    ):  # if it was None, it was refused, although the controls hold a valid one
        lab_state.job = state.job
    lab_state.plan = state.plan
    # Panels of results come after the plan, since theirs are made from it.
    for name in panels:
        if name not in ("network", "plan"):
            _restore_panel(name, state, panels)
    lab_state.schedule, lab_state.queueing, lab_state.choices = state.schedule, state.queueing, dict(state.choices)
    lab_state.predicted, lab_state.measured = state.predicted, state.measured
    with contextlib.suppress(LabError):  # choices that the job does not allow
        lab_state.ran = None if state.measured is None else lab_state.chosen_plan
    lab_state.message = ""
    is_empty = state.pane == "compare" and state.measured is None  # a link holds no measurement
    if state.pane.replace("-", "_") in panels:
        lab_state.pane = "run" if is_empty else state.pane
    if state.predicted is not None and state.measured is not None:
        work = _compare(lab_state, state.predicted, state.measured)
        begin(work, lambda line: lab_state.report_error("compare", line))


async def _compare(lab_state: LabState, predicted: Trace, measured: Trace) -> None:
    plan = lab_state.ran
    with contextlib.suppress(LabError):  # the prediction may be newer than the run, and for something else
        if measured.context.part and plan is not None:  # the saved prediction is of the whole plan
            predicted = await asyncio.to_thread(partial(simulate, plan, like=measured))
        comparison = await asyncio.to_thread(lab.compare, predicted, measured)
        if lab_state.measured is measured and lab_state.comparison is None:
            lab_state.comparison = comparison


def _fingerprint(topology: Topology | None) -> str:
    return "" if topology is None else topology.fingerprint


def _restore_panel(name: str, state: WorkspaceState, panels: Mapping[str, Panel]) -> None:
    if name not in panels or name not in state.settings:
        return
    try:
        panels[name].restore(dict(state.settings[name]))
    except Exception:  # controls are not essential: the nouns are restored all the same
        logger.warning("settings of %s could not be restored", name, exc_info=True)


class Workspace:
    """The menu's controls to share and to keep the lab, and a line that reports the result.

    They are Copy link, Save page, two videos, a file name with Save and Restore, and an upload.
    """

    def __init__(
        self,
        lab_state: LabState,
        panels: Mapping[str, Panel],
        send: Callable[[dict[str, str]], None] = lambda _: None,
        site: str | None = None,
    ) -> None:
        """``send`` takes a message that makes the page copy a link, see ``TopBar``. The result goes to ``show_copied``.

        ``site`` is the address of the project's site, whose page opens links. By default, the package's own address.
        """
        self._lab_state, self._panels, self._send = lab_state, panels, send
        self._link, self._has_picture = "", False
        self._viewer = f"{site}{VIEWER}" if (site := site_address() if site is None else site) else ""
        what = "A file for the whole lab: network, plan, settings, prediction, measurement. Or a link to restore"
        self.path = labelled(w.Text, "File", "230px", "32px", "lab.json", tooltip=what)
        self.save = button("Save", "save", "Save the whole lab in this file")
        self.restore = button("Restore", "folder-open", "Restore the lab from this file or link")
        what = "Restore the lab from a file on this computer"
        given = {"accept": ENDING, "multiple": False, "tooltip": what, "layout": w.Layout(width="auto")}
        self.upload = w.FileUpload(description="Restore from this computer", **given)
        self.page = button(
            "Save page", "file-o", "Save the plan as one HTML file to mail: map, chart and player, without Python"
        )
        self.link = button("Copy link", "link", "Copy a link that holds network, job, plan and tab, for dtfm-lab open")
        self.record = button("Record", "video-camera", "Record ten seconds of the shown result as a video file")
        self.record.add_class("dtfm-record")  # the page does it: top_bar/page/record.js
        what = "Train, kill a device, and record the eight seconds around it as a video file"
        self.record_kill = button("Record a kill", "video-camera", what, "auto")
        self.record_kill.add_class("dtfm-record-kill")
        self.status = w.HTML(layout=w.Layout(max_width=WIDEST))
        share, keep = (w.HTML(markup.line(text)) for text in ("Share the plan", "Keep the whole lab"))
        outputs, videos = w.HBox([self.link, self.page]), w.HBox([self.record, self.record_kill])
        files = w.HBox([self.path, self.save, self.restore])
        self.view = w.VBox([share, outputs, videos, keep, files, w.HBox([self.upload]), self.status])
        self.save.on_click(lambda _: self._begin(self._save()))
        self.restore.on_click(lambda _: self._begin(self._load()))
        self.page.on_click(lambda _: self._begin(self._save_page()))
        self.link.on_click(lambda _: self._begin(self._copy_link()))
        self.upload.observe(lambda change: self._uploaded(change["new"]), "value")

    def _uploaded(self, files: Sequence[Mapping[str, Any]]) -> None:
        if files:
            self._begin(self._restore_upload(files[0]))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._enable(False)
        begin(self._run_alone(work), self._report_error)

    async def _run_alone(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        finally:
            self._enable(True)

    def _enable(self, enabled: bool) -> None:
        for each in (self.save, self.restore, self.upload, self.page, self.link):
            each.disabled = not enabled

    async def _save(self) -> None:
        self._report("saving…")
        path = self._path()
        state = state_of(self._lab_state, self._panels)
        await asyncio.to_thread(save_workspace, state, path)
        link, size = await asyncio.to_thread(_link, path, "application/json")
        left = "".join(f"; {line}" for line in state.left_out)
        self._report(f"saved as {path.name} in {path.parent.resolve()}, {size}{left}", link)

    async def _save_page(self) -> None:
        """Write the plan as a page next to the file, with its prediction from FLOP, because its reader has no
        profile."""
        state, path = self._lab_state, self._path().with_suffix(".html")
        if (plan := state.shown_plan) is None:
            raise FileError("no plan yet to make a page of; press Plan first")
        self._report("drawing the page…")
        predicted = None if is_profiled(state) else shown_prediction(state)
        measured = None if run_staleness(state) else state.measured
        await asyncio.to_thread(lambda: write_text(path, still_page(plan, predicted, measured)))
        link, size = await asyncio.to_thread(_link, path, "text/html")
        self._report(f"saved as {path}, {size}: opens in any browser", link)

    async def _copy_link(self) -> None:
        self._report("packing…")
        state, picture = state_of(self._lab_state, self._panels), b""
        if self._viewer and (plan := self._lab_state.shown_plan) is not None:
            predicted = None if is_profiled(self._lab_state) else shown_prediction(self._lab_state)
            picture = await asyncio.to_thread(picture_of, plan, predicted)
        self._link = await asyncio.to_thread(link_of, state, picture)
        self._has_picture = PICTURE in self._link
        self._report("copying…")
        self._send({"kind": "copy", "link": self._link, "address": self._viewer})

    def show_copied(self, done: bool) -> None:
        """Report that the page has copied the link and who can open it, or show it to be copied by hand."""
        if done:
            self._report(f"copied a link of {len(self._link):,} characters. {self._who_can_open()}")
        else:
            whole = escape(f"{self._viewer}{self._link}")
            link = f'<input readonly class="dtfm-share" aria-label="Link" value="{whole}">'
            self._report("the browser does not allow copying. Copy it by hand:", link)

    def _who_can_open(self) -> str:
        if self._viewer and (self._has_picture or self._lab_state.plan is None):
            shows = "the plan and its predicted iteration" if self._has_picture else "the network"
            return f"Anyone can open it in a browser, without login: it shows {shows}"
        if self._viewer:
            return "Anyone can open it in a browser. It shows the plan; the iteration is too long for a link: Save page"
        have = "Anyone who has dtfm_lab can open it: dtfm-lab open LINK"
        return f"{have}. In a browser it asks for the login of your lab. For anyone else, use Save page"

    async def open_link(self, link: str) -> None:
        """Restore the lab that a shared link holds. Raises LabError, in one line, if the link is damaged or the lab
        cannot be restored."""
        state = await asyncio.to_thread(state_from_link, link)
        restore_state(state, self._lab_state, self._panels)
        self._report(f"opened {_contents(state)} from a link")

    async def _load(self, path: Path | None = None) -> None:
        """Restore from a file. None takes the file or the link that is named in the row."""
        self._report("reading…")
        if path is None and MARK in self.path.value:
            return await self.open_link(self.path.value)
        path = self._path() if path is None else path
        state = await asyncio.to_thread(load_workspace, path)
        restore_state(state, self._lab_state, self._panels)
        self._report(f"restored {_contents(state)} from {path.name}")
        return None

    async def _restore_upload(self, file: Mapping[str, Any]) -> None:
        """Restore from a file that the page sent."""
        name = Path(str(file["name"])).name or "workspace.json"
        with tempfile.TemporaryDirectory() as folder:
            # The reader of files goes by the ending, which an upload may lack.
            path = Path(folder, name if name.lower().endswith(ENDING) else f"{name}{ENDING}")
            try:
                await asyncio.to_thread(write_bytes, path, bytes(file["content"]))
                await self._load(path)
            except LabError as error:  # without the name of the temporary folder
                raise FileError(str(error).replace(f"{folder}{os.sep}", "")) from None
            finally:
                # Emptied, so that the same file can be chosen again.
                self.upload.value = ()

    def _path(self) -> Path:
        name = self.path.value.strip()
        if not name:
            raise FileError("no file name; wanted one such as lab.json")
        return Path(name if name.lower().endswith(ENDING) else f"{name}{ENDING}")

    def _report(self, text: str, link: str = "") -> None:
        self.status.value = markup.line(escape(text) + (f" · {link}" if link else ""))

    def _report_error(self, message: str) -> None:
        self.status.value = markup.line(escape(message), "warning")


def _contents(state: WorkspaceState) -> str:
    parts = [state.topology.name if state.topology is not None else "a blank canvas"]
    parts += ["its plan"] if state.plan is not None else []
    parts += ["its measurement"] if state.measured is not None else []
    return ", ".join(parts)


def _link(path: Path, content_type: str) -> tuple[str, str]:
    """Return a download link of the file, and the file's size in words. The link is empty if the file is too large."""
    data = path.read_bytes()
    size = format_bytes(len(data))
    if len(data) > MOST_DOWNLOADED:
        return "", size
    return markup.download("download", path.name, data, content_type), size
