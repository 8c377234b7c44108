"""A question that asks for a guess before it shows the answer."""

import asyncio
from collections.abc import Sequence
from typing import Any

import traitlets

from dtfm_lab.domain.errors import LabError
from dtfm_lab.extensions.course.guessing import DECADES, GuessQuestion, score_of, with_unit
from dtfm_lab.extensions.course.progress import Guess, current_reader, load_progress
from dtfm_lab.widgets.tasks import begin, has_event_loop, shared_interpreter
from dtfm_lab.widgets.views.view import View

REASON_WORDS = 3
"""Minimum words of a reason."""
REASON_LETTERS = 300
"""Maximum letters of a reason that are kept."""
NOTHING = GuessQuestion("nothing", "There is no question here yet.", 1.0)


class GuessView(View):
    """Asks a question. The page sends {"kind": "guess", "value", "reason"}. No trait holds the answer before the
    guess."""

    question = traitlets.Unicode().tag(sync=True)
    unit = traitlets.Unicode().tag(sync=True)
    low = traitlets.Float(None, allow_none=True).tag(sync=True)
    """Smallest guess of the slider; None for no slider."""
    high = traitlets.Float(None, allow_none=True).tag(sync=True)
    is_log = traitlets.Bool(False).tag(sync=True)
    """True if the slider is logarithmic."""
    choices = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """Answers to choose from, whose positions are the values. Empty if the question asks for a number."""
    busy = traitlets.Bool(False).tag(sync=True)
    """True while the answer is being computed."""
    marks = traitlets.List(traitlets.Dict()).tag(sync=True)
    """Marks on the scale after a guess: {"value", "text", "kind": "guess" | "answer"}."""
    words = traitlets.Unicode("").tag(sync=True)
    """How far off the guess is, in words; empty before the guess."""
    score = traitlets.Unicode("").tag(sync=True)
    problem = traitlets.Unicode("").tag(sync=True)
    """Why there is no answer, or why the guess is not kept; empty if there is no problem."""

    def __init__(self, asked: GuessQuestion = NOTHING, **traits: Any) -> None:
        super().__init__(**traits)
        self.asked = asked
        low, high = asked.low, asked.high
        with self.hold_sync():
            self.question, self.unit, self.low, self.high = asked.question, asked.unit, low, high
            self.choices = [*asked.choices]
            # Over decades a linear slider would crowd the small numbers.
            self.is_log = low is not None and high is not None and low > 0 and high / low >= DECADES
        try:
            if (kept := asked.kept()) is not None:
                self._show(kept, kept)
        except LabError as error:
            self.problem = f"guesses are not kept: {error}"

    def guess(self, value: float | str, reason: str = "") -> None:
        """Guess, as the page does. The answer appears when it is computed, or at once if no event loop runs."""
        if self.busy:
            return
        self.problem = ""
        place = self.asked.place_of(value)
        if not has_event_loop():
            self._take(place, self.asked.compute(), reason)
            return
        self.busy = True
        begin(self._answer(place, reason), self._fail)

    async def _answer(self, value: float, reason: str) -> None:
        answer = await asyncio.to_thread(self._compute)
        self._take(value, answer, reason)
        self.busy = False

    def _compute(self) -> float:
        with shared_interpreter():
            return self.asked.compute()

    def _fail(self, problem: str) -> None:
        self.problem, self.busy = problem, False

    def _take(self, value: float, answer: float, reason: str) -> None:
        try:
            said, first = self.asked.keep(value, answer, reason)
        except LabError as error:
            said = first = self.asked.said(value, answer, reason)
            self.problem = f"this guess is not kept: {error}"
        self._show(said, first)

    def _show(self, said: Guess, first: Guess) -> None:
        with self.hold_sync():
            self.words = self.asked.words_of(said, first)
            if not said.choices:
                self.marks = [
                    {"kind": "guess", "value": said.guess, "text": with_unit(said.guess, said.unit)},
                    {"kind": "answer", "value": said.answer, "text": with_unit(said.answer, said.unit)},
                ]
            try:
                self.score = score_of(load_progress(current_reader()).guesses)
            except LabError:
                self.score = ""

    def received(self, content: dict[str, Any], buffers: Sequence[Any]) -> None:
        value, reason = content.get("value"), content.get("reason")
        # A message from the page may be anything.
        if content.get("kind") != "guess" or not isinstance(value, (int, float)) or not abs(value) < 1e300:
            return
        if not isinstance(reason, str) or len(reason.split()) < REASON_WORDS:
            self.problem = f"Say why in a sentence of {REASON_WORDS} words or more, then guess."
            return
        self.guess(float(value), reason[:REASON_LETTERS])

    def alt_text(self) -> str:
        return f"{self.asked!r} {self.words}".strip()

    def _repr_mimebundle_(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Add the question as Markdown, for readers without widgets."""
        bundle = super()._repr_mimebundle_(**options)
        if bundle is not None:
            bundle[0]["text/markdown"] = f"{self.asked._repr_markdown_()} {self.words}".strip()
        return bundle
