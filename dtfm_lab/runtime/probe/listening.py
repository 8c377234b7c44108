"""Both ends of a probe: the listener gathers hosts, has them timed pair by pair, and makes a Topology of the times.

A host that joins reports its hardware, times messages to other hosts on request, and answers theirs.
"""

import contextlib
import itertools
import queue
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from dtfm_lab.domain.errors import LabError, RunError, TopologyError
from dtfm_lab.domain.network import Topology, check_text, shortened
from dtfm_lab.domain.units import counted
from dtfm_lab.runtime.probe.facts import PATIENCE_S, checked_facts, devices_of, facts_of_this_host, sentence_of
from dtfm_lab.runtime.probe.messages import SILENCE_S, answer_requests, time_both_ways
from dtfm_lab.runtime.probe.timing import (
    checked_timing,
    sentence_of_pair,
    topology_of,
)
from dtfm_lab.runtime.protocol.channels import HANDSHAKE_S, Channel, ConnectionLost, Refused, reason, respond
from dtfm_lab.runtime.protocol.connections import Listener, connect, is_loopback

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
        data = Listener(channel.own_address, data_port, token, _answer)
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


def _answer(channel: Channel) -> None:
    answer_requests(channel.raw())


def _timed(address: str, port: int, token: str, seconds: float) -> dict[str, Any]:
    try:
        channel = connect(address, port)
    except ConnectionLost as error:
        return {"unreachable": str(error)}
    try:
        respond(channel, token)
        return time_both_ways(channel.raw(), seconds)
    except OSError as error:
        return {"lost": reason(error)}
    finally:
        channel.close()


MOST_HOSTS = 256
MOST_REPORTS = 1000
"""Lines of text about rejected connections that wait to be reported."""
FACTS_S = 3.0
"""Seconds for which a host times its operators."""

Report = Callable[[str], None]
"""Called with a line of text about every step."""


@dataclass(frozen=True)
class _ProbedHost:
    name: str
    region: str
    address: str
    """The address at which other hosts reach it."""
    port: int
    channel: Channel


class ProbeListener:
    """Listens on a port until it is closed. Raises LabError if it cannot."""

    def __init__(self, address: str = "127.0.0.1", port: int = 0, token: str | None = None) -> None:
        self.token = token or secrets.token_urlsafe(12)
        self._arrivals: queue.SimpleQueue[tuple[Channel, dict[str, Any]] | str] = queue.SimpleQueue()
        """Authenticated hosts with their first message, and a line of text for each rejected connection."""
        self._listener = Listener(address, port, self.token, self._arrive, self._reject)
        self.address, self.port = address, self._listener.address[1]
        self._hosts: list[_ProbedHost] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        for host in self._hosts:
            with contextlib.suppress(ConnectionLost):
                why = " ".join(str(error).split()) if isinstance(error, LabError) else "the listener was stopped"
                host.channel.send(**({"order": "leave"} if error is None else {"refused": why}))
            host.channel.close()

    def close(self) -> None:
        """Free the port, and refuse the hosts that were not part of the probe."""
        self._listener.close()
        with contextlib.suppress(queue.Empty):
            while True:
                if not isinstance(arrival := self._arrivals.get_nowait(), str):
                    arrival[0].close()

    def probe(
        self,
        n_hosts: int,
        *,
        wait_s: float = 60.0,
        seconds: float = 6.0,
        name: str = "probed",
        report: Report = lambda line: None,
    ) -> Topology:
        """Wait for ``n_hosts``, time all pairs, and return their network with the devices ordered by name.

        Parameters
        ----------
        wait_s
            Seconds within which all hosts must have joined.
        seconds
            Approximate seconds for each pair, both directions together.

        Raises
        ------
        RunError
            Too few hosts joined, one was lost, or two of them do not reach each other.
        LabError
            A number is out of range.
        """
        check_ranges(hosts=(n_hosts, 2, MOST_HOSTS), seconds=(seconds, 0.1, 3600), wait=(wait_s, 0, 86400))
        check_text("topology", name)
        self._gather(n_hosts, wait_s, report)
        facts = []
        for host in self._hosts:
            answer = self._ask(host, FACTS_S + PATIENCE_S + 30, order="facts", seconds=FACTS_S)
            try:
                facts.append(checked_facts(answer))
            except (KeyError, TypeError, ValueError):
                raise RunError(f"host {host.name} says of itself {shortened(answer)}; wanted its facts") from None
            report(sentence_of(host.name, facts[-1]))
        pairs = list(itertools.combinations(range(n_hosts), 2))
        timed = {}
        for number, pair in enumerate(pairs, start=1):
            for host in self._hosts:  # so that both ends notice early if the other is lost
                self._send(host, order="wait")
            between, timing = self._timed(*pair, seconds)
            timed[between] = timing
            a, b = (self._hosts[i].name for i in between)
            report(f"pair {number} of {len(pairs)}: {sentence_of_pair(a, b, timing)}")
        known = list(zip(self._hosts, facts, strict=True))
        return topology_of(
            [devices_of(host.name, host.region, of_host) for host, of_host in known],
            timed,
            name=name,
            facts=[sentence_of(host.name, of_host) for host, of_host in known],
        )

    def _arrive(self, channel: Channel) -> None:
        self._arrivals.put((channel, channel.receive(HANDSHAKE_S)))

    def _reject(self, peer: str, why: str) -> None:
        if self._arrivals.qsize() < MOST_REPORTS:  # a flood is not worth more lines
            self._arrivals.put(f"turned {peer} away: {why}")

    def _gather(self, n_hosts: int, wait_s: float, report: Report) -> None:
        deadline_s = time.monotonic() + wait_s
        while len(self._hosts) < n_hosts:
            try:
                arrival = self._arrivals.get(timeout=max(deadline_s - time.monotonic(), 1e-3))
            except queue.Empty:
                joined = ", ".join(host.name for host in self._hosts) or "nobody"
                raise RunError(
                    f"{len(self._hosts)} of {counted(n_hosts, 'host')} came within {wait_s:g} s: {joined}"
                ) from None
            if isinstance(arrival, str):
                report(arrival)
                continue
            channel, hello = arrival
            try:
                self._hosts.append(host := self._checked_host(channel, hello))
                report(f"{host.name} came from {channel.peer}, {len(self._hosts)} of {n_hosts}")
            except OSError as error:
                report(f"turned {channel.peer} away: {error}")
                channel.close()
        self._hosts.sort(key=lambda host: host.name)
        near = [host.name for host in self._hosts if is_loopback(host.address)]
        if 0 < len(near) < n_hosts:
            raise RunError(
                f"host {near[0]} joined over loopback, where others cannot reach it; wanted it to join at the address "
                f"that they use"
            )

    def _checked_host(self, channel: Channel, hello: dict[str, Any]) -> _ProbedHost:
        """The host with this first message. Raises ConnectionLost if it is refused, after sending the reason."""
        name, region = str(hello.get("name") or ""), str(hello.get("region") or "")
        port = hello.get("port")
        problem = ""
        try:
            for what, text in (("device", name), ("region", region)):
                check_text(what, text)
        except TopologyError as error:
            problem = str(error)
        if not name:
            problem = "it has no name; wanted one of its own"
        if name in (host.name for host in self._hosts):
            problem = f"a host named {shortened(name)} is there already; wanted a name of its own"
        if not isinstance(port, int) or not 0 < port < 65536:
            problem = f"its port is {shortened(port)}; wanted 1 to 65535"
        if problem:
            channel.send(refused=problem)
            raise ConnectionLost(problem)
        return _ProbedHost(name, region, str(hello.get("address") or channel.peer), int(port or 0), channel)

    def _timed(self, a: int, b: int, seconds: float) -> tuple[tuple[int, int], dict[str, Any]]:
        """(timing host, answering host) and the times. If one cannot reach the other, the other one times."""
        problems = []
        for i, j in ((a, b), (b, a)):
            one, other = self._hosts[i], self._hosts[j]
            order = {"order": "time", "name": other.name, "address": other.address, "port": other.port}
            answer = self._ask(one, 10 * seconds + 4 * SILENCE_S, **order, seconds=seconds)
            if "lost" in answer:
                raise RunError(f"{one.name} was timing messages to {other.name}, which {answer['lost']}")
            if "unreachable" not in answer:
                try:
                    return (i, j), checked_timing(answer)
                except ConnectionLost as error:
                    raise RunError(f"host {one.name} {error}") from None
            where = f"{other.address} port {other.port}"
            problems.append(f"{one.name} does not reach {other.name} at {where}: {answer['unreachable']}")
        raise RunError("; ".join(problems))

    def _ask(self, host: _ProbedHost, within_s: float, **order: Any) -> dict[str, Any]:
        self._send(host, **order)
        try:
            return host.channel.receive(within_s)
        except ConnectionLost as error:
            raise RunError(f"host {host.name} {error}, asked for its {order['order']}") from None

    def _send(self, host: _ProbedHost, **order: Any) -> None:
        try:
            host.channel.send(**order)
        except ConnectionLost as error:
            raise RunError(f"host {host.name} vanished: {error}") from None
