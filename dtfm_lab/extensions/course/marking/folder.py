"""Marks the notebooks of a class: one row per student and mission.

Each notebook is executed in a separate process, folder and environment, and its answers are taken out as data. Checks
in the notebook are not executed, so students cannot tamper with them. Each answer is checked in another process, in
which no code of the student runs. A function is called where it was made: the check sends it arguments and gets back
the result. ``server`` forks these processes, and ``jobs`` is what they do.
"""

from __future__ import annotations

import os
import socket
import time
import unicodedata
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pandas import DataFrame

from dtfm_lab.domain.errors import FileError, LabError
from dtfm_lab.extensions.course.api import missions
from dtfm_lab.extensions.course.graded import EVERY_LESSON, GRADED, variant_of
from dtfm_lab.extensions.course.marking.channel import Ended, Late, Message, Nonsense
from dtfm_lab.extensions.course.marking.descendants import MEMORY, PROCESSES
from dtfm_lab.extensions.course.marking.files import Cell, HandIn, cells_of, in_one_line, missions_in, submissions
from dtfm_lab.extensions.course.marking.processes import JobLost, MarkingJob, Server, server
from dtfm_lab.extensions.course.missions import RECORD
from dtfm_lab.extensions.course.teaching import VARIANT, answer_id, points_of

COLUMNS = ["student", "mission", "points", "of", "tries", "hints", "answer_shown", "reason", "notebook"]
KEPT = ("PATH", "PYTHONPATH", "VIRTUAL_ENV", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "NUMBA_CACHE_DIR")
"""Variables of the marker's environment that a student's code gets."""
NOT_ANSWERED = ("# YOUR CODE HERE", "raise NotImplementedError")
MOST_TRIES = 10**6
"""Maximum number of tries and of hints. Larger numbers in a record are reduced to it."""
FORMULAS = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet computes a cell that begins with one of these, possibly after blanks."""
Row = dict[str, Any]


@dataclass(frozen=True)
class Marker:
    """The settings with which hand-ins are marked."""

    seconds: float
    """Maximum seconds for the cells of a notebook, and for each check."""
    memory_bytes: int
    """Maximum memory of all processes of a notebook together, and of a check."""
    server: Server
    key: bytes | None = None
    """Key that makes the variants of the numbers; None if the numbers follow from names."""
    hidden: tuple[str, ...] = ()
    """Paths that no student's code may see."""
    alone: bool = False
    """True if nothing else is marked at the same time, so that the notebook alone causes whatever happens."""

    def mark(self, hand_in: HandIn) -> list[Row]:
        """Return the rows of one notebook. Raises JobLost if another notebook may have killed the process that marked
        it."""
        about = {"student": hand_in.student, "notebook": str(hand_in.path.relative_to(hand_in.folder))}
        try:
            return [about | row for row in self._rows(hand_in)]
        except LabError as error:
            return [about | {"mission": "", "points": 0, "of": 0} | _refused(error)]
        except JobLost:
            raise
        except Exception as error:  # one notebook, whatever is in it, does not keep the others from being marked
            why = f"it cannot be marked ({type(error).__name__}: {error}); mark it by hand"
            return [about | {"mission": "", "points": 0, "of": 0} | _refused(why)]

    def _rows(self, hand_in: HandIn) -> list[Row]:
        student = hand_in.student
        cells = cells_of(hand_in)
        names = missions_in(hand_in, cells)
        if self.key is None and any(cell.grade_id == "reader" and VARIANT in cell.source for cell in cells):
            raise FileError(
                f"{hand_in.where}: its numbers were drawn with a key; wanted --key with the file of that key"
            )
        with self.server.job("execute", self.memory_bytes, self.hidden) as job:
            answers, tries = self._executed(cells, student, names, job)
            record = _record(cells, student)
            rows = []
            for name in names:
                answer = answers[name]
                verdict = (
                    _refused(answer["reason"]) if "reason" in answer else self._verdict(name, student, answer, job)
                )
                of = points_of(missions[name])
                marks = {"mission": name, "points": of if verdict["passed"] else 0, "of": of}
                rows.append(marks | verdict | _done(record.get(name), tries.get(name)))
            return rows

    def _why(self, job: MarkingJob) -> str:
        """Return why a job ended by itself. Raises JobLost if that is unknown and other notebooks were marked at the
        same time."""
        if (why := job.end()) is None and not self.alone:
            raise JobLost
        if why == MEMORY:
            return f"its processes took more than {self.memory_bytes / 2**30:g} GiB of memory"
        return "it started more processes than a notebook may" if why == PROCESSES else "its process died"

    def _sample(self, name: str, student: str) -> str:
        return student if self.key is None else variant_of(self.key, missions[name].lesson, student)

    def _executed(
        self, cells: list[Cell], student: str, names: list[str], job: MarkingJob
    ) -> tuple[dict[str, Message], Mapping[str, Any]]:
        """Execute the cells. Return two mappings by mission. The first has the answer as ``{"packed": ..., "asks":
        ...}``, or ``{"reason": ...}`` if it is missing. The second has the tries that the cells recorded. It may hold
        anything, because it comes from the student's process."""
        found, executed = _to_execute(cells, names)
        variants = {} if self.key is None else {missions[name].lesson: self._sample(name, student) for name in names}
        order = {"cells": executed, "environment": _environment(student), "reader": student, "missions": names}
        # One deadline for the whole notebook, however many messages it sends.
        deadline = time.monotonic() + self.seconds
        tries: object = {}
        try:
            job.channel.send(order | {"variants": variants}, seconds=self.seconds)
            while "done" not in (said := job.channel.receive(deadline)):
                if isinstance(name := said.get("mission"), str) and name in found:
                    found[name] = _handed(said)
            tries = said["done"]
            why = ""
        except Late:
            why = f"the notebook took longer than {self.seconds:.0f} s"
        except Nonsense as error:
            why = f"its process wrote {error} where an answer was wanted"
        except Ended:
            why = self._why(job)
        for name in names:
            if not found[name]:
                found[name] = {"reason": f"{why or 'its process said nothing'} before or in this cell"}
        return found, tries if isinstance(tries, dict) else {}

    def _verdict(self, name: str, student: str, answer: Message, executing: MarkingJob) -> Row:
        """Check an answer in a process in which no student's code has run. Return the verdict."""
        deadline = time.monotonic() + self.seconds
        order = {"mission": name, "drawn": self._sample(name, student), "packed": answer["packed"]}
        theirs, checks = socket.socketpair()
        with theirs, checks, self.server.job("check", self.memory_bytes) as job:
            try:
                if asks := answer["asks"]:
                    executing.channel.send({"answer": name}, [theirs.fileno()], self.seconds)
                # Closed here, so that the check learns when the student's process ends.
                theirs.close()
            except (Ended, Late):
                return _refused("its process ended before its function was called")
            try:
                job.channel.send(order | {"asks": asks}, [checks.fileno()] if asks else (), self.seconds)
                checks.close()
                said = job.channel.receive(deadline)
            except Late:
                return _refused(f"its check took longer than {self.seconds:.0f} s")
            except (Ended, Nonsense):
                return _refused(f"its check ended without a verdict: {self._why(job)}")
        return {"passed": said.get("passed") is True, "reason": in_one_line(said.get("reason"))}


def mark_folder(
    folder: Path,
    seconds: float,
    *,
    key: bytes | None = None,
    at_once: int = 1,
    memory_bytes: int = 4 << 30,
    isolate: bool = True,
    hidden: tuple[Path, ...] = (),
) -> Iterator[list[Row]]:
    """Yield the rows of each notebook as soon as it is marked. Up to ``at_once`` are marked at the same time.

    An empty list comes first if ``isolate`` was requested but this user cannot build namespaces on this machine.
    ``hidden`` paths are kept from students' code, in addition to the folder and your home folder. Raises FileError if
    there is no notebook.
    """
    hand_ins = list(submissions(folder))
    if not hand_ins:
        raise FileError(f"{folder}: no notebook in it; wanted NAME.ipynb or NAME/.../*.ipynb, NAME a student's")
    pool = ThreadPoolExecutor(min(at_once, len(hand_ins)))
    try:
        with server(folder, isolate=isolate) as forks:
            if isolate and not forks.walls:
                yield []
            paths = tuple(str(path.resolve()) for path in (folder, Path.home(), *hidden))
            marker = Marker(seconds, memory_bytes, forks, key, paths)
            running = {pool.submit(marker.mark, each): each for each in hand_ins}
            again = []
            for done in as_completed(running):
                try:
                    yield done.result()
                except JobLost:
                    # Marked again alone at the end, when no other notebook can disturb it.
                    again.append(running[done])
            for hand_in in again:
                yield replace(marker, alone=True).mark(hand_in)
    finally:
        # Jobs that still run end with the server, so nothing waits for them.
        pool.shutdown(wait=False, cancel_futures=True)


def table(rows: list[Row]) -> DataFrame:
    """Return the rows as a table, by student. Cells that a spreadsheet would compute begin with an apostrophe."""
    rows = sorted(rows, key=lambda row: (row["student"], row["notebook"]))
    return DataFrame([{name: _as_text(row.get(name, "")) for name in COLUMNS} for row in rows], columns=COLUMNS)


def _as_text(value: object) -> object:
    if not isinstance(value, str):
        return value
    wide = unicodedata.normalize("NFKC", value)  # there are a wide = and a wide @, too
    begins = wide.startswith(FORMULAS) or wide.lstrip().startswith(FORMULAS)
    return in_one_line(f"'{value}" if begins else value, most=None)


def _to_execute(cells: list[Cell], names: list[str]) -> tuple[dict[str, Message], list[tuple[str, str]]]:
    """Return a mapping by mission, and the cells to execute. The mapping has ``{"reason": ...}`` if an answer is
    missing, otherwise ``{}``. Each cell is (source, mission), with "" for a cell that answers none."""
    wanted = {answer_id(name): name for name in names}
    found: dict[str, Message] = {name: {"reason": "the notebook has no cell for it"} for name in names}
    executed = []
    for cell in cells:
        if cell.graded:
            continue
        name = wanted.get(cell.grade_id, "")
        answered = not all(each in cell.source for each in NOT_ANSWERED)
        if name:
            found[name] = {} if answered else {"reason": "not answered"}
        # An unanswered cell would only raise, and no reader needs its output.
        if answered:
            executed.append((cell.source, name))
    return found, executed


def _handed(said: Message) -> Message:
    """Return a student's answer, or why it is missing, in the form that the marker expects. The process may have sent
    anything."""
    if isinstance(reason := said.get("reason"), str):
        return {"reason": reason}
    return {"packed": said.get("packed"), "asks": said.get("asks") is True}


def _refused(reason: object) -> Row:
    """Return the verdict that an answer does not win, with this reason."""
    return {"passed": False, "reason": in_one_line(reason)}


def _record(cells: list[Cell], student: str) -> Mapping[str, Any]:
    """Return what the last board in the saved notebook says about this student: by mission, tries, hints and whether
    the answer was shown."""
    found: Mapping[str, Any] = {}
    for cell in cells:
        for data in cell.outputs:
            record = data.get(RECORD)
            if isinstance(record, dict) and record.get("reader") == student:
                found = record["missions"] if isinstance(record.get("missions"), dict) else {}
    return found


def _done(kept: object, own: object) -> Row:
    """Return tries, hints and whether the answer was shown. The record in the saved notebook (``kept``) and what its
    cells recorded when they were executed (``own``) are added up.

    Fields are "" if they are 0 and the notebook has no record, for instance because its last cell was not run.
    """
    tries, hints, shown = _counted(own) or (0, 0, False)
    if (record := _counted(kept)) is not None:
        return {"tries": tries + record[0], "hints": hints + record[1], "answer_shown": shown or record[2]}
    return {"tries": tries or "", "hints": hints or "", "answer_shown": shown or ""}


def _counted(found: object) -> tuple[int, int, bool] | None:
    """Return ``found`` as (tries, hints, whether the answer was shown); None if it is anything else."""
    if not isinstance(found, list) or len(found) != 3 or not all(isinstance(each, int) for each in found):
        return None
    tries, hints, shown = found
    return min(max(int(tries), 0), MOST_TRIES), min(max(int(hints), 0), MOST_TRIES), bool(shown)


def _environment(reader: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    own = {"DTFM_LAB_READER": reader, "DTFM_LAB_WARM_S": "0", "JUPYTER_PLATFORM_DIRS": "1", GRADED: EVERY_LESSON}
    return kept | own
