"""Work on the kernel's event loop that a button starts; a cell never blocks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from dtfm_lab.domain.errors import LabError

FRAME_S = 0.066
"""between two looks at what a search or a run has produced"""

logger = logging.getLogger(__name__)
_running: set[asyncio.Task[None]] = set()


def begin(work: Coroutine[Any, Any, None], report_error: Callable[[str], None]) -> asyncio.Task[None]:
    """Start a coroutine; a LabError becomes one line, and the task is kept alive until it ends."""

    async def guarded() -> None:
        try:
            await work
        except LabError as error:
            report_error(str(error))
        except Exception as error:  # a mistake of ours: said where the person looks, and whole in the log
            logger.exception("work that a button started has failed")
            report_error(f"this should not have happened: {type(error).__name__}: {error}")

    task = asyncio.get_running_loop().create_task(guarded())
    _running.add(task)
    task.add_done_callback(_running.discard)
    return task
