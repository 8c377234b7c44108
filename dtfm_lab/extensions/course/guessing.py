"""Questions whose answer a reader guesses before seeing it, how far off a guess was, and the score."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.units import in_figures
from dtfm_lab.extensions.course.mission import is_number
from dtfm_lab.extensions.course.progress import Guess, current_reader, load_progress, now, save_progress

NEAR = 2.0
"""A guess counts as near if it is off by at most this factor. The score counts near guesses."""
RIGHT = 1.05
"""A guess counts as right if it is off by at most this factor."""
PERCENT = ("%", "percent", "per cent")
DECADES = 100.0
"""A slider is logarithmic if its smallest number is above 0 and its largest is at least this many times as large."""

Answer = float | str | Callable[[], float | str]


@dataclass(frozen=True)
class GuessQuestion:
    """A question and its answer: a number, a choice, or a function that computes it after the guess."""

    name: str
    question: str
    answer: Answer
    unit: str = ""
    low: float | None = None
    """Smallest guess of the slider. A typed guess may lie outside. None for no slider."""
    high: float | None = None
    choices: tuple[str, ...] = ()
    """Answers to choose from. The guess and the answer are then positions in this list, counted from 1."""
    sealed: bool = False
    """True if the answer is not revealed after the guess, as in a test before a course."""

    def __post_init__(self) -> None:
        if not self.name or not self.question:
            raise LabError(f"guess {self.name!r} asks {self.question!r}; wanted a name and a question")
        if (self.low is None) != (self.high is None):
            raise LabError(f"guess {self.name!r}: low is {self.low}, high is {self.high}; wanted both or neither")
        if self.low is not None and self.high is not None and not -math.inf < self.low < self.high < math.inf:
            raise LabError(f"guess {self.name!r}: low is {self.low}, high is {self.high}; wanted low below high")
        if self.choices and (len(self.choices) < 2 or len(set(self.choices)) < len(self.choices)):
            raise LabError(f"guess {self.name!r}: its choices are {list(self.choices)}; wanted two or more that differ")
        if not callable(self.answer):
            self.place_of(self.answer)

    def compute(self) -> float:
        """Return the answer as a number; a choice as its position from 1. Raises LabError if it is not a finite number
        or a choice, and whatever its function raises."""
        return self.place_of(self.answer() if callable(self.answer) else self.answer)

    def kept(self) -> Guess | None:
        """Return this reader's first guess, which is the one that counts. None before any guess. Raises FileError if
        the reader's file cannot be read."""
        return load_progress(current_reader()).guess_of(self.name)

    def said(self, guess: float, answer: float, reason: str = "") -> Guess:
        """Return a guess at this question as the entry for the reader's file."""
        kept = [*self.choices]
        return Guess(self.name, self.question, float(guess), answer, self.unit, now(), reason.strip(), kept)

    def keep(self, guess: float, answer: float, reason: str = "") -> tuple[Guess, Guess]:
        """Save a guess if it is the reader's first. Return it, and the first guess, which counts. Raises FileError if
        the reader's file cannot be read or written."""
        progress = load_progress(current_reader())
        said = self.said(guess, answer, reason)
        if progress.note_guess(said):
            save_progress(progress)
        return said, progress.guess_of(self.name) or said

    def guess(self, value: float | str, reason: str = "") -> str:
        """Guess without a widget: save the guess and its reason, and return in words how far off it is."""
        return self.words_of(*self.keep(self.place_of(value), self.compute(), reason))

    def words_of(self, said: Guess, first: Guess) -> str:
        """Return the text that a reader sees after a guess."""
        if self.sealed:
            return "Kept. The answer comes after the course."
        return in_words(said, first)

    def place_of(self, value: Any) -> float:
        """Return a guess or an answer as a number. A choice in words becomes its position. Raises LabError for anything
        else."""
        if self.choices:
            places = {choice: float(place) for place, choice in enumerate(self.choices, 1)}
            if isinstance(value, str) and value in places:
                return places[value]
            if isinstance(value, str) or value not in places.values():
                wanted = "; ".join(f"{place:.0f} for {choice!r}" for choice, place in places.items())
                raise LabError(f"guess {self.name!r}: found {value!r:.60}; wanted {wanted}")
        if not is_number(value) or not math.isfinite(value):
            raise LabError(f"guess {self.name!r}: its answer is {value!r:.60}; wanted a finite number")
        return float(value)

    def __repr__(self) -> str:
        return f"Guess first: {self._asked()}"

    def _repr_markdown_(self) -> str:
        return f"**Guess first.** {self._asked()}"

    def _asked(self) -> str:
        """Return the question with its unit, and its choices, one per line."""
        unit = f" [{self.unit}]" if self.unit else ""
        return self.question + unit + "".join(f"\n{place}. {choice}" for place, choice in enumerate(self.choices, 1))


ASKED: dict[str, GuessQuestion] = {}
"""The questions that this process has asked, by name."""


def factor(guess: Guess) -> float:
    """Return by which factor a guess is too large or too small, at least 1. It is infinite for a wrong choice, and if
    the signs differ or only one of the two is 0."""
    if guess.guess == guess.answer:
        return 1.0
    # No factor leads from one choice to another, nor from one side of zero to the other.
    if guess.choices or guess.guess * guess.answer <= 0:
        return math.inf
    ratio = guess.guess / guess.answer
    return max(ratio, 1 / ratio)


def in_words(guess: Guess, first: Guess | None = None) -> str:
    """Return ``You said 12 s, it is 49.5 s: 4.1 times too low.`` After an earlier guess, it adds that this one does not
    count."""
    if guess.choices:
        right = f"Right: {text_of(guess.answer, guess)}."
        wrong = f"You chose: {text_of(guess.guess, guess)}. It is: {text_of(guess.answer, guess)}."
        words = right if guess.guess == guess.answer else wrong
    else:
        words = f"You said {text_of(guess.guess, guess)}, it is {text_of(guess.answer, guess)}: {_distance(guess)}."
    if first in (None, guess):
        return words
    return f"{words} Your first guess counts: {text_of(first.guess, first)}."


def text_of(value: float, guess: Guess) -> str:
    """Return a guess or its answer as text: a number with its unit, or the words of a choice."""
    return guess.choices[int(value) - 1] if guess.choices else with_unit(value, guess.unit)


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
    """Return a number with its unit: ``49.5 s``, ``12 %``."""
    return f"{in_figures(value)} {unit}".strip()


def score_of(guesses: Sequence[Guess]) -> str:
    """Return in words how good a reader's first guesses were: ``4 guesses, 1 within a factor of 2; half of them within
    4.1``."""
    if not guesses:
        return "no guesses yet"
    factors = [factor(each) for each in guesses]
    words = f"{len(factors)} {'guess' if len(factors) == 1 else 'guesses'}"
    words += f", {sum(each <= NEAR for each in factors)} within a factor of {NEAR:.0f}"
    middle = median(factors)
    # The median of one or two guesses says nothing.
    return words if len(factors) < 3 or math.isinf(middle) else f"{words}; half of them within {middle:.2g}"
