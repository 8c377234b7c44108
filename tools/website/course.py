"""The pages of the course: its lessons in their order, its missions, and the teacher's tables of both.

``python -m tools.website.course docs/teach.md`` makes its tables and questions again.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from dtfm_lab.extensions.course import exam
from dtfm_lab.extensions.course.api import LESSONS, Lesson, in_order, missions
from dtfm_lab.extensions.course.teaching import points_of

ROOT = Path(__file__).parents[2]
NOTEBOOKS, SOURCES = ROOT / "notebooks", ROOT / "tools" / "lessons"
READER = "reader"
"""Whose numbers the tasks on the page have."""


def lessons_page() -> str:
    """The lessons with their questions, and what a reader can do afterwards."""
    hours = sum(each.minutes for each in LESSONS.values()) / 60
    parts = [
        "# The course",
        f"{len(LESSONS)} lessons, some {hours:.0f} hours with their missions, in the order below. Each is a notebook "
        "that runs on a laptop, without a GPU or a network. Its questions ask for a guess before they show the answer. "
        "It ends with [missions](missions.md), whose winning condition the library evaluates.",
        "| lesson | question | minutes | after |\n| --- | --- | --- | --- |",
    ]
    for name, lesson in LESSONS.items():
        after = ", ".join(_link(each) for each in lesson.needs)
        elective = " (elective)" if lesson.elective else ""
        parts[-1] += f"\n| {_link(name)}{elective} | {lesson.question} | {lesson.minutes} | {after} |"
    parts += ["## What you can do afterwards"]
    for name, lesson in LESSONS.items():
        parts += [f"### {lesson.title}", "\n".join(f"- {goal}" for goal in goals_of(name)), f"{_link(name)}"]
    return "\n\n".join(parts) + "\n"


def missions_page() -> str:
    """The task of every mission, with one reader's numbers."""
    parts = [
        "# Missions",
        f"{len(missions)} tasks. `lab.missions.show(name)` says the task with your own numbers, "
        "`lab.missions.check(name, answer)` evaluates your answer, `lab.missions.hint(name)` gives one more hint at "
        "each call, and `lab.missions.answer(name)` shows a worked answer. The numbers below are one reader's; most "
        "missions give each reader others.",
    ]
    for lesson_name, lesson in LESSONS.items():
        own = [each for each in missions.values() if each.lesson == lesson_name]
        if own:
            parts.append(f"## {lesson.title}")
        for each in own:
            parts += [f"### {each.title}", each.task_of(READER)]
            hints = f"{len(each.hints)} hint{'s' * (len(each.hints) != 1)}"
            parts.append(f"`{each.name}`, {each.minutes} min, {hints}. Hand in {each.wanted}.")
    return "\n\n".join(parts) + "\n"


def goals_of(lesson: str) -> list[str]:
    """What a reader can do after a lesson, each a sentence: the first list in its notebook."""
    text = (SOURCES / f"{lesson}.py").read_text(encoding="utf-8")
    found = re.search(r"(?:^# - .*\n(?:#   .*\n)*)+", text, re.MULTILINE)
    assert found is not None, f"{lesson} begins with what it is for"
    goals = [" ".join(each.replace("\n#", " ").split()) for each in found[0].removeprefix("# - ").split("\n# - ")]
    return [f"{goal[0].upper()}{goal[1:].rstrip('.;')}." for goal in goals]


WORDS_A_MINUTE, LINES_A_MINUTE = 140, 8
"""How fast a student reads technical prose, and code that they run, for the first time."""
GUESS_MINUTES = 1.0


def minutes_of(lesson: str) -> float:
    """Minutes to read and run a lesson, to guess with a reason, and to do its missions, counted from its source."""
    text = (SOURCES / f"{lesson}.py").read_text(encoding="utf-8").split("# ---\n", 2)[2]
    n_words = n_lines = 0
    for cell in re.split(r"^# %%", text, flags=re.MULTILINE):
        if cell.startswith(" [markdown]"):
            n_words += len(re.findall(r"[A-Za-z]{2,}", cell))
        else:
            n_lines += sum(bool(line.strip()) and not line.strip().startswith("#") for line in cell.splitlines())
    to_read = n_words / WORDS_A_MINUTE + n_lines / LINES_A_MINUTE
    return to_read + GUESS_MINUTES * text.count("lab.guess(") + sum(each.minutes for each in in_order(lesson))


BEGIN, END = "<!-- begin: lessons, made by make teaching -->", "<!-- end: lessons -->"
EXAM_BEGIN, EXAM_END = "<!-- begin: questions, made by make teaching -->", "<!-- end: questions -->"


def lesson_plan() -> str:
    """A table of all lessons, then each with its goals and missions, in Markdown."""
    lines = ["| lesson | question | minutes | needs | missions | points |", "| --- | --- | --- | --- | --- | --- |"]
    lines += [_row(lesson) for lesson in LESSONS.values()]
    minutes = sum(lesson.minutes for lesson in LESSONS.values())
    points = sum(points_of(each) for each in missions.values())
    lines.append(f"| all | | {minutes} | | {len(missions)} | {points} |")
    for lesson in LESSONS.values():
        lines += ["", f"### {lesson.name[:2]} {lesson.title}", ""]
        lines += [f"- {goal}" for goal in goals_of(lesson.name)]
        lines += ["", "| mission | what it asks for | minutes | own numbers |", "| --- | --- | --- | --- |"]
        lines += [
            f"| `{each.name}` | {each.title}: {each.wanted} | {each.minutes} | {'yes' if each.give else ''} |"
            for each in in_order(lesson.name)
        ]
    return "\n".join(lines) + "\n"


def exam_questions() -> str:
    """The questions of the exam with its printed numbers, in Markdown. The answers are in the instructor's pack."""
    lines = []
    for number, each in enumerate(exam.questions(exam.PRINTED), 1):
        lines += ["", f"**{number}.** {each.asks}"]
    return "\n".join([*lines, "", ""])


def made_anew(page: str) -> str:
    """A page with what stands between its marks made anew."""
    for begin, end, made in ((BEGIN, END, lesson_plan), (EXAM_BEGIN, EXAM_END, exam_questions)):
        if begin in page:
            before, rest = page.split(begin)
            page = f"{before}{begin}\n{made()}{end}{rest.split(end)[1]}"
    return page


def _row(lesson: Lesson) -> str:
    own = in_order(lesson.name)
    needs = ", ".join(name[:2] for name in lesson.needs)
    points = sum(points_of(each) for each in own)
    return f"| `{lesson.name}` | {lesson.question} | {lesson.minutes} | {needs} | {len(own)} | {points} |"


def _link(name: str) -> str:
    title = f"{name[:2]} {LESSONS[name].title}"
    return f"[{title}](notebooks/{name}.ipynb)" if (NOTEBOOKS / f"{name}.ipynb").exists() else title


if __name__ == "__main__":
    for page in map(Path, sys.argv[1:]):
        page.write_text(made_anew(page.read_text(encoding="utf-8")), encoding="utf-8")
