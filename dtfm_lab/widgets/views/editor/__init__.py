"""The topology editor: devices, regions and links drawn by hand."""

from collections.abc import Callable, Sequence
from typing import Any

import traitlets

from dtfm_lab.domain.errors import LabError
from dtfm_lab.widgets.network.document_conversion import document_of, gpus_of
from dtfm_lab.widgets.network.network_row import NamedBytes, topology_from_bytes
from dtfm_lab.widgets.views.view import DocumentView


class TopologyEditor(DocumentView):
    """Draws and edits a topology document on a canvas. A file dropped on it is opened.

    The document is sent as two traits, ``outline`` and ``links``, so that moving a device does not send thousands of
    links again.
    """

    document = traitlets.Dict()
    outline = traitlets.Dict().tag(sync=True, echo_update=False)
    """The document without its links."""
    links = traitlets.List(traitlets.Any()).tag(sync=True, echo_update=False)
    _is_splitting = False

    def __init__(self, *arguments: Any, **traits: Any) -> None:
        super().__init__(*arguments, **traits)
        self.take_files: Callable[[Sequence[NamedBytes]], None] = self._open_files
        """Called with the names and contents of dropped files."""

    def alt_text(self) -> str:
        parts = ("devices", "regions", "links")
        counts = ", ".join(f"{len(self.document[p])} {p[:-1] if len(self.document[p]) == 1 else p}" for p in parts)
        return f"network {self.document.get('name') or 'drawn'}: {counts} of their own"

    def download(self, name: str, text: str) -> None:
        """Make the page save the text as a file."""
        self.send({"kind": "download", "name": name, "text": text})

    @traitlets.observe("document")
    def _split(self, _change: object) -> None:
        """Set ``outline`` and ``links`` to the parts of the document."""
        self._is_splitting = True
        try:
            with self.hold_sync():
                self.outline = {key: value for key, value in self.document.items() if key != "links"}
                self.links = self.document.get("links", [])
        finally:
            self._is_splitting = False

    @traitlets.observe("outline", "links")
    def _join(self, _change: object) -> None:
        """Set the document from its parts. If the page changes both, both are set before this is called."""
        if not self._is_splitting:
            self.document = {**self.outline, "links": self.links}

    def received(self, content: dict[str, Any], buffers: Sequence[Any]) -> None:
        if content.get("kind") == "files":
            self.take_files(list(zip(content["names"], map(bytes, buffers), strict=True)))
        else:
            super().received(content, buffers)

    def _open_files(self, files: Sequence[NamedBytes]) -> None:
        try:
            topology = topology_from_bytes(files)
        except LabError as error:
            self.problem = str(error)
            return
        document = document_of(topology)
        self.problem, self.gpus = "", gpus_of(document)
        self.drawing.begin(document)
