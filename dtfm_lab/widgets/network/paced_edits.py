"""A drag accepted at the pace at which the lab can answer it, so that every moment it shows is finished."""

import asyncio
import time
from collections.abc import Callable

from dtfm_lab.widgets.network.drawing import Drawing
from dtfm_lab.widgets.tasks import begin, has_event_loop

PATIENCE_S = 0.5
"""Most seconds that a moment of a drag waits for the answer to the one before."""
LEAST_S = 0.2
"""Least seconds between two moments of a drag, so that the page, too, has time to draw what follows from each."""
LOOK_S = 0.01


class PacedEdits:
    """Calls ``accept`` after every edit of a drawing; of a drag's moments, the newest once the one before is answered,
    and the last one at once.

    A hand moves faster than plans are found. Were each move taken at once, it would end the search of the one before,
    and nothing would be seen to follow until the hand rests.
    """

    def __init__(self, drawing: Drawing, accept: Callable[[], None], report_error: Callable[[str], None]) -> None:
        self._drawing, self._accept, self._report_error = drawing, accept, report_error
        self.is_answering: Callable[[], bool] = lambda: False
        """Whether a plan or a prediction is computed that follows from an edit."""
        self._waits = False
        self._accepted_s = -LEAST_S
        drawing.observe(lambda _: self._edited(), "document")
        drawing.observe(lambda _: self._accept_last(), "is_in_gesture")

    def _edited(self) -> None:
        if self._waits:
            return
        if self._is_ahead() and has_event_loop():
            self._waits = True
            begin(self._accept_once_answered(), self._report_error)
        else:
            self._accept_now()

    def _is_ahead(self) -> bool:
        is_too_soon = time.monotonic() - self._accepted_s < LEAST_S
        return self._drawing.is_in_gesture and (is_too_soon or self.is_answering())

    def _accept_last(self) -> None:
        """Accept what still waits, if anything does."""
        if self._waits:
            self._accept_now()

    def _accept_now(self) -> None:
        self._waits, self._accepted_s = False, time.monotonic()
        self._accept()

    async def _accept_once_answered(self) -> None:
        began_s = time.monotonic()
        while self._waits and self._is_ahead() and time.monotonic() - began_s < PATIENCE_S:
            await asyncio.sleep(LOOK_S)
        self._accept_last()
