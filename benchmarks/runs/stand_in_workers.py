"""Workers without torch and without work: they speak the coordinator's protocol, and answer with made-up figures.

A process holds as many as wanted, each on a thread of its own that waits for orders.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from dtfm_lab.runtime.worker.reporter import HEARTBEAT_S

Order = dict[str, Any]
Profile = Sequence[tuple[int, str]]
"""Stages and kinds of the computations of one rank."""


class StandIn:
    """One rank; ``connection`` is its end of the coordinator's connection to it."""

    seconds = 1e-3
    """What every computation is said to take."""

    def __init__(self, rank: int, connection: Any, *, holds_last: bool, computes: Profile, n_spans: int = 0) -> None:
        self.rank, self.connection = rank, connection
        self._holds_last, self._computes, self._n_spans = holds_last, computes, n_spans
        self._lock = threading.Lock()

    def send(self, event: str, **values: Any) -> None:
        with self._lock:
            self.connection.send_bytes(json.dumps({"event": event, "rank": self.rank, **values}).encode())

    def follow_orders(self) -> None:
        """Answer until the coordinator orders the exit or is gone."""
        with suppress(EOFError, OSError):
            self.send("listening", address=["127.0.0.1", 1], torch="none")
            while (order := json.loads(self.connection.recv_bytes()))["do"] != "exit":
                if order["do"] != "slow":
                    self.carry_out(order)

    def carry_out(self, order: Order) -> None:
        """Answer one order."""
        if order["do"] == "iterate" and self._n_spans:
            row = [order["iteration"], 0, [0, "F", 0, None], 0.0123456789, 0.0234567891]
            self.send("spans", epoch=order["epoch"], rows=[row] * self._n_spans)
        self.send(order["do"], epoch=order["epoch"], **self.answer(order))

    def answer(self, order: Order) -> dict[str, Any]:
        """Return the values of an answer."""
        match order["do"]:
            case "profile":
                return {"rows": [[stage, kind, *[self.seconds] * 3] for stage, kind in self._computes]}
            case "iterate":
                return {"loss": self.loss_of(order["iteration"]), "late_messages": 0, "overruns": 0}
            case "checkpoint":
                return {"unwritten": ""}
            case "evaluate":
                return {"loss": self.loss_of(0), "unigram_entropy": 3.0}
            case "leave":
                return {"sha256": f"{self.rank:064x}"}
            case "write":
                return {"text": ""}
        return {}

    def loss_of(self, iteration: int) -> float | None:
        return 5.0 - 0.01 * iteration if self._holds_last else None


def keep_alive(workers: Callable[[], Sequence[StandIn]]) -> None:
    """Send heartbeats of all, for ever."""
    while True:
        time.sleep(HEARTBEAT_S)
        for worker in workers():
            with suppress(OSError):
                worker.send("alive", works=False)
