"""A host of a probe: reports its hardware, times messages to other hosts on request, and answers theirs."""

from collections.abc import Callable
from typing import Any

from dtfm_lab.domain.errors import LabError, RunError
from dtfm_lab.domain.network import shortened
from dtfm_lab.runtime.probe.facts import facts_of_this_host
from dtfm_lab.runtime.probe.timing import answer_requests, time_both_ways
from dtfm_lab.runtime.protocol.connections import Channel, ConnectionLost, Listener, Refused, connect, reason, respond

ORDER_TIMEOUT_S = 600.0
"""Most seconds between two orders of the listener, which sends one to every host before each pair."""


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
    report: Callable[[str], None] = lambda line: None,
) -> None:
    """Take part in the probe of the listener at ``host`` and ``port`` until it ends.

    Parameters
    ----------
    advertise
        The address at which other hosts reach this host's ``data_port``, if it differs from the one that is listened
        on: behind a router or a tunnel.
    wait_s
        Seconds within which the listener must have started.
    report
        Called with a line of text about every step.

    Raises
    ------
    RunError
        Nothing listens there, the listener refuses this host, or the probe ended early.
    LabError
        The data port is taken.
    """
    check_ranges(wait=(wait_s, 0, 86400))
    listener = f"the listener at {host} port {port}"
    channel: Channel | None = None
    data: Listener | None = None
    try:
        channel = connect(host, port, retry_s=wait_s)
        respond(channel, token)
        data = Listener(channel.own_address, data_port, token, answer_requests)
        address, reached_at = advertise or (None, data.address[1])
        channel.send(name=name, region=region, address=address, port=reached_at)
        report(f"joined as {name}")
        while _follow_order(channel, token, report):
            pass
    except Refused as error:
        raise RunError(f"{listener} does not take {name}: {error}") from None
    except ConnectionLost as error:
        raise RunError(f"{listener} {error}") from None
    finally:
        if channel is not None:
            channel.close()
        if data is not None:
            data.close()


def host_and_port(text: str, *, default_host: str | None = None) -> tuple[str, int]:
    """``10.0.0.1:4711`` or ``[::1]:4711``, or ``4711`` if there is a default host, as a pair. Raises LabError."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or default_host or ""
    if not host or not port.isdecimal() or int(port) > 65535:
        wanted = "HOST:PORT" if default_host is None else "PORT or ADDRESS:PORT"
        raise LabError(f"{shortened(text)} is no address; wanted {wanted}, PORT up to 65535")
    return host, int(port)


def check_ranges(**ranges: tuple[float, float, float]) -> None:
    """Check values by name, each given with the least and the most that is allowed. Raises LabError."""
    for what, (value, least, most) in ranges.items():
        if not least <= value <= most:
            raise LabError(f"{what} of a probe is {shortened(value)}; wanted {least} to {most}")


def _follow_order(channel: Channel, token: str, report: Callable[[str], None]) -> bool:
    """Receive one order and carry it out; False if it was the last."""
    order = channel.receive(ORDER_TIMEOUT_S)
    match order:
        case {"order": "wait"}:
            pass
        case {"order": "facts", "seconds": seconds}:
            channel.send(**facts_of_this_host(seconds))
        case {"order": "time", "name": other, "address": address, "port": port, "seconds": seconds}:
            report(f"timing messages to {other}")
            channel.send(**_timed(address, port, token, seconds))
        case {"order": "leave"}:
            return False
        case _:
            raise ConnectionLost("asks for something that this version does not know")
    return True


def _timed(address: str, port: int, token: str, seconds: float) -> dict[str, Any]:
    try:
        channel = connect(address, port)
    except ConnectionLost as error:
        return {"unreachable": str(error)}
    try:
        respond(channel, token)
        return time_both_ways(channel, seconds)
    except OSError as error:
        return {"lost": reason(error)}
    finally:
        channel.close()
