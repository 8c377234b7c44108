"""What tests on an event loop like the kernel's press, and how they wait for what comes of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

WAIT_S = 300.0
"""Seconds that a test waits before it fails: far more than needed, as the machine may be busy."""


async def until(holds: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.01)


def send(view: Any, content: dict[str, Any], buffers: Sequence[Any] = ()) -> None:
    """Have a view receive a message as from the page."""
    view._handle_custom_msg(content, list(buffers))  # ipywidgets has no public way
