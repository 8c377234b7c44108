"""Marks notebooks of a class: a row for every student and mission.

Each notebook is executed in a kernel and a folder of its own, and its answers are taken out as data. The checks in it
are not executed, so it does not matter what a student has made of them: answers are checked in other processes, and one
that is code in a process for itself, so that it can spoil no other. ``python -m dtfm_lab.cli.marking`` is such a
process: it reads a line of JSON for each answer and writes one for each verdict.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from pandas import DataFrame

from dtfm_lab.course import missions
from dtfm_lab.course.handing_in import has_code, unpack
from dtfm_lab.course.progress import digest_of
from dtfm_lab.course.teaching import answer_id, points_of
from dtfm_lab.domain.errors import FileError, LabError

COLUMNS = ["student", "mission", "points", "of", "reason", "same_as", "notebook"]
Answer = tuple[str, dict[str, Any]]
"""A mission and the packed answer to it."""
KEPT = ("PATH", "PYTHONPATH", "VIRTUAL_ENV", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "NUMBA_CACHE_DIR")
"""Variables of the marker's environment that a student's kernel gets."""
TAKE = """
import json as _json
from dtfm_lab.course.handing_in import pack as _pack
with open({path!r}, "w") as _file:
    _json.dump(_pack(globals().get("answer")), _file)
"""
NOT_ANSWERED = ("# YOUR CODE HERE", "raise NotImplementedError")


def mark_folder(folder: Path, seconds: float) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of one notebook after the other, without ``same_as``. Raises FileError where there is none."""
    found = list(submissions(folder))
    if not found:
        raise FileError(f"{folder}: no notebook in it; wanted NAME.ipynb or NAME/.../*.ipynb, NAME a student's")
    for student, path in found:
        yield list(_rows(student, path, folder, seconds))


def submissions(folder: Path) -> Iterator[tuple[str, Path]]:
    """Students and their notebooks: ``ada.ipynb``, or ``ada/01/missions.ipynb`` as nbgrader collects them."""
    for path in sorted(folder.rglob("*.ipynb")):
        parts = path.relative_to(folder).parts
        if any(part.startswith(".") for part in parts):
            continue
        yield (parts[0] if len(parts) > 1 else path.stem), path


def with_equal_answers(rows: list[dict[str, Any]]) -> DataFrame:
    """The rows as a table; ``same_as`` names who else has the same answer, where many right answers are possible."""
    who: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in rows:
        who[row["mission"], row["digest"]].append(row["student"])
    for row in rows:
        mission = missions[row["mission"]] if row["digest"] else None
        telling = mission is not None and (mission.give is not None or mission.takes is not float)
        others = [each for each in who[row["mission"], row["digest"]] if each != row["student"]] if telling else []
        row["same_as"] = " ".join(dict.fromkeys(others))
    return DataFrame(rows, columns=COLUMNS)


def _rows(student: str, path: Path, folder: Path, seconds: float) -> Iterator[dict[str, Any]]:
    about = {"student": student, "notebook": str(path.relative_to(folder))}
    try:
        names = asked(path)
    except FileError as error:
        yield about | {"mission": "", "points": 0, "of": 0} | _refused(error)
        return
    try:
        answers = answers_of(path, student, names, seconds)
        packed = [(name, each["packed"]) for name, each in answers.items() if "packed" in each]
        verdicts = verdicts_of(packed, student, seconds)
    except LabError as error:
        answers, verdicts = {name: {"reason": str(error)} for name in names}, {}
    for name in names:
        verdict = verdicts.get(name) or _refused(answers[name].get("reason", ""))
        of = points_of(missions[name])
        yield about | {"mission": name, "points": of if verdict["passed"] else 0, "of": of} | verdict


def _refused(reason: object) -> dict[str, Any]:
    """The verdict on what is no answer."""
    return {"passed": False, "reason": str(reason), "digest": ""}


def asked(path: Path) -> list[str]:
    """Missions of the lesson of which a notebook has answer cells, so that deleting a cell does not delete the mark.

    Raises FileError where the file is no notebook, or not one of an assignment.
    """
    try:
        notebook = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        notebook = None
    cells = notebook.get("cells", []) if isinstance(notebook, dict) else []
    about = [cell.get("metadata", {}).get("nbgrader", {}) for cell in cells if isinstance(cell, dict)]
    ids = {str(each.get("grade_id", "")) for each in about if isinstance(each, dict)}
    lessons = {each.lesson for each in missions.values() if answer_id(each.name) in ids}
    if not lessons:
        raise FileError(
            f"{path}: no answer cell of a mission; wanted a notebook that dtfm-lab missions assignment wrote"
        )
    return [each.name for each in missions.values() if each.lesson in lessons]


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


def verdicts_of(answers: list[Answer], reader: str, seconds: float) -> dict[str, dict[str, Any]]:
    """By mission whether the answer wins, the reason, and the answer's digest. ``seconds`` limits each process."""
    data = [(name, packed) for name, packed in answers if not has_code(packed)]
    found = _checked(data, reader, seconds) if data else {}
    for name, packed in answers:
        if has_code(packed):
            found |= _checked([(name, packed)], reader, seconds)
    return found


def _checked(answers: list[Answer], reader: str, seconds: float) -> dict[str, dict[str, Any]]:
    lines = "".join(json.dumps([name, reader, packed]) + "\n" for name, packed in answers)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "dtfm_lab.cli.marking"],
            input=lines,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        said, why = done.stdout, "its check ended without a verdict"
    except subprocess.TimeoutExpired as late:
        said = late.stdout.decode() if isinstance(late.stdout, bytes) else (late.stdout or "")
        why = f"its check took longer than {seconds:.0f} s"
    found = {name: _refused(why) for name, _ in answers}
    for line in said.splitlines():
        try:
            verdict = json.loads(line)
            found[verdict["mission"]] = {key: verdict[key] for key in ("passed", "reason", "digest")}
        except (ValueError, KeyError, TypeError):
            continue  # what an answer's own code has printed
    return {name: found[name] for name, _ in answers}


def main() -> None:
    """Check what stands on standard input."""
    for line in sys.stdin:
        name, reader, packed = json.loads(line)
        try:
            answer = unpack(packed)
            verdict = missions[name].verdict(answer, reader)
            said = {"passed": verdict.passed, "reason": verdict.reason, "digest": digest_of(answer)}
        except LabError as error:
            said = _refused(error)
        except Exception as error:  # an answer's own code may raise anything
            said = _refused(f"its check raised {type(error).__name__}: {error}")
        print(json.dumps({"mission": name, **said}), flush=True)  # noqa: T201  to the marker


if __name__ == "__main__":
    main()
