"""Events from a worker to the coordinator: answers to orders, spans in batches, and heartbeats.

Heartbeats come from a separate thread. They say what the main thread is working on, and for how long.
"""

import json
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from dtfm_lab.domain.schedule import Action, Kind
from dtfm_lab.domain.trace import Span
from dtfm_lab.runtime.coordinator.calibration import MeasuredDurations
from dtfm_lab.runtime.protocol.channels import MessageConnection

MOST_PER_BEAT_S = 1.0
"""Maximum seconds of work counted between two heartbeats. Seconds for which the process was stopped are not work."""


class Activity:
    """The computation or order that is being carried out. The heartbeat thread reads it."""

    def __init__(self) -> None:
        self._now: tuple[Action | str] | None = None
        """A new tuple for each piece of work, so that the reader knows whether it is still the same."""
        self._seen: tuple[Action | str] | None = None
        self._seen_s = 0.0

    @contextmanager
    def of(self, order: str | None) -> Iterator[None]:
        """Mark the block as work on an order. With None, only the computations in the block are marked (``begin``)."""
        self._now = None if order is None else (order,)
        try:
            yield
        finally:
            self._now = None

    def begin(self, action: Action) -> None:
        """Mark the start of a computation. On a shared GPU, it starts when the worker has the GPU."""
        self._now = (action,)

    def end(self) -> None:
        """Mark the end of the computation."""
        self._now = None

    def beat(self, works: bool, since_last_s: float) -> dict[str, Any]:
        """Return what a heartbeat says: ``works``; ``at``, the work in words or None; ``computes``, True for a
        computation; ``for_s``, the seconds since it began."""
        now = self._now if works else None
        self._seen_s = self._seen_s + min(since_last_s, MOST_PER_BEAT_S) if now is self._seen else 0.0
        self._seen = now
        if now is None:
            return {"works": works, "at": None, "computes": False, "for_s": 0.0}
        (work,) = now
        computes = isinstance(work, Action)
        return {"works": works, "at": _in_words(work), "computes": computes, "for_s": self._seen_s}


def _in_words(work: Action | str) -> str:
    """Return the work in words: ``forward of stage 1, micro-batch 3``. An order is named by what it does."""
    if isinstance(work, str):
        return f"the order to {work}"
    batch = "" if work.microbatch is None else f", micro-batch {work.microbatch}"
    return f"{work.kind.name.lower()} of stage {work.stage}{batch}"


REPORT_EVERY_S = 0.05
"""Seconds between batches of spans: short enough to watch a run, long enough not to disturb it."""
HEARTBEAT_S = 0.5
"""Seconds between heartbeats."""


class Reporter:
    """Sends events. Called from the computing thread and from sender threads."""

    def __init__(self, connection: MessageConnection, rank: int) -> None:
        self._connection, self.rank = connection, rank
        self.is_busy: Callable[[], bool] = lambda: False
        """Returns True if the main thread works on an order and is not waiting for other workers."""
        self.activity = Activity()
        self._epoch = 0
        self._lock = threading.Lock()
        self._rows: list[list[Any]] = []
        self._last_s = 0.0
        threading.Thread(target=self._beat, daemon=True).start()

    def event(self, event: str, **values: Any) -> None:
        """Send an event after the spans reported so far."""
        with self._lock:
            self._flush()
            self._write({"event": event, "rank": self.rank, **values})

    def span(self, span: Span) -> None:
        """Send a span with the next batch."""
        with self._lock:
            self._rows.append([span.iteration, span.replica, list(span.action), span.start_s, span.end_s])
            if time.monotonic() - self._last_s > REPORT_EVERY_S:
                self._flush()

    def begin_epoch(self, epoch: int) -> None:
        """Mark all later spans with this epoch. Drop the unsent ones, because their iteration will be repeated."""
        with self._lock:
            self._rows, self._epoch = [], epoch

    def _beat(self) -> None:
        last_s = time.monotonic()
        while True:
            time.sleep(HEARTBEAT_S)
            now_s = time.monotonic()
            work = self.activity.beat(self.is_busy(), now_s - last_s)
            last_s = now_s
            with self._lock:
                self._write({"event": "alive", "rank": self.rank, **work})

    def _flush(self) -> None:
        if self._rows:
            self._write({"event": "spans", "rank": self.rank, "epoch": self._epoch, "rows": self._rows})
            self._rows, self._last_s = [], time.monotonic()

    def _write(self, values: dict[str, Any]) -> None:
        self._connection.send_bytes(json.dumps(values).encode())


class ComputeLog:
    """Durations of every computation of one worker, by stage and kind. Kept only while ``counts`` is true."""

    def __init__(self) -> None:
        self.counts = False
        self._seconds: defaultdict[tuple[int, Kind], list[tuple[float, float]]] = defaultdict(list)
        """CPU and wall seconds of each computation."""

    def clear(self) -> None:
        self._seconds.clear()

    def add(self, stage: int, kind: Kind, cpu_s: float, wall_s: float) -> None:
        if self.counts:
            self._seconds[stage, kind].append((cpu_s, wall_s))

    def measured(self) -> dict[tuple[int, Kind], MeasuredDurations]:
        return {what: _summed(*zip(*seconds, strict=True)) for what, seconds in self._seconds.items()}


def _summed(cpu_s: Sequence[float], wall_s: Sequence[float]) -> MeasuredDurations:
    crowded_s = statistics.quantiles([*wall_s, max(wall_s)], n=10)[-1]
    return MeasuredDurations(statistics.fmean(cpu_s), statistics.fmean(wall_s), crowded_s)
