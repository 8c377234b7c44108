"""The base class of the lab's views: a built page, and a still picture for readers without widgets."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import anywidget
import plotly.graph_objects as go

from dtfm_lab.figures.snapshots import MOST_BARS, svg

STATIC = Path(__file__).parents[1] / "static"

Figure: TypeAlias = go.Figure | Mapping[str, Any]
"""A plotly figure, or what one consists of: {"data", "layout"}."""


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

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        self.on_msg(lambda _, content, buffers: self.received(content, buffers))

    def received(self, content: dict[str, Any], buffers: Sequence[Any]) -> None:
        """Do what a message of the page says; its ``kind`` says which one."""

    def figure(self) -> Figure | None:
        """Return what the view shows now as a plotly figure, or None where it shows nothing."""
        return None

    def svg(self, *, most_bars: int = MOST_BARS) -> str:
        """Return the figure as standalone SVG, or an empty string where there is none."""
        figure = self.figure()
        return "" if figure is None else svg(figure, self.alt_text(), most_bars=most_bars)

    def alt_text(self) -> str:
        """Return what the view shows now in one line."""
        return ""

    def _repr_mimebundle_(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        bundle = super()._repr_mimebundle_(**options)
        if bundle is None:
            return None
        data, metadata = bundle
        if words := self.alt_text():
            data["text/plain"] = words
        if picture := self.svg():
            data["image/svg+xml"] = picture
        return data, metadata
