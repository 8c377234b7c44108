"""Slides from a lesson: what begins one follows from headings, so that no cell has to be marked by hand.

The first heading and each of the second level begin a slide, those of the third one below it. A question that asks for
a guess gets a slide of its own, so that nobody sees the answer first. Cells in which a reader writes are left out.
"""

from __future__ import annotations

import re
from typing import Any

Cell = dict[str, Any]
ASKS = re.compile(r"^lab\.guess\(", re.MULTILINE)
READERS = re.compile(r"^#\s*(answer\s*=|lab\.missions\.check)", re.MULTILINE)
HEADING = re.compile(r"^(#{1,3}) ", re.MULTILINE)
LONG = 900
"""Characters of a Markdown cell after which the next cell begins a slide below."""


def with_slides(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook with ``slide_type`` in each cell's metadata, longer cells cut at their headings."""
    cells: list[Cell] = []
    after_question = after_long = False
    for cell in (part for whole in notebook["cells"] for part in _parts(whole)):
        source = _source(cell)
        kind = _kind(cell, source)
        if kind == "-" and (after_question or after_long):
            kind = "subslide"
        if kind != "skip":
            after_question = cell["cell_type"] == "code" and bool(ASKS.search(source))
            after_long = cell["cell_type"] == "markdown" and len(source) > LONG
        about = cell.get("metadata", {}) | {"slideshow": {"slide_type": kind}}
        cells.append(cell | {"metadata": about})
    return notebook | {"cells": cells}


def _kind(cell: Cell, source: str) -> str:
    if not source.strip() or (cell["cell_type"] == "code" and READERS.search(source)):
        return "skip"
    if cell["cell_type"] == "code":
        return "subslide" if ASKS.search(source) else "-"
    found = HEADING.match(source.lstrip())
    return "-" if found is None else "subslide" if len(found[1]) == 3 else "slide"


def _parts(cell: Cell) -> list[Cell]:
    """A Markdown cell cut before each heading, or the cell; a # in a fenced block is no heading."""
    if cell["cell_type"] != "markdown":
        return [cell]
    parts: list[list[str]] = [[]]
    fenced = False
    for line in _source(cell).splitlines(keepends=True):
        fenced ^= line.startswith("```")
        if not fenced and HEADING.match(line) and any(each.strip() for each in parts[-1]):
            parts.append([])
        parts[-1].append(line)
    if len(parts) == 1:
        return [cell]
    base = str(cell.get("id", "part"))[:50]
    return [
        {
            "cell_type": "markdown",
            "id": f"{base}-{number}",
            "metadata": cell.get("metadata", {}),
            "source": "".join(part),
        }
        for number, part in enumerate(parts)
    ]


def _source(cell: Cell) -> str:
    source = cell["source"]
    return "".join(source) if isinstance(source, list) else source
