"""The teacher's tables of lessons and missions, made from the lessons and missions themselves.

``python -m dtfm_lab.course.lesson_plan docs/teaching.md`` puts them into a page, between its two marks.
"""

from __future__ import annotations

import sys
from pathlib import Path

from dtfm_lab.course.assignment import points_of
from dtfm_lab.course.lessons import LESSONS, Lesson
from dtfm_lab.course.mission import in_order, missions

BEGIN, END = "<!-- begin: lessons, made by make teaching -->", "<!-- end: lessons -->"


def lesson_plan() -> str:
    """A table of all lessons, then each with its goals and missions, in Markdown."""
    lines = ["| lesson | question | minutes | needs | missions | points |", "| --- | --- | --- | --- | --- | --- |"]
    lines += [_row(lesson) for lesson in LESSONS.values()]
    minutes = sum(lesson.minutes for lesson in LESSONS.values())
    points = sum(points_of(each) for each in missions.values())
    lines.append(f"| all | | {minutes} | | {len(missions)} | {points} |")
    for lesson in LESSONS.values():
        lines += ["", f"### {lesson.name[:2]} {lesson.title}", ""]
        lines += [f"- {goal}" for goal in lesson.goals]
        own = in_order(lesson.name)
        if own:
            lines += [""] if lesson.goals else []
            lines += ["| mission | what it asks for | minutes | own numbers |", "| --- | --- | --- | --- |"]
            lines += [
                f"| `{each.name}` | {each.title}: {each.wanted} | {each.minutes} | {'yes' if each.give else ''} |"
                for each in own
            ]
    return "\n".join(lines) + "\n"


def with_lesson_plan(page: str) -> str:
    """The page with the tables between its marks made anew."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{lesson_plan()}{END}{rest.split(END)[1]}"


def _row(lesson: Lesson) -> str:
    own = in_order(lesson.name)
    needs = ", ".join(name[:2] for name in lesson.needs)
    points = sum(points_of(each) for each in own)
    return f"| `{lesson.name}` | {lesson.question} | {lesson.minutes} | {needs} | {len(own)} | {points} |"


def main() -> None:
    """Rewrite the page that the command line names."""
    import dtfm_lab.course.tasks  # noqa: F401  registers the missions

    path = Path(sys.argv[1])
    path.write_text(with_lesson_plan(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
