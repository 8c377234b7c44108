"""What the tests of searches, races and replanning share: a loop like the kernel's, and small networks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import numpy as np

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.topology import Topology

JOB = Job.from_bytes(4, 4, 1e9, 5e8)


def irregular(n: int = 16, seed: int = 0) -> Topology:
    """Devices in the plane, no two links alike: no search proves its best at once."""
    rng = np.random.default_rng(seed)
    at = rng.random((n, 2))
    latency_ms = 1 + 100 * np.linalg.norm(at[:, None] - at, axis=2)
    card = rng.uniform(0.5, 5, n)
    return Topology.from_matrices(latency_ms, np.minimum(card[:, None], card), name="irregular")


async def until(holds: Callable[[], bool], patience_s: float = 60.0) -> None:
    deadline = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.005)


def on_a_loop(story: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    def test() -> None:
        asyncio.run(story())

    test.__name__, test.__doc__ = story.__name__, story.__doc__
    return test
