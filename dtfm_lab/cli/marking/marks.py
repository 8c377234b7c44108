"""The marks of a class: a row for every student and mission."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pandas import DataFrame

from dtfm_lab.cli.marking.checking import verdicts_of
from dtfm_lab.cli.marking.executing import answers_of
from dtfm_lab.course import missions
from dtfm_lab.course.teaching import answer_id, points_of
from dtfm_lab.domain.errors import FileError, LabError

COLUMNS = ["student", "mission", "points", "of", "reason", "same_as", "notebook"]


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
        yield about | {"mission": "", "points": 0, "of": 0, "reason": str(error), "digest": ""}
        return
    try:
        answers = answers_of(path, student, names, seconds)
        packed = [(name, each["packed"]) for name, each in answers.items() if "packed" in each]
        verdicts = verdicts_of(packed, student, seconds)
    except LabError as error:
        answers, verdicts = {name: {"reason": str(error)} for name in names}, {}
    for name in names:
        verdict = verdicts.get(name) or {"passed": False, "reason": answers[name].get("reason", ""), "digest": ""}
        of = points_of(missions[name])
        yield about | {
            "mission": name,
            "points": of if verdict["passed"] else 0,
            "of": of,
            "reason": verdict["reason"],
            "digest": verdict["digest"],
        }


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
