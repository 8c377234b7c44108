"""Histories of one network, job and availability under several policies, each replayed once, on a thread."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from dtfm_lab.domain.availability import Availability
from dtfm_lab.domain.history import History
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.lab.histories import replay

MOST_KEPT = 200
"""Histories that are kept; the one that was used longest ago is dropped first."""


class _Stop(Exception):
    """Ends a replay from within."""


@dataclass(frozen=True)
class Question:
    """What policies are asked: whose hours, with which devices and which job."""

    topology: Topology
    job: Job
    here: Availability
    """Of the network's devices."""

    def covers(self, topology: Topology | None, job: Job | None) -> bool:
        """Whether a network and a job are what is asked about."""
        return topology is not None and topology.fingerprint == self.topology.fingerprint and job == self.job

    def is_edit_of(self, before: Question | None) -> bool:
        """Whether it is of the same network, job and length of time."""
        return before is not None and before.covers(self.topology, self.job) and before.here.end_s == self.here.end_s

    @cached_property
    def key(self) -> tuple[object, ...]:
        here = self.here
        events = here.time_s.tobytes(), here.device.tobytes(), here.comes.tobytes(), here.end_s
        return self.topology.fingerprint, repr(self.job), *events


class Replays:
    """Histories by question and policy. Those that are wanted are made by ``each``, on a thread."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[object, ...], History] = OrderedDict()
        self.doing, self.at_s = "", 0.0
        """The policy that is replayed, and how far it is."""
        self._stopped = threading.Event()

    def of(self, question: Question | None, policies: Sequence[str]) -> list[History]:
        """The known histories of these policies, the one with most samples first, as ``lab.figures.race`` has them."""
        keys = [] if question is None else [(*question.key, policy) for policy in policies]
        return sorted((self._known[key] for key in keys if key in self._known), key=lambda one: -one.samples)

    def each(self, question: Question, policies: Sequence[str]) -> Iterator[History]:
        """Replay those that are not known, in order, until ``stop``. Raises what ``lab.replay`` raises."""
        self._stopped = stopped = threading.Event()

        def progress(at_s: float) -> None:
            self.at_s = at_s
            if stopped.is_set():
                raise _Stop

        for policy in policies:
            key = (*question.key, policy)
            if key not in self._known:
                self.doing, self.at_s = policy, 0.0
                try:
                    self._known[key] = replay(question.topology, question.job, question.here, policy, progress=progress)
                except _Stop:
                    return
                if len(self._known) > MOST_KEPT:
                    self._known.popitem(last=False)
            self._known.move_to_end(key)
            yield self._known[key]

    def stop(self) -> None:
        """End the replay at hand at its next change; a plan that is being searched is finished first."""
        self._stopped.set()

    @property
    def is_stopping(self) -> bool:
        return self._stopped.is_set()
