"""An iterator that a thread exhausts, of which the page shows the newest."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Generic, TypeVar

from dtfm_lab.widgets.tasks import shared_interpreter

Item = TypeVar("Item")


class Stream(Generic[Item]):
    """Runs an iterator on a thread. ``stop`` ends it after the item at hand."""

    def __init__(self, items: Iterator[Item]) -> None:
        self.newest: Item | None = None
        self.error: BaseException | None = None
        self.stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, args=(items,), daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        self.stopped.set()

    def _work(self, items: Iterator[Item]) -> None:
        try:
            with shared_interpreter():
                for item in items:
                    self.newest = item
                    if self.stopped.is_set():
                        return
        except BaseException as error:
            self.error = error
