"""A progress bar and a Stop button for answers that take long."""

import time
from collections.abc import Callable

import ipywidgets as w

from dtfm_lab.widgets.controls import button, show
from dtfm_lab.widgets.tasks import Result, run_on_thread
from dtfm_lab.widgets.what_if.answer_text import busy

AT_ONCE_S = 0.1
"""Seconds of computing after which progress is shown."""
SECONDS_PER_ACTION = 3e-6
"""Pace of the first estimate; later ones take what the last work took."""
LEAST_ACTIONS = 5_000
"""Actions above which the pace of finished work is used for later estimates."""


class AnswerProgress:
    """Waits for work on a thread. ``view`` always has its full height, so that nothing below it moves."""

    def __init__(self) -> None:
        self._pace_s = SECONDS_PER_ACTION
        self._is_stopped = False
        self.line = w.HTML()
        self.stop = button("Stop", "stop", "Do not wait for this answer", "auto")
        show(self.stop, False)
        self.view = w.HBox([self.line, self.stop], layout=w.Layout(min_height="34px", align_items="center"))
        self.stop.on_click(lambda _: self._stop())

    async def wait(self, work: Callable[[], Result], n_actions: int, set_slow: Callable[[bool], None]) -> Result | None:
        """Return what the work returns, or raise what it raises; None where a person stopped waiting for it.

        ``set_slow`` is called with True when progress is shown first, and then with False when the work is over.
        """
        began, self._is_stopped = time.perf_counter(), False
        expected_s = max(n_actions * self._pace_s, 2 * AT_ONCE_S)
        text = f"computing some {n_actions:,} actions: about {expected_s:.2g} s" if n_actions else "computing"
        is_slow = False

        def on_slow() -> None:
            nonlocal is_slow
            is_slow = True
            show(self.stop, True)
            set_slow(True)

        def on_frame() -> None:
            self.line.value = busy(text, (time.perf_counter() - began) / expected_s)

        try:
            result = await run_on_thread(
                work, is_stopped=lambda: self._is_stopped, on_slow=on_slow, on_frame=on_frame, slow_s=AT_ONCE_S
            )
        finally:
            if is_slow:
                self.line.value = ""
                show(self.stop, False)
                set_slow(False)
        spent_s = time.perf_counter() - began
        if n_actions > LEAST_ACTIONS and is_slow and not self._is_stopped:
            self._pace_s = spent_s / n_actions
        return result

    def _stop(self) -> None:
        self._is_stopped = True
