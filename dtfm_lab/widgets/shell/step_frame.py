"""A step of the lab: its heading with its state, what went wrong there, and the panel."""

from __future__ import annotations

from html import escape
from typing import Any, NamedTuple

import ipywidgets as w

from dtfm_lab.widgets import markup


class State(NamedTuple):
    """Of a step: ``done`` in words, empty while there is nothing; ``stale`` says why it no longer holds."""

    done: str = ""
    stale: str = ""

    @property
    def kind(self) -> str:
        return "stale" if self.stale else "done" if self.done else "open"


class StepFrame(w.VBox):
    """One step; ``redo`` names the button that calls ``panel.redo()`` where it is stale, empty for none."""

    def __init__(self, number: int, name: str, hint: str, panel: Any, redo: str) -> None:
        self.name, self.title, self.state = name, name.capitalize().replace("-", " "), State()
        self._heading = w.HTML(markup.heading(number, self.title, hint))
        self._stale = w.HTML()
        self.message = w.HTML()
        self.redo = w.Button(
            description=redo,
            icon="refresh",
            layout=w.Layout(width="auto", display="none"),
            tooltip="Make it anew from what is drawn and chosen now",
        )
        self.redo.on_click(lambda _: panel.redo())
        offer = w.HBox([self._stale, self.redo])
        super().__init__([self._heading, offer, self.message, panel.view])
        self.add_class("dtfm-section")
        self.add_class(f"dtfm-section-{name}")

    def show(self, state: State, *, can_redo: bool) -> None:
        """The state beside the heading; stale steps offer to be redone."""
        self.state = state
        self._stale.value = markup.line(escape(f"Out of date: {state.stale}."), "stale") if state.stale else ""
        self.redo.layout.display = "" if state.stale and can_redo and self.redo.description else "none"

    def report_error(self, line: str) -> None:
        self.message.value = markup.line(escape(line), "warning")
