"""Guesses: what is asked, how far off one is in words, and which one counts."""

import json
import math

import pytest

import dtfm_lab as lab
from dtfm_lab.domain.errors import FileError
from dtfm_lab.domain.units import in_figures
from dtfm_lab.extensions.course.guessing import GuessQuestion, factor, in_words, score_of
from dtfm_lab.extensions.course.progress import Guess, load_progress, progress_path


def guessed(guess: float, answer: float, unit: str = "s") -> Guess:
    return Guess("a", "How long?", guess, answer, unit)


@pytest.mark.parametrize(
    ("guess", "answer", "says"),
    [
        (12, 49.5, "You said 12 s, it is 49.5 s: 4.1 times too low."),
        (60, 49.5, "21 % too high"),
        (50, 49.5, "right, within 5 %"),
        (3, 3, "exactly right"),
        (5, 0, "5 s too high"),
        (-1, 4, "5 s too low"),
        (-9, -3, "6 s too low"),
        (2e9, 1e6, "2,000 times too high"),
    ],
)
def test_how_far_off_a_guess_is_in_plain_words(guess, answer, says):
    assert says in in_words(guessed(guess, answer))


def test_of_percentages_the_difference_is_said_in_points():
    assert "11 percentage points too high" in in_words(guessed(60, 49, "%"))
    assert "49 percentage points too low" in in_words(guessed(0, 49, "%"))
    assert "4.9 times too low" in in_words(guessed(10, 49, "%"))


def test_a_guess_twice_too_high_is_as_far_off_as_one_half_of_the_answer():
    assert factor(guessed(20, 10)) == factor(guessed(5, 10)) == 2
    assert factor(guessed(1, -1)) == math.inf
    assert factor(guessed(0, 0)) == 1


def test_numbers_are_written_as_people_write_them():
    shown = {49.51: "49.5", 1234567: "1,230,000", 0.02612: "0.0261", 0: "0", 200: "200", 7.5: "7.5"}
    assert {number: in_figures(number) for number in shown} == shown


def test_the_first_guess_counts():
    asked = GuessQuestion("how-long", "How long?", lambda: 49.5, "s")
    assert "4.1 times too low." in asked.guess(12)
    assert asked.guess(49.5).endswith("Your first guess counts: 12 s.")
    assert [each.guess for each in load_progress("ada").guesses] == [12]
    kept = lab.missions.progress().guesses
    assert [(each.name, each.guess, each.answer) for each in kept] == [("how-long", 12, 49.5)]


def test_the_score_counts_guesses_within_a_factor_of_two():
    assert score_of([]) == "no guesses yet"
    assert score_of([guessed(1, 1)]) == "1 guess, 1 within a factor of 2"
    four = [guessed(12, 49.5), guessed(60, 49.5), guessed(30, 10), guessed(1, -1)]
    assert score_of(four) == "4 guesses, 1 within a factor of 2; half of them within 3.6"


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (("a", "How?", 1.0, "s", 1.0, None), "wanted both or neither"),
        (("a", "How?", 1.0, "s", 2.0, 1.0), "wanted low below high"),
        (("a", "How?", "many"), "its answer is 'many'; wanted a finite number"),
        (("a", "How?", math.nan), "wanted a finite number"),
        (("", "How?", 1.0), "wanted a name"),
    ],
)
def test_a_question_that_cannot_be_asked_is_refused_in_a_line(asked, says):
    with pytest.raises(lab.LabError, match=says):
        lab.guess(*asked)


def test_guesses_are_kept_in_the_readers_file_only():
    GuessQuestion("how-long", "How long?", 3.0).guess(4)
    assert json.loads(progress_path("ada").read_text())["guesses"][0]["name"] == "how-long"
    lab.missions.reader("barbara")
    assert lab.missions.progress().guesses == []
    progress_path("barbara").write_text("{")
    with pytest.raises(FileError):
        lab.missions.progress()
