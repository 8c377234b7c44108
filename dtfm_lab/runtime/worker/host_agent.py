"""A rendezvous for torchrun that opens no port: every host's agent starts and restarts its own workers alone.

torchrun's own rendezvous listen on all interfaces without asking who connects, and ``c10d`` unpickles what it finds
there. Which worker a process is follows from the run folder, so an agent has nothing to ask other hosts. The entry
point ``torchrun.handlers`` makes this known as ``--rdzv-backend dtfm``; ``--rdzv-endpoint`` is the run folder and
``--rdzv-id`` the host's name. With ``--rdzv-conf coordinator=1`` the agent also starts the coordinator, and starts it
again where it was killed. All that an agent keeps is in memory, so nothing is left of one that was killed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from dtfm_lab.runtime.protocol.agent_notes import AgentNotes

if TYPE_CHECKING:
    from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousParameters

MOST_IN_VAIN = 5
"""Times that workers are started again without one that has joined the run."""
LEAVE_S = 20.0
"""Longest time for the coordinator to exit after the workers, and for these after the coordinator."""


def get_handler() -> Callable[[RendezvousParameters], RendezvousHandler]:
    """What torchrun calls for every entry point, whichever backend it was asked for."""
    return _create


def _create(parameters: RendezvousParameters) -> RendezvousHandler:
    from torch.distributed import HashStore  # type: ignore[attr-defined]
    from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousInfo, RendezvousStoreInfo

    host = str(parameters.run_id)
    if "LOGLEVEL" not in os.environ:  # what torchrun says of its workers comes in one line, below
        logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
        for name in list(logging.root.manager.loggerDict):
            if name.startswith("torch.distributed.elastic"):
                logging.getLogger(name).setLevel(logging.CRITICAL)
    has_coordinator = parameters.get("coordinator") == "1"

    class OneHost(RendezvousHandler):
        """Every round is complete at once: this host is all of it."""

        def __init__(self) -> None:
            self._notes = AgentNotes.make()
            self._rounds = self._in_vain = 0
            self._coordinator: subprocess.Popen[bytes] | None = None
            self._coordinator_ended_s: float | None = None

        def get_backend(self) -> str:
            return "dtfm"

        def next_rendezvous(self) -> RendezvousInfo:
            """Begin a round. Raises SystemExit where the run is over for this host."""
            joined, end = self._notes.take()
            if end is not None:
                self._leave(*end)
            if self._rounds:
                self._in_vain = 0 if joined else self._in_vain + 1
                if self._in_vain == MOST_IN_VAIN:
                    self._leave(1, f"workers ended {MOST_IN_VAIN} times before they had joined the run")
                _say(f"host {host}: a worker has ended, all of this host are started again")
            self._rounds += 1
            if has_coordinator and not self._coordinates():
                self._coordinator = subprocess.Popen(
                    [sys.executable, "-m", "dtfm_lab.runtime.hosted", "--coordinator", parameters.endpoint],
                    stdin=subprocess.DEVNULL,
                )
            self._coordinator_ended_s = None
            return RendezvousInfo(HashStore(), 0, 1, RendezvousStoreInfo("127.0.0.1", 0))

        def is_closed(self) -> bool:
            return False

        def set_closed(self) -> None:
            pass

        def num_nodes_waiting(self) -> int:
            """Return 1 where a round is to begin, though no worker has ended: the coordinator of this host has."""
            if self._coordinator is None or self._coordinates():
                return 0
            now_s = time.monotonic()
            since_s = self._coordinator_ended_s = self._coordinator_ended_s or now_s
            return int(not self._notes.has_end() or now_s - since_s > LEAVE_S)

        def get_run_id(self) -> str:
            return host

        def shutdown(self) -> bool:
            if self._coordinator is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._coordinator.wait(LEAVE_S)
                self._coordinator.kill()
            return True

        def _coordinates(self) -> bool:
            return self._coordinator is not None and self._coordinator.poll() is None

        def _leave(self, status: int, why: str) -> None:
            if why:
                _say(f"host {host}: {why}")
            self.shutdown()
            sys.exit(status)

    return OneHost()


def _say(line: str) -> None:
    sys.stderr.write(f"dtfm_lab.runtime.hosted: {line}\n")
    sys.stderr.flush()
