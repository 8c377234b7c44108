"""The missions of a lesson as an assignment in nbgrader's format: the instructor's notebook, and the student's."""

from __future__ import annotations

from typing import Any

from dtfm_lab.course.lessons import LESSONS
from dtfm_lab.course.mission import Mission, in_order
from dtfm_lab.domain.errors import LabError

Cell = dict[str, Any]
MINUTES_A_POINT = 5
STUB = "# YOUR CODE HERE\nraise NotImplementedError()"
"""What nbgrader puts in the place of a solution."""
READER = """\
import os
from pathlib import Path

import dtfm_lab as lab

if os.environ.get("NBGRADER_EXECUTION") == "autograde":  # in a folder that is named after the student
    lab.missions.reader(Path.cwd().parent.name)
lab.missions.reader()"""
BEGINNING = """\
# {title}

**{question}**

For every task, write code that ends with `answer = ...`, then run the cell below it, which says whether the answer
wins, and why not. `lab.missions.hint("...")` helps, a step at a time.

Many numbers are drawn from your name, so that nobody else's answer is yours. The cell below shows under which name you
hand in. If it is not the one of your course, set it there: `lab.missions.reader("name")`."""


def points_of(mission: Mission) -> int:
    """Points of a mission: one for every five minutes that it is said to take, at least one."""
    return max(1, round(mission.minutes / MINUTES_A_POINT))


def assignment(lesson: str, *, solved: bool) -> dict[str, Any]:
    """The notebook of a lesson's missions, as JSON: the instructor's where ``solved``, or else the student's.

    Raises UnknownName for a lesson that there is not, and LabError for one without missions.
    """
    chosen = in_order(lesson)
    if not chosen:
        raise LabError(f"lesson {lesson} has no missions; wanted one that has")
    about = LESSONS[lesson]
    cells = [
        _markdown("about", BEGINNING.format(title=about.title, question=about.question)),
        _code("reader", READER, _locked("reader")),
    ]
    for mission in chosen:
        cells += _cells_of(mission, solved=solved)
    python = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {"cells": cells, "metadata": {"kernelspec": python}, "nbformat": 4, "nbformat_minor": 5}


def answer_id(mission: str) -> str:
    """The id of the cell in which a student answers a mission."""
    return f"answer-{mission}"


def _cells_of(mission: Mission, *, solved: bool) -> list[Cell]:
    name = mission.name
    given = f"given = lab.missions.given({name!r})\n" if mission.give else ""
    solution = f"### BEGIN SOLUTION\n{given}{mission.answer}\n### END SOLUTION" if solved else STUB
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
