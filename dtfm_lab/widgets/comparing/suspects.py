"""What makes an iteration longer than predicted: a line each, with a button that selects it in the network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from html import escape
from typing import NamedTuple

import ipywidgets as w

from dtfm_lab.compare import Comparison
from dtfm_lab.widgets import markup
from dtfm_lab.widgets.controls import button

MOST_SUSPECTS = 6
"""Most suspects that get a line of their own; the rest are counted."""


class Suspect(NamedTuple):
    """A link, a device or a network card that took longer than predicted."""

    of: str
    """What it is: link, device or card."""
    name: str
    sentence: str


class Findings(NamedTuple):
    """A comparison in sentences: its suspects, its verdict and its drift."""

    suspects: tuple[Suspect, ...]
    verdict: str
    drift: str

    @classmethod
    def of(cls, comparison: Comparison) -> Findings:
        """Read a comparison. This is slow, so a thread calls it."""
        rows = comparison.suspects[["of", "name", "sentence"]].itertuples(index=False)
        return cls(tuple(Suspect(*row) for row in rows), comparison.verdict, comparison.drift.sentence)


class SuspectList:
    """The suspects, then the verdict and whether the error drifts."""

    def __init__(self, select: Callable[[str, str], None]) -> None:
        """``select`` is called with what a suspect is ("link", "device" or "card") and its name."""
        self._select = select
        self.suspects = w.VBox()
        self.verdict = w.HTML()
        self.view = w.VBox([self.suspects, self.verdict])

    @property
    def text(self) -> str:
        return "".join([*(row.children[0].value for row in self.suspects.children), self.verdict.value])

    def clear(self) -> None:
        """Remove every line."""
        self.suspects.children, self.verdict.value = (), ""

    async def show(self, comparison: Comparison, is_current: Callable[[], bool]) -> None:
        """Show a comparison's suspects, unless another comparison has come meanwhile."""
        found = await asyncio.to_thread(Findings.of, comparison)
        if not is_current():
            return
        self.suspects.children = [self._row(suspect) for suspect in found.suspects[:MOST_SUSPECTS]]
        more = len(found.suspects) - MOST_SUSPECTS
        rest = [markup.line(f"and {more} more, in <code>comparison.suspects</code>")] if more > 0 else []
        self.verdict.value = "".join([*rest, _line(found.verdict, "note"), _line(found.drift, "note")])

    def _row(self, suspect: Suspect) -> w.HBox:
        where = button("Show", "crosshairs", f"Select {suspect.name.replace('->', '→')} in the network", "80px")
        where.on_click(lambda _: self._select(suspect.of, suspect.name))
        line = w.HTML(_line(suspect.sentence, "warning"), layout=w.Layout(flex="0 1 auto", min_width="0"))
        return w.HBox([line, where], layout=w.Layout(align_items="center"))


def _line(sentence: str, kind: str) -> str:
    return markup.line(escape(sentence).replace("-&gt;", "→"), kind)
