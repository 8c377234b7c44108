"""What a worker's main thread works at, so that heartbeats of another thread can say it and for how long."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dtfm_lab.domain.schedule import Action

MOST_PER_BEAT_S = 1.0
"""Longest time that counts between two heartbeats: seconds for which the process was stopped are not its work."""


class Activity:
    """The computation or the order that is being carried out; read by the thread that sends heartbeats."""

    def __init__(self) -> None:
        self._now: tuple[Action | str] | None = None
        """A new tuple for each piece of work, by which the reader knows whether it is still the same."""
        self._seen: tuple[Action | str] | None = None
        self._seen_s = 0.0

    @contextmanager
    def of(self, order: str | None) -> Iterator[None]:
        """Be busy with an order's own work in the block; None where only its computations count."""
        self._now = None if order is None else (order,)
        try:
            yield
        finally:
            self._now = None

    def begin(self, action: Action) -> None:
        """A computation begins; one on a shared GPU begins when it has the GPU."""
        self._now = (action,)

    def end(self) -> None:
        """The computation is over."""
        self._now = None

    def beat(self, works: bool, since_last_s: float) -> dict[str, Any]:
        """Return what a heartbeat says: ``works``, ``at`` in words or None, ``computes``, ``for_s``."""
        now = self._now if works else None
        self._seen_s = self._seen_s + min(since_last_s, MOST_PER_BEAT_S) if now is self._seen else 0.0
        self._seen = now
        if now is None:
            return {"works": works, "at": None, "computes": False, "for_s": 0.0}
        (work,) = now
        computes = isinstance(work, Action)
        return {"works": works, "at": _in_words(work), "computes": computes, "for_s": self._seen_s}


def _in_words(work: Action | str) -> str:
    """``forward of stage 1, micro-batch 3``; an order is named by what it does."""
    if isinstance(work, str):
        return f"the order to {work}"
    batch = "" if work.microbatch is None else f", micro-batch {work.microbatch}"
    return f"{work.kind.name.lower()} of stage {work.stage}{batch}"
