"""Where workers that were started elsewhere come in: connections to the crew over TCP, and one clock for all.

A worker that knows the run's secret calls twice: for orders and answers, and for the time. Every host counts its
monotonic seconds from a moment of its own, so a worker asks for the crew's now and then and takes the answer
that came back soonest; what remains is at most half of that round trip. No torch in here.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Collection
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import Any

from dtfm_lab.runtime.probe.wire import is_loopback

START_S = 300.0
"""for all workers of a run to come"""
ASK_EVERY_S = 5.0
"""for the time: clocks of computers drift apart by tens of microseconds a second"""
QUESTIONS = 8
LOOK_S = 0.2


class Door:
    """Lets in who knows the secret; ``worker`` hands out the connection of a rank."""

    def __init__(self, address: str, port: int, secret: bytes, n_workers: int) -> None:
        """Raises OSError where the port is taken."""
        self._secret, self._n_workers = secret, n_workers
        host = address if is_loopback(address) else ""  # what others call this host may be no address of its own
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._server = socket.create_server((host, port), family=family)
        self._came: dict[int, tuple[Connection, dict[str, Any]]] = {}
        self._changed = threading.Condition()
        threading.Thread(target=self._accept_all, daemon=True).start()

    def all_workers(self, look: Callable[[], None], wait_s: float = START_S) -> dict[int, Connection]:
        """By rank, once all are there; ``look`` is called now and then and may raise.

        Raises TimeoutError with the ranks that did not come, ConnectionError where workers could not reach each other.
        """
        deadline_s = time.monotonic() + wait_s
        while True:
            with self._changed:
                if self._changed.wait_for(lambda: len(self._came) == self._n_workers, LOOK_S):
                    break
                missing = sorted(set(range(self._n_workers)) - self._came.keys())
            look()
            if time.monotonic() > deadline_s:
                raise TimeoutError(missing)
        addresses = {said["address"] for _, said in self._came.values()}
        if len({is_loopback(address) for address in addresses}) > 1:
            near = next(address for address in addresses if is_loopback(address))
            raise ConnectionError(
                f"some workers are at {near}, where those of other hosts do not reach them; wanted the address of "
                f"their host's network as its address in hosts.yaml"
            )
        # an order takes its time to get there: moment 0 of an iteration is as much later for all
        delay_s = max(said["round_trip_s"] for _, said in self._came.values())
        for connection, _ in self._came.values():
            connection.send({"delay_s": delay_s})
        return {rank: connection for rank, (connection, _) in self._came.items()}

    def close(self) -> None:
        self._server.close()

    def _accept_all(self) -> None:
        while True:
            try:
                caller, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._let_in, args=(caller,), daemon=True).start()

    def _let_in(self, caller: socket.socket) -> None:
        connection = _wrapped(caller)
        try:
            deliver_challenge(connection, self._secret)
            answer_challenge(connection, self._secret)
            said = json.loads(connection.recv_bytes(2**16))
            if said.get("wants") == "time":
                while connection.recv_bytes(64):
                    connection.send_bytes(repr(time.monotonic()).encode())
            with self._changed:
                rank = int(said["rank"])
                if rank in self._came or not 0 <= rank < self._n_workers:
                    raise ValueError(rank)
                self._came[rank] = (
                    connection,
                    {
                        "address": str(said["address"]),
                        "round_trip_s": float(said["round_trip_s"]),
                    },
                )
                self._changed.notify_all()
        except (AuthenticationError, EOFError, OSError, ValueError, KeyError, TypeError, AttributeError):
            connection.close()


class CrewClock:
    """What the crew's monotonic clock shows, told by this host's; asks anew every few seconds on a thread."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.round_trip_s = self.offset_s = 0.0
        """``offset_s``: this host's clock less the crew's"""
        self.ask()
        threading.Thread(target=self._ask_forever, daemon=True).start()

    def ask(self) -> None:
        """Raises OSError or EOFError where nobody answers."""
        answers = []
        for _ in range(QUESTIONS):
            began_s = time.monotonic()
            self._connection.send_bytes(b"?")
            theirs_s = float(self._connection.recv_bytes(64))
            ended_s = time.monotonic()
            answers.append((ended_s - began_s, (began_s + ended_s) / 2 - theirs_s))
        self.round_trip_s, self.offset_s = min(answers)

    def _ask_forever(self) -> None:
        with contextlib.suppress(OSError, EOFError):  # the crew is gone, which the worker hears itself
            while True:
                time.sleep(ASK_EVERY_S)
                self.ask()


class CrewConnection:
    """A worker's connection to the crew: moments in orders are told by this host's clock."""

    def __init__(self, connection: Connection, clock: CrewClock) -> None:
        """Waits until all workers are there. Raises EOFError or OSError where the crew gives up before."""
        self._connection, self._clock = connection, clock
        self._delay_s = float(connection.recv()["delay_s"])

    def recv(self) -> Any:
        order = self._connection.recv()
        if "began_monotonic_s" in order:
            order["began_monotonic_s"] += self._clock.offset_s + self._delay_s
        return order

    def send_bytes(self, message: bytes) -> None:
        self._connection.send_bytes(message)

    def close(self) -> None:
        self._connection.close()


def come_in(address: str, port: int, secret: bytes, rank: int, wait_s: float = START_S) -> tuple[CrewConnection, str]:
    """The crew's connection, and the address of this host that the others reach.

    Raises
    ------
    ConnectionError, EOFError
        Nobody could be reached for so long, or the crew does not take this worker.
    AuthenticationError
        It belongs to another run.
    """
    clock_connection, _ = _called(address, port, secret, wait_s)
    clock_connection.send_bytes(json.dumps({"wants": "time"}).encode())
    clock = CrewClock(clock_connection)
    connection, own = _called(address, port, secret, wait_s)
    hello = {"rank": rank, "address": own, "round_trip_s": clock.round_trip_s}
    connection.send_bytes(json.dumps(hello).encode())
    return CrewConnection(connection, clock), own


def names_of(ranks: Collection[int], name: Callable[[int], str], most: int = 4) -> str:
    """``ada, barbara and 3 more``"""
    told = [name(rank) for rank in ranks]
    return ", ".join(told[:most]) + (f" and {len(told) - most} more" if len(told) > most else "")


def _called(address: str, port: int, secret: bytes, wait_s: float) -> tuple[Connection, str]:
    """A connection, and this end's address."""
    deadline_s = time.monotonic() + wait_s
    while True:
        try:
            caller = socket.create_connection((address, port), timeout=5)
            break
        except OSError as error:
            if time.monotonic() > deadline_s:
                raise ConnectionError(f"nobody could be reached for {wait_s:g} s: {error}") from None
        time.sleep(LOOK_S)
    caller.settimeout(None)
    own = str(caller.getsockname()[0])
    connection = _wrapped(caller)
    answer_challenge(connection, secret)
    deliver_challenge(connection, secret)
    return connection, own


def _wrapped(caller: socket.socket) -> Connection:
    caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Connection(caller.detach())
