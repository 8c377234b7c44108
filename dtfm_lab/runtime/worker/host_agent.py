"""A rendezvous for torchrun that opens no port: every host's agent starts and restarts its own workers alone.

torchrun's own rendezvous listen on all interfaces without asking who connects, and ``c10d`` unpickles what it finds
there. Which worker a process is follows from the run folder, so an agent has nothing to ask other hosts. The entry
point ``torchrun.handlers`` makes this known as ``--rdzv-backend dtfm``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousParameters


def get_handler() -> Callable[[RendezvousParameters], RendezvousHandler]:
    """What torchrun calls for every entry point, whichever backend it was asked for."""
    return _create


def _create(parameters: RendezvousParameters) -> RendezvousHandler:
    from torch.distributed import FileStore  # type: ignore[attr-defined]
    from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousInfo, RendezvousStoreInfo

    class OneHost(RendezvousHandler):
        """Every round is complete at once: this host is all of it."""

        def __init__(self) -> None:
            self._folder = tempfile.TemporaryDirectory(prefix="dtfm-agent-")
            self._round = 0

        def get_backend(self) -> str:
            return "dtfm"

        def next_rendezvous(self) -> RendezvousInfo:
            self._round += 1
            store = FileStore(str(Path(self._folder.name) / f"round-{self._round}"), 1)
            return RendezvousInfo(store, 0, 1, RendezvousStoreInfo("127.0.0.1", 0))

        def is_closed(self) -> bool:
            return False

        def set_closed(self) -> None:
            pass

        def num_nodes_waiting(self) -> int:
            return 0

        def get_run_id(self) -> str:
            return str(parameters.run_id)

        def shutdown(self) -> bool:
            self._folder.cleanup()
            return True

    return OneHost()
