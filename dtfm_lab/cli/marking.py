"""Marks notebooks of a class: a row for every student and mission.

Each notebook is executed in a process, a folder and an environment of its own, and its answers are taken out as data.
The checks in it are not executed, so it does not matter what a student has made of them: each answer is checked in a
process for itself, so that one that is code can spoil no other. The processes are forked by ``marking_server``.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from pandas import DataFrame

from dtfm_lab.cli.marking_server import DIED, LATE
from dtfm_lab.course import missions
from dtfm_lab.course.graded import EVERY_LESSON, GRADED, variant_of
from dtfm_lab.course.likeness import Handed, code_digest, same_as
from dtfm_lab.course.progress import Assignment, Progress, progress_path, read_progress, save_progress
from dtfm_lab.course.teaching import VARIANT, answer_id, points_of
from dtfm_lab.domain.errors import FileError, LabError
from dtfm_lab.lab.missions import RECORD

COLUMNS = [
    "student", "mission", "points", "of", "tries", "hints", "answer_shown", "reason", "same_as", "notebook",
]  # fmt: skip
KEPT = ("PATH", "PYTHONPATH", "VIRTUAL_ENV", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "NUMBA_CACHE_DIR")
"""Variables of the marker's environment that a student's code gets."""
NOT_ANSWERED = ("# YOUR CODE HERE", "raise NotImplementedError")
Row = dict[str, Any]


@dataclass(frozen=True)
class HandIn:
    """One notebook of one student."""

    student: str
    path: Path
    folder: Path
    """What the notebooks are in."""


@dataclass(frozen=True)
class Marker:
    """How hand-ins are marked. A server is taken for a hand-in, and given back after it."""

    seconds: float
    """Longest for the cells of a notebook, and for each check."""
    servers: queue.SimpleQueue[Server]
    """Those that do nothing at the moment."""
    key: bytes | None = None
    """What the variants of the numbers are made with; None where numbers are drawn from names."""

    def mark(self, hand_in: HandIn) -> list[Row]:
        """The rows of one notebook, without ``same_as``."""
        server = self.servers.get()
        try:
            return list(self._rows(hand_in, server))
        finally:
            self.servers.put(server)

    def _rows(self, hand_in: HandIn, server: Server) -> Iterator[Row]:
        student, path = hand_in.student, hand_in.path
        about = {"student": student, "notebook": str(path.relative_to(hand_in.folder))}
        try:
            names, book = asked(path)
            if self.key is None and VARIANT in _source_of(book, "reader"):
                raise FileError(f"{path}: its numbers were drawn with a key; wanted --key with the file of that key")
            answers, done = self._answers(book, student, names, server)
        except LabError as error:
            yield about | {"mission": "", "points": 0, "of": 0} | _refused(error)
            return
        for name in names:
            answer = answers[name]
            verdict = _refused(answer.get("reason", ""))
            if "packed" in answer:
                verdict |= self._verdict(name, student, answer["packed"], server)
            of = points_of(missions[name])
            marks = {"mission": name, "points": of if verdict["passed"] else 0, "of": of}
            code = code_digest(_source_of(book, answer_id(name)))
            yield about | marks | verdict | done[name] | {"code": code}

    def _drawn(self, name: str, student: str) -> str:
        return student if self.key is None else variant_of(self.key, missions[name].lesson, student)

    def _answers(
        self, book: Any, student: str, names: list[str], server: Server
    ) -> tuple[dict[str, dict[str, Any]], dict[str, Row]]:
        """By mission ``{"packed": ...}``, or ``{"reason": ...}`` where there is no answer; and what was tried."""
        wanted = {answer_id(name): name for name in names}
        found: dict[str, dict[str, Any]] = {name: {"reason": "the notebook has no cell for it"} for name in names}
        cells = []
        for cell in book.cells:
            about = cell.metadata.get("nbgrader", {})
            name = wanted.get(about.get("grade_id", ""), "")
            if cell.cell_type != "code" or about.get("grade"):
                continue
            if name:
                found[name] = {"reason": "not answered"}
            if not all(each in cell.source for each in NOT_ANSWERED):
                cells.append([cell.source, name])
                if name:
                    found[name] = {}
        with tempfile.TemporaryDirectory(prefix="dtfm-lab-mark-", ignore_cleanup_errors=True) as folder:
            home = Path(folder)
            progress = home / "progress" / progress_path(student).name
            if self.key is not None:
                variants = {missions[name].lesson: Assignment(variant=self._drawn(name, student)) for name in names}
                save_progress(Progress(student, {}, [], assignments=variants), progress)
            job = {"kind": "execute", "folder": folder, "cells": cells, "environment": _environment(home, student)}
            said, why = server.do(job, self.seconds)
            for each in said:
                if each.get("mission") in found:
                    found[each["mission"]] = {key: each[key] for key in ("packed", "reason") if key in each}
            late = f"the notebook took longer than {self.seconds:.0f} s"
            for name in names:
                if not found[name]:
                    found[name] = {"reason": f"{late if why == LATE else 'its process died'} before or in this cell"}
            return found, _done(_record(book, student), progress, names)

    def _verdict(self, name: str, student: str, packed: object, server: Server) -> Row:
        job = {"kind": "check", "mission": name, "drawn": self._drawn(name, student), "packed": packed}
        said, why = server.do(job, self.seconds)
        if not said:
            late = f"its check took longer than {self.seconds:.0f} s"
            return _refused(late if why == LATE else "its check ended without a verdict")
        return _refused("") | said[0] | {"passed": said[0].get("passed") is True}


def mark_folder(folder: Path, seconds: float, *, key: bytes | None = None, at_once: int = 1) -> Iterator[list[Row]]:
    """Yield the rows of each notebook as it is marked, without ``same_as``; ``at_once`` of them are at any time.

    Raises FileError where there is none.
    """
    hand_ins = list(submissions(folder))
    if not hand_ins:
        raise FileError(f"{folder}: no notebook in it; wanted NAME.ipynb or NAME/.../*.ipynb, NAME a student's")
    count = min(at_once, len(hand_ins))
    pool = ThreadPoolExecutor(count)
    try:
        with servers(count) as free:
            marker = Marker(seconds, free, key)
            for done in as_completed([pool.submit(marker.mark, each) for each in hand_ins]):
                yield done.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def submissions(folder: Path) -> Iterator[HandIn]:
    """Students and their notebooks: ``ada.ipynb``, or ``ada/01/missions.ipynb`` as nbgrader collects them."""
    for path in sorted(folder.rglob("*.ipynb")):
        parts = path.relative_to(folder).parts
        if any(part.startswith(".") for part in parts):
            continue
        yield HandIn(parts[0] if len(parts) > 1 else path.stem, path, folder)


def with_equal_answers(rows: list[Row]) -> DataFrame:
    """The rows as a table, by student; ``same_as`` names who else has the same answer, where that tells something."""
    rows = sorted(rows, key=lambda row: (row["student"], row["notebook"]))
    worked = {name: code_digest(each.answer) for name, each in missions.items()}
    handed = [
        Handed(row["student"], row["mission"], row["passed"], row["digest"], row["ones_own"], row.get("code", ""))
        for row in rows
    ]
    for row, others in zip(rows, same_as(handed, worked), strict=True):
        row["same_as"] = others
    return DataFrame(rows, columns=COLUMNS)


def asked(path: Path) -> tuple[list[str], Any]:
    """Missions of the lesson of which a notebook has answer cells, so that deleting a cell does not delete the mark.

    Also the notebook. Raises FileError where the file is no notebook, or not one of an assignment.
    """
    try:
        book = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
        ids = {str(cell.metadata.get("nbgrader", {}).get("grade_id", "")) for cell in book.cells}
    except Exception:  # nbformat raises many kinds
        book, ids = None, set()
    lessons = {each.lesson for each in missions.values() if answer_id(each.name) in ids}
    if not lessons:
        raise FileError(
            f"{path}: no answer cell of a mission; wanted a notebook that dtfm-lab missions assignment wrote"
        )
    return [each.name for each in missions.values() if each.lesson in lessons], book


def _source_of(book: Any, grade_id: str) -> str:
    found = [cell.source for cell in book.cells if cell.metadata.get("nbgrader", {}).get("grade_id") == grade_id]
    return str(found[0]) if found else ""


def _refused(reason: object) -> Row:
    """The verdict on what is no answer."""
    return {"passed": False, "reason": str(reason), "digest": "", "ones_own": False}


def _record(book: Any, student: str) -> Mapping[str, Any]:
    """What the last board in the saved notebook says of this student: by mission tries, hints and answer looked at."""
    found: Mapping[str, Any] = {}
    for cell in book.cells:
        for output in cell.get("outputs", ()):
            record = output.get("data", {}).get(RECORD)
            if isinstance(record, dict) and record.get("reader") == student:
                found = record["missions"] if isinstance(record.get("missions"), dict) else {}
    return found


def _done(record: Mapping[str, Any], progress: Path, names: list[str]) -> dict[str, Row]:
    """By mission the tries, hints and answers looked at: those of the record, and those of the hand-in's own cells.

    Empty where the notebook has no record, as when its last cell was not run.
    """
    try:
        own = read_progress(progress).missions
    except LabError:
        own = {}
    done: dict[str, Row] = {}
    for name in names:
        kept = record.get(name)
        here = own.get(name)
        tries, hints = (here.tries, here.hints) if here else (0, 0)
        shown = bool(here and here.answer_shown)
        if isinstance(kept, list) and len(kept) == 3 and all(isinstance(each, int) for each in kept):
            done[name] = {"tries": tries + kept[0], "hints": hints + kept[1], "answer_shown": shown or bool(kept[2])}
        else:
            done[name] = {"tries": tries or "", "hints": hints or "", "answer_shown": shown or ""}
    return done


def _environment(folder: Path, reader: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    own = {"HOME": str(folder), "DTFM_LAB_READER": reader, "DTFM_LAB_PROGRESS": str(folder / "progress")}
    own |= {"DTFM_LAB_WARM_S": "0", "JUPYTER_PLATFORM_DIRS": "1", "IPYTHONDIR": str(folder / "ipython")}
    return kept | own | {GRADED: EVERY_LESSON}


class Server:
    """A process that does one job at a time; one that was killed by a job is replaced before the next."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def do(self, job: Mapping[str, Any], seconds: float) -> tuple[list[dict[str, Any]], str]:
        """What a job said, and why it ended: empty where it was done."""
        process = self.started()
        pid = 0
        try:
            assert process.stdin
            assert process.stdout
            process.stdin.write(json.dumps({**job, "seconds": seconds}) + "\n")
            process.stdin.flush()
            pid = json.loads(process.stdout.readline())["pid"]
            answer = json.loads(process.stdout.readline())
            return answer["said"], answer["why"]
        except (OSError, ValueError, KeyError):
            self.stop()
            if pid:
                with suppress(OSError):
                    os.killpg(pid, signal.SIGKILL)
            return [], DIED

    def started(self) -> subprocess.Popen[str]:
        """Its process, which begins to load where there is none."""
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "dtfm_lab.cli.marking_server"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        return self._process

    def stop(self) -> None:
        """End the process, and with it the job that it does."""
        if (process := self._process) is not None:
            self._process = None
            process.terminate()
            process.communicate()


@contextmanager
def servers(count: int) -> Iterator[queue.SimpleQueue[Server]]:
    """Servers that load at once, and are ended with the block."""
    made = [Server() for _ in range(count)]
    free: queue.SimpleQueue[Server] = queue.SimpleQueue()
    try:
        for server in made:
            server.started()
            free.put(server)
        yield free
    finally:
        for server in made:
            server.stop()
