"""When a message is on its way: one object that the simulator and the emulation both ask.

Messages of one directed pair queue behind each other, both directions of a pair are two links, and a
transfer does not keep its device from computing. Synchronisation messages of one sender also take
turns: each starts when the one before has arrived (equation 2 of the paper sums over the peers).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple


class Passage(NamedTuple):
    """One message: its bytes leave from start_s to end_s and arrive latency_s later."""

    start_s: float
    end_s: float
    latency_s: float

    @property
    def first_byte_s(self) -> float:
        return self.start_s + self.latency_s

    @property
    def delivered_s(self) -> float:
        return self.end_s + self.latency_s


class OutgoingLinks:
    """The links of one sending device, with the time at which each is free again."""

    def __init__(self, latency_s: Sequence[float], bandwidth_bytes_per_s: Sequence[float]) -> None:
        """One latency and one bandwidth per receiver."""
        self._latency_s = [float(x) for x in latency_s]
        self._bandwidth = [float(x) for x in bandwidth_bytes_per_s]
        self.reset()

    def reset(self) -> None:
        """All links idle: the beginning of an iteration."""
        self._free_s: dict[int, float] = defaultdict(float)
        self._turn_s = 0.0

    def carry(self, to: int, ready_s: float, n_bytes: float, *, in_turn: bool) -> Passage:
        """Send ``n_bytes`` to receiver ``to``, not before ``ready_s``; ``in_turn`` for synchronisation."""
        start_s = max(ready_s, self._free_s[to], self._turn_s if in_turn else 0.0)
        passage = Passage(start_s, start_s + n_bytes / self._bandwidth[to], self._latency_s[to])
        self._free_s[to] = passage.end_s
        if in_turn:
            self._turn_s = passage.delivered_s
        return passage
