"""The topology editor: devices, regions and links drawn by hand."""

from dtfm_lab.widgets.document_view import DocumentView
from dtfm_lab.widgets.view import STATIC


class TopologyEditor(DocumentView):
    """Draws and edits a topology document on a canvas."""

    _esm = STATIC / "editor.js"
    _css = STATIC / "editor.css"
