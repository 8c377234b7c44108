"""The base class of the lab's views: a built page, and one line of text for readers without widgets."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import anywidget
from traitlets import Unicode

STATIC = Path(__file__).parents[1] / "static"


class View(anywidget.AnyWidget):
    """A widget of the lab. Its page is ``static/<folder>.js`` and ``.css``, built from the folder of its class.

    ``page`` names the folder of a class that is elsewhere.
    """

    own_id = Unicode().tag(sync=True)
    """By which its page finds its model, should that have been late: ``js/shared/view.js``."""

    def __init_subclass__(cls, page: str = "", **options: Any) -> None:
        folder = page or cls.__module__.removeprefix(f"{__package__}.").partition(".")[0]
        script = STATIC / f"{folder}.js"
        if "_esm" not in vars(cls) and script.exists():
            cls._esm = script
            if (styles := script.with_suffix(".css")).exists():
                cls._css = styles
        super().__init_subclass__(**options)

    def __init__(self, **traits: Any) -> None:
        own_id = uuid4().hex
        super().__init__(model_id=own_id, own_id=own_id, **traits)
        self.on_msg(lambda _, content, buffers: self.received(content, buffers))

    def received(self, content: dict[str, Any], buffers: Sequence[Any]) -> None:
        """Do what a message of the page says; its ``kind`` says which one."""

    def alt_text(self) -> str:
        """Return what the view shows now in one line."""
        return ""

    def _repr_mimebundle_(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        bundle = super()._repr_mimebundle_(**options)
        if bundle is not None and (words := self.alt_text()):
            bundle[0]["text/plain"] = words
        return bundle
