"""Laws of all lessons: each says what it is for, asks before it answers, and ends in its missions."""

import re
from collections import Counter
from pathlib import Path

import pytest

from dtfm_lab.extensions.course.api import LESSONS, Lesson, missions
from tools.website.course import goals_of, minutes_of

ROOT = Path(__file__).parents[3]
NOTEBOOKS, SOURCES = ROOT / "notebooks", ROOT / "tools" / "lessons"
LEAST_MISSIONS = 40
OFF_BY_MINUTES = 6


def source(lesson: Lesson) -> str:
    return (SOURCES / f"{lesson.name}.py").read_text()


def plain(text: str) -> str:
    """Words alone: no emphasis, no line ends, no capitals."""
    return " ".join(re.sub(r"[*`_]", "", text).casefold().split())


def prose(lesson: Lesson) -> str:
    """The Markdown of a lesson, in one line."""
    return plain(" ".join(line.lstrip("# ") for line in source(lesson).splitlines() if line.startswith("#")))


def test_notebooks_and_the_table_of_lessons_are_the_same():
    assert sorted(path.stem for path in SOURCES.glob("*.py")) == sorted(LESSONS)
    assert sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb")) == sorted(LESSONS)


@pytest.mark.parametrize("lesson", LESSONS.values(), ids=LESSONS)
def test_a_lesson_says_what_it_is_for(lesson: Lesson):
    said = prose(lesson)
    assert plain(lesson.question) in said
    assert [goal for goal in goals_of(lesson.name) if plain(goal.rstrip(".")) not in said] == []
    assert 3 <= len(goals_of(lesson.name)) <= 4
    assert set(lesson.needs) < set(LESSONS)
    order = list(LESSONS)
    assert all(order.index(each) < order.index(lesson.name) for each in lesson.needs), (
        "a lesson needs only earlier ones"
    )


@pytest.mark.parametrize("lesson", LESSONS.values(), ids=LESSONS)
def test_a_lesson_says_honestly_how_long_it_takes(lesson: Lesson):
    counted = minutes_of(lesson.name)
    if lesson.name == "18_capstone":  # a project: its report is not in the notebook
        assert lesson.minutes > counted
    else:
        assert abs(lesson.minutes - counted) <= OFF_BY_MINUTES, f"counted {counted:.0f} minutes"
    assert f"{lesson.minutes} minutes" in prose(lesson)


def test_lessons_come_in_the_order_in_which_they_are_taught():
    numbers = [name[:2] for name in LESSONS]
    assert numbers[:8] == ["00", "02", "03", "01", "08", "09", "10", "11"]
    electives = [lesson.name[:2] for lesson in LESSONS.values() if lesson.elective]
    assert electives == ["14", "15", "16"]
    assert numbers[-len(electives) :] == electives
    assert "08_schedules" in LESSONS["07_communication_or_seconds"].needs


@pytest.mark.parametrize("lesson", LESSONS.values(), ids=LESSONS)
def test_a_lesson_has_a_takeaway(lesson: Lesson):
    assert source(lesson).count("> **Takeaway.**") == 1


@pytest.mark.parametrize("lesson", LESSONS.values(), ids=LESSONS)
def test_a_lesson_ends_in_its_missions(lesson: Lesson):
    own = {mission.name for mission in missions.values() if mission.lesson == lesson.name}
    assert own
    assert set(re.findall(r'lab\.missions\.show\("([\w-]+)"\)', source(lesson))) == own
    assert f'lab.missions.board("{lesson.name}")' in source(lesson)


def test_there_are_missions_enough():
    assert len(missions) >= LEAST_MISSIONS


def test_no_question_is_asked_twice():
    asked = [name for lesson in LESSONS.values() for name in re.findall(r'lab\.guess\(\s*"([\w-]+)"', source(lesson))]
    assert [name for name, times in Counter(asked).items() if times > 1] == []
    assert len(asked) >= 2 * (len(LESSONS) - 2)
