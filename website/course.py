"""The pages of the course: its lessons in their order, and its missions."""

from __future__ import annotations

from pathlib import Path

from dtfm_lab.course import LESSONS, missions

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
READER = "reader"
"""Whose numbers the tasks on the page have."""


def lessons_page() -> str:
    """The lessons with their questions, and what a reader can do afterwards."""
    hours = sum(each.minutes for each in LESSONS.values()) / 60
    parts = [
        "# The course",
        f"{len(LESSONS)} lessons, some {hours:.0f} hours with their first missions. Each is a notebook that runs on a "
        "laptop, without a GPU or a network. Its questions ask for a guess before they show the answer, and it ends "
        "with [missions](missions.md), whose winning condition the library evaluates.",
        "| lesson | question | minutes | after |\n| --- | --- | --- | --- |",
    ]
    for name, lesson in LESSONS.items():
        after = ", ".join(_link(each) for each in lesson.needs)
        parts[-1] += f"\n| {_link(name)} | {lesson.question} | {lesson.minutes} | {after} |"
    if any(lesson.goals for lesson in LESSONS.values()):
        parts += ["## What you can do afterwards"]
    for name, lesson in LESSONS.items():
        if lesson.goals:
            parts += [f"### {lesson.title}", "\n".join(f"- {goal}" for goal in lesson.goals), f"{_link(name)}"]
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


def _link(name: str) -> str:
    title = f"{name[:2]} {LESSONS[name].title}"
    return f"[{title}](notebooks/{name}.ipynb)" if (NOTEBOOKS / f"{name}.ipynb").exists() else title
