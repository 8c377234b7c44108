"""Questions whose answer a reader guesses before they see it, how far off a guess was, and the score."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.units import in_figures
from dtfm_lab.extensions.course.progress import Guess, current_reader, load_progress, now, save_progress

NEAR = 2.0
"""Factor within which a guess is near: the score counts these."""
RIGHT = 1.05
"""Factor within which a guess is called right."""
PERCENT = ("%", "percent", "per cent")
DECADES = 100.0
"""Ratio of the largest to the smallest number from which a scale is logarithmic."""

Answer = float | Callable[[], float]


@dataclass(frozen=True)
class GuessQuestion:
    """What is asked, and its answer: a number, or a function without arguments that computes it after the guess."""

    name: str
    question: str
    answer: Answer
    unit: str = ""
    low: float | None = None
    """Smallest guess of the slider; one that is typed may lie outside. None for no slider."""
    high: float | None = None

    def __post_init__(self) -> None:
        if not self.name or not self.question:
            raise LabError(f"guess {self.name!r} asks {self.question!r}; wanted a name and a question")
        if (self.low is None) != (self.high is None):
            raise LabError(f"guess {self.name!r}: low is {self.low}, high is {self.high}; wanted both or neither")
        if self.low is not None and self.high is not None and not -math.inf < self.low < self.high < math.inf:
            raise LabError(f"guess {self.name!r}: low is {self.low}, high is {self.high}; wanted low below high")
        if not callable(self.answer):
            self._number(self.answer)

    def compute(self) -> float:
        """The answer. Raises LabError where it is no finite number, and whatever its function raises."""
        return self._number(self.answer() if callable(self.answer) else self.answer)

    def kept(self) -> Guess | None:
        """This reader's first guess, the one that counts; None before it. Raises FileError."""
        return load_progress(current_reader()).guess_of(self.name)

    def keep(self, guess: float, answer: float) -> tuple[Guess, Guess]:
        """Keep a guess if it is the reader's first; return it and the one that counts. Raises FileError."""
        progress = load_progress(current_reader())
        said = Guess(self.name, self.question, float(guess), answer, self.unit, now())
        if progress.note_guess(said):
            save_progress(progress)
        return said, progress.guess_of(self.name) or said

    def guess(self, value: float) -> str:
        """Guess without a widget: the guess is kept, and how far off it is comes back in words."""
        return in_words(*self.keep(value, self.compute()))

    def _number(self, value: Any) -> float:
        is_number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value):
            raise LabError(f"guess {self.name!r}: its answer is {value!r:.60}; wanted a finite number")
        return float(value)

    def __repr__(self) -> str:
        return f"Guess first: {self.question}{f' [{self.unit}]' if self.unit else ''}"

    def _repr_markdown_(self) -> str:
        return f"**Guess first.** {self.question}{f' [{self.unit}]' if self.unit else ''}"


def factor(guess: Guess) -> float:
    """How many times too large or too small a guess is, at least 1; infinite where the signs differ."""
    if guess.guess == guess.answer:
        return 1.0
    if guess.guess * guess.answer <= 0:
        return math.inf
    ratio = guess.guess / guess.answer
    return max(ratio, 1 / ratio)


def in_words(guess: Guess, first: Guess | None = None) -> str:
    """``You said 12 s, it is 49.5 s: 4.1 times too low.``; with an earlier guess, that this one does not count."""
    said, wanted = with_unit(guess.guess, guess.unit), with_unit(guess.answer, guess.unit)
    words = f"You said {said}, it is {wanted}: {_distance(guess)}."
    if first in (None, guess):
        return words
    return f"{words} Your first guess counts: {with_unit(first.guess, first.unit)}."


def _distance(guess: Guess) -> str:
    off, side = factor(guess), "high" if guess.guess > guess.answer else "low"
    difference = abs(guess.guess - guess.answer)
    if off == 1:
        return "exactly right"
    if off <= RIGHT:
        return f"right, within {100 * (RIGHT - 1):.0f} %"
    if guess.unit in PERCENT and off < NEAR:  # percent of a percentage would be misread
        return f"{in_figures(difference)} percentage points too {side}"
    if off == math.inf or guess.answer < 0:  # below zero the larger number has the smaller size
        return f"{with_unit(difference, 'percentage points' if guess.unit in PERCENT else guess.unit)} too {side}"
    if off < NEAR:
        return f"{100 * abs(guess.guess / guess.answer - 1):.0f} % too {side}"
    return f"{in_figures(off, 2)} times too {side}"


def with_unit(value: float, unit: str) -> str:
    """A number with its unit: ``49.5 s``, ``12 %``."""
    return f"{in_figures(value)} {unit}".strip()


def score_of(guesses: Sequence[Guess]) -> str:
    """How a reader's first guesses did: ``4 guesses, 1 within a factor of 2; half of them within 4.1``."""
    if not guesses:
        return "no guesses yet"
    factors = [factor(each) for each in guesses]
    words = f"{len(factors)} {'guess' if len(factors) == 1 else 'guesses'}"
    words += f", {sum(each <= NEAR for each in factors)} within a factor of {NEAR:.0f}"
    middle = median(factors)
    return words if len(factors) < 3 or math.isinf(middle) else f"{words}; half of them within {middle:.2g}"
