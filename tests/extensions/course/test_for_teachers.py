"""What a teacher uses: assignments in nbgrader's format, the tables of lessons, and slides."""

from pathlib import Path

import pytest

import dtfm_lab as lab
from dtfm_lab.domain.errors import LabError, UnknownName
from dtfm_lab.extensions.course.api import LESSONS, missions
from dtfm_lab.extensions.course.teaching import assignment, points_of, with_slides
from tools.website.course import lesson_plan, made_anew

DOCS = Path(__file__).parents[3] / "docs"
WITH_MISSIONS = sorted({each.lesson for each in missions.values()})


def sources(notebook):
    return "\n".join(cell["source"] for cell in notebook["cells"])


@pytest.mark.parametrize("lesson", WITH_MISSIONS)
def test_every_lesson_is_an_assignment(lesson):
    student, instructor = (assignment(lesson, solved=solved) for solved in (False, True))
    about = [cell["metadata"].get("nbgrader") for cell in instructor["cells"]]
    ids = [each["grade_id"] for each in about if each]
    assert len(ids) == len(set(ids))
    graded = [each for each in about if each and each["grade"]]
    names = lab.missions.names(lesson)
    assert [each["grade_id"] for each in graded] == [f"check-{name}" for name in names]
    assert all(each["locked"] and not each["solution"] for each in graded)
    assert [each["points"] for each in graded] == [points_of(missions[name]) for name in names]
    assert [cell["metadata"] for cell in student["cells"]] == [cell["metadata"] for cell in instructor["cells"]]
    assert sources(student).count("NotImplementedError") == len(names)
    for name in names:
        assert missions[name].answer in sources(instructor)
        assert missions[name].answer not in sources(student)
    assert "BEGIN SOLUTION" not in sources(student)


@pytest.mark.parametrize("lesson", WITH_MISSIONS)
def test_an_assignment_is_a_valid_notebook(lesson):
    nbformat = pytest.importorskip("nbformat", reason="jupyter is not installed")
    for solved in (False, True):
        nbformat.validate(nbformat.from_dict(assignment(lesson, solved=solved)))


def test_lessons_that_are_none_are_refused():
    with pytest.raises(UnknownName, match="lesson"):
        assignment("02_networks", solved=True)
    if empty := sorted(set(LESSONS) - set(WITH_MISSIONS)):
        with pytest.raises(LabError, match="has no missions"):
            assignment(empty[0], solved=True)


@pytest.mark.parametrize("name", ["teaching.md", "exam.md"])
def test_the_page_is_up_to_date(name):
    page = (DOCS / name).read_text()
    assert made_anew(page) == page, "run make teaching"


def test_every_lesson_and_mission_is_in_the_plan():
    plan = lesson_plan()
    assert [name for name in LESSONS if f"| `{name}` |" not in plan] == []
    assert [name for name in missions if f"| `{name}` |" not in plan] == []


def cell(kind, source):
    return {"cell_type": kind, "id": "c", "metadata": {"kept": 1}, "source": source}


def kinds(*cells):
    made = with_slides({"cells": list(cells), "nbformat": 4})
    assert made["nbformat"] == 4
    return [(each["metadata"]["slideshow"]["slide_type"], "".join(each["source"])) for each in made["cells"]]


def test_headings_begin_slides_and_are_cut_out_of_longer_cells():
    text = "# Lesson\nWords\n## First\nMore\n```sh\n# a comment\n```\n### Below\nEnd"
    assert [kind for kind, _ in kinds(cell("markdown", text))] == ["slide", "slide", "subslide"]
    assert "".join(source for _, source in kinds(cell("markdown", text))) == text
    assert kinds(cell("markdown", "no heading"), cell("code", "1 + 1")) == [("-", "no heading"), ("-", "1 + 1")]


def test_the_answer_is_not_on_the_slide_of_its_question():
    guess = cell("code", 'def answer():\n    return 1\n\nlab.guess("a", "How much?", answer)')
    found = kinds(guess, cell("code", "answer()"), cell("code", "2"))
    assert [kind for kind, _ in found] == ["subslide", "subslide", "-"]


def test_cells_for_the_reader_are_left_out():
    for source in ("# answer = ...\n# lab.missions.check('a', answer)", ""):
        assert kinds(cell("code", source))[0][0] == "skip"


def test_metadata_is_kept():
    (one,) = with_slides({"cells": [cell("code", "1")]})["cells"]
    assert one["metadata"]["kept"] == 1
