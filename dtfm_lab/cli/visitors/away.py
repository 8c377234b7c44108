"""Ends the kernels of visitors who left without a word, as a laptop does whose lid is closed."""

import math
import os
import time
from typing import Any

from jupyter_core.utils import ensure_async
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.network import shortened

AWAY_S = 180.0
"""Seconds for which a kernel waits for its page to come back."""
AWAY_VARIABLE = "DTFM_LAB_AWAY_S"
"""Environment variable that gives other seconds."""
LOOKS = 12
"""Looks at the kernels within that time."""


def away_s() -> float:
    """Seconds for which a kernel waits for its page. Raises LabError where the environment holds no such number."""
    said = os.environ.get(AWAY_VARIABLE, str(AWAY_S))
    try:
        seconds = float(said)
    except ValueError:
        seconds = math.nan
    if not 1 <= seconds <= 86400:
        raise LabError(f"environment variable {AWAY_VARIABLE} is {shortened(said)}; wanted seconds from 1 to 86400")
    return seconds


class VisitorKernels(AsyncMappingKernelManager):
    """Jupyter's manager, which ends a kernel when its page has been away, whatever the kernel does meanwhile.

    Jupyter's own culling counts from the kernel's last message, and a search that goes on sends messages to nobody.
    """

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)  # type: ignore[no-untyped-call]  # jupyter_server's types are partial
        self._seen_at_s: dict[str, float] = {}
        """When each kernel was last seen with a page, or first seen at all."""
        self._had_page: set[str] = set()

    async def cull_kernel_if_idle(self, kernel_id: str) -> None:
        now_s = time.monotonic()
        self._seen_at_s = {each: at_s for each, at_s in self._seen_at_s.items() if each in self._kernels}
        if self._kernel_connections.get(kernel_id, 0):
            self._seen_at_s[kernel_id] = now_s
            self._had_page.add(kernel_id)
            return
        longest_s = away_s() if kernel_id in self._had_page else max(AWAY_S, away_s())  # a page may take long to load
        if now_s - self._seen_at_s.setdefault(kernel_id, now_s) > longest_s:
            self._had_page.discard(kernel_id)
            await ensure_async(self.shutdown_kernel(kernel_id))  # type: ignore[no-untyped-call]
