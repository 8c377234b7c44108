"""The teacher's page: its tables are those of the lessons and missions as they are now."""

from pathlib import Path

from dtfm_lab.course import LESSONS, missions
from dtfm_lab.course.lesson_plan import lesson_plan, with_lesson_plan

PAGE = (Path(__file__).parents[2] / "docs" / "teaching.md").read_text()


def test_the_page_is_up_to_date():
    assert with_lesson_plan(PAGE) == PAGE, "run make teaching"


def test_every_lesson_and_mission_is_in_the_plan():
    plan = lesson_plan()
    assert [name for name in LESSONS if f"| `{name}` |" not in plan] == []
    assert [name for name in missions if f"| `{name}` |" not in plan] == []
