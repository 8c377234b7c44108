"""A host of a probe: tells what it is, times others when told to, and answers those who time it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

from dtfm_lab.domain.errors import RunError
from dtfm_lab.runtime.probe.facts import facts_of_this_host
from dtfm_lab.runtime.probe.timing import answer_forever, time_both_ways
from dtfm_lab.runtime.probe.wire import (
    HANDSHAKE_S,
    Channel,
    Lost,
    Refused,
    call,
    call_until,
    check_options,
    present,
    serve_at,
)

PATIENCE_S = 600.0
"""without a word from the listener; before every pair it speaks to all"""


def join(
    host: str,
    port: int,
    *,
    token: str,
    name: str,
    region: str = "",
    advertise: tuple[str, int] | None = None,
    data_port: int = 0,
    wait_s: float = 60.0,
    tell: Callable[[str], None] = lambda line: None,
) -> None:
    """Take part in the probe of the listener there, until it is over.

    Parameters
    ----------
    advertise
        Where others reach this host's ``data_port``, if that is elsewhere than where it listens: behind a router
        or a tunnel.
    wait_s
        For the listener to start.

    Raises
    ------
    RunError
        Nobody listens, the listener wants no such host, or the probe ended early.
    LabError
        A port that is taken.
    """
    check_options(wait=(wait_s, 0, 86400))
    channel = Channel(call_until(host, port, wait_s))
    server: socket.socket | None = None
    try:
        present(channel, token)
        server = serve_at(channel.socket.getsockname()[0], data_port)
        threading.Thread(target=answer_forever, args=(server, token), daemon=True).start()
        own_port = server.getsockname()[1]
        address, reached_at = advertise or (None, own_port)
        channel.send(name=name, region=region, address=address, port=reached_at)
        tell(f"joined as {name}")
        while _obey(channel, token, tell):
            pass
    except Refused as error:
        raise RunError(f"the listener at {host} port {port} does not take {name}: {error}") from None
    except Lost as error:
        raise RunError(f"the listener at {host} port {port} {error}") from None
    finally:
        channel.close()
        if server is not None:
            server.close()


def _obey(channel: Channel, token: str, tell: Callable[[str], None]) -> bool:
    """Do the next thing that the listener asks for; False once there is nothing more."""
    order = channel.receive(PATIENCE_S)
    match order:
        case {"order": "wait"}:
            pass
        case {"order": "facts", "seconds": seconds}:
            channel.send(**facts_of_this_host(seconds))
        case {"order": "time", "name": other, "address": address, "port": port, "seconds": seconds}:
            tell(f"timing messages to {other}")
            channel.send(**_timed(address, port, token, seconds))
        case {"order": "leave"}:
            return False
        case _:
            raise Lost("asks for something that this version does not know")
    return True


def _timed(address: str, port: int, token: str, seconds: float) -> dict[str, Any]:
    try:
        connection = call(address, port, HANDSHAKE_S)
    except Lost as error:
        return {"unreachable": str(error)}
    with connection:
        try:
            return time_both_ways(connection, token, seconds)
        except Lost as error:
            return {"lost": str(error)}
