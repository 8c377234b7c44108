"""Finds what a class handed in, and reads notebooks that may contain anything."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dtfm_lab.domain.errors import FileError
from dtfm_lab.domain.network import is_plain
from dtfm_lab.extensions.course.api import missions
from dtfm_lab.extensions.course.teaching import answer_id

LONGEST_REASON = 300
"""Maximum characters of a message from a student's code."""
MOST_BYTES = 16 << 20
"""Maximum bytes of a notebook. An assignment with its outputs has about 100 kB."""
MOST_NOTEBOOKS = 50
"""Maximum number of notebooks per student."""
MOST_LEVELS = 12
"""Maximum depth of nested folders. nbgrader has three."""


@dataclass(frozen=True)
class HandIn:
    """One notebook of one student."""

    student: str
    path: Path
    folder: Path
    """Folder with the notebooks of the whole class."""
    problem: str = ""
    """Why the notebook cannot be opened; empty if it can."""

    @property
    def where(self) -> str:
        """Its path, on one line whatever its name contains."""
        return in_one_line(self.path, None)

    @property
    def own(self) -> Path:
        """The student's part of the folder: the student's own folder, or this file."""
        return self.folder / self.path.relative_to(self.folder).parts[0]


@dataclass(frozen=True)
class Cell:
    """What a marker needs to know about a code cell."""

    source: str
    grade_id: str
    graded: bool
    """True if it is one of the teacher's checks."""
    outputs: tuple[Mapping[str, Any], ...]
    """Data of each output, by MIME type."""


def submissions(folder: Path) -> Iterator[HandIn]:
    """Yield students and their notebooks: ``ada.ipynb``, or ``ada/01/missions.ipynb`` as nbgrader collects them."""
    for name in sorted(os.listdir(folder)):
        path = folder / name
        if name.startswith("."):
            continue
        # A link to a folder may lead to another student's, so it is not followed.
        if not path.is_dir() or path.is_symlink():
            if path.suffix == ".ipynb" or path.is_dir():
                yield HandIn(path.stem if path.suffix == ".ipynb" else name, path, folder)
            continue
        found = sorted(_notebooks(path, 1))
        yield from (HandIn(name, each, folder) for each in found[:MOST_NOTEBOOKS])
        if len(found) > MOST_NOTEBOOKS:
            yield HandIn(name, path, folder, f"{len(found)} notebooks; wanted at most {MOST_NOTEBOOKS} of a student")


def _notebooks(folder: Path, level: int) -> Iterator[Path]:
    """Yield the notebooks in a folder. A folder that is a link, too deep or unreadable is yielded itself."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        yield folder
        return
    for entry in entries:
        path = folder / entry.name
        if entry.name.startswith("."):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _notebooks(path, level + 1) if level < MOST_LEVELS else (path,)
        elif path.suffix == ".ipynb" or (entry.is_symlink() and path.is_dir()):
            yield path


def cells_of(hand_in: HandIn) -> list[Cell]:
    """Return the code cells of a notebook. Raises FileError if the file is not a notebook."""
    where = hand_in.where
    if hand_in.problem:
        raise FileError(f"{where}: {hand_in.problem}")
    try:
        os.fsencode(str(hand_in.path)).decode()
    except UnicodeDecodeError:
        raise FileError(f"{where}: its name is not UTF-8; wanted another name") from None
    try:
        found = json.loads(_content(hand_in))["cells"]
        return [_cell(each) for each in found if each["cell_type"] == "code"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise FileError(f"{where}: no notebook; wanted one in Jupyter's format 4") from None


def _content(hand_in: HandIn) -> bytes:
    """Return all bytes of the notebook. Raises FileError if it is unreadable, too large, no ordinary file, or a link
    out of the student's folder."""
    where, own, real = hand_in.where, hand_in.own, Path(os.path.realpath(hand_in.path))
    if not real.is_relative_to(Path(os.path.realpath(own.parent)) / own.name):
        raise FileError(f"{where}: a link to {in_one_line(real)}; wanted the notebook itself")
    try:
        # Non-blocking, because opening a pipe would otherwise wait for ever.
        descriptor = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise FileError(f"{where}: cannot be read: {error.strerror}; wanted an ordinary file") from None
    with open(descriptor, "rb") as file:
        # Of the open file, since its name may lead to another one by now.
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise FileError(f"{where}: no ordinary file; wanted a notebook, fewer than {MOST_LEVELS} folders deep")
        if about.st_size > MOST_BYTES:
            size = f"{about.st_size / 2**20:.0f} MiB"
            raise FileError(f"{where}: has {size}; wanted at most {MOST_BYTES >> 20} MiB (clear its outputs)")
        return file.read(MOST_BYTES)


def _cell(cell: Mapping[str, Any]) -> Cell:
    about = cell.get("metadata", {}).get("nbgrader", {})
    source = cell["source"]
    source = "".join(source) if isinstance(source, list) else source
    if not isinstance(source, str):
        raise TypeError
    outputs = cell.get("outputs", [])
    shown = tuple(each["data"] for each in outputs if isinstance(each, dict) and isinstance(each.get("data"), dict))
    return Cell(source, str(about.get("grade_id", "")), bool(about.get("grade")), shown)


def missions_in(hand_in: HandIn, cells: list[Cell]) -> list[str]:
    """Return all missions of every lesson for which a notebook has an answer cell. So a mission whose cell was deleted
    is marked, too.

    Raises FileError if the notebook belongs to no assignment.
    """
    ids = {cell.grade_id for cell in cells}
    lessons = {each.lesson for each in missions.values() if answer_id(each.name) in ids}
    if not lessons:
        raise FileError(
            f"{hand_in.where}: no answer cell of a mission; wanted a notebook that dtfm-lab missions assignment wrote"
        )
    return [each.name for each in missions.values() if each.lesson in lessons]


def in_one_line(text: object, most: int | None = LONGEST_REASON) -> str:
    """Return the first ``most`` characters of a text on one line; all of them for None. Line breaks and tabs become
    blanks. Other control characters, and characters that cannot be encoded, become question marks."""
    said = "".join(each if is_plain(each) else " " if each.isspace() else "?" for each in str(text))
    return said[:most]
