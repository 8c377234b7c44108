"""The two jobs of a marker: executing a notebook, and checking one of its answers.

The process that executes knows only the student's own numbers. It hands over data, and calls the student's functions
when the check asks for it, over a socket between the two. The process that checks runs no code of a student.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import FunctionType
from typing import Any, NoReturn

from numba.core.caching import FunctionCache

from dtfm_lab.domain.errors import FileError, LabError
from dtfm_lab.extensions.course.api import missions
from dtfm_lab.extensions.course.checks import Raised
from dtfm_lab.extensions.course.handed_in import pack, unpack
from dtfm_lab.extensions.course.marking.channel import Ended, MarkingChannel, Message
from dtfm_lab.extensions.course.marking.files import LONGEST_REASON
from dtfm_lab.extensions.course.progress import Assignment, Progress, progress_path, read_progress, save_progress

Functions = dict[str, list[FunctionType]]


def execute(marker: MarkingChannel, folder: Path) -> None:
    """Execute the cells of a notebook. Report each mission's answer, or why it is missing. Then call the student's
    functions for the checks, until the marker closes the channel."""
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    job = marker.receive()
    FunctionCache.save_overload = _saved_where_possible  # type: ignore[method-assign]
    os.chdir(folder)
    # Students must not read the instructor's environment, which may hold keys.
    os.environ.clear()
    os.environ.update(job["environment"])
    own = {"HOME": folder, "TMPDIR": folder, "IPYTHONDIR": folder / "ipython", "DTFM_LAB_PROGRESS": folder / "progress"}
    os.environ.update({name: str(path) for name, path in own.items()})
    if job["variants"]:
        assigned = {lesson: Assignment(variant=variant) for lesson, variant in job["variants"].items()}
        save_progress(Progress(job["reader"], {}, [], assignments=assigned))
    # Before their code runs, which may set another reader.
    kept = progress_path(job["reader"])
    sys.path.insert(0, "")
    # No history: it would be a database file shared by all.
    shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    functions: Functions = {}
    for source, name in job["cells"]:
        problem = _problem(shell, source)
        if name:
            marker.send({"mission": name} | ({"reason": problem} if problem else _taken(name, shell, functions)))
    marker.send({"done": _tries(kept, job["missions"])})
    try:
        while True:
            name = marker.receive()["answer"]
            number = marker.descriptor()
            # A process for each check, so that a function that ends or hangs disturbs only one.
            if os.fork() == 0:
                _answer(MarkingChannel(socket.socket(fileno=number)), functions.get(name, []))
            os.close(number)
    except Ended:
        pass


def _saved_where_possible(cache: Any, signature: Any, data: Any, save: Any = FunctionCache.save_overload) -> None:
    """Save a kernel's machine code to the cache, unless the cache's folder is read-only inside the isolation."""
    with suppress(OSError):
        save(cache, signature, data)


def _problem(shell: Any, source: str) -> str:
    """Run a cell. Return the error that it raised; empty if it raised none."""
    result = shell.run_cell(source)
    error = result.error_before_exec or result.error_in_exec
    return "" if error is None else f"its cell raised {_said(error)}"


def _taken(name: str, shell: Any, functions: Functions) -> Message:
    own: list[FunctionType] = []
    try:
        taken = {"packed": pack(shell.user_ns.get("answer"), own), "asks": bool(own)}
    except Exception as error:  # an answer may be anything
        return {"reason": f"its answer cannot be taken out: {_said(error, plainly=FileError)}"}
    functions[name] = own
    return taken


def _said(error: BaseException, plainly: type[BaseException] | tuple[()] = ()) -> str:
    """Return the text of an error whose own methods may do anything."""
    try:
        text = str(error)
    except Exception:
        text = ""
    return (text if isinstance(error, plainly) else f"{type(error).__name__}: {text}")[:LONGEST_REASON]


def _tries(kept: Path, names: list[str]) -> Message:
    """Return [tries, hints, True if the answer was shown] by mission, as the executed cells recorded them. Empty if the
    record cannot be read."""
    try:
        own = read_progress(kept).missions if kept.exists() else {}
        return {name: [each.tries, each.hints, each.answer_shown] for name in names if (each := own.get(name))}
    except Exception:  # the cells may have written anything there
        return {}


def _answer(check: MarkingChannel, functions: list[FunctionType]) -> NoReturn:
    """Call the student's functions whenever a check asks for it, until the check is done. This process then ends."""
    try:
        while True:
            call = check.receive()
            try:
                found = functions[call["call"]](*(unpack(each) for each in call["arguments"]))
                said: Message = {"returned": _returned(found)}
            except Exception as error:  # the student's code may raise anything
                said = {"raised": _said(error)}
            check.send(said)
    finally:
        # Without cleaning up, because exit handlers may be the student's.
        os._exit(0)


def _returned(found: Any) -> Message:
    """Return a function's result as data. It may be a Series, a Fraction or another number that is not built into
    Python."""
    try:
        return pack(found)
    except FileError:
        if hasattr(found, "__array__"):
            return pack(found.__array__())
        if hasattr(found, "__float__"):
            return pack(float(found))
        raise


def check(marker: MarkingChannel, folder: Path) -> None:
    """Check whether an answer wins, and report it."""
    job = marker.receive()
    student = MarkingChannel(socket.socket(fileno=marker.descriptor())) if job["asks"] else None

    def ask(number: int, arguments: tuple[Any, ...]) -> object:
        if student is None:
            raise FileError("the answer has a function, but no process that can call it")
        try:
            student.send({"call": number, "arguments": [pack(each) for each in arguments]})
            said = student.receive()
        except Ended:
            raise Raised("SystemExit: its process ended") from None
        if "returned" in said:
            return unpack(said["returned"])
        raised = said.get("raised")
        raise Raised(raised[:LONGEST_REASON] if isinstance(raised, str) else "something: it returned no data")

    try:
        answer = unpack(job["packed"], ask)
        verdict = missions[job["mission"]].verdict(answer, job["drawn"])
        marker.send({"passed": verdict.passed, "reason": verdict.reason})
    except LabError as error:
        marker.send({"passed": False, "reason": str(error)})


JOBS: Mapping[str, Callable[[MarkingChannel, Path], None]] = {"execute": execute, "check": check}
