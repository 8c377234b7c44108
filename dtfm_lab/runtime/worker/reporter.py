"""Events from a worker to the coordinator: answers to orders, spans in batches, and heartbeats."""

import json
import threading
import time
from collections.abc import Callable
from typing import Any

from dtfm_lab.domain.trace import Span
from dtfm_lab.runtime.protocol.message_stream import Messages
from dtfm_lab.runtime.worker.activity import Activity

REPORT_EVERY_S = 0.05
"""Seconds between batches of spans: short enough to watch a run, long enough not to disturb it."""
HEARTBEAT_S = 0.5
"""Seconds between heartbeats."""


class Reporter:
    """Sends events; called from the computing thread and from sender threads."""

    def __init__(self, connection: Messages, rank: int) -> None:
        self._connection, self._rank = connection, rank
        self.is_busy: Callable[[], bool] = lambda: False
        """Whether the computing thread is computing, rather than waiting for other workers."""
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
            self._write({"event": event, "rank": self._rank, **values})

    def span(self, span: Span) -> None:
        """Send a span with the next batch."""
        with self._lock:
            self._rows.append([span.iteration, span.replica, list(span.action), span.start_s, span.end_s])
            if time.monotonic() - self._last_s > REPORT_EVERY_S:
                self._flush()

    def begin_epoch(self, epoch: int) -> None:
        """Drop the spans of an iteration that will be repeated."""
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
                self._write({"event": "alive", "rank": self._rank, **work})

    def _flush(self) -> None:
        if self._rows:
            self._write({"event": "spans", "rank": self._rank, "epoch": self._epoch, "rows": self._rows})
            self._rows, self._last_s = [], time.monotonic()

    def _write(self, values: dict[str, Any]) -> None:
        self._connection.send_bytes(json.dumps(values).encode())
