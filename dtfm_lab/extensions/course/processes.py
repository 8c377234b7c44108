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
        orders: list[dict[str, Any]] = []
        for rank in range(n):
            own = given | (dict(each[rank]) if each else {})
            orders.append(
                {"file": str(path), "function": function, "rank": rank, "n": n, "folder": folder, "given": own}
            )
        # Loading torch takes seconds. On Linux, one process loads it and is forked for the others.
        groups = [orders] if sys.platform == "linux" else [[order] for order in orders]
        running = [_started(group, Path(folder)) for group in groups]
        try:
            return [
                done
                for process, group in zip(running, groups, strict=True)
                for done in _done(process, [order["rank"] for order in group], Path(folder))
            ]
        finally:
            # Also after a failure: the others would wait for the one that failed. Forks end with their parent.
            for process in running:
                process.kill()
                process.wait()


def _started(orders: list[dict[str, Any]], folder: Path) -> subprocess.Popen[bytes]:
    """Start the process for these orders. What each rank writes to standard error is in ``RANK.err``."""
    path = folder / f"{orders[0]['rank']}.orders.json"  # a command line has no room for many numbers
    path.write_text(json.dumps(orders), encoding="utf-8")
    command = [sys.executable, "-m", "dtfm_lab.extensions.course.gloo_process", str(path)]
    with error_file(folder, orders[0]["rank"]).open("wb") as said:
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said, env=_own_path())


def error_file(folder: Path, rank: int) -> Path:
    return folder / f"{rank}.err"


def result_file(folder: Path, rank: int) -> Path:
    return folder / f"{rank}.json"


def _own_path() -> dict[str, str]:
    """Return the environment in which a child process finds the same package as this process."""
    here = str(Path(__file__).parents[3])
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))}


def _done(process: subprocess.Popen[bytes], ranks: Sequence[int], folder: Path) -> list[Done]:
    """Wait for a process that runs these ranks, and return what each returned. Raises LabError for the first that
    failed."""
    try:
        status = process.wait(timeout=LONGEST_S)
    except subprocess.TimeoutExpired:
        status = None
    # The process waits for its ranks in this order, and ends when one has failed.
    missing = (rank for rank in ranks if not result_file(folder, rank).exists())
    if status is None:
        raise LabError(
            f"process {next(missing, ranks[-1])} has waited for {LONGEST_S:.0f} s: does every send have its receive, "
            "in the same order?"
        )
    if status != 0:
        rank = next(missing, ranks[-1])
        said = error_file(folder, rank).read_text(encoding="utf-8", errors="replace")
        lines = [line for line in said.splitlines() if line.strip()] or ["it said nothing"]
        raise LabError(f"process {rank} failed: {lines[-1][:200]}")
    found = [json.loads(result_file(folder, rank).read_text(encoding="utf-8")) for rank in ranks]
    return [Done(one["value"], [(kind, n_bytes) for kind, n_bytes in one["messages"]]) for one in found]
