"""The links on which one device sends, one message after the other. Real runs and reference simulators use it.

``Links`` says how long a message takes. Here a message also waits for its turn.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from dtfm_lab.domain.network.topology import Links


class Passage(NamedTuple):
    """One message on its link. Its bytes leave from ``start_s`` to ``end_s`` and arrive ``latency_s`` later."""

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
    """The links of one sender, with the time at which each is free again. It does not model a NIC shared by a host."""

    def __init__(self, links: Links, device: int) -> None:
        self._links, self._device = links, device
        self._latency_s = links.latency_s[device].tolist()
        self._one_nic = links.queueing == "nics"
        self.reset()

    def reset(self) -> None:
        """Make all links idle, as at the beginning of an iteration."""
        self._free_s: dict[int, float] = defaultdict(float)
        self._turn_s = 0.0

    def carry(self, to: int, ready_s: float, n_bytes: float, *, in_turn: bool, slower: float = 1.0) -> Passage:
        """Send ``n_bytes`` to device ``to``, not before ``ready_s``.

        Call it in the order in which messages become ready. A message sent ``in_turn`` also waits until the previous
        ``in_turn`` message has arrived. The wait for the receiver's NIC is not modelled here. So with NICs, ``ready_s``
        of such a message must not be before the previous one has fully arrived. A message of a collective takes
        ``slower`` times as long (``Links.slower``).
        """
        queue = 0 if self._one_nic else to
        start_s = max(ready_s, self._free_s[queue], self._turn_s if in_turn else 0.0)
        moving_s = slower * float(self._links.moving_s(self._device, to, n_bytes))
        passage = Passage(start_s, start_s + moving_s, self._latency_s[to])
        self._free_s[queue] = passage.end_s
        if in_turn:
            self._turn_s = passage.delivered_s
        return passage
