"""Graded work: what an assignment leaves of answers and hints, numbers that follow from a teacher's key alone, and
answers as data that another process can read.

An answer without a file format, as a function of the reader's own, is pickled with its code. To unpack that is to run
it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import pickle
import secrets
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np

from dtfm_lab.course.mission import Mission
from dtfm_lab.course.progress import Assignment, load_progress
from dtfm_lab.domain.errors import FileError, LabError
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Schedule
from dtfm_lab.domain.trace import Trace
from dtfm_lab.files import (
    load_plan,
    load_topology,
    load_trace,
    save_plan,
    save_topology,
    save_trace,
)
from dtfm_lab.files.schedules import load_schedule, save_schedule

GRADED = "DTFM_LAB_GRADED"
"""Environment variable with the lessons, commas between them, or ``all``, whose answers and hints are off here."""
EVERY_LESSON = "all"
KEY_BYTES = 32
LEAST_KEY_BYTES = 16


def assignment_of(mission: Mission, reader: str) -> Assignment:
    """What this reader may be shown of a mission, and the variant of its numbers. Raises FileError.

    What the environment turns off, nothing turns on again.
    """
    kept = load_progress(reader).assignments.get(mission.lesson) or Assignment(answers=True)
    lessons = {each.strip() for each in os.environ.get(GRADED, "").split(",")}
    if lessons & {mission.lesson, EVERY_LESSON}:
        return Assignment(answers=False, hints=False, variant=kept.variant)
    return kept


def drawn_for(mission: Mission, reader: str) -> str:
    """What a reader's numbers are drawn from: the variant that was handed out, or else the name. Raises FileError."""
    return assignment_of(mission, reader).variant or reader


def require_shown(mission: Mission, reader: str, what: str) -> None:
    """Raise LabError where the ``what`` of a mission, answers or hints, are off by its assignment."""
    if not getattr(assignment_of(mission, reader), what):
        raise LabError(f"{mission.name}: {mission.lesson} is graded, and its {what} are off; ask who gave it to you")


def variant_of(key: bytes, purpose: str, reader: str) -> str:
    """What a reader's numbers are drawn from, made with a key: who has only names and this code cannot compute it.

    ``purpose`` is a lesson or the exam: who knows the variant of one does not know that of another.
    """
    return hmac.new(key, f"{purpose}\n{reader}".encode(), hashlib.sha256).hexdigest()[:32]


def read_key(path: Path, *, make: bool = False) -> bytes:
    """The class's key from its file, which is made where ``make`` is true and there is none. Raises FileError."""
    try:
        if make and not path.exists():
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(secrets.token_hex(KEY_BYTES) + "\n")
        key = path.read_bytes().strip()
    except OSError as error:
        raise FileError(f"{path}: the key cannot be read or made: {error.strerror or error}") from None
    if len(key) < LEAST_KEY_BYTES:
        raise FileError(f"{path}: the key has {len(key)} bytes; wanted {LEAST_KEY_BYTES} or more that nobody guesses")
    return key


def read_students(path: Path) -> list[str]:
    """Names of a class from a text file, one a line. Raises FileError for none, for two alike, and for odd names."""
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{path}: the names of the class cannot be read: {error}") from None
    names = [line for line in lines if line and not line.startswith("#")]
    for name in names or [""]:
        if not name or Path(name).name != name or name.startswith("."):
            raise FileError(f"{path}: found the name {name!r:.60}; wanted names that files can have, one a line")
    if twice := [name for name, times in Counter(names).items() if times > 1]:
        raise FileError(f"{path}: {twice[0]} is in it twice; wanted each student once")
    return names


Packed = dict[str, Any]
CODE = "code"

NOUNS: dict[type, tuple[str, Callable[..., Any], Callable[..., Any]]] = {
    Plan: ("plan.json", save_plan, load_plan),
    Trace: ("trace.json", save_trace, load_trace),
    Topology: ("topology.yaml", save_topology, load_topology),
    Schedule: ("schedule.csv", save_schedule, load_schedule),
}
"""File, writer and reader of each noun."""


def pack(answer: object) -> Packed:
    """The answer as JSON would hold it. Raises FileError where it can be neither written nor pickled."""
    if isinstance(answer, np.generic):
        answer = answer.item()
    if answer is None or isinstance(answer, bool | int | float | str):
        return {"is": "value", "value": answer}
    if isinstance(answer, list | tuple):
        return {"is": type(answer).__name__, "items": [pack(each) for each in answer]}
    for noun, (name, save, _) in NOUNS.items():
        if isinstance(answer, noun):
            with tempfile.TemporaryDirectory() as folder:
                return {"is": name, "bytes": _text(Path(save(answer, Path(folder) / name)).read_bytes())}
    try:
        return {"is": CODE, "bytes": _text(cloudpickle.dumps(answer))}
    except (TypeError, pickle.PicklingError, RecursionError) as error:
        raise FileError(f"the answer, {type(answer).__name__}, cannot be handed in: {error}") from None


def unpack(packed: Packed) -> object:
    """The answer again. Runs the reader's code where ``has_code`` says so; raises FileError."""
    kind = packed["is"]
    if kind == "value":
        return packed["value"]
    if kind in ("list", "tuple"):
        items = [unpack(each) for each in packed["items"]]
        return items if kind == "list" else tuple(items)
    content = base64.b64decode(packed["bytes"])
    if kind == CODE:
        return pickle.loads(content)
    for name, _, load in NOUNS.values():
        if kind == name:
            with tempfile.TemporaryDirectory() as folder:
                (path := Path(folder) / name).write_bytes(content)
                return load(path)
    raise FileError(f"an answer is of kind {kind!r}; wanted one of {[name for name, *_ in NOUNS.values()]}")


def has_code(packed: Packed) -> bool:
    """Whether to unpack the answer is to run code of the reader's."""
    return packed["is"] == CODE or any(has_code(each) for each in packed.get("items", ()))


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()
