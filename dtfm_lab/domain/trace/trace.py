"""What happened, or is predicted to happen, on every device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from dtfm_lab.domain.checks import MOST
from dtfm_lab.domain.errors import TraceError
from dtfm_lab.domain.network import is_plain, shortened
from dtfm_lab.domain.schedule import LANE, RECEIVES, SENDS, Action, Kind, Lane, Schedule
from dtfm_lab.domain.trace import causes
from dtfm_lab.domain.trace.faults import Fault, Rehearsed
from dtfm_lab.domain.trace.metrics import metrics as throughput_and_price
from dtfm_lab.domain.units import FloatArray, IntArray

DENSE = 16
"""keys a row, up to which they are counted rather than sorted"""
BETWEEN_REPLICAS = (Kind.SEND_G, Kind.RECV_G, Kind.SEND_P, Kind.RECV_P)

Clock = Literal["virtual", "paced", "real", "model"]
"""How seconds were counted: see RunContext.clock."""


class Span(NamedTuple):
    """One action of one replica in one iteration, seconds since that iteration began."""

    iteration: int
    replica: int
    action: Action
    start_s: float
    end_s: float


class ComputeTime(NamedTuple):
    """Seconds that one kind of computation takes on the device of one stage and replica."""

    stage: int
    replica: int
    kind: Kind
    seconds: float


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """What a trace's numbers mean and where they come from."""

    source: Literal["simulated", "measured"]
    clock: Clock
    """``model``: simulated from FLOP and peak. ``virtual``: no sleeping, each worker's logical clock adds
    its own CPU time. ``paced``: real time, each computation padded to the drawn device's. ``real``: wall
    time, real links."""
    schedule: str
    links: Literal["drawn", "emulated", "real"]
    devices: tuple[tuple[str, ...], ...]
    """(stages, replicas) device names"""
    topology: str = ""
    topology_fingerprint: str = ""
    job: str = ""
    n_microbatches: int = 1
    stages_per_device: int = 1
    orders: tuple[str, ...] = ()
    """the schedule itself: per device of a pipeline its passes in order, as ``Schedule.orders`` writes them"""
    queueing: str = "pairs"
    """which messages wait for each other: domain.links"""
    synchronisation: str = "sharded"
    synchronise_every: int = 1
    """iteration i synchronises where i + 1 is a multiple"""
    tokens: int = 0
    """of one iteration, over all replicas; 0 where unknown"""
    flop: float = 0.0
    """the model's, of one iteration over all replicas, nothing counted twice; 0 where unknown"""
    peak_flop_per_s: tuple[tuple[float, ...], ...] = ()
    """(stages, replicas) of the devices, in the job's dtype; empty where unknown"""
    price_per_hour: tuple[tuple[float, ...], ...] = ()
    """(stages, replicas) of the devices; empty where unknown"""
    time_scale: float = 1.0
    """wall seconds per recorded second (paced clock)"""
    profile: tuple[ComputeTime, ...] = ()
    """known before the first iteration: from rehearsals (virtual: CPU time, real: wall time), or what the
    drawn devices take (paced)"""
    stretched: int = 0
    """paced clock: rows of the profile longer than on the drawn device, because this machine cannot keep up"""
    losses: tuple[float, ...] = ()
    """mean training loss of each iteration"""
    late_messages: int = 0
    """real bytes that came after the time at which the emulated link delivered them"""
    overruns: int = 0
    """computations that took longer than the drawn device's"""
    faults: tuple[Fault, ...] = ()
    """losses of workers that the run survived"""
    rehearsed: Rehearsed | None = None
    """the part of a larger plan that ran; None: all of it"""
    stand_in: str = ""
    """name of the model that was trained where the job's own is too large here; messages are as long as the job's"""
    runs_on: str = "cpu"
    """what the workers computed on: ``cpu`` or ``cuda``"""
    held_out: tuple[tuple[int, float], ...] = ()
    """(iterations done, mean loss on text that is never trained on)"""
    unigram_entropy: float | None = None
    """nats a byte of that text, each byte drawn by its frequency alone: what a model without context can reach"""
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def played(self) -> Schedule:
        """The schedule of ``orders``; raises ScheduleError where there is none, or a broken one."""
        return Schedule.from_orders(self.schedule, self.orders)


@dataclass(frozen=True, eq=False)
class Trace:
    """Columns, one row per (iteration, replica, action); ``actions`` is the table that ``action`` indexes.

    Raises TraceError on columns of unequal length, an end before its start, a row given twice, or what no run is.
    """

    context: RunContext
    actions: tuple[Action, ...]
    iteration: IntArray
    replica: IntArray
    action: IntArray
    start_s: FloatArray
    end_s: FloatArray
    after: IntArray | None = None
    """per row, the row whose end it waited for last, -1 where it waited for nothing; None where nobody knows"""

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
            raise TraceError("trace holds a time that is no number; wanted seconds in every row")
        if (early := np.flatnonzero(self.end_s < self.start_s)).size:
            raise TraceError(f"row {early[0]} ({self.actions[self.action[early[0]]]}) ends before it starts")
        if self.after is not None and not (
            len(self.after) == len(self.start_s) and ((self.after >= -1) & (self.after < len(self.start_s))).all()
        ):
            raise TraceError(f"trace column after names no row; wanted -1 to {len(self.start_s) - 1} in every row")
        keys = (self.iteration * n_replicas + self.replica) * len(self.actions) + self.action
        dense = keys.min() >= 0 and keys.max() < DENSE * len(keys)
        if (np.bincount(keys).max() > 1) if dense else (len(np.unique(keys)) < len(keys)):
            raise TraceError("trace holds an action of one iteration and replica twice; wanted one row each")

    def _check_context(self) -> None:
        context = self.context
        for what in ("schedule", "topology", "topology_fingerprint", "job", "queueing", "synchronisation"):
            if not is_plain(text := getattr(context, what)):
                raise TraceError(f"{what} of the trace is {shortened(text)}; wanted text without control characters")
        for name in (name for group in context.devices for name in group):
            if not is_plain(name):
                raise TraceError(f"trace holds device {shortened(name)}; wanted text without control characters")
        for what in ("stages_per_device", "synchronise_every"):
            if not 1 <= (count := getattr(context, what)) <= MOST:
                raise TraceError(f"{what} of the trace is {shortened(count)}; wanted a whole number from 1 to {MOST}")

    def _check_actions(self) -> int:
        """Replicas, where every action belongs to a stage and every transfer has another end."""
        devices = self.context.devices
        if not devices or not devices[0] or len({len(stage) for stage in devices}) > 1:
            sizes = ", ".join(str(len(stage)) for stage in devices) or "no"
            raise TraceError(f"trace has stages of {sizes} devices; wanted as many replicas of each")
        n_stages, n_replicas = len(devices) * self.context.stages_per_device, len(devices[0])
        for a in self.actions:
            at_end = {Kind.SEND_F: n_stages - 1, Kind.RECV_B: n_stages - 1, Kind.SEND_B: 0, Kind.RECV_F: 0}.get(a.kind)
            lost = a.kind in BETWEEN_REPLICAS and a.peer is None
            lost |= a.microbatch is not None and not 0 <= a.microbatch <= MOST
            if a.kind in (Kind.SEND_E, Kind.RECV_E):
                lost = a.peer is None or not 0 <= a.other_end(0, 1)[0] < n_stages
            if not 0 <= a.stage < n_stages or a.stage == at_end or lost:
                raise TraceError(f"trace holds {a}, which no device of {n_stages} stages x {n_replicas} replicas does")
        return n_replicas

    @classmethod
    def from_spans(cls, context: RunContext, spans: Iterable[Span]) -> Trace:
        """Sorted by iteration, replica and start."""
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

    def __repr__(self) -> str:
        c = self.context
        return f"<Trace {c.source} {c.schedule}, {c.clock} clock: {self.n_iterations} x {self.iteration_s:.6g} s>"

    @property
    def n_iterations(self) -> int:
        return len(self.iteration_ends_s)

    @cached_property
    def iteration_ends_s(self) -> FloatArray:
        """(iterations,) seconds from the beginning of each iteration to its last action's end."""
        ends = pd.Series(self.end_s).groupby(self.iteration).max()
        return np.asarray(ends, dtype=np.float64)

    @property
    def iteration_s(self) -> float:
        """The median iteration: one slow start does not count.

        Where only every H-th synchronises, the mean of H: H - 1 median ones that do not, and one that does.
        """
        every = self.context.synchronise_every
        synchronises = (np.unique(self.iteration) + 1) % every == 0
        if every == 1 or synchronises.all() or not synchronises.any():
            return float(np.median(self.iteration_ends_s))
        alone_s, together_s = (np.median(self.iteration_ends_s[which]) for which in (~synchronises, synchronises))
        return float(((every - 1) * alone_s + together_s) / every)

    def device(self, action: Action, replica: int) -> str:
        """Name of the device that did it."""
        devices = self.context.devices
        return devices[action.stage % len(devices)][replica]

    @cached_property
    def compute_share(self) -> float:
        """Fraction of device time spent computing, over all devices and iterations as ``bubble`` weighs them; the
        rest is bubble."""
        computing = np.array([a.lane is Lane.COMPUTE for a in self.actions])[self.action]
        iterations, number = np.unique(self.iteration, return_inverse=True)
        weight = causes.weights(iterations, self.context.synchronise_every)
        busy_s = float(((self.end_s - self.start_s) * weight[number])[computing].sum())
        n_devices = sum(len(stage) for stage in self.context.devices)
        whole_s = n_devices * float(weight @ self.iteration_ends_s)
        return busy_s / whole_s if whole_s > 0 else 0.0

    def spans(self) -> list[Span]:
        columns = (self.iteration, self.replica, self.action, self.start_s, self.end_s)
        return [Span(i, r, self.actions[a], s, e) for i, r, a, s, e in zip(*(c.tolist() for c in columns), strict=True)]

    def to_frame(self) -> pd.DataFrame:
        """One row an action: iteration, replica, stage, device, kind, microbatch and peer (-1: none),
        lane, link ("a -> b", empty for computations), start_s, end_s."""
        n_replicas = len(self.context.devices[0])
        table = []
        for replica in range(n_replicas):
            for a in self.actions:
                table.append(
                    (
                        a.stage,
                        self.device(a, replica),
                        a.kind.value,
                        -1 if a.microbatch is None else a.microbatch,
                        -1 if a.peer is None else a.peer,
                        LANE[a.kind].value,
                        self.link(a, replica),
                    )
                )
        columns = ["stage", "device", "kind", "microbatch", "peer", "lane", "link"]
        described = pd.DataFrame(table, columns=columns).iloc[self.replica * len(self.actions) + self.action]
        described = described.reset_index(drop=True)
        described.insert(0, "iteration", self.iteration)
        described.insert(1, "replica", self.replica)
        described["start_s"], described["end_s"] = self.start_s, self.end_s
        return described

    def link(self, action: Action, replica: int) -> str:
        """Of a message "a -> b", the devices at its ends; nothing of a computation."""
        if action.kind not in SENDS and action.kind not in RECEIVES:
            return ""
        stage, other = action.other_end(replica, len(self.context.devices[0]))
        ends = [self.device(action, replica), self.device(Action(stage, action.kind), other)]
        return " -> ".join(ends if action.kind in SENDS else ends[::-1])

    def profile_frame(self) -> pd.DataFrame:
        """The compute times known before the run: stage, replica, kind, seconds."""
        rows: list[Any] = list(self.context.profile)
        return pd.DataFrame(rows, columns=list(ComputeTime._fields))

    @property
    def typical_iteration(self) -> int:
        """The iteration whose length is nearest ``iteration_s``."""
        nearest = np.argmin(np.abs(self.iteration_ends_s - self.iteration_s))
        return int(np.unique(self.iteration)[nearest])

    def critical_path(self, iteration: int | None = None) -> pd.DataFrame:
        """The actions that the length of an iteration is made of: see ``domain.causes``."""
        return causes.critical_path(self, iteration)

    def critical_summary(self, iteration: int | None = None) -> pd.DataFrame:
        """Seconds on the critical path by what they are, by device and by link."""
        return causes.critical_summary(self, iteration)

    @property
    def bubble(self) -> pd.DataFrame:
        """Each device's seconds busy, and idle by cause: see ``domain.causes``."""
        return causes.bubble(self)

    @property
    def metrics(self) -> dict[str, float | None]:
        """Throughput, utilisation and money of ``iteration_s``: see ``domain.metrics``."""
        return throughput_and_price(self.context, self.iteration_s)
