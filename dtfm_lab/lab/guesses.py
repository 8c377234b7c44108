"""Guesses as a table, of one reader or of a class, and the score."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import asdict

import pandas as pd

from dtfm_lab.course.guessing import NEAR, Score, factor, score_of
from dtfm_lab.course.progress import Progress, current_reader, load_progress, read_class

COLUMNS = ["reader", "name", "question", "guess", "answer", "unit", "factor", "near", "at"]


def guesses(where: str | os.PathLike[str] | None = None) -> pd.DataFrame:
    """This reader's first guess at each question, in the order in which they were made; or those of a class.

    ``where`` is a folder of files that ``lab.missions.export`` wrote, or one such file. ``factor`` is how many times
    too large or too small a guess is, ``near`` whether that is at most 2. ``lab.figures.guesses`` draws the table.
    Raises FileError for what cannot be read.
    """
    readers = [load_progress(current_reader())] if where is None else read_class(where)
    return pd.DataFrame(_rows(readers), columns=COLUMNS)


def _rows(readers: Iterable[Progress]) -> list[dict[str, object]]:
    return [
        {"reader": each.reader, **asdict(guess), "factor": factor(guess), "near": factor(guess) <= NEAR}
        for each in readers
        for guess in each.guesses
    ]


def score() -> Score:
    """How this reader's guesses did: how many, and how many of them within a factor of 2. Raises FileError."""
    return score_of(load_progress(current_reader()).guesses)
