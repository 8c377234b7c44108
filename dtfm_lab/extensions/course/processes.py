"""Runs a reader's function in several processes that torch.distributed connects with gloo."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dtfm_lab.domain.errors import LabError

LONGEST_S = 300.0
"""Seconds after which processes that wait for each other are ended."""
MOST = 8


HEADER = """\
import torch
import torch.distributed as dist

from dtfm_lab.extensions.course.gloo_process import pieces


"""
"""Code that precedes a reader's function in its process."""


class Done(NamedTuple):
    """What one process returned, and its messages."""

    value: Any
    messages: Sequence[tuple[str, int]]
    """Each ``send`` and ``recv`` in order, with its bytes."""

    @property
    def sent_bytes(self) -> int:
        """Bytes of all tensors that the process sent."""
        return sum(n_bytes for kind, n_bytes in self.messages if kind == "send")


def distributed(function: Callable[..., Any]) -> Callable[..., list[Done]]:
    """Return a function ``run(n, each=(), **given)`` that runs your function in ``n`` processes. Hand in ``run`` as a
    mission's answer.

    Each process calls ``function(rank, n, **given)``, with ``each[rank]`` as further arguments. The processes are one
    gloo group. Your function can use ``torch``, ``dist`` (torch.distributed, where only ``send``, ``recv``, ``isend``
    and ``irecv`` work) and ``pieces``, but nothing else from your notebook. Arguments are numbers, texts and lists. So
    is the result; a tensor is returned as a list. Raises LabError for a function whose source cannot be read.
    """
    try:
        # Another process cannot get the function itself, only its source.
        source = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        raise LabError(
            f"the source of {function!r:.60} cannot be read; wanted a function of a cell or a file"
        ) from None

    def run(n: int, each: Sequence[dict[str, Any]] = (), **given: Any) -> list[Done]:
        return in_processes(source, function.__name__, n, each, given)

    return run


def in_processes(
    source: str, function: str, n: int, each: Sequence[dict[str, Any]], given: dict[str, Any]
) -> list[Done]:
    """Run a function in ``n`` processes at once, and return what each returned, by rank.

    Raises LabError if a process fails or takes longer than ``LONGEST_S``, or for an impossible ``n``.
    """
    if not 1 <= n <= MOST or (each and len(each) != n):
        raise LabError(f"found {n} processes and {len(each)} sets of arguments; wanted 1 to {MOST}, and one for each")
    with tempfile.TemporaryDirectory(prefix="dtfm-gloo-") as folder:
        path = Path(folder) / "own.py"
        path.write_text(HEADER + source, encoding="utf-8")
        running = []
        for rank in range(n):
            asked = {"file": str(path), "function": function, "rank": rank, "n": n, "folder": folder}
            asked["given"] = given | (dict(each[rank]) if each else {})
            command = [sys.executable, "-m", "dtfm_lab.extensions.course.gloo_process", json.dumps(asked)]
            running.append(
                subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=_own_path())
            )
        try:
            return [_done(process, rank, Path(folder)) for rank, process in enumerate(running)]
        finally:
            # Also after a failure: the others would wait for the one that failed.
            for process in running:
                process.kill()
                process.communicate()


def _own_path() -> dict[str, str]:
    """Return the environment in which a child process finds the same package as this process."""
    here = str(Path(__file__).parents[3])
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))}


def _done(process: subprocess.Popen[str], rank: int, folder: Path) -> Done:
    try:
        _, said = process.communicate(timeout=LONGEST_S)
    except subprocess.TimeoutExpired:
        raise LabError(
            f"process {rank} has waited for {LONGEST_S:.0f} s: does every send have its receive, in the same order?"
        ) from None
    if process.returncode != 0:
        lines = [line for line in said.splitlines() if line.strip()] or ["it said nothing"]
        raise LabError(f"process {rank} failed: {lines[-1][:200]}")
    found = json.loads((folder / f"{rank}.json").read_text(encoding="utf-8"))
    return Done(found["value"], [(kind, n_bytes) for kind, n_bytes in found["messages"]])
