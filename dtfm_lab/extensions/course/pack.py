"""The instructor's pack: files for teachers that students must not see. None of them is on the website."""

from __future__ import annotations

import json
from collections.abc import Iterator

from dtfm_lab.extensions.course import exam
from dtfm_lab.extensions.course.concepts import CONCEPTS
from dtfm_lab.extensions.course.deck import deck_of
from dtfm_lab.extensions.course.mission import LESSONS, TEXTS, in_order
from dtfm_lab.files.reading import read_mapping, shipped


def pack() -> Iterator[tuple[str, str]]:
    """Yield the files of the pack, each as a path and its text."""
    yield "answers.md", answers()
    yield "misconceptions.md", misconceptions()
    yield "timing.md", timing()
    yield "exam-answers.md", exam_answers()
    yield "concepts.md", concept_answers()
    for lesson in LESSONS:
        path = shipped("notebooks") / f"{lesson}.ipynb"
        if path.exists():
            yield f"decks/{lesson}.html", deck_of(json.loads(path.read_text(encoding="utf-8")))


def answers() -> str:
    """Return the worked answer of every mission, by lesson, in Markdown."""
    parts = ["# Worked answers", "Each works for every student: `given` is what `lab.missions.given(name)` returns."]
    for lesson in LESSONS.values():
        parts.append(f"## {lesson.name[:2]} {lesson.title}")
        for each in in_order(lesson.name):
            parts.append(f"### {each.title} (`{each.name}`, {each.minutes} min)\n\n```python\n{each.answer}\n```")
    return "\n\n".join(parts) + "\n"


def misconceptions() -> str:
    """Return, for every mission with known mistakes, the sentence that a reader gets for each, in Markdown."""
    parts = ["# Misconceptions", "A wrong number that follows from a known mistake gets this sentence."]
    for lesson in LESSONS.values():
        texts = read_mapping(TEXTS / f"{lesson.name}.yaml")
        known = {name: about["slips"] for name, about in texts.items() if about.get("slips")}
        if known:
            parts.append(f"## {lesson.name[:2]} {lesson.title}")
        for name, slips in known.items():
            lines = "\n".join(f"- {' '.join(str(sentence).split())}" for sentence in slips.values())
            parts.append(f"### {texts[name]['title']} (`{name}`)\n\n{lines}")
    return "\n\n".join(parts) + "\n"


def timing() -> str:
    """Return the minutes of each lesson and of its missions, in teaching order, in Markdown."""
    rows = ["| lesson | all | missions alone | needs |", "| --- | --- | --- | --- |"]
    for lesson in LESSONS.values():
        own = sum(each.minutes for each in in_order(lesson.name))
        needs = ", ".join(name[:2] for name in lesson.needs)
        title = f"{lesson.name[:2]} {lesson.title}" + (" (elective)" if lesson.elective else "")
        rows.append(f"| {title} | {lesson.minutes} min | {own} min | {needs} |")
    return "# Timing\n\nFor a student who reads everything and does every mission.\n\n" + "\n".join(rows) + "\n"


def exam_answers() -> str:
    """Return the exam with its printed numbers and the answers, in Markdown."""
    lines = ["# The exam, with answers"]
    for number, each in enumerate(exam.questions(exam.PRINTED), 1):
        lines += [f"**{number}.** {each.asks}", f"*Answer.* {each.answer}"]
    return "\n\n".join(lines) + "\n"


def concept_answers() -> str:
    """Return the eight concepts with the right answer to each, in Markdown."""
    lines = ["# The tests of concepts, before and after"]
    for number, each in enumerate(CONCEPTS, 1):
        lines.append(f"**{number}.** {each.question} … **{each.choices[0]}** (lesson {each.lesson[:2]})")
    return "\n\n".join(lines) + "\n"
