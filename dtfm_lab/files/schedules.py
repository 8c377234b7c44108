"""Schedules as text and as CSV.

``.txt`` begins with the line ``dtfm_schedule 1 NAME``, followed by one line per device of a pipeline with its passes in
order, such as ``0F0 0F1 0B0 0B1``. ``.csv`` is the compute-only format of torch.distributed.pipelining: one row per
rank, one pass per cell, and empty cells while a rank is idle. Extra blanks and empty cells are accepted and not
written. CSV holds no name, so the schedule takes the name of its file.
"""

import csv
import io
import os
from pathlib import Path

from dtfm_lab.domain.errors import FileError, ScheduleError
from dtfm_lab.domain.network import LONGEST_NAME, is_plain, shortened
from dtfm_lab.domain.schedule import PASSES, Action, Schedule
from dtfm_lab.files.reading import ending_of, read_text, title_of, write_text

HEADER = "dtfm_schedule"
VERSION = "1"
ENDINGS = (".csv", ".txt")


def save_schedule(schedule: Schedule, path: str | os.PathLike[str]) -> Path:
    """Write a schedule in the format that the path's suffix names. Raises FileError for another suffix, a name that the
    format cannot hold, or if the file cannot be written."""
    path = Path(path)
    if ending_of(path, ENDINGS) == ".csv":
        rows = io.StringIO()
        csv.writer(rows, lineterminator="\n").writerows(order.split() for order in schedule.orders)
        return write_text(path, rows.getvalue())
    _check_name(schedule.name, str(path))
    return write_text(path, "\n".join([f"{HEADER} {VERSION} {schedule.name}", *schedule.orders]) + "\n")


def load_schedule(path: str | os.PathLike[str]) -> Schedule:
    """Read a schedule from a ``.txt`` or ``.csv`` file.

    Raises FileError if the file cannot be read, if a word is not a pass (with its place in the file), or if the passes
    do not form a valid schedule.
    """
    path = Path(path)
    if ending_of(path, ENDINGS) == ".csv":
        name, rows, places = title_of(path), _cells(path), ("row", "cell")
    else:
        (name, rows), places = _words(path), ("line", "word")
    programs: list[tuple[Action, ...]] = []
    for number, words in rows:
        where = f"{path.name}: {places[0]} {number}, {places[1]}"
        program = tuple(_pass(word, f"{where} {i}") for i, word in enumerate(words, start=1) if word.strip())
        programs += [program] if program else []
    # The file does not say how many there are, so the highest number tells.
    n_microbatches = 1 + max((action.microbatch or 0 for program in programs for action in program), default=-1)
    try:
        return Schedule(name, n_microbatches, tuple(programs))
    except ScheduleError as error:
        raise FileError(f"{path.name}: {error}") from None


def _pass(word: str, where: str) -> Action:
    """Return the computation that a word such as ``0F3`` stands for. Raises FileError for any other word."""
    try:
        action = Action.parse(word)
    except ScheduleError as error:
        raise FileError(f"{where}: {error}") from None
    if action.kind not in PASSES or action.microbatch is None or action.peer is not None:
        raise FileError(f"{where}: {action} is not a pass; wanted computations only, such as 0F3, 2B0, 1I3 or 1W3")
    return action


def _words(path: Path) -> tuple[str, list[tuple[int, list[str]]]]:
    """Return the name, and the line number and words of each line after the first."""
    first, *lines = read_text(path).splitlines() or [""]
    kind, version, name = (part.strip() for part in (first.split(maxsplit=2) + 3 * [""])[:3])
    if kind != HEADER:
        raise FileError(f"{path.name}: line 1 is {shortened(first)}; wanted {HEADER} {VERSION} and a name")
    if version != VERSION:
        raise FileError(f"{path.name}: {HEADER} is version {shortened(version)}; this release reads version {VERSION}")
    _check_name(name, f"{path.name}: line 1")
    return name, [(number, line.split()) for number, line in enumerate(lines, start=2)]


def _cells(path: Path) -> list[tuple[int, list[str]]]:
    """Return the row number and cells of each row."""
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    try:
        return list(enumerate(reader, start=1))
    except csv.Error as error:
        raise FileError(f"{path.name}: line {reader.line_num}: broken CSV: {error}") from None


def _check_name(name: str, where: str) -> None:
    if name != name.strip() or not 0 < len(name) <= LONGEST_NAME or not is_plain(name):
        raise FileError(
            f"{where}: the schedule is named {shortened(name)}; wanted plain text of 1 to {LONGEST_NAME} characters, "
            f"no blanks around it"
        )
