"""What a worker knows about its host."""

from collections.abc import Callable
from dataclasses import dataclass

from dtfm_lab.runtime.protocol import orders
from dtfm_lab.runtime.protocol.certificates import Certificates


@dataclass(frozen=True, kw_only=True)
class OwnHost:
    """The host of a worker. The defaults fit a run on one machine."""

    address: str = "127.0.0.1"
    """Address at which other workers reach this one."""
    local_rank: int | None = None
    """Number of the worker on this host, by which GPUs are assigned. None means its rank: all workers are on this
    host."""
    certificates: Certificates | None = None
    """The run's certificates, which encrypt connections between workers. If None, they are not encrypted."""
    clock_offset_s: Callable[[], float] = lambda: 0.0
    """Returns the seconds to add to times in orders, which are by the clock of the coordinator's host."""
    on_exit: Callable[[orders.Exit], int] = lambda order: 0
    """Called with the order to exit. Returns the exit status."""


ALONE = OwnHost()
"""The host of a run on one machine."""
