"""The lessons, in the order in which they build on each other: one table for the board, the site and the teacher."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from dtfm_lab.files.reading import read_mapping


class Lesson(NamedTuple):
    """One notebook of the course. What a reader can do afterwards is the first list in it."""

    name: str
    """Name of its file in ``notebooks/``, without the ending."""
    title: str
    question: str
    """What the lesson answers."""
    minutes: int
    """To read it, run it and do its first missions."""
    needs: Sequence[str] = ()
    """Names of the lessons that it builds on."""


TEXTS = Path(__file__).parent / "texts"
"""What readers see of the lessons, the missions of each and the exam."""
LESSONS: dict[str, Lesson] = {
    name: Lesson(name, **about) for name, about in read_mapping(TEXTS / "lessons.yaml").items()
}
