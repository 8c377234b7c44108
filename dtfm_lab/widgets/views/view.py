"""The base class of the lab's views: finds the built JavaScript, and adds a snapshot for readers without widgets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anywidget

STATIC = Path(__file__).parents[1] / "static"


class View(anywidget.AnyWidget):
    """A widget of the lab. Its page is ``static/<folder>.js`` and ``.css``, built from the folder of its class."""

    def __init_subclass__(cls, **options: Any) -> None:
        folder = cls.__module__.removeprefix(f"{__package__}.").partition(".")[0]
        page = STATIC / f"{folder}.js"
        if "_esm" not in vars(cls) and page.exists():
            cls._esm = page
            if (styles := page.with_suffix(".css")).exists():
                cls._css = styles
        super().__init_subclass__(**options)

    def picture(self) -> str:
        """Return what the view shows now as standalone SVG, or an empty string where it shows nothing."""
        return ""

    def words(self) -> str:
        """Return what the view shows now in one line."""
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
