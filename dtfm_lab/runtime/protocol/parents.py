"""A process that ends with the one that started it, however that ends."""

import os
import threading
import time

CHECK_EVERY_S = 0.2
"""Seconds between checks whether the parent process is still there."""


def exit_with_parent(parent: int | None = None) -> None:
    """Poll the parent's process id from now on: a parent that was killed cannot order anyone to exit.

    ``parent`` is its id where that is known, so that one that ended before this call is noticed, too.
    """
    threading.Thread(target=_watch, args=(os.getppid() if parent is None else parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(CHECK_EVERY_S)
    os._exit(1)
