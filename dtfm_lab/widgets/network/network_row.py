"""Where networks come from and go to: shipped ones, files on the kernel's machine, files of the page."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import ipywidgets as w

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.network import Topology
from dtfm_lab.files import load_topology, save_topology, topology_names, topology_suffixes
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.network.document_conversion import document_of
from dtfm_lab.widgets.network.drawing import Document
from dtfm_lab.widgets.network.network_files import NamedBytes, topology_from_bytes, yaml_of
from dtfm_lab.widgets.tasks import begin

T = TypeVar("T")

BLANK = "(blank canvas)"
LARGE_BYTES = 60_000
"""of a file: larger ones are read aside, as YAML takes a second for a few hundred kilobytes"""
MANY_DEVICES = 48
"""of a network: larger ones are written aside"""


class NetworkFilesRow:
    """``chosen`` is what is shown already, of the shipped ones.

    ``show`` takes what was opened, None for a blank canvas, and its document, if that is made; ``say`` one line of what
    was done; ``download`` a file's name and text, for the page to save.
    """

    def __init__(
        self,
        lab_state: LabState,
        chosen: str,
        *,
        show: Callable[[Topology | None, Document | None], None],
        say: Callable[[str], None],
        download: Callable[[str, str], None],
    ) -> None:
        self._lab_state, self._show, self._say, self._download = lab_state, show, say, download
        self.choose = w.Dropdown(
            options=[BLANK, *topology_names()], value=chosen, description="Open", layout=w.Layout(width="230px")
        )
        self.path = w.Text(
            placeholder="network.yaml", description="File", layout=w.Layout(width="260px"), continuous_update=False
        )
        self.open = _button("Open", "folder-open", "Read this file, on the kernel's machine")
        self.save = _button("Save", "save", "Write this file, on the kernel's machine")
        self.upload = w.FileUpload(
            accept=",".join(topology_suffixes()),
            multiple=True,
            description="Upload",
            tooltip="Open a file of this computer; or drop one on the canvas",
            layout=w.Layout(width="110px"),
        )
        self.download = _button("Download", "download", "The network as a YAML file, to this computer")
        self.buttons = [self.open, self.save, self.upload, self.download]
        self.view = w.HBox([self.choose, self.path, *self.buttons])
        self.choose.observe(self._chosen, "value")
        self.open.on_click(lambda _: self._guarded(self._open))
        self.save.on_click(lambda _: self._guarded(self._save))
        self.download.on_click(lambda _: self._guarded(self._send))
        self.upload.observe(self._uploaded, "value")

    def take(self, files: Sequence[NamedBytes]) -> None:
        """Open what the page sent."""
        size = sum(len(data) for _, data in files)
        self._guarded(lambda: self._open_from(lambda: topology_from_bytes(files), files[0][0], size))

    def _chosen(self, change: dict[str, Any]) -> None:
        if change["new"] is not None:
            self._show(None if change["new"] == BLANK else load_topology(change["new"]), None)

    def _uploaded(self, change: dict[str, Any]) -> None:
        if change["new"]:
            self.take([(file["name"], bytes(file["content"])) for file in change["new"]])
            self.upload.value = ()

    def _open(self) -> None:
        path = self._path()
        size = 0
        with contextlib.suppress(OSError, ValueError):  # reading it says what is wrong
            size = Path(path).stat().st_size
        self._open_from(lambda: load_topology(path), path, size)

    def _open_from(self, read: Callable[[], Topology], name: str, size: int) -> None:
        def drawn() -> tuple[Topology, Document]:
            topology = read()
            return topology, document_of(topology)

        def shown(opened: tuple[Topology, Document]) -> None:
            self.choose.value = None
            self._show(*opened)

        self._do(drawn, shown, aside=size > LARGE_BYTES, busy=f"reading {name} …")

    def _save(self) -> None:
        path, topology = self._path(), self._drawn("save")
        aside = len(topology) > MANY_DEVICES
        self._do(
            lambda: save_topology(topology, path),
            lambda _: self._say(f"saved as {path}"),
            aside=aside,
            busy=f"writing {path} …",
        )

    def _send(self) -> None:
        topology = self._drawn("download")
        name = f"{''.join(c if c.isalnum() or c in '-_ ' else '-' for c in topology.name).strip() or 'network'}.yaml"

        def sent(text: str) -> None:
            self._download(name, text)
            self._say(f"downloaded as {name}")

        self._do(lambda: yaml_of(topology), sent, aside=len(topology) > MANY_DEVICES, busy=f"writing {name} …")

    def _path(self) -> str:
        if not self.path.value.strip():
            raise LabError("no file name; wanted one such as network.yaml")
        return self.path.value.strip()

    def _drawn(self, what: str) -> Topology:
        if self._lab_state.topology is None:
            raise LabError(f"there is no valid network to {what} yet; wanted at least one device")
        return self._lab_state.topology

    def _do(self, work: Callable[[], T], then: Callable[[T], None], *, aside: bool, busy: str) -> None:
        """``then`` what ``work`` returns, after waiting for it on a thread where that takes long."""
        if not aside or not _on_a_loop():
            then(work())
            return
        self._allow(False)
        self._say(busy)
        begin(self._aside(work, then), self._report_error)

    async def _aside(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        try:
            result = await asyncio.to_thread(work)
        except LabError:
            self._say("")
            raise
        finally:
            self._allow(True)
        then(result)

    def _allow(self, allowed: bool) -> None:
        for button in self.buttons:
            button.disabled = not allowed

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            self._lab_state.message = ""
            action()
        except LabError as error:
            self._report_error(str(error))

    def _report_error(self, line: str) -> None:
        self._lab_state.report_error("network", line)


def _on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _button(text: str, icon: str, tooltip: str) -> w.Button:
    return w.Button(
        description=text, icon=icon, tooltip=tooltip, layout=w.Layout(width="110px" if len(text) > 6 else "85px")
    )
