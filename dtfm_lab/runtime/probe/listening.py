"""The listener of a probe: lets hosts in, has them time each other pair by pair, and makes the network of it."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import secrets
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from dtfm_lab.domain.errors import LabError, RunError, TopologyError
from dtfm_lab.domain.network import Topology, check_text, shortened
from dtfm_lab.domain.units import format_s, to_gbps
from dtfm_lab.runtime.probe.facts import checked_facts, device_of, sentence_of
from dtfm_lab.runtime.probe.joining import join
from dtfm_lab.runtime.probe.network import bandwidth_of, one_way_s, topology_of
from dtfm_lab.runtime.probe.timing import SILENCE_S, checked_timing
from dtfm_lab.runtime.probe.wire import HANDSHAKE_S, Channel, Lost, admit, check_options, is_loopback, serve_at

MOST_HOSTS = 256
FACTS_S = 1.0
"""for a host to multiply matrices"""
STOP_PATIENCE_S = 5.0
"""for a process of our own to leave"""

Tell = Callable[[str], None]


@dataclass(frozen=True)
class _Host:
    name: str
    region: str
    address: str
    """where others reach it"""
    port: int
    channel: Channel


class Listener:
    """Holds a port until it is closed. Raises LabError where there is none to hold."""

    def __init__(self, address: str = "127.0.0.1", port: int = 0, token: str | None = None) -> None:
        self.token = token or secrets.token_urlsafe(12)
        self._socket = serve_at(address, port)
        self.address, self.port = address, int(self._socket.getsockname()[1])
        self._hosts: list[_Host] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()
        for host in self._hosts:
            with contextlib.suppress(Lost):
                said = " ".join(str(error).split()) if isinstance(error, LabError) else "the listener was stopped"
                host.channel.send(**({"order": "leave"} if error is None else {"refused": said}))
            host.channel.close()

    def probe(
        self,
        n_hosts: int,
        *,
        wait_s: float = 60.0,
        seconds: float = 6.0,
        name: str = "probed",
        tell: Tell = lambda line: None,
    ) -> Topology:
        """Wait for so many hosts, time all pairs, and return their network, devices ordered by name.

        Parameters
        ----------
        wait_s
            For all hosts to have come.
        seconds
            About as many for each pair, both directions.
        tell
            Called with a line about every step.

        Raises
        ------
        RunError
            Too few came, one vanished, or two of them do not reach each other.
        LabError
            Numbers out of range.
        """
        check_options(hosts=(n_hosts, 2, MOST_HOSTS), seconds=(seconds, 0.1, 3600), wait=(wait_s, 0, 86400))
        check_text("topology", name)
        self._gather(n_hosts, wait_s, tell)
        facts = []
        for host in self._hosts:
            answer = self._ask(host, FACTS_S + 30, order="facts", seconds=FACTS_S)
            try:
                facts.append(checked_facts(answer))
            except (KeyError, TypeError, ValueError):
                raise RunError(f"host {host.name} says of itself {shortened(answer)}; wanted its facts") from None
            tell(sentence_of(host.name, facts[-1]))
        pairs = list(itertools.combinations(range(n_hosts), 2))
        timed = {}
        for number, pair in enumerate(pairs, start=1):
            for host in self._hosts:  # nobody waits for a listener that is gone, nor it for a host
                self._send(host, order="wait")
            between, timing = self._timed(*pair, seconds)
            timed[between] = timing
            tell(f"pair {number} of {len(pairs)}: {self._sentence(between, timing)}")
        devices = [device_of(h.name, h.region, known) for h, known in zip(self._hosts, facts, strict=True)]
        sentences = [sentence_of(h.name, known) for h, known in zip(self._hosts, facts, strict=True)]
        return topology_of(devices, timed, name=name, facts=sentences)

    def _gather(self, n_hosts: int, wait_s: float, tell: Tell) -> None:
        deadline_s = time.monotonic() + wait_s
        while len(self._hosts) < n_hosts:
            self._socket.settimeout(max(deadline_s - time.monotonic(), 1e-3))
            try:
                connection, (peer, *_) = self._socket.accept()
            except TimeoutError:
                came = ", ".join(host.name for host in self._hosts) or "nobody"
                raise RunError(f"{len(self._hosts)} of {n_hosts} hosts came within {wait_s:g} s: {came}") from None
            channel = Channel(connection)
            try:
                admit(channel, self.token)
                host = self._admitted(channel, channel.receive(HANDSHAKE_S))
            except Lost as error:
                tell(f"turned {peer} away: {error}")
                channel.close()
                continue
            self._hosts.append(host)
            tell(f"{host.name} came from {peer}, {len(self._hosts)} of {n_hosts}")
        self._hosts.sort(key=lambda host: host.name)
        near = [host.name for host in self._hosts if is_loopback(host.address)]
        if 0 < len(near) < n_hosts:
            raise RunError(
                f"host {near[0]} joined over loopback, where others cannot reach it; wanted it to join at the address "
                f"that they use"
            )

    def _admitted(self, channel: Channel, said: dict[str, Any]) -> _Host:
        """Raises Lost, the newcomer told why."""
        name, region = str(said.get("name") or ""), str(said.get("region") or "")
        port = said.get("port")
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
            raise Lost(problem)
        return _Host(name, region, str(said.get("address") or channel.peer), int(port or 0), channel)

    def _timed(self, a: int, b: int, seconds: float) -> tuple[tuple[int, int], dict[str, Any]]:
        """Who timed whom, and what; where one cannot reach the other, the other way round."""
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
                except Lost as error:
                    raise RunError(f"host {one.name} {error}") from None
            where = f"{other.address} port {other.port}"
            problems.append(f"{one.name} does not reach {other.name} at {where}: {answer['unreachable']}")
        raise RunError("; ".join(problems))

    def _ask(self, host: _Host, within_s: float, **order: Any) -> dict[str, Any]:
        self._send(host, **order)
        try:
            return host.channel.receive(within_s)
        except Lost as error:
            raise RunError(f"host {host.name} {error}, asked for its {order['order']}") from None

    def _send(self, host: _Host, **order: Any) -> None:
        try:
            host.channel.send(**order)
        except Lost as error:
            raise RunError(f"host {host.name} vanished: {error}") from None

    def _sentence(self, between: tuple[int, int], timing: dict[str, Any]) -> str:
        a, b = (self._hosts[i].name for i in between)
        there, back = (to_gbps(bandwidth_of(*one_way_s(timing["median_s"], timing[w]))) for w in ("there", "back"))
        latency, least = (format_s(timing[what] / 2) for what in ("median_s", "least_s"))
        return f"{a} - {b}: {latency} one way (at best {least}), {there:.3g} Gbit/s there, {back:.3g} back"


def probe_locally(n_hosts: int, *, seconds: float = 6.0, tell: Tell = lambda line: None) -> Topology:
    """Probe so many processes on this machine, over loopback; raises RunError, or LabError for numbers out of range."""
    check_options(hosts=(n_hosts, 2, MOST_HOSTS))
    listener = Listener()
    context: Any = multiprocessing.get_context("forkserver" if sys.platform == "linux" else "spawn")
    context.set_forkserver_preload(["dtfm_lab.runtime.probe.joining"])  # imported once, not in every process
    options = [{"token": listener.token, "name": f"process-{i}", "region": "here"} for i in range(n_hosts)]
    processes = [
        context.Process(target=_joined, args=(listener.address, listener.port, one), daemon=True) for one in options
    ]
    try:
        with listener:
            for process in processes:
                process.start()
            return listener.probe(n_hosts, seconds=seconds, name=f"loopback-{n_hosts}", tell=tell)
    finally:
        for process in processes:
            if process.pid is not None:
                process.join(STOP_PATIENCE_S)
                process.kill()


def _joined(host: str, port: int, options: dict[str, Any]) -> None:
    """Of a process of our own: the listener says what went wrong."""
    with contextlib.suppress(RunError, KeyboardInterrupt):
        join(host, port, **options)
