"""Graded work: whether an assignment shows answers and hints, and numbers that only a teacher's key can produce."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections import Counter
from pathlib import Path

from dtfm_lab.domain.errors import FileError, LabError
from dtfm_lab.extensions.course.mission import Mission
from dtfm_lab.extensions.course.progress import Assignment, load_progress

GRADED = "DTFM_LAB_GRADED"
"""Environment variable with the lessons whose answers and hints are off, separated by commas, or ``all``."""
EVERY_LESSON = "all"
KEY_BYTES = 32
LEAST_KEY_BYTES = 16


def assignment_of(mission: Mission, reader: str) -> Assignment:
    """Return whether a mission shows this reader answers and hints, and the text that seeds its numbers. Raises
    FileError if the reader's file cannot be read.

    What ``GRADED`` turns off stays off, whatever the reader's file says.
    """
    kept = load_progress(reader).assignments.get(mission.lesson) or Assignment(answers=True)
    lessons = {each.strip() for each in os.environ.get(GRADED, "").split(",")}
    if lessons & {mission.lesson, EVERY_LESSON}:
        return Assignment(answers=False, hints=False, variant=kept.variant)
    return kept


def sample_for(mission: Mission, reader: str) -> str:
    """Return the text that seeds a reader's numbers: the assigned variant, or the reader's name if none is assigned.
    Raises FileError if the reader's file cannot be read."""
    return assignment_of(mission, reader).variant or reader


def require_shown(mission: Mission, reader: str, what: str) -> None:
    """Raise LabError if a mission's ``what``, answers or hints, are turned off by its assignment."""
    if not getattr(assignment_of(mission, reader), what):
        raise LabError(f"{mission.name}: {mission.lesson} is graded, and its {what} are off; ask who gave it to you")


def variant_of(key: bytes, purpose: str, reader: str) -> str:
    """Return the text that seeds a reader's numbers. It cannot be computed without the key.

    ``purpose`` is a lesson or the exam. The variant of one does not reveal the variant of another.
    """
    return hmac.new(key, f"{purpose}\n{reader}".encode(), hashlib.sha256).hexdigest()[:32]


def read_key(path: Path, *, make: bool = False) -> bytes:
    """Return the class's key from its file. With ``make``, the file is created if missing. Raises FileError if it
    cannot be read or made, or if the key is shorter than ``LEAST_KEY_BYTES``."""
    try:
        if make and not path.exists():
            # No other user can read it from the start, and it never replaces an existing key.
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(secrets.token_hex(KEY_BYTES) + "\n")
        key = path.read_bytes().strip()
    except OSError as error:
        raise FileError(f"{path}: the key cannot be read or made: {error.strerror or error}") from None
    if len(key) < LEAST_KEY_BYTES:
        raise FileError(f"{path}: the key has {len(key)} bytes; wanted at least {LEAST_KEY_BYTES}")
    return key


def read_students(path: Path) -> list[str]:
    """Return the names of a class from a text file, one per line. Blank lines and lines that begin with ``#`` are
    skipped. Raises FileError if it cannot be read, has no names, or has duplicate or invalid ones."""
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{path}: the names of the class cannot be read: {error}") from None
    names = [line for line in lines if line and not line.startswith("#")]
    for name in names or [""]:
        # Names become file names, and none may lead out of the folder.
        if not name or Path(name).name != name or name.startswith("."):
            raise FileError(f"{path}: found the name {name!r:.60}; wanted names that files can have, one per line")
    if twice := [name for name, times in Counter(names).items() if times > 1]:
        raise FileError(f"{path}: {twice[0]} is in it twice; wanted each student once")
    return names
