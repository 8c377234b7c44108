"""The process behind a marker that has the lab loaded and forks one process for each hand-in, and for each answer.

``python -m dtfm_lab.cli.marking_server`` reads a job from each line of its standard input. For each it writes the id of
the process that does it, then what that said and why it ended. Loading the lab takes seconds and a fork milliseconds,
so a class waits for its own code alone. A job's process leads a session of its own, writes nowhere but into its pipe,
and is killed with its session when it is done or its time is over.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from dtfm_lab import lab
from dtfm_lab.course import missions
from dtfm_lab.course.graded import pack, unpack
from dtfm_lab.course.likeness import digest_of, is_ones_own
from dtfm_lab.domain.errors import LabError

Job = Mapping[str, Any]
Say = Callable[[dict[str, Any]], None]
LATE, DIED = "late", "died"
"""Why a job ended that was not done."""
END = b'{"end": true}\n'
"""The last line of a job that was done."""
LONGEST_REASON = 300
MOST_BYTES = 256 << 20
"""Most that a job may say; one that says more has died."""


def main() -> None:
    """Do what stands on standard input, once what most answers need is compiled, or loaded from the cache."""
    lab.simulate(lab.plan("lecture-hall", "tiny", seed=0, steps=1))
    for line in sys.stdin:
        job = json.loads(line)
        _do(job, float(job["seconds"]))


def _do(job: Job, seconds: float) -> None:
    receiving, sending = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(receiving)
        _be_child(job, sending)
    os.close(sending)
    _write({"pid": pid})
    try:
        said, why = _heard(receiving, time.monotonic() + seconds)
    finally:
        os.close(receiving)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)  # it may not lead its session yet
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)
    _write({"said": said, "why": why})


def _write(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def _heard(receiving: int, deadline: float) -> tuple[list[dict[str, Any]], str]:
    """What a job said until it was done, died or was late. What it left running may hold the pipe open."""
    content, why = bytearray(), LATE
    while (left_s := deadline - time.monotonic()) > 0:
        if not select.select([receiving], [], [], left_s)[0]:
            continue
        chunk = os.read(receiving, 1 << 16)
        content += chunk
        if content.endswith(END):
            why = ""
            break
        if not chunk or len(content) > MOST_BYTES:
            why = DIED
            break
    said = []
    for line in bytes(content[: content.rfind(b"\n") + 1]).removesuffix(END).splitlines():
        with suppress(ValueError):
            said.append(json.loads(line))
    return [each for each in said if isinstance(each, dict)], why


def _be_child(job: Job, sending: int) -> None:
    """Do a job in a process of its own, which ends here."""
    try:
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nowhere, descriptor)

        def say(message: dict[str, Any]) -> None:
            left = memoryview(json.dumps(message).encode() + b"\n")
            while left:
                left = left[os.write(sending, left) :]

        {"execute": _execute, "check": _check}[job["kind"]](job, say)
        os.write(sending, END)
    finally:
        os._exit(0)


def _execute(job: Job, say: Say) -> None:
    """Execute the cells of a notebook; say by mission what was answered, or why nothing was."""
    os.chdir(job["folder"])
    os.environ.clear()
    os.environ.update(job["environment"])
    sys.path.insert(0, "")
    shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    for source, name in job["cells"]:
        problem = _problem(shell, source)
        if name:
            say({"mission": name} | ({"reason": problem} if problem else _taken(shell.user_ns.get("answer"))))


def _problem(shell: Any, source: str) -> str:
    """Run a cell; return why it gives no answer, empty where it may."""
    result = shell.run_cell(source)
    error = result.error_before_exec or result.error_in_exec
    return "" if error is None else f"its cell raised {type(error).__name__}: {error}"[:LONGEST_REASON]


def _taken(answer: object) -> dict[str, Any]:
    try:
        return {"packed": pack(answer)}
    except Exception as error:  # an answer may be anything
        return {"reason": f"its answer cannot be taken out: {error}"[:LONGEST_REASON]}


def _check(job: Job, say: Say) -> None:
    """Say whether an answer wins."""
    try:
        answer = unpack(job["packed"])
        verdict = missions[job["mission"]].verdict(answer, job["drawn"])
        found = {"digest": digest_of(answer), "ones_own": is_ones_own(answer)}
        say({"passed": verdict.passed, "reason": verdict.reason, **found})
    except LabError as error:
        say({"passed": False, "reason": str(error)})
    except Exception as error:  # an answer's own code may raise anything
        say({"passed": False, "reason": f"its check raised {type(error).__name__}: {error}"[:LONGEST_REASON]})


if __name__ == "__main__":
    main()
