"""The rows of a trace as arrays, checked once, and everything that can be computed without the column ``after``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np

from dtfm_lab.domain.errors import TraceError
from dtfm_lab.domain.network import is_plain, shortened
from dtfm_lab.domain.options import MOST_COUNT
from dtfm_lab.domain.schedule import RECEIVES, SENDS, Action, Kind, Lane
from dtfm_lab.domain.schedule.synchronisation import LEAST_IN_RING
from dtfm_lab.domain.trace.run_context import RunContext
from dtfm_lab.domain.units import FloatArray, IntArray, counted

DENSE = 16
"""Duplicate rows are found by counting, which is faster than sorting, if all keys are below this many times the number
of rows."""
LINK_SEPARATOR = " -> "
"""Separates source and target in the name of a link."""
BETWEEN_REPLICAS = (Kind.SEND_G, Kind.RECV_G, Kind.SEND_P, Kind.RECV_P)


class Span(NamedTuple):
    """One action of one replica in one iteration, in seconds since the iteration began."""

    iteration: int
    replica: int
    action: Action
    start_s: float
    end_s: float


@dataclass(frozen=True, eq=False)
class TraceColumns:
    """Columns with one row per (iteration, replica, action). ``action`` indexes the table ``actions``.

    Raises TraceError if there are no rows, columns differ in length, a time is not finite, an action ends before it
    starts, a row occurs twice, ``after`` names no row, or there is an action that no device of this run can perform.
    Also raises it for texts or counts of the context that no run can have.
    """

    context: RunContext
    actions: tuple[Action, ...]
    iteration: IntArray
    replica: IntArray
    action: IntArray
    start_s: FloatArray
    end_s: FloatArray
    after: IntArray | None = None
    """For each row, the row whose end it waited for last; -1 if it waited for nothing. None if that is unknown."""

    def __post_init__(self) -> None:
        lengths = {c: len(getattr(self, c)) for c in ("iteration", "replica", "action", "start_s", "end_s")}
        if len(set(lengths.values())) != 1:
            raise TraceError(f"trace columns have lengths {lengths}; wanted one length")
        if not len(self.start_s):
            raise TraceError("trace has no rows; wanted at least one")
        self._check_context()
        n_replicas = self._check_actions()
        for what, column, n in (("action", self.action, len(self.actions)), ("replica", self.replica, n_replicas)):
            if (stray := column[(column < 0) | (column >= n)]).size:
                raise TraceError(f"trace names {what} {stray[0]}; wanted 0 to {n - 1}")
        if not (np.isfinite(self.start_s).all() and np.isfinite(self.end_s).all()):
            raise TraceError("trace holds a time that is not a number; wanted seconds in every row")
        if (early := np.flatnonzero(self.end_s < self.start_s)).size:
            raise TraceError(f"row {early[0]} ({self.actions[self.action[early[0]]]}) ends before it starts")
        if self.after is not None and not (
            len(self.after) == len(self.start_s) and ((self.after >= -1) & (self.after < len(self.start_s))).all()
        ):
            raise TraceError(f"trace column after names no row; wanted -1 to {len(self.start_s) - 1} in every row")
        keys = (self.iteration * n_replicas + self.replica) * len(self.actions) + self.action
        # Counting is quicker than sorting, but a few huge numbers would need a huge table.
        dense = keys.min() >= 0 and keys.max() < DENSE * len(keys)
        if (np.bincount(keys).max() > 1) if dense else (len(np.unique(keys)) < len(keys)):
            raise TraceError("trace holds an action of one iteration and replica twice; wanted one row each")

    def _check_context(self) -> None:
        context = self.context
        texts = [(f"{what} of the trace", getattr(context, what)) for what in ("schedule", "queueing")]
        names = ("topology", "topology_fingerprint", "job", "synchronisation", "sharding")
        texts += [(f"{what} of the trace", getattr(context.plan, what)) for what in names]
        for what, text in (*texts, *(("a device of the trace", name) for group in context.devices for name in group)):
            if not is_plain(text):
                raise TraceError(f"{what} is {shortened(text)}; wanted text without control characters")
        for what in ("stages_per_device", "synchronise_every"):
            if not 1 <= (count := getattr(context, what)) <= MOST_COUNT:
                raise TraceError(
                    f"{what} of the trace is {shortened(count)}; wanted a whole number from 1 to {MOST_COUNT}"
                )
        counts, n_replicas = context.plan.microbatches_per_replica, len(context.devices[0]) if context.devices else 0
        if counts and (len(counts) != n_replicas or min(counts) < 1 or max(counts) != context.plan.n_microbatches):
            raise TraceError(
                f"microbatches_per_replica of the trace is {shortened(list(counts))}; wanted a count for each of "
                f"{counted(n_replicas, 'replica')}, from 1 to {context.plan.n_microbatches}, the largest"
            )

    def _check_actions(self) -> int:
        """Check that every action belongs to a stage and every transfer has another end. Return the number of
        replicas."""
        devices = self.context.devices
        if not devices or not devices[0] or len({len(stage) for stage in devices}) > 1:
            sizes = ", ".join(str(len(stage)) for stage in devices) or "no"
            raise TraceError(f"trace has stages of {sizes} devices; wanted as many replicas of each")
        n_stages, n_replicas = len(devices) * self.context.stages_per_device, len(devices[0])
        # messages of activations and of their gradients, and the stage that has no neighbour to exchange them with
        at_end = {Kind.SEND_F: n_stages - 1, Kind.RECV_B: n_stages - 1, Kind.SEND_B: 0, Kind.RECV_F: 0}
        for a in self.actions:
            # without a peer, a message between replicas has no other end
            impossible = a.kind in BETWEEN_REPLICAS and a.peer is None
            impossible |= a.microbatch is not None and not 0 <= a.microbatch <= MOST_COUNT
            if a.kind in (Kind.SEND_E, Kind.RECV_E):
                impossible = a.peer is None or not 0 <= a.other_end(0, 1)[0] < n_stages
            if not 0 <= a.stage < n_stages or a.stage == at_end.get(a.kind) or impossible:
                raise TraceError(
                    f"trace holds {a}, which no device of {counted(n_stages, 'stage')} x "
                    f"{counted(n_replicas, 'replica')} does"
                )
        return n_replicas

    @classmethod
    def from_spans(cls, context: RunContext, spans: Iterable[Span]) -> Self:
        """Return the trace of these spans, sorted by iteration, replica and start."""
        rows = sorted(spans, key=lambda s: (s.iteration, s.replica, s.start_s, s.end_s, s.action))
        actions = tuple(dict.fromkeys(span.action for span in rows))
        at = {action: i for i, action in enumerate(actions)}
        return cls(
            context,
            actions,
            np.array([s.iteration for s in rows], dtype=np.int64),
            np.array([s.replica for s in rows], dtype=np.int64),
            np.array([at[s.action] for s in rows], dtype=np.int64),
            np.array([s.start_s for s in rows]),
            np.array([s.end_s for s in rows]),
        )

    def __len__(self) -> int:
        return len(self.start_s)

    @cached_property
    def takes_rings_whole(self) -> bool:
        """True if all rounds of a replica's ring are one row per kind, as in simulations of large rings."""
        context = self.context
        sends = [action for action in self.actions if action.kind is Kind.SEND_P and action.stage == 0]
        n_rings = max(len(context.plan.buckets[0]), 1) if context.plan.buckets else 1
        several = len(context.devices[0]) - len(context.plan.absent) >= LEAST_IN_RING
        return context.plan.synchronisation == "ring" and several and len(sends) == n_rings

    @property
    def n_iterations(self) -> int:
        return len(self.iteration_ends_s)

    @cached_property
    def iteration_ends_s(self) -> FloatArray:
        """(iterations,) seconds from the start of each iteration to the end of its last action."""
        numbers, at = np.unique(self.iteration, return_inverse=True)
        ends = np.full(len(numbers), -np.inf)
        np.fmax.at(ends, at, self.end_s)
        return ends

    @property
    def iteration_s(self) -> float:
        """Seconds of an iteration. It is the median over all iterations, so that one slow start does not count.

        If only every H-th iteration synchronises and both kinds were traced, it is the mean of H iterations: H - 1
        medians of iterations that do not synchronise, and one median of iterations that do.
        """
        every = self.context.synchronise_every
        synchronises = (np.unique(self.iteration) + 1) % every == 0
        # only one kind of iteration was traced, so there is nothing to weigh
        if every == 1 or synchronises.all() or not synchronises.any():
            return float(np.median(self.iteration_ends_s))
        alone_s, together_s = (np.median(self.iteration_ends_s[which]) for which in (~synchronises, synchronises))
        return float(((every - 1) * alone_s + together_s) / every)

    @property
    def typical_iteration(self) -> int:
        """The iteration whose length is nearest to ``iteration_s``."""
        nearest = np.argmin(np.abs(self.iteration_ends_s - self.iteration_s))
        return int(np.unique(self.iteration)[nearest])

    @cached_property
    def iteration_weights(self) -> FloatArray:
        """(iterations,) weights for averages, which sum to 1. If only every H-th iteration synchronises, all that do so
        have a total weight of 1/H. Weights are equal if only one kind of iteration was traced."""
        iterations, every = np.unique(self.iteration), self.context.synchronise_every
        together = (iterations + 1) % every == 0
        if together.all() or not together.any():
            return np.full(len(iterations), 1 / len(iterations))
        share = 1 / every
        weights: FloatArray = np.where(together, share / together.sum(), (1 - share) / (~together).sum())
        return weights

    @cached_property
    def compute_share(self) -> float:
        """Fraction of the devices' time that is spent computing, without absent devices. Iterations are weighted. The
        rest is bubble."""
        computing = np.array([a.lane is Lane.COMPUTE for a in self.actions])[self.action]
        _, number = np.unique(self.iteration, return_inverse=True)
        weight = self.iteration_weights
        busy_s = float(((self.end_s - self.start_s) * weight[number])[computing].sum())
        n_devices = sum(len(stage) for stage in self.context.devices) - len(self.context.plan.absent)
        whole_s = n_devices * float(weight @ self.iteration_ends_s)
        return busy_s / whole_s if whole_s > 0 else 0.0

    def message_rows(self, iteration: int | None = None) -> tuple[IntArray, IntArray]:
        """Return the rows of all sends and of their receives, for messages with both ends in the trace, ordered by
        send.

        With ``iteration``, only that iteration's messages. A receive is found by its key (iteration, replica and
        action) in a sorted array, because a dictionary would be slow for a million rows.
        """
        n_replicas, n_actions = len(self.context.devices[0]), len(self.actions)
        numbers = {action: a for a, action in enumerate(self.actions)}
        received_as = np.full((n_replicas, n_actions), -1)
        for a, action in enumerate(self.actions):
            if action.kind in SENDS and (received := numbers.get(action.counterpart())) is not None:
                to = [action.other_end(replica, n_replicas)[1] for replica in range(n_replicas)]
                received_as[:, a] = np.array(to) * n_actions + received
        per_iteration = n_replicas * n_actions
        own = self.iteration * per_iteration + self.replica * n_actions + self.action
        by_own = np.argsort(own)
        is_sent = received_as[self.replica, self.action] >= 0
        sent = np.flatnonzero(is_sent if iteration is None else is_sent & (self.iteration == iteration))
        wanted = self.iteration[sent] * per_iteration + received_as[self.replica[sent], self.action[sent]]
        # the search may end behind the last row
        found = by_own[np.minimum(np.searchsorted(own[by_own], wanted), len(own) - 1)]
        there = own[found] == wanted
        return sent[there], found[there]

    def device(self, action: Action, replica: int) -> str:
        """Return the name of the device that performs this action for this replica."""
        devices = self.context.devices
        return devices[action.stage % len(devices)][replica]

    def link(self, action: Action, replica: int) -> str:
        """Return the link of a message, "a -> b"; empty for a computation."""
        if action.kind not in SENDS and action.kind not in RECEIVES:
            return ""
        stage, other = action.other_end(replica, len(self.context.devices[0]))
        ends = [self.device(action, replica), self.device(Action(stage, action.kind), other)]
        return LINK_SEPARATOR.join(ends if action.kind in SENDS else ends[::-1])
