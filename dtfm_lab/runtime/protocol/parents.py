"""A process that ends with the one that started it, however that ends."""

import os
import threading
import time

CHECK_EVERY_S = 0.2
"""Seconds between checks whether the parent process is still there."""


def exit_with_parent() -> None:
    """Poll the parent's process id from now on: a parent that was killed cannot order anyone to exit."""
    threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(CHECK_EVERY_S)
    os._exit(1)
