"""A question whose answer is shown only after a guess."""

from importlib import import_module
from typing import Any

from dtfm_lab.course.guessing import Answer, Question


def guess(
    name: str, question: str, answer: Answer, unit: str = "", low: float | None = None, high: float | None = None
) -> Any:
    """Ask for a guess before the answer is shown, and keep the score; the first guess counts.

    In a cell of its own, before the one that shows the answer. ``name`` is unique across lessons; ``answer`` is a
    number, or a function without arguments that is called after the guess, beside the page. With ``low`` and ``high``
    there is a slider, even in factors where they are a hundredfold apart. ``lab.missions.progress().guesses`` are all.
    Without ipywidgets the question is shown as text, and ``.guess(12)`` answers it. Raises LabError.
    """
    asked = Question(name, question, answer, unit, low, high)
    try:
        return import_module("dtfm_lab.widgets.views.guess").GuessView(asked)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("dtfm_lab"):
            raise
        return asked
