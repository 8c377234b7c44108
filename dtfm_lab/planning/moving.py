"""The model state that has to move before another plan can train: which bytes, between which devices, in how many
seconds.

A model's state is treated as two lines of equal length: the parameters of its layers, first layer first, and their
optimizer states in the same order. Every device of a plan holds pieces of it: its stages and, on the last stage, the
copy of a tied embedding. If replicas shard the state (``sharding``), a device holds only its shard. A device of the new
plan gets only what it does not hold yet. A device with the same stage and shard in both plans gets nothing. If a stage
is cut at another place, only the part that changed hands moves.

Each piece comes from a single remaining device that held it in the old plan: the one that delivers it first. Links
follow the simulator's rule (``domain.network.topology``). With ``pairs``, every directed pair is a separate link,
except that devices of one host share its NIC. If NICs queue, messages leave a NIC one at a time and arrive one at a
time. Larger pieces are sent first. A device does not forward a piece that it has just received. Training waits for the
last piece.

A piece that no remaining device holds comes from a checkpoint. The location of checkpoints is unknown, so the piece is
assumed to arrive over the fastest link into its device, without waiting for other pieces.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from dtfm_lab.costs.memory import optimizer_bytes, sharded_over
from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.job import BYTES_PER_ELEMENT, Job, LayerKind
from dtfm_lab.domain.network import Links, Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.simulation.schedules import choices_of

if TYPE_CHECKING:
    import pandas as pd

CHECKPOINT = -1
"""Sender of a piece that no remaining device holds, so that it comes from a checkpoint."""
SAME = 1e-9
"""Two holders count as equally fast if their arrival times differ by at most this, relatively. The one that has sent
fewer bytes then sends."""

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False, kw_only=True)
class Moves:
    """Pieces of state that devices receive. Each array has one entry per piece, the largest piece first."""

    topology: Topology
    """The network of the new plan. Device indices refer to it."""
    sender: IntArray
    """Index of the device that sends the piece; ``CHECKPOINT`` if no remaining device holds it."""
    receiver: IntArray
    stage: IntArray
    """Stage that the receiver has in the new plan."""
    n_bytes: IntArray
    start_s: FloatArray
    """Seconds from the beginning of all moves until the sender begins with the piece."""
    end_s: FloatArray
    """Seconds from the beginning of all moves until the last byte arrives."""

    def __len__(self) -> int:
        return len(self.receiver)

    def __repr__(self) -> str:
        return f"<{len(self)} moves of {self.total_bytes / 1e9:.3g} GB in {self.move_s:.3g} s>"

    @property
    def move_s(self) -> float:
        """Seconds until every device has its state; 0 if nothing moves."""
        return float(self.end_s.max(initial=0.0))

    @property
    def total_bytes(self) -> int:
        return int(self.n_bytes.sum())

    @property
    def from_checkpoint(self) -> Mask:
        """True for each piece that comes from a checkpoint. If any does, all devices go back to that checkpoint's
        step."""
        return np.asarray(self.sender == CHECKPOINT)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per piece: device, stage (of the new plan), sender (``checkpoint`` if no remaining device
        holds it), bytes, start_s, end_s."""
        import pandas as pd  # takes a while to load

        names = (*self.topology.names, "checkpoint")  # CHECKPOINT is the last of these
        return pd.DataFrame(
            {
                "device": [names[d] for d in self.receiver],
                "stage": self.stage,
                "sender": [names[d] for d in self.sender],
                "bytes": self.n_bytes,
                "start_s": self.start_s,
                "end_s": self.end_s,
            }
        )


def moves(old: Plan, new: Plan, present: Iterable[str] | None = None) -> Moves:
    """Compute which state moves from device to device when an old plan is replaced, over the links of the new plan.

    ``present`` has the names of the devices that still hold their old state; None if all on the new plan's network do.
    Devices are matched by name. Raises JobError for a job without a model, PlanError if the plans are for different
    models or dtypes.
    """
    _require_one_model(old.job, new.job)
    n = len(new.topology)
    held, needed, part_bytes = _parts_of(old, new, _alive(old, new, present))
    missing = needed & ~held
    receivers = np.flatnonzero(missing.any(axis=0))
    moved = missing.any(axis=1)
    # parts of the line that the same devices hold are one piece
    holders, kind = np.unique(held[moved], axis=0, return_inverse=True)
    n_bytes = np.zeros((len(holders), n), dtype=np.int64)
    np.add.at(n_bytes, kind.ravel(), missing[moved] * part_bytes[moved, None])
    piece, receiver = np.nonzero(n_bytes[:, receivers])
    receiver = receivers[receiver]
    size = n_bytes[piece, receiver]
    order = np.lexsort((receiver, -size))
    piece, receiver, size = piece[order], receiver[order], size[order]
    sender, start_s, end_s = _sent(Links.of(new.topology, new.queueing), holders[piece], receiver, size)
    stage_of = np.full(n, -1)
    stage_of[new.placement.devices] = np.arange(len(new.placement.devices))[:, None]
    return Moves(
        topology=new.topology,
        sender=sender,
        receiver=receiver,
        stage=stage_of[receiver],
        n_bytes=size,
        start_s=start_s,
        end_s=end_s,
    )


def _require_one_model(old: Job, new: Job) -> None:
    before, after = (f"{job.modelled().name} in {job.dtype}" for job in (old, new))
    if old.modelled().layers != new.modelled().layers or old.dtype != new.dtype:
        raise PlanError(f"the old plan trains {before}, the new one {after}; wanted the same")


def _alive(old: Plan, new: Plan, present: Iterable[str] | None) -> IntArray:
    """Return the index in the new network of each device of the old one; -1 for those that are gone."""
    at = {name: i for i, name in enumerate(new.topology.names)}
    there = at.keys() if present is None else set(present) & at.keys()
    return np.array([at[name] if name in there else -1 for name in old.topology.names])


class _Piece(NamedTuple):
    """Parts of one line of state, counted in parameters: ``device[i]`` holds it from ``low[i]`` to below
    ``high[i]``."""

    device: IntArray
    low: IntArray
    high: IntArray


def _parts_of(old: Plan, new: Plan, alive: IntArray) -> tuple[Mask, Mask, IntArray]:
    """Cut the line of parameters, and the line of optimizer states, wherever a device of either plan begins or ends to
    hold it.

    Returns three arrays for the K parts and the n devices of the new plan's network. They are (K, n) True if a
    remaining device holds the part, (K, n) True if a device needs it, and (K,) the bytes of the part.
    """
    n, held, needed, n_bytes = len(new.topology), [], [], []
    for what, size in (("parameters", BYTES_PER_ELEMENT[new.job.dtype]), ("optimizer", optimizer_bytes(new.job))):
        before, after = _held(old, what), _held(new, what)
        ends = np.unique(np.concatenate([*before[1:], *after[1:]]))
        here = alive[before.device]
        kept = here >= 0
        held.append(_covered(ends, _Piece(here[kept], before.low[kept], before.high[kept]), n))
        needed.append(_covered(ends, after, n))
        n_bytes.append(np.diff(ends) * size)
    return np.concatenate(held), np.concatenate(needed), np.concatenate(n_bytes)


def _covered(ends: IntArray, pieces: _Piece, n: int) -> Mask:
    """Return (parts, n) True if the device holds the part. Parts lie between neighbouring ``ends``."""
    change = np.zeros((len(ends), n), dtype=np.int64)
    np.add.at(change, (np.searchsorted(ends, pieces.low), pieces.device), 1)
    np.add.at(change, (np.searchsorted(ends, pieces.high), pieces.device), -1)
    return np.asarray(np.cumsum(change, axis=0)[:-1] > 0)


def _held(plan: Plan, what: str) -> _Piece:
    """Return which parts of a line the devices of a plan hold. ``what`` names the line: ``parameters`` or
    ``optimizer``."""
    job, grid = plan.job, plan.placement.devices
    n_replicas = grid.shape[1]
    parts = getattr(sharded_over(job.sharding, n_replicas), what)
    device, low, high = [], [], []
    for position, begin, end in _stages(job):
        shard = (end - begin) * np.arange(parts + 1) // parts + begin
        which = np.arange(n_replicas) if parts > 1 else np.zeros(n_replicas, dtype=np.int64)
        device.append(grid[position])
        low.append(shard[which])
        high.append(shard[which + 1])
    return _Piece(*(np.concatenate(columns) for columns in (device, low, high)))


def _stages(job: Job) -> list[tuple[int, int, int]]:
    """Return the position in the pipeline, the first parameter, and the end (exclusive) of every stage on the line.

    If the embedding is tied across stages, the last stage's copy of it follows.
    """
    model = job.modelled()
    several = "stages_per_device" in choices_of(job.schedule_name)
    n_stages = job.n_stages * (job.stages_per_device if several else 1)
    ends = np.cumsum([0, *(layer.parameters for layer in model.layers)])
    cuts = ends[np.cumsum([0, *job.cut(n_stages)])].tolist()
    found = [(stage % job.n_stages, cuts[stage], cuts[stage + 1]) for stage in range(n_stages)]
    if job.ties_stages:
        assert model.layers[0].kind is LayerKind.EMBEDDING, "what is tied is the embedding"
        found.append(((n_stages - 1) % job.n_stages, 0, model.vocab_size * model.d_model))
    return found


def _sent(
    links: Links, holders: Mask, receiver: IntArray, n_bytes: IntArray
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return the sender, start and end in seconds of every piece, in the given order. A piece comes from the holder
    that delivers it first."""
    n, n_pieces = len(links.latency_s), len(receiver)
    everyone = np.arange(n)
    moving_s = np.array(links.moving_s(everyone[None, :], receiver[:, None], n_bytes[:, None].astype(float)))
    sender = np.full(n_pieces, CHECKPOINT)
    start_s, end_s = np.zeros(n_pieces), np.zeros(n_pieces)
    alone = ~holders.any(axis=1)
    if alone.any():
        bandwidth = links.bandwidth_bytes_per_s.copy()
        np.fill_diagonal(bandwidth, 0.0)
        at = receiver[alone]
        fastest = bandwidth.max(axis=0)[at] if n > 1 else np.full(len(at), np.inf)
        end_s[alone] = n_bytes[alone] / fastest
    free_s, sent = np.zeros(2 * n + n * n), np.zeros(n)
    for row in np.flatnonzero(~alone).tolist():
        to = int(receiver[row])
        who = np.flatnonzero(holders[row])
        leaving, coming = links.queues(who, np.full_like(who, to))
        latency_s, takes_s = links.latency_s[who, to], moving_s[row, who]
        # the receiving queue is needed from the first byte's arrival on, a latency after the start
        begin_s = np.maximum(free_s[leaving], np.where(coming >= 0, free_s[coming] - latency_s, 0.0))
        there_s = begin_s + takes_s + latency_s
        # of equally fast holders, the one that has sent least sends this piece
        best = int(np.where(there_s <= there_s.min() * (1 + SAME), sent[who], np.inf).argmin())
        sender[row], start_s[row], end_s[row] = who[best], begin_s[best], there_s[best]
        sent[who[best]] += n_bytes[row]
        free_s[leaving[best]] = begin_s[best] + takes_s[best]
        if coming[best] >= 0:
            free_s[coming[best]] = there_s[best]
    return sender, start_s, end_s
