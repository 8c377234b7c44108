"""What every view of our own has in common: where its JavaScript is, and a picture for readers without widgets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anywidget

STATIC = Path(__file__).parent / "static"


class View(anywidget.AnyWidget):
    """An anywidget whose ``picture`` stands in where no widget runs: on GitHub, in an export, in a saved notebook."""

    def picture(self) -> str:
        """What it shows now, as SVG that stands alone; empty where it has none."""
        return ""

    def words(self) -> str:
        """What it shows now, one line."""
        return ""

    def _repr_mimebundle_(self, **options: Any) -> Any:
        bundle = super()._repr_mimebundle_(**options)
        if bundle is None:
            return None
        data, metadata = bundle
        if words := self.words():
            data["text/plain"] = words
        if picture := self.picture():
            data["image/svg+xml"] = picture
        return data, metadata
