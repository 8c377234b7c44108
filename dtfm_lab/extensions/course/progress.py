"""What one reader has done so far: tries, hints, answers shown, missions won, guesses. One small file per reader."""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import re
from dataclasses import field
from datetime import UTC, datetime
from pathlib import Path

from platformdirs import user_state_path
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from dtfm_lab.domain.errors import FileError
from dtfm_lab.extensions.course.mission import Verdict
from dtfm_lab.files.reading import parse, read_mapping, write_text

VERSION = 1
KEY = "dtfm_progress"


@dataclass(config=ConfigDict(extra="forbid"))
class Attempts:
    """What a reader did in one mission."""

    tries: int = 0
    hints: int = 0
    """Number of hints taken."""
    answer_shown: bool = False
    passed_at: str = ""
    """Time of the first answer that won, in UTC; empty if none has."""
    passed_before_answer: bool = False
    """True if the mission was won before the worked answer was shown."""

    @property
    def words(self) -> str:
        """What the reader did: ``3 tries, 1 hint, answer shown``; empty for nothing."""
        counted = ((self.tries, "try", "tries"), (self.hints, "hint", "hints"))
        notes = [f"{n} {one if n == 1 else many}" for n, one, many in counted if n]
        return ", ".join([*notes, "answer shown"] if self.answer_shown else notes)


@dataclass(config=ConfigDict(extra="forbid"))
class Guess:
    """A reader's guess before seeing the answer: a number, or the position of a choice, counted from 1."""

    name: str
    """Name of the question, unique across the lessons."""
    question: str
    guess: float
    answer: float
    unit: str = ""
    at: str = ""
    reason: str = ""
    """The reason, in the reader's words."""
    choices: list[str] = field(default_factory=list)
    """The answers to choose from; empty if the question asks for a number."""


@dataclass(config=ConfigDict(extra="forbid"))
class Assignment:
    """Settings of a lesson that was handed out as graded work: what it shows its reader, and what seeds the numbers."""

    answers: bool = False
    """True if worked answers are shown."""
    hints: bool = True
    variant: str = ""
    """Text that seeds the random numbers in the lesson's missions. If empty, the reader's name seeds them."""


@dataclass(config=ConfigDict(extra="forbid"))
class Progress:
    """The content of a reader's file."""

    reader: str
    missions: dict[str, Attempts]
    guesses: list[Guess]
    dtfm_progress: int = VERSION
    assignments: dict[str, Assignment] = field(default_factory=dict)
    """By lesson, the assignments that were handed out as graded work."""

    def of(self, mission: str) -> Attempts:
        """Return what was done in a mission. An empty entry is added if it is the first time."""
        return self.missions.setdefault(mission, Attempts())

    def passed(self) -> list[str]:
        """Names of the missions that are won."""
        return sorted(name for name, each in self.missions.items() if each.passed_at)

    def guess_of(self, name: str) -> Guess | None:
        """Return the first guess at a question, which is the one that counts. None before any guess."""
        return next((each for each in self.guesses if each.name == name), None)

    def note_guess(self, guess: Guess) -> bool:
        """Keep a guess if it is the first at its question. Return True if it was."""
        if self.guess_of(guess.name) is not None:
            return False
        self.guesses.append(guess)
        return True

    def note_verdict(self, verdict: Verdict) -> int:
        """Count a try, and note when the mission was first won. Returns the number of tries so far."""
        attempts = self.of(verdict.mission)
        attempts.tries += 1
        if verdict and not attempts.passed_at:
            attempts.passed_at = now()
            attempts.passed_before_answer = not attempts.answer_shown
        return attempts.tries


def now() -> str:
    """Return the current time as files hold it: UTC in ISO 8601, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def current_reader() -> str:
    """Return the reader's name: DTFM_LAB_READER, a JupyterHub user, or the user of this machine."""
    named = os.environ.get("DTFM_LAB_READER") or os.environ.get("JUPYTERHUB_USER")
    if named:
        return named
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container may run under a number that has no name
        return "reader"


def progress_path(reader: str) -> Path:
    """Return the path of a reader's progress, in the folder DTFM_LAB_PROGRESS or the user's state folder."""
    folder = Path(os.environ.get("DTFM_LAB_PROGRESS") or user_state_path("dtfm_lab") / "progress")
    safe = re.sub(r"[^\w.-]+", "-", reader).strip(".-")[:60] or "reader"
    if safe != reader:  # "ada b" and "ada-b" are two
        safe += "-" + hashlib.sha256(reader.encode()).hexdigest()[:6]
    return folder / f"{safe}.json"


def load_progress(reader: str) -> Progress:
    """Return a reader's progress, empty if there is no file. Raises FileError if the file is damaged."""
    path = progress_path(reader)
    return read_progress(path) if path.exists() else Progress(reader, {}, [])


def read_progress(path: Path) -> Progress:
    """Return the progress in a file. Raises FileError if it cannot be read or has wrong content."""
    data = read_mapping(path)
    if data.get(KEY) != VERSION:
        raise FileError(f"{path}: {KEY} is {data.get(KEY)!r}; wanted {VERSION}")
    return parse(Progress, data, str(path))


def save_progress(progress: Progress, path: Path | None = None) -> Path:
    """Write a reader's file, all or nothing, to the reader's own path by default. Raises FileError if it cannot be
    written."""
    path = path or progress_path(progress.reader)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{path.parent}: cannot be made: {error.strerror}") from None
    return write_text(path, json.dumps(progress, default=vars, indent=1) + "\n")
