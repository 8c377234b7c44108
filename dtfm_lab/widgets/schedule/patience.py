"""Waiting for a function on a thread without making a person wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from dtfm_lab.widgets.tasks import FRAME_S

Result = TypeVar("Result")

SLOW_S = 0.15


async def patiently(
    work: Callable[[], Result], *, slow: Callable[[], None], stopped: Callable[[], bool]
) -> Result | None:
    """What ``work`` returns or raises; None once ``stopped()``. ``slow`` is told after 150 ms.

    A function that was stopped ends on its thread by itself, and nobody hears of it.
    """
    task = asyncio.ensure_future(asyncio.to_thread(work))
    done, _ = await asyncio.wait({task}, timeout=SLOW_S)
    if not done:
        slow()
    while not task.done() and not stopped():
        await asyncio.wait({task}, timeout=FRAME_S)
    if task.done():
        return task.result()
    task.add_done_callback(lambda late: late.exception())
    return None
