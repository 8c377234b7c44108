"""The missions of the course: ``lab.missions.check(name, answer)`` evaluates the reader's own plan, trace or number.

::

    lab.missions.show("spot-under-32")            # the task, with what this reader is given
    lab.missions.given("spot-under-32")           # the same as objects
    lab.missions.check("spot-under-32", plan)     # passed, or not yet and why
    lab.missions.hint("spot-under-32")            # one more at each call
    lab.missions.answer("spot-under-32")          # a worked answer
    lab.missions.board()                          # what is done, and what is next
    lab.missions.assignment("02_network")         # graded from now on: its worked answers are off
    lab.missions.export("handed-in")              # this reader's file, for a teacher
    lab.missions.guesses("handed-in")             # the guesses of a class; lab.figures.guesses draws them
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd

from dtfm_lab.domain.errors import FileError
from dtfm_lab.extensions.course.answers import answer_to
from dtfm_lab.extensions.course.api import LESSONS, Given, Verdict, in_order
from dtfm_lab.extensions.course.api import missions as registry
from dtfm_lab.extensions.course.concepts import concept_questions, gain_of
from dtfm_lab.extensions.course.graded import assignment_of, require_shown, sample_for
from dtfm_lab.extensions.course.guessing import ASKED, Answer, GuessQuestion
from dtfm_lab.extensions.course.hiding import hide_rest_of_cell
from dtfm_lab.extensions.course.processes import distributed
from dtfm_lab.extensions.course.progress import (
    Assignment,
    Attempts,
    Progress,
    current_reader,
    load_progress,
    progress_path,
    read_progress,
    save_progress,
)

__all__ = [
    "answer",
    "assignment",
    "board",
    "check",
    "concepts",
    "distributed",
    "export",
    "gain",
    "given",
    "guesses",
    "hint",
    "names",
    "progress",
    "reader",
    "show",
]


@dataclass(frozen=True)
class Card:
    """A text of the course, shown as Markdown if the page can render it."""

    markdown: str

    def __repr__(self) -> str:
        return self.markdown

    def _repr_markdown_(self) -> str:
        return self.markdown


def names(lesson: str | None = None) -> list[str]:
    """Return the names of all missions, or of one lesson's missions. They are in order of lessons. Within a lesson, the
    quickest comes first. Raises UnknownName for an unknown lesson."""
    return [each.name for each in in_order(lesson)]


def reader(name: str | None = None) -> str:
    """Return the reader's name, which seeds the numbers of missions. With ``name``, set it for this process first."""
    if name is not None:
        os.environ["DTFM_LAB_READER"] = name
    return current_reader()


def assignment(lesson: str, *, answers: bool = False, hints: bool = True, variant: str = "") -> Card:
    """Make a lesson graded work for this reader, in all notebooks and in the lab. The first cell of an assignment calls
    it.

    Worked answers are then off, and hints too if ``hints`` is false. Numbers are seeded with ``variant``, which the
    teacher's key made, instead of the reader's name. Raises UnknownName for an unknown lesson, and FileError if the
    reader's file cannot be read or written.
    """
    in_order(lesson)
    kept = load_progress(current_reader())
    kept.assignments[lesson] = Assignment(answers=answers, hints=hints, variant=variant)
    save_progress(kept)
    left = f"worked answers are {'on' if answers else 'off'}, hints are {'on, and counted' if hints else 'off'}"
    return Card(f"**{kept.reader}** hands in {lesson}: {left}. Tries are counted; the last cell shows them.")


def show(name: str) -> Card:
    """Return the task of a mission, with this reader's numbers. Raises UnknownName for an unknown mission."""
    mission = registry[name]
    task = mission.task_of(sample_for(mission, current_reader()))
    return Card(f"**{mission.title}** (`{name}`, {mission.minutes} min)\n\n{task}")


def given(name: str) -> Given:
    """Return what this reader is given: numbers, a network, a job. Empty if all readers have the same task. Raises
    UnknownName for an unknown mission.

    Names that begin with an underscore are left out, because they belong to the check.
    """
    mission = registry[name]
    everything = vars(mission.given(sample_for(mission, current_reader())))
    return Given(**{key: value for key, value in everything.items() if not key.startswith("_")})


def check(name: str, answer: object) -> Verdict:
    """Return the verdict on an answer, with the reason. It is true if the answer wins. The try is saved in the reader's
    progress.

    Raises UnknownName for an unknown mission, and FileError if progress cannot be read or written.
    """
    return check_any(name, [answer])


def check_any(name: str, answers: Sequence[object]) -> Verdict:
    """Check several answers as one try. Return the verdict of the first that wins, or of the first answer if none does.

    Raises UnknownName for an unknown mission, and FileError if progress cannot be read or written.
    """
    mission, kept = registry[name], load_progress(current_reader())
    sample = sample_for(mission, kept.reader)
    said: list[Verdict] = []
    for answer in answers or [None]:
        said.append(mission.verdict(answer, sample))
        if said[-1]:
            break
    # Of several answers on the screen, the first is the one that the reader looks at.
    verdict = said[-1] if said[-1] else said[0]
    kept = load_progress(kept.reader)  # another page may have written while it was evaluated
    tries = kept.note_verdict(verdict)
    save_progress(kept)
    return replace(verdict, tries=tries)


def hint(name: str) -> Card:
    """Return the next hint of a mission, with those before it. Raises UnknownName, and LabError if hints are off."""
    mission, kept = registry[name], load_progress(current_reader())
    require_shown(mission, kept.reader, "hints")
    attempts = kept.of(name)
    attempts.hints = min(attempts.hints + 1, len(mission.hints))
    save_progress(kept)
    lines = [f"{step}. {text}" for step, text in enumerate(mission.hints[: attempts.hints], 1)]
    left = len(mission.hints) - attempts.hints
    worked = f"; `lab.missions.answer({name!r})` works it out" if assignment_of(mission, kept.reader).answers else ""
    after = f"{left} more" if left else f"that was the last{worked}"
    return Card("\n".join(lines) + f"\n\n({after})")


def answer(name: str) -> Card:
    """Return the worked answer of a mission, as code. The reader's progress records that it was shown.

    Raises UnknownName, and LabError if worked answers are off.
    """
    code, kept = answer_code(name), load_progress(current_reader())
    kept.of(name).answer_shown = True
    save_progress(kept)
    return Card(f"```python\n{code}\n```")


def answer_code(name: str) -> str:
    """Return the code of the worked answer. Unlike ``answer``, it does not record in the reader's progress that it was
    shown.

    Raises UnknownName, and LabError if worked answers are off.
    """
    mission = registry[name]
    require_shown(mission, current_reader(), "answers")
    given_to_reader = f"given = lab.missions.given({name!r})\n" if mission.give else ""
    return f"import dtfm_lab as lab\n\n{given_to_reader}{mission.answer}\nlab.missions.check({name!r}, answer)"


def progress() -> Progress:
    """Return what this reader has done so far. Raises FileError if the file is damaged."""
    return load_progress(current_reader())


def export(folder: str | os.PathLike[str]) -> Path:
    """Write this reader's progress and guesses to a folder as one JSON file, to hand in. Return the file's path.

    Raises FileError if a file cannot be read or written.
    """
    kept = load_progress(current_reader())
    return save_progress(kept, Path(folder) / progress_path(kept.reader).name)


def guesses(folder: str | os.PathLike[str]) -> pd.DataFrame:
    """Return the first guesses of a class, one row per reader and question, from the files that readers exported.

    Raises FileError if the folder has none, or if one cannot be read.
    """
    handed_in = _handed_in(folder)
    return pd.DataFrame(
        [(kept.reader, *(getattr(each, name) for name in GUESS)) for kept in handed_in for each in kept.guesses],
        columns=["reader", *GUESS],
    )


def concepts(when: str) -> list[Any]:
    """Return eight questions on concepts, to ask ``"before"`` and ``"after"`` a course. Display each in a notebook.

    Only the second test reveals the right answers. Raises LabError for any other ``when``.
    """
    return [shown(question) for question in concept_questions(when)]


def gain(folder: str | os.PathLike[str]) -> pd.DataFrame:
    """Return how much a class learned between the two tests of concepts: the shares that were right, and the normalised
    gain.

    It reads the files that readers exported. Only readers who answered both times count. Raises FileError if the folder
    has none, or if one cannot be read, and LabError if no reader answered both times.
    """
    return gain_of(_handed_in(folder))


def _handed_in(folder: str | os.PathLike[str]) -> list[Progress]:
    files = sorted(Path(folder).rglob("*.json"))
    if not files:
        raise FileError(f"{folder}: no file in it; wanted those that lab.missions.export writes, one per reader")
    return [read_progress(path) for path in files]


def board(lesson: str | None = None) -> Board:
    """Return a table with one row per mission of all lessons, or of one. Its columns are ``BOARD``. Raises UnknownName
    for an unknown lesson."""
    kept = load_progress(current_reader())
    rows = []
    for each in in_order(lesson):
        done = kept.missions.get(each.name) or Attempts()
        about = (each.lesson, each.name, each.title, each.minutes)
        rows.append((*about, bool(done.passed_at), done.tries, done.hints, done.answer_shown))
    board = Board(rows, columns=list(BOARD))
    board.attrs["reader"] = kept.reader
    return board


GUESS = ("name", "question", "guess", "answer", "unit", "reason", "choices")
"""Columns of a table of guesses, in addition to the reader."""
RECORD = "application/vnd.dtfm-lab.record+json"
"""MIME type of the record that a board in a saved notebook keeps for a marker: the reader's name, tries, hints and
answers shown."""
BOARD = ("lesson", "mission", "title", "minutes", "passed", "tries", "hints", "answer_shown")
"""Columns of the table of missions."""
LEFT = ' style="text-align:left"'


class Board(pd.DataFrame):
    """A table with one row per mission, shown with what is won and what is next. Operations on it return a plain
    DataFrame."""

    @property
    def _constructor(self) -> type[pd.DataFrame]:
        return pd.DataFrame

    @property
    def sentence(self) -> str:
        """How many missions are won, and the first that is not: ``2 of 5 missions won; next: half-and-half``."""
        words = f"{int(self['passed'].sum())} of {len(self)} {'mission' if len(self) == 1 else 'missions'} won"
        left = self.loc[~self["passed"].astype(bool), "mission"]
        return f"{words}; next: {left.iloc[0]}" if len(left) else words

    def _repr_mimebundle_(self, **_: object) -> dict[str, object]:
        """Return the table, and the record of what this reader did, for the person who marks the notebook."""
        if not set(BOARD) <= set(self.columns):
            return {}
        done = self.to_dict("records")
        record = {
            each["mission"]: [int(each["tries"]), int(each["hints"]), bool(each["answer_shown"])] for each in done
        }
        return {RECORD: {"reader": self.attrs.get("reader", ""), "missions": record}}

    def _repr_html_(self) -> str:
        if not set(BOARD) <= set(self.columns) or not len(self):
            return str(pd.DataFrame(self)._repr_html_())  # type: ignore[operator]  # pandas types it as optional
        rows = []
        for lesson, some in self.groupby("lesson", sort=False):
            won = f"{int(some['passed'].sum())} of {len(some)}"
            title = LESSONS[str(lesson)].title if lesson in LESSONS else str(lesson)
            head = f"<th colspan='3'{LEFT}>{escape(str(lesson)[:2])} {escape(title)}</th><th{LEFT}>{won}</th>"
            rows.append(f"<tr>{head}</tr>")
            rows += [_row(each) for each in some.to_dict("records")]
        return f"<p><b>{escape(self.sentence)}</b></p><table>{''.join(rows)}</table>"


def _row(mission: Mapping[Any, Any]) -> str:
    mark = "✓" if mission["passed"] else "○"
    done = Attempts(tries=mission["tries"], hints=mission["hints"], answer_shown=mission["answer_shown"])
    cells = [mark, escape(str(mission["title"])), f"<code>{escape(str(mission['mission']))}</code>"]
    cells += [done.words or f"{mission['minutes']} min"]
    return f"<tr>{''.join(f'<td{LEFT}>{cell}</td>' for cell in cells)}</tr>"


def guess(
    name: str,
    question: str,
    answer: Answer | None = None,
    unit: str = "",
    low: float | None = None,
    high: float | None = None,
    *,
    of: Sequence[Any] = (),
    choices: Sequence[str] = (),
) -> Any:
    """Ask for a guess and a reason before the answer is shown, and keep the score. The first guess counts.

    Use it in a separate cell. ``lab.reveal(name)`` begins the cells that show the answer. ``name`` is unique across
    lessons. ``answer`` is a number, or a function without arguments that is called after the guess, on a thread. The
    lessons leave it out: their answers are in a module, by name, and are computed from ``of``. With ``low`` and
    ``high`` there is a slider. It is logarithmic if they are a factor of 100 apart. With ``choices``, the answer is one
    of these. ``lab.missions.progress().guesses`` has all guesses. Without ipywidgets, the question is shown as text,
    and ``.guess(12, "because ...")`` answers it. Raises LabError for impossible arguments, or if ``answer`` is omitted
    and no lesson asks this question.
    """
    if answer is None:
        found = answer_to(name)
        answer = lambda: found(*of)  # noqa: E731  # computed after the guess
    ASKED[name] = GuessQuestion(name, question, answer, unit, low, high, tuple(choices))
    return shown(ASKED[name])


def shown(question: GuessQuestion) -> Any:
    """Return a question as a widget, or the question itself if ipywidgets is missing."""
    try:
        return import_module("dtfm_lab.extensions.course.views.guess").GuessView(question)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("dtfm_lab"):
            raise
        return question


def reveal(*names: str) -> None:
    """Hide what the rest of this cell shows until the reader has guessed all ``names``. Put it on the first line of the
    cell.

    The cell is executed in any case, so that cells below it find its names. ``DTFM_LAB_REVEAL=1`` shows everything, for
    a projector.
    """
    if os.environ.get("DTFM_LAB_REVEAL"):
        # Authors of slides or tests run the lessons without guessing.
        return
    kept = load_progress(current_reader())
    if missing := [name for name in names if kept.guess_of(name) is None]:
        for name in missing:
            sys.stdout.write(f"Guess first: answer the question {name!r} above, then run this cell again.\n")
        hide_rest_of_cell()
