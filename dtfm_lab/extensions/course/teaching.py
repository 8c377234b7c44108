"""Assignments for a teacher, in nbgrader's format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dtfm_lab.domain.errors import LabError
from dtfm_lab.extensions.course.mission import LESSONS, TEXTS, Mission, in_order
from dtfm_lab.files.reading import read_mapping

Cell = dict[str, Any]
MINUTES_A_POINT = 5
VARIANT = "variant="
"""In a notebook's first cell, the variant that seeds its numbers follows this text."""
TEXTS_OF_ONE = read_mapping(TEXTS / "assignment.yaml")


def points_of(mission: Mission) -> int:
    """Return the points of a mission: one for every five minutes that it should take, at least one."""
    return max(1, round(mission.minutes / MINUTES_A_POINT))


@dataclass(frozen=True)
class Own:
    """The student that a notebook is for, if each student gets a different one."""

    reader: str
    variant: str


def assignment(lesson: str, *, solved: bool, hints: bool = True, own: Own | None = None) -> dict[str, Any]:
    """Return the notebook of a lesson's missions, as JSON: the instructor's if ``solved``, otherwise the student's.

    Its first cell turns the worked answers off, and the hints too if ``hints`` is false. Raises UnknownName for an
    unknown lesson, and LabError for one without missions.
    """
    chosen = in_order(lesson)
    if not chosen:
        raise LabError(f"lesson {lesson} has no missions; wanted one that has")
    about = LESSONS[lesson]
    rules = "" if hints else ", hints=False"
    if own is None:
        named, first = TEXTS_OF_ONE["own_name"], TEXTS_OF_ONE["reader"]
    else:
        # The variant is in the notebook, so that every machine draws the same numbers.
        named, first = TEXTS_OF_ONE["its_name"], f"import dtfm_lab as lab\n\nlab.missions.reader({own.reader!r})\n"
        rules += f", {VARIANT}{own.variant!r}"
    helped = TEXTS_OF_ONE["hints"]["on" if hints else "off"]
    text = TEXTS_OF_ONE["beginning"].format(title=about.title, question=about.question, helped=helped, named=named)
    first += f"lab.missions.assignment({lesson!r}{rules})"
    cells = [_markdown("about", text), _code("reader", first, _locked("reader"))]
    for mission in chosen:
        cells += _cells_of(mission, solved=solved)
    cells.append(_code("record", f"lab.missions.board({lesson!r})", _locked("record")))
    python = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {"cells": cells, "metadata": {"kernelspec": python}, "nbformat": 4, "nbformat_minor": 5}


def answer_id(mission: str) -> str:
    """Return the id of the cell in which a student answers a mission."""
    return f"answer-{mission}"


def _cells_of(mission: Mission, *, solved: bool) -> list[Cell]:
    name = mission.name
    given = f"given = lab.missions.given({name!r})\n" if mission.give else ""
    solution = f"### BEGIN SOLUTION\n{given}{mission.answer}\n### END SOLUTION" if solved else TEXTS_OF_ONE["stub"]
    check = f"verdict = lab.missions.check({name!r}, answer)\nassert verdict, verdict.reason\nprint(verdict.reason)"
    graded = {"grade": True, "locked": True, "points": points_of(mission), "solution": False}
    open_to_all = {"grade": False, "locked": False, "solution": True}
    return [
        _code(f"task-{name}", f"answer = None\nlab.missions.show({name!r})", _locked(f"task-{name}")),
        _code(answer_id(name), solution, {"grade_id": answer_id(name), **open_to_all}),
        _code(f"check-{name}", check, {"grade_id": f"check-{name}", **graded}),
    ]


def _locked(grade_id: str) -> dict[str, Any]:
    return {"grade_id": grade_id, "grade": False, "locked": True, "solution": False}


def _code(cell_id: str, source: str, nbgrader: dict[str, Any]) -> Cell:
    about = {"nbgrader": {**nbgrader, "schema_version": 3, "task": False}}
    code: Cell = {"cell_type": "code", "id": cell_id[:64], "metadata": about, "execution_count": None, "outputs": []}
    return code | {"source": source}


def _markdown(cell_id: str, source: str) -> Cell:
    return {"cell_type": "markdown", "id": cell_id, "metadata": {}, "source": source}
