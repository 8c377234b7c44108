"""The base class of the lab's views: a built page, and one line of text for readers without widgets."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any
from uuid import uuid4

import anywidget
from traitlets import Unicode

STATIC = Path(__file__).parents[1] / "static"
_kept_here = ContextVar("_kept_here", default=False)


@contextmanager
def kept_here() -> Iterator[None]:
    """Views that are made inside stay in Python: no notebook is told of them. A still page is made of such ones."""
    token = _kept_here.set(True)
    try:
        yield
    finally:
        _kept_here.reset(token)


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

    def open(self) -> None:
        if not _kept_here.get():
            super().open()

    def own_traits(self) -> dict[str, Any]:
        """Return what a page is sent of this view, besides what it is sent of every widget."""
        return dict(self.get_state([name for name in self.keys if name not in View.class_trait_names()]))

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
