"""What a worker knows of the host that it runs on."""

from collections.abc import Callable
from dataclasses import dataclass

from dtfm_lab.runtime.protocol import orders
from dtfm_lab.runtime.protocol.certificates import Certificates


@dataclass(frozen=True, kw_only=True)
class OwnHost:
    """The host of a worker; the defaults are those of a run on one machine."""

    address: str = "127.0.0.1"
    """At which other workers reach this one."""
    local_rank: int | None = None
    """Number of the worker on this host, by which GPUs are assigned; its rank if all workers are here."""
    certificates: Certificates | None = None
    """Of the run, by which connections between workers are encrypted; in clear without."""
    clock_offset_s: Callable[[], float] = lambda: 0.0
    """Seconds to add to moments in orders, if the coordinator runs on another host."""
    on_exit: Callable[[orders.Exit], int] = lambda order: 0
    """Called with the order to exit; returns the exit status."""


ALONE = OwnHost()
"""Of a run on one machine."""
