"""Who makes an iteration longer than predicted, one line each, with a button that shows where that is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from html import escape
from typing import NamedTuple

import ipywidgets as w

from dtfm_lab.compare import Comparison
from dtfm_lab.widgets import markup

MOST_SUSPECTS = 6


class Suspect(NamedTuple):
    of: str
    """link, device or card"""
    name: str
    sentence: str


class Findings(NamedTuple):
    """What is said of a comparison beside its tables."""

    suspects: tuple[Suspect, ...]
    verdict: str
    drift: str

    @classmethod
    def of(cls, comparison: Comparison) -> Findings:
        """Takes a moment."""
        rows = comparison.suspects[["of", "name", "sentence"]].itertuples(index=False)
        return cls(tuple(Suspect(*row) for row in rows), comparison.verdict, comparison.drift.sentence)


class SuspectList:
    """Suspects first, then the verdict and since when."""

    def __init__(self, show: Callable[[str, str], None]) -> None:
        """``show`` is called with what it is ("link", "device" or "card") and its name."""
        self._show = show
        self.suspects = w.VBox()
        self.told = w.HTML()
        self.view = w.VBox([self.suspects, self.told])

    @property
    def text(self) -> str:
        """All lines as HTML."""
        return "".join([*(row.children[0].value for row in self.suspects.children), self.told.value])

    def clear(self) -> None:
        self.suspects.children, self.told.value = (), ""

    async def tell(self, comparison: Comparison, still_wanted: Callable[[], bool]) -> None:
        found = await asyncio.to_thread(Findings.of, comparison)
        if not still_wanted():
            return
        self.suspects.children = [self._row(suspect) for suspect in found.suspects[:MOST_SUSPECTS]]
        more = len(found.suspects) - MOST_SUSPECTS
        rest = [markup.line(f"and {more} more, in <code>comparison.suspects</code>")] if more > 0 else []
        self.told.value = "".join([*rest, _line(found.verdict, "note"), _line(found.drift, "note")])

    def _row(self, suspect: Suspect) -> w.HBox:
        button = w.Button(
            description="Show",
            icon="crosshairs",
            tooltip=f"Select {suspect.name.replace('->', '→')} in the network",
            layout=w.Layout(width="80px", flex="0 0 auto"),
        )
        button.on_click(lambda _: self._show(suspect.of, suspect.name))
        line = w.HTML(_line(suspect.sentence, "warning"), layout=w.Layout(flex="0 1 auto", min_width="0"))
        return w.HBox([line, button], layout=w.Layout(align_items="center"))


def _line(sentence: str, kind: str) -> str:
    return markup.line(escape(sentence).replace("-&gt;", "→"), kind)
