"""Stories on an event loop like the kernel's, in which a test presses buttons and waits for what comes of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable


async def until(holds: Callable[[], bool], patience_s: float = 60.0) -> None:
    deadline = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.01)


def on_a_loop(story: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """A test of the same name that plays the story."""

    def test() -> None:
        asyncio.run(story())

    test.__name__, test.__doc__ = story.__name__, story.__doc__
    return test
