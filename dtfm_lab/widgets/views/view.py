"""The base classes of the lab's views: a built page, with one line of text for readers without widgets."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import anywidget
import traitlets
from traitlets import Unicode

from dtfm_lab.widgets.lab_state import Guard
from dtfm_lab.widgets.network.drawing import Document, Drawing
from dtfm_lab.widgets.quiet import DeferredWidget

STATIC = Path(__file__).parents[1] / "static"


class View(DeferredWidget, anywidget.AnyWidget):
    """A widget of the lab. Its page is ``<folder>.js`` and ``.css``, built from the folder of its class.

    An extension's pages are in the folder ``static`` of the extension, all others in STATIC. The class argument
    ``page`` names the folder if the class is defined outside it.
    """

    own_id = Unicode().tag(sync=True)
    """Id by which the page finds its widget model if that arrives late, see ``tools/js/shared/view.js``."""

    def __init_subclass__(cls, page: str = "", **options: Any) -> None:
        views, _, module = cls.__module__.rpartition(".views.")
        beside = getattr(sys.modules.get(f"{views}.views"), "__file__", None) or __file__
        name = f"{page or module.partition('.')[0]}.js"
        built = (Path(beside).parents[1] / "static" / name, STATIC / name)
        script = next((path for path in built if path.exists()), None)
        if "_esm" not in vars(cls) and script is not None:
            cls._esm = script
            if (styles := script.with_suffix(".css")).exists():
                cls._css = styles
        super().__init_subclass__(**options)

    def __init__(self, **traits: Any) -> None:
        own_id = uuid4().hex
        super().__init__(model_id=own_id, own_id=own_id, **traits)
        self.on_msg(lambda _, content, buffers: self.received(content, buffers))

    def own_traits(self) -> dict[str, Any]:
        """Return the view's own traits as a page receives them, without its script, its styles and shared traits."""
        names = [name for name in self.keys if name not in View.class_trait_names() and not name.startswith("_")]
        return dict(self.get_state(names))

    def received(self, content: dict[str, Any], buffers: Sequence[Any]) -> None:
        """Handle a message of the page. Its ``kind`` says which one."""

    def alt_text(self) -> str:
        """Return what the view shows now in one line. Empty for a view that is only shown as a part of the lab."""
        return ""

    def _repr_mimebundle_(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        bundle = super()._repr_mimebundle_(**options)
        if bundle is not None and (words := self.alt_text()):
            bundle[0]["text/plain"] = words
        return bundle


PLAYED = ("playback", "playback_devices", "conditions", "restored_from")
SELECTION = ("selected", "selected_members", "selected_link")
SHARED = ("document", "can_undo", "can_redo", *PLAYED)


class SelectionLink:
    """Keeps the selection of a view equal to its drawing's.

    All traits change together, because a selected device inside a host has no meaning with another host. The drawing's
    owner may correct what a page has selected, which a ``traitlets.link`` of each trait refuses.
    """

    def __init__(self, drawing: Drawing, view: "DocumentView") -> None:
        self._drawing, self._view, self._is_copying = drawing, view, Guard()
        drawing.observe(self._to_view, SELECTION)
        view.observe(self._to_drawing, SELECTION)
        self._to_view()

    def unlink(self) -> None:
        self._drawing.unobserve(self._to_view, SELECTION)
        self._view.unobserve(self._to_drawing, SELECTION)

    def _to_view(self, _change: object = None) -> None:
        if not self._is_copying:
            with self._is_copying:
                self._show()

    def _to_drawing(self, _change: object) -> None:
        if self._is_copying:
            return
        with self._is_copying:
            with self._drawing.hold_trait_notifications():
                for name in SELECTION:
                    setattr(self._drawing, name, getattr(self._view, name))
            self._show()

    def _show(self) -> None:
        # One message to the page, which would else answer to a part of the selection.
        with self._view.hold_sync():
            for name in SELECTION:
                setattr(self._view, name, getattr(self._drawing, name))


class DocumentView(View):
    """A view of a drawing. An edit sets ``document`` once. ``undo`` and ``redo`` arrive as messages.

    A drag that shows its effect as it goes sets the document many times between two ``gesture`` messages. That is one
    entry of the history.

    The document is in screen units (ms, Gbit/s). The view does not check it: the panel that owns the drawing sets
    ``problem`` and ``summary``. A hidden view should ``leave`` the drawing, otherwise its traits are sent to the page
    at every edit.
    """

    document = traitlets.Dict().tag(sync=True, echo_update=False)  # do not send a page its own edits
    selected = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """Names of the selected devices or hosts."""
    selected_members = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """Devices that are selected inside a host of ``selected``. If a selected host has none, all of it is selected."""
    selected_link = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """Source and target of the selected link, whether it is drawn or not. Empty for none."""
    can_undo = traitlets.Bool(False).tag(sync=True)
    can_redo = traitlets.Bool(False).tag(sync=True)
    gpus = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """The GPU models to choose from. A new device gets the first."""
    problem = traitlets.Unicode("").tag(sync=True)
    """One line that says what is wrong with the document. Empty if it is valid."""
    summary = traitlets.Unicode("").tag(sync=True)
    """The line that is shown while there is no problem."""
    filled = traitlets.List(traitlets.Dict()).tag(sync=True)
    """{"regions", "latency_ms", "bandwidth_gbps", "distance_km"} of each pair of regions whose latency and bandwidth
    follow from their distance, because no line was drawn between them (``links.filled``)."""
    highlight = traitlets.Dict().tag(sync=True)
    """{"stages": {device: stage}} marks devices with their stage. {} marks none.

    With a plan, "tasks" has {device: [stage, replica]}, and "stage" the selected stage. "suspects" has [source, target]
    of each link and [name] of each device to draw in red. "binds" is [source, target] of the link, or [name] of the
    device, that limits the plan. "absent" lists devices that are away, which are drawn faded. Where hosts are drawn,
    "cells" has {host: [[stage, replica] or None of each of its devices]}, and "parts" the devices inside of "binds".
    """
    playback = traitlets.Bytes(b"").tag(sync=True)
    """The iteration to play: the rows of ``running.playback.rows_of_trace``, as little-endian f4."""
    playback_devices = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """The devices that source and target of a row in ``playback`` index."""
    conditions = traitlets.Dict().tag(sync=True)
    """{device: "killed" | "slow" | "paused" | "recovered" | "gone"} of the run's disturbed devices."""
    restored_from = traitlets.Dict().tag(sync=True)
    """{device: device that its replacement's parameters come from}."""
    height = traitlets.Int(420).tag(sync=True)

    def __init__(self, drawing: Drawing | None = None, *, document: Document | None = None, **traits: Any) -> None:
        """Show ``drawing``, or else the view's own drawing that starts with ``document``."""
        self.drawing = Drawing(document) if drawing is None else drawing
        super().__init__(**traits, **{name: getattr(self.drawing, name) for name in (*SHARED, *SELECTION)})
        self._links: list[traitlets.link | SelectionLink] = []
        self.follow()

    @property
    def following(self) -> bool:
        return bool(self._links)

    def follow(self) -> None:
        """Show the drawing and follow its changes from now on."""
        # A second set of links would replace the first, which could then never be unlinked.
        if not self._links:
            self._links = [traitlets.link((self.drawing, name), (self, name)) for name in SHARED]
            self._links.append(SelectionLink(self.drawing, self))

    def leave(self) -> None:
        """Stop following the drawing."""
        for link in self._links:
            link.unlink()
        self._links = []

    def set_state(self, sync_data: dict[str, Any]) -> None:
        """Take a page's document before its selection, which may name devices that only this document has."""
        chosen = {name: value for name, value in sync_data.items() if name in SELECTION}
        with self.hold_sync():
            super().set_state({name: value for name, value in sync_data.items() if name not in SELECTION})
            super().set_state(chosen)

    def received(self, content: dict[str, Any], buffers: Sequence[Any]) -> None:
        if content.get("kind") in ("undo", "redo"):
            getattr(self.drawing, content["kind"])()
        elif content.get("kind") == "gesture":
            self.drawing.gesture(str(content.get("phase")))
        elif content.get("kind") == "swap":
            # The page may still show a device that was removed meanwhile.
            drawn = {device["name"]: device["name"] for device in self.document["devices"]}
            a, b = drawn.get(content.get("a")), drawn.get(content.get("b"))
            if a is not None and b is not None:
                self.drawing.on_swap(a, b)
