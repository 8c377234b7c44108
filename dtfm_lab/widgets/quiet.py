"""The ipywidgets that the lab uses. Each can be kept in Python until the page shows it.

A widget normally sends its state to the page as soon as it is made. A lab has 800 widgets. Most are in panes that the
user has not opened yet, and no notebook shows the widgets of an exported page (``still_page``). So widgets made inside
``untold`` stay in Python. Their state is sent once a widget on the page refers to them. Modules of the lab import this
one instead of ipywidgets: ``from dtfm_lab.widgets import quiet as w``. Widgets of other packages are still sent at
once.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import ipywidgets
import traitlets
from ipywidgets import DOMWidget as DOMWidget
from ipywidgets import ValueWidget as ValueWidget
from ipywidgets import Widget as Widget
from ipywidgets import dlink as dlink
from ipywidgets import link as link

_is_untold: ContextVar[list[bool]] = ContextVar("_is_untold")
"""A list that is not empty while ``untold`` is active.

It is emptied at the end, because a task started inside keeps this list in its context and may outlive ``untold``.
"""


@contextmanager
def untold() -> Iterator[None]:
    """Keep the widgets made inside in Python until the page shows them. Their traits work as usual."""
    token = _is_untold.set(at_work := [True])
    try:
        yield
    finally:
        at_work.clear()
        _is_untold.reset(token)


class DeferredWidget(Widget):
    """A widget that stays in Python if it is made inside ``untold``, together with its layout and its style."""

    _is_kept = False

    def open(self) -> None:
        """Send the widget to the page. Inside ``untold``, keep it in Python instead."""
        self._is_kept = bool(_is_untold.get(None))
        if not self._is_kept:
            super().open()

    @property
    def model_id(self) -> str | None:
        """Identifier that another widget's state uses to refer to this one. Reading it sends a kept widget to the
        page."""
        if self._is_kept:
            self.open()
        return None if self.comm is None else str(self.comm.comm_id)

    @traitlets.default("layout")
    def _kept_layout(self) -> Any:
        # ipywidgets would make one that is sent at once.
        return Layout()

    @traitlets.default("style")
    def _kept_style(self) -> Any:
        return _kept(self.traits()["style"].klass)()


@cache
def _kept(kind: type[Widget]) -> type[Widget]:
    """Return an ipywidgets style class that can be kept."""
    return type(kind.__name__, (DeferredWidget, kind), {})


class Layout(DeferredWidget, ipywidgets.Layout):
    pass


class Box(DeferredWidget, ipywidgets.Box):
    pass


class HBox(DeferredWidget, ipywidgets.HBox):
    pass


class VBox(DeferredWidget, ipywidgets.VBox):
    pass


class Accordion(DeferredWidget, ipywidgets.Accordion):
    pass


class HTML(DeferredWidget, ipywidgets.HTML):
    pass


class Label(DeferredWidget, ipywidgets.Label):
    pass


class Button(DeferredWidget, ipywidgets.Button):
    pass


class Checkbox(DeferredWidget, ipywidgets.Checkbox):
    pass


class ToggleButton(DeferredWidget, ipywidgets.ToggleButton):
    pass


class ToggleButtons(DeferredWidget, ipywidgets.ToggleButtons):
    pass


class Dropdown(DeferredWidget, ipywidgets.Dropdown):
    pass


class SelectionSlider(DeferredWidget, ipywidgets.SelectionSlider):
    pass


class Text(DeferredWidget, ipywidgets.Text):
    pass


class IntText(DeferredWidget, ipywidgets.IntText):
    pass


class BoundedIntText(DeferredWidget, ipywidgets.BoundedIntText):
    pass


class BoundedFloatText(DeferredWidget, ipywidgets.BoundedFloatText):
    pass


class FileUpload(DeferredWidget, ipywidgets.FileUpload):
    pass
