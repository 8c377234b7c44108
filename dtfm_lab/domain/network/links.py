"""When messages leave and arrive: one model of links for the simulator and the emulated links of real runs.

``pairs``: every directed pair of devices is a link of its own, on which messages queue (the paper's
network); where a job's transport is ``blocking``, the messages of its pipelines also take turns, those of both
directions of a pair (``domain.schedule.schedule``). ``cards``: a device has one network card; its messages leave one
at a time, to whatever device, and come in one at a time, in the order in which their first bytes arrive. Devices of
one host share its card: in both models, messages to and from other hosts take that card one at a time, and messages
within the host take the pair's own link and no card. Otherwise the two directions are independent, a transfer does not
keep its device from computing, and a message takes its bytes over the
bandwidth of its pair, or as long as messages of that size took where they were measured.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from dtfm_lab.domain.network.conversions import segment_of
from dtfm_lab.domain.network.topology import Topology
from dtfm_lab.domain.registry import unknown
from dtfm_lab.domain.units import FloatArray, IntArray

QUEUEING = ("pairs", "cards")


class Passage(NamedTuple):
    """One message on its link: its bytes leave from start_s to end_s and arrive latency_s later."""

    start_s: float
    end_s: float
    latency_s: float

    @property
    def first_byte_s(self) -> float:
        return self.start_s + self.latency_s

    @property
    def delivered_s(self) -> float:
        return self.end_s + self.latency_s


@dataclass(frozen=True, eq=False)
class Links:
    """All links of a network; ``[i, j]`` is from device i to device j. Raises UnknownName for another queueing."""

    latency_s: FloatArray
    bandwidth_bytes_per_s: FloatArray
    queueing: str = "pairs"
    message_bytes: FloatArray | None = None
    """(K,) sizes of the messages that were measured; None where none were."""
    charged_bytes: FloatArray | None = None
    """(N, N, K) bytes that, at the pair's bandwidth, take as long as each of these took beyond the latency; NaN where a
    pair was not measured. So a change of bandwidth changes the measured times in proportion."""
    card_of: IntArray | None = None
    """(N,) as ``Topology.card_of``: the first device of each device's host; None where no host has several."""

    def __post_init__(self) -> None:
        if self.queueing not in QUEUEING:
            raise unknown("queueing", self.queueing, QUEUEING)

    @classmethod
    def of(cls, topology: Topology, queueing: str = "pairs") -> Self:
        latency_s, bandwidth = topology.latency_s, topology.bandwidth_bytes_per_s
        if topology.message_s is None:
            return cls(latency_s, bandwidth, queueing, card_of=topology.card_of)
        moving_s = np.maximum(topology.message_s - latency_s[:, :, None], 0.0)
        charged_bytes = moving_s * bandwidth[:, :, None]
        return cls(latency_s, bandwidth, queueing, topology.message_bytes, charged_bytes, topology.card_of)

    @classmethod
    def free(cls, n_devices: int) -> Self:
        """Links without latency and of infinite bandwidth."""
        shape = (n_devices, n_devices)
        return cls(np.zeros(shape), np.full(shape, np.inf))

    def scaled(self, latency: float = 1.0, bandwidth: float = 1.0) -> Links:
        """The links with every latency and every bandwidth multiplied by a factor."""
        return replace(
            self, latency_s=self.latency_s * latency, bandwidth_bytes_per_s=self.bandwidth_bytes_per_s * bandwidth
        )

    def delayed(self, seconds: float) -> Links:
        """The links with so many seconds more of latency between any two devices."""
        return replace(self, latency_s=np.where(np.eye(len(self.latency_s), dtype=bool), 0.0, self.latency_s + seconds))

    def moving_s(self, sender: int | IntArray, receiver: int | IntArray, n_bytes: float | FloatArray) -> Any:
        """Seconds for which messages occupy their links, beyond the latency; arguments of any shape."""
        bandwidth = self.bandwidth_bytes_per_s[sender, receiver]
        if self.message_bytes is None or self.charged_bytes is None:
            return n_bytes / bandwidth
        upper, share = segment_of(self.message_bytes, n_bytes)
        low, high = (self.charged_bytes[sender, receiver, end] for end in (upper - 1, upper))
        charged = low + share * (high - low)
        return np.where(np.isnan(charged), n_bytes, charged) / bandwidth

    @property
    def has_cards(self) -> bool:
        """Whether messages of several pairs wait for each other anywhere."""
        return self.queueing == "cards" or self.card_of is not None

    def queues(self, sender: IntArray, receiver: IntArray) -> tuple[IntArray, IntArray]:
        """Return the queues of messages on these links: see ``queues_of``."""
        return queues_of(sender, receiver, len(self.latency_s), self.queueing, self.card_of)

    def outgoing(self, device: int) -> OutgoingLinks:
        """The links on which this device sends."""
        return OutgoingLinks(self, device)


def queues_of(
    sender: IntArray, receiver: IntArray, n_devices: int, queueing: str, card_of: IntArray | None
) -> tuple[IntArray, IntArray]:
    """Numbers of what messages occupy where they leave and where they come in, -1 where nothing.

    Cards come first, those on which messages leave and then those on which they come in; then pairs.
    """
    n = n_devices
    pair = 2 * n + sender * n + receiver
    if card_of is None:
        return (sender, n + receiver) if queueing == "cards" else (pair, np.full_like(receiver, -1))
    apart = card_of[sender] != card_of[receiver]
    has_card = is_shared(card_of) | (queueing == "cards")
    leaving = np.where(apart & has_card[sender], card_of[sender], pair)
    return leaving, np.where(apart & has_card[receiver], n + card_of[receiver], -1)


def is_shared(card_of: IntArray) -> npt.NDArray[np.bool_]:
    """(N,) whether each device shares its card with another one."""
    return np.bincount(card_of, minlength=len(card_of))[card_of] > 1


class OutgoingLinks:
    """The links of one sending device, with the time at which each is free again; no card of a shared host."""

    def __init__(self, links: Links, device: int) -> None:
        self._links, self._device = links, device
        self._latency_s = links.latency_s[device].tolist()
        self._one_card = links.queueing == "cards"
        self.reset()

    def reset(self) -> None:
        """Make all links idle, as at the beginning of an iteration."""
        self._free_s: dict[int, float] = defaultdict(float)
        self._turn_s = 0.0

    def carry(self, to: int, ready_s: float, n_bytes: float, *, in_turn: bool) -> Passage:
        """Send ``n_bytes`` to device ``to``, not before ``ready_s``.

        Call it in the order in which messages become ready. A message sent ``in_turn`` also waits until the previous
        one sent so has arrived. The wait for the receiver's card is not computed here, so where there are cards,
        ``ready_s`` must not be before the last byte of that previous message came in.
        """
        queue = 0 if self._one_card else to
        start_s = max(ready_s, self._free_s[queue], self._turn_s if in_turn else 0.0)
        moving_s = float(self._links.moving_s(self._device, to, n_bytes))
        passage = Passage(start_s, start_s + moving_s, self._latency_s[to])
        self._free_s[queue] = passage.end_s
        if in_turn:
            self._turn_s = passage.delivered_s
        return passage
