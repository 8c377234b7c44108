"""Seconds of passes whose parameters or gradients are sharded over replicas, with the messages of each layer.

With zero-3 (Rajbhandari et al. 2020, "ZeRO", section 7.2.2; Zhao et al. 2023, "PyTorch FSDP", sections 3.3.1 and 4.2),
a layer's parameters are gathered before its forward, dropped, and gathered again before its backward. Its gradients are
scattered after it, in every micro-batch. While one layer computes, the next is fetched (``Job.prefetch``). The first
fetch and the last scatter cannot be hidden. A layer here is a unit that is gathered: the embedding, a block or the
head.

With zero-2, no device holds whole gradients, so each micro-batch scatters its own, as in DeepSpeed's stage 2 and in
FSDP's SHARD_GRAD_OP without ``no_sync``. The gradients of the last micro-batch are sent by the synchronisation instead.
The seconds of all other scatters are spread evenly over all micro-batches, because the simulator gives all backwards of
a stage the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from dtfm_lab.costs.memory import message_bytes_of
from dtfm_lab.domain.job import (
    Job,
    Layer,
    frozen_bytes,
)


class PassSeconds(NamedTuple):
    """Seconds of one micro-batch's passes on a device."""

    forward: float
    backward: float
    """Seconds of a whole backward, including what it recomputes."""
    backward_input: float
    """Seconds of the first half of a split backward, including what it recomputes."""
    backward_weight: float
    """Seconds of the second half of a split backward, which computes the gradients of the weights."""


class Rings(Protocol):
    """The rings of all data-parallel groups, one per stage. ``costs.seconds.GroupRings`` implements this."""

    def gather_s(self, group: int, n_bytes: float) -> float: ...


def streamed_s(compute_s: Sequence[float], before_s: Sequence[float], after_s: Sequence[float]) -> float:
    """Return the seconds of a sequence of layers whose messages overlap with computing.

    Each argument has one number per layer: seconds of computing, of the message that the layer needs to begin, and of
    the message that it makes. While a layer computes, the next layer's message arrives and the previous layer's leaves,
    over the same links. The result is at least the seconds of computing alone and of messages alone, and at most their
    sum.
    """
    n = len(compute_s)
    beside_s = [(before_s[i + 1] if i + 1 < n else 0.0) + (after_s[i - 1] if i else 0.0) for i in range(n)]
    return before_s[0] + sum(map(max, compute_s, beside_s)) + after_s[-1]


class LayerMessages(NamedTuple):
    """Messages that the replicas of a stage exchange in the passes of one micro-batch. Each field has one entry per
    layer, first layer first."""

    shares: Sequence[float]
    """Fraction of the stage's computing that each layer does. The fractions sum to 1."""
    gather_s: Sequence[float]
    """Seconds to gather each layer's parameters."""
    scatter_s: Sequence[float]
    """Seconds to scatter each layer's gradients."""


def sharded_passes(alone: PassSeconds, messages: LayerMessages, *, prefetch: bool = True) -> PassSeconds:
    """Return the seconds of a stage's passes, including its messages. ``alone`` has the passes without messages.

    Without ``prefetch``, no layer computes while another's messages travel.
    """
    shares, gather_s, scatter_s = messages
    backwards = shares[::-1], gather_s[::-1], scatter_s[::-1]
    none = [0.0] * len(shares)

    def of(seconds: float, parts: Sequence[float], before_s: Sequence[float], after_s: Sequence[float]) -> float:
        if not prefetch:
            return seconds + sum(before_s) + sum(after_s)
        return streamed_s([seconds * part for part in parts], before_s, after_s)

    return PassSeconds(
        forward=of(alone.forward, shares, gather_s, none),
        backward=of(alone.backward, *backwards),
        backward_input=of(alone.backward_input, *backwards[:2], none),
        backward_weight=of(alone.backward_weight, backwards[0], none, backwards[2]),
    )


def layer_messages(job: Job, layers: Sequence[Layer], rings: Rings, group: int) -> LayerMessages:
    """Return the messages of a stage whose gradients, and with zero-3 its parameters, are sharded over its replicas."""
    whole = sum(layer.forward_flop for layer in layers)
    shares = [layer.forward_flop / whole if whole else 1 / len(layers) for layer in layers]
    sizes = [message_bytes_of(job, layer.parameters, frozen_bytes(job, layer)) for layer in layers]
    seconds = {n_bytes: rings.gather_s(group, n_bytes) for n_bytes in {one for size in sizes for one in size}}
    scatter_s = [seconds[gradient] for _, gradient in sizes]
    if job.sharding == "zero-3":
        return LayerMessages(shares, [seconds[parameters] for parameters, _ in sizes], scatter_s)
    # the synchronisation sends the gradients of the last micro-batch
    each = (job.n_microbatches - 1) / job.n_microbatches
    return LayerMessages(shares, [0.0] * len(layers), [each * one_s for one_s in scatter_s])
