"""Executes a student's notebook in a kernel and a folder of its own, and takes the answers out as data.

The checks in the notebook are not executed, so it does not matter what a student has made of them.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

from dtfm_lab.course.teaching import answer_id
from dtfm_lab.domain.errors import FileError

KEPT = ("PATH", "PYTHONPATH", "VIRTUAL_ENV", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "NUMBA_CACHE_DIR")
"""Variables of the marker's environment that a student's kernel gets."""
TAKE = """
import json as _json
from dtfm_lab.course.handing_in import pack as _pack
with open({path!r}, "w") as _file:
    _json.dump(_pack(globals().get("answer")), _file)
"""
NOT_ANSWERED = ("# YOUR CODE HERE", "raise NotImplementedError")


def answers_of(path: Path, reader: str, missions: list[str], seconds: float) -> dict[str, dict[str, Any]]:
    """What a notebook answers: by mission ``{"packed": ...}``, or ``{"reason": ...}`` where there is no answer.

    ``seconds`` is the limit of the whole notebook. Raises FileError where the file is no notebook.
    """
    try:
        notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    except Exception as error:  # nbformat raises many kinds
        raise FileError(f"{path}: no notebook: {str(error).splitlines()[0][:200]}") from None
    with tempfile.TemporaryDirectory(prefix="dtfm-lab-mark-") as folder:
        return _execute(notebook, Path(folder), reader, missions, seconds)


def _execute(
    notebook: Any, folder: Path, reader: str, missions: list[str], seconds: float
) -> dict[str, dict[str, Any]]:
    wanted = {answer_id(name): name for name in missions}
    found: dict[str, dict[str, Any]] = {name: {"reason": "the notebook has no cell for it"} for name in missions}
    client = NotebookClient(
        notebook,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        extra_arguments=["--log-level=ERROR"],
    )
    deadline = time.monotonic() + seconds
    with client.setup_kernel(env=_environment(folder, reader), cwd=str(folder)):
        for index, cell in enumerate(list(notebook.cells)):
            about = cell.metadata.get("nbgrader", {})
            if cell.cell_type != "code" or about.get("grade"):
                continue
            name = wanted.get(about.get("grade_id", ""))
            try:
                client.timeout = max(1, int(deadline - time.monotonic()))
                problem = _run(client, cell, index)
                if name is not None:
                    found[name] = {"reason": problem} if problem else _taken(client, folder, index)
            except (CellTimeoutError, DeadKernelError) as error:
                dead = isinstance(error, DeadKernelError)
                why = "its kernel died" if dead else f"the notebook took longer than {seconds:.0f} s"
                for left in [each for each in missions if "packed" not in found[each]]:
                    found[left] = {"reason": f"{why} before or in this cell"}
                break
    return found


def _run(client: NotebookClient, cell: Any, index: int) -> str:
    """Execute a cell; return why it gives no answer, empty where it may."""
    if all(each in cell.source for each in NOT_ANSWERED):
        return "not answered"
    try:
        client.execute_cell(cell, index)
    except CellExecutionError as error:
        return f"its cell raised {error.ename}: {error.evalue}"[:300]
    return ""


def _taken(client: NotebookClient, folder: Path, index: int) -> dict[str, Any]:
    path = folder / f"answer-{index}.json"
    taking = nbformat.v4.new_code_cell(TAKE.format(path=str(path)))  # type: ignore[no-untyped-call]
    try:
        client.execute_cell(taking, index)
        return {"packed": json.loads(path.read_text())}
    except CellExecutionError as error:
        return {"reason": f"its answer cannot be taken out: {error.evalue}"[:300]}
    except (OSError, ValueError):
        return {"reason": "its answer cannot be taken out"}


def _environment(folder: Path, reader: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    own = {"HOME": str(folder), "DTFM_LAB_READER": reader, "DTFM_LAB_PROGRESS": str(folder / "progress")}
    return kept | own | {"DTFM_LAB_WARM_S": "0", "JUPYTER_PLATFORM_DIRS": "1", "IPYTHONDIR": str(folder / "ipython")}
