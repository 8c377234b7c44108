"""The row that opens and saves networks: bundled ones, files on the kernel's machine, files on the user's computer."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from dtfm_lab.domain.errors import FileError, LabError
from dtfm_lab.domain.network import Topology
from dtfm_lab.files import load_topology, save_topology, topology_names, topology_suffixes
from dtfm_lab.files.reading import write_bytes
from dtfm_lab.widgets import markup
from dtfm_lab.widgets import quiet as w
from dtfm_lab.widgets.controls import button
from dtfm_lab.widgets.lab_state import Guard, LabState
from dtfm_lab.widgets.network.document_conversion import document_of
from dtfm_lab.widgets.network.drawing import Document
from dtfm_lab.widgets.tasks import begin, has_event_loop

T = TypeVar("T")

BLANK = "(blank canvas)"
NamedBytes = tuple[str, bytes]
"""(name without a folder, content) of a file."""


class NetworkFilesRow:
    """Menu, file name and buttons. ``chosen`` is the entry that the menu shows at the start: the bundled network that
    is drawn, or ``BLANK``.

    ``show`` takes the opened network (None for a blank canvas) and its document (None if it has not been built yet).
    ``show_summary`` takes one line about what was done. ``download`` takes a file's name and text for the page to save.
    """

    def __init__(
        self,
        lab_state: LabState,
        chosen: str,
        *,
        show: Callable[[Topology | None, Document | None], None],
        show_summary: Callable[[str], None],
        download: Callable[[str, str], None],
    ) -> None:
        self._lab_state, self._show, self._show_summary, self.send_to_page = lab_state, show, show_summary, download
        self._report_error = partial(lab_state.report_error, "network")
        self.open_named: Callable[[str], None] = lambda name: self._show(load_topology(name) if name else None, None)
        """Called with the name of the chosen bundled network. Empty for a blank canvas."""
        self._is_naming = Guard()
        self.choose = w.Dropdown(
            options=[BLANK, *topology_names()], value=chosen, description="Network", layout=w.Layout(width="290px")
        )
        self.path = w.Text(
            placeholder="network.yaml", description="File", layout=w.Layout(width="290px"), continuous_update=False
        )
        self.open = button("Open file", "folder-open", "Read this file on the machine where Python runs", "105px")
        self.save = button("Save", "save", "Write this file on the machine where Python runs", "85px")
        what = "Open a file from this computer. You can also drop one on the canvas"
        given = {"accept": ",".join(topology_suffixes()), "multiple": True, "tooltip": what}
        self.upload = w.FileUpload(description="Open a file", layout=w.Layout(width="auto"), **given)
        self.download = button("Download", "download", "Save the network on this computer as a YAML file", "110px")
        self.buttons = [self.open, self.save, self.upload, self.download]
        kernels, readers = w.HBox([self.path, self.open, self.save]), w.HBox([self.upload, self.download])
        here, there = (w.HTML(markup.line(where)) for where in ("On this computer", "Where Python runs"))
        self.view = w.VBox([here, readers, there, kernels])
        self.choose.observe(self._chosen, "value")
        self.open.on_click(lambda _: self._guarded(self._open))
        self.save.on_click(lambda _: self._guarded(self._save))
        self.download.on_click(lambda _: self._guarded(self._send))
        self.upload.observe(self._uploaded, "value")

    def take(self, files: Sequence[NamedBytes]) -> None:
        """Open the network of uploaded or dropped files."""
        self._guarded(lambda: self._open_from(lambda: topology_from_bytes(files), files[0][0]))

    def _chosen(self, change: dict[str, Any]) -> None:
        if change["new"] is not None and not self._is_naming:
            self.open_named("" if change["new"] == BLANK else change["new"])

    def name(self, topology: Topology | None) -> None:
        """Show in the menu which bundled network is drawn. For any other network, the menu shows no name."""
        drawn = BLANK if topology is None else topology.name
        with self._is_naming:
            self.choose.value = drawn if drawn in self.choose.options else None

    def _uploaded(self, change: dict[str, Any]) -> None:
        if change["new"]:
            self.take([(file["name"], bytes(file["content"])) for file in change["new"]])
            self.upload.value = ()

    def _open(self) -> None:
        path = self._path()
        self._open_from(lambda: load_topology(path), path)

    def _open_from(self, read: Callable[[], Topology], name: str) -> None:
        def drawn() -> tuple[Topology, Document]:
            topology = read()
            return topology, document_of(topology)

        def shown(opened: tuple[Topology, Document]) -> None:
            # The network is no bundled one any more.
            self.choose.value = None
            self._show(*opened)

        self._do(drawn, shown, busy=f"reading {name} …")

    def _save(self) -> None:
        path, topology = self._path(), self._drawn("save")
        done = f"saved as {path}"
        self._do(lambda: save_topology(topology, path), lambda _: self._show_summary(done), busy=f"writing {path} …")

    def _send(self) -> None:
        topology = self._drawn("download")
        name = f"{''.join(c if c.isalnum() or c in '-_ ' else '-' for c in topology.name).strip() or 'network'}.yaml"

        def sent(text: str) -> None:
            self.send_to_page(name, text)
            self._show_summary(f"downloaded as {name}")

        self._do(lambda: yaml_of(topology), sent, busy=f"writing {name} …")

    def _path(self) -> str:
        if not self.path.value.strip():
            raise LabError("no file name; wanted one such as network.yaml")
        return str(self.path.value).strip()

    def _drawn(self, what: str) -> Topology:
        if self._lab_state.topology is None:
            raise LabError(f"there is no valid network to {what} yet; wanted at least one device")
        return self._lab_state.topology

    def _do(self, work: Callable[[], T], then: Callable[[T], None], *, busy: str) -> None:
        """Call ``then`` with the result of ``work``. With an event loop, the work runs on a thread.

        Reading a YAML file of a few hundred kilobytes takes a second.
        """

        async def working() -> None:
            try:
                result = await asyncio.to_thread(work)
            except LabError:
                self._show_summary("")
                raise
            finally:
                self._enable(True)
            then(result)

        # In a script there is no loop to come back to.
        if not has_event_loop():
            then(work())
            return
        self._enable(False)
        self._show_summary(busy)
        begin(working(), self._report_error)

    def _enable(self, enabled: bool) -> None:
        for each in self.buttons:
            each.disabled = not enabled

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            self._lab_state.message = ""
            action()
        except LabError as error:
            self._report_error(str(error))


def topology_from_bytes(files: Sequence[NamedBytes]) -> Topology:
    """Return the network of one file, or of two files with matrices. Raises a LabError that names the file."""
    if not files:
        raise FileError("no file was given; wanted one")
    with TemporaryDirectory(prefix="dtfm-") as folder:
        # A page may send names with folders of either system; only the last part is used.
        paths = [Path(folder, Path(name.replace("\\", "/")).name or "unnamed") for name, _ in files]
        try:
            for path, (_, data) in zip(paths, files, strict=True):
                write_bytes(path, data)
            return load_topology(paths[0])
        except LabError as error:
            line = str(error).replace(f"{folder}/", "")
            raise type(error)(line) from None


def yaml_of(topology: Topology) -> str:
    """Return the network as the text of a YAML file."""
    with TemporaryDirectory(prefix="dtfm-") as folder:
        return save_topology(topology, Path(folder, "network.yaml")).read_text(encoding="utf-8")
