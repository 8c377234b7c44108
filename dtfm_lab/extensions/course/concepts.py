"""Eight questions on concepts, asked before and after a course, and how much a class learned in between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from dtfm_lab.domain.errors import LabError
from dtfm_lab.extensions.course.guessing import GuessQuestion
from dtfm_lab.extensions.course.mission import TEXTS
from dtfm_lab.extensions.course.progress import Progress
from dtfm_lab.files.reading import read_mapping

BEFORE = "before"
AFTER = "after"
WHEN = (BEFORE, AFTER)


class Concept(NamedTuple):
    """A question with its choices, the right one first."""

    name: str
    lesson: str
    """The lesson that teaches it."""
    question: str
    choices: Sequence[str]


CONCEPTS = tuple(
    Concept(name, str(about["lesson"]), str(about["question"]), tuple(map(str, about["choices"])))
    for name, about in read_mapping(TEXTS / "concepts.yaml").items()
)


def concept_questions(when: str) -> list[GuessQuestion]:
    """Return the questions of the test "before" or "after" a course. Raises LabError for any other ``when``.

    The first test does not reveal its answers. The order of the choices is the same for all readers.
    """
    if when not in WHEN:
        raise LabError(f"found {when!r}; wanted {BEFORE!r} or {AFTER!r}")
    # The same order for everyone, so that readers can compare.
    rng = np.random.default_rng(7)
    made = []
    for concept in CONCEPTS:
        listed = tuple(concept.choices[place] for place in rng.permutation(len(concept.choices)))
        name = f"{when}-{concept.name}"
        # Before the course the answers stay hidden, as the test after it asks them again.
        sealed = when == BEFORE
        made.append(GuessQuestion(name, concept.question, concept.choices[0], choices=listed, sealed=sealed))
    return made


def gain_of(handed_in: Sequence[Progress]) -> pd.DataFrame:
    """Return one row per concept: the shares of readers who were right before and after, and the normalised gain.

    Only readers who answered both times count. Without any for a concept, its three numbers are NaN. The normalised
    gain is (after - before) / (1 - before) (Hake 1998). It is NaN if all were right before. Raises LabError if no
    reader answered both times.
    """
    rows = []
    for concept in CONCEPTS:
        pairs = [pair for progress in handed_in if (pair := _right(progress, concept.name)) is not None]
        before, after = (float(np.mean(each)) for each in zip(*pairs, strict=True)) if pairs else (np.nan, np.nan)
        # No student can gain if all knew it before.
        gain = (after - before) / (1 - before) if pairs and before < 1 else np.nan
        rows.append((concept.name, concept.lesson, concept.question, len(pairs), before, after, gain))
    table = pd.DataFrame(rows, columns=["concept", "lesson", "question", "readers", BEFORE, AFTER, "gain"])
    if not table["readers"].any():
        raise LabError("no reader answered a concept before and after; wanted files of readers who did both tests")
    return table


def _right(progress: Progress, name: str) -> tuple[bool, bool] | None:
    guesses: Mapping[str, bool] = {each.name: each.guess == each.answer for each in progress.guesses}
    names = [f"{when}-{name}" for when in WHEN]
    if not all(each in guesses for each in names):
        return None
    before, after = (guesses[each] for each in names)
    return before, after
