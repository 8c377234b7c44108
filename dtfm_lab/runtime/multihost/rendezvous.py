"""Workers started on other hosts connect to the coordinator, and all share one clock.

A worker connects twice: for orders and events, and to ask for the time. Monotonic clocks of different hosts have
different origins, so a worker regularly asks for the coordinator's time and keeps the answer with the shortest round
trip; the remaining error is at most half of that round trip.
"""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Collection
from multiprocessing.connection import Connection
from typing import Any

from dtfm_lab.runtime.protocol.connections import HANDSHAKE_S, Channel, Listener, connect, is_loopback, respond

START_S = 300.0
"""Seconds within which all workers of a run must connect."""
ASK_EVERY_S = 5.0
"""Seconds between requests for the time: clocks of computers drift apart by tens of microseconds a second."""
N_REQUESTS = 8
"""Requests of which the one with the shortest round trip counts."""
POLL_S = 0.2


class Rendezvous:
    """The coordinator's end: ``all_workers`` returns their connections once all are there."""

    def __init__(self, address: str, port: int, secret: str, n_workers: int) -> None:
        """Listen on the port. Raises LabError if it is taken."""
        self._n_workers = n_workers
        self._joined: dict[int, tuple[Connection, dict[str, Any]]] = {}
        self._changed = threading.Condition()
        any_address = "::" if ":" in address else "0.0.0.0"  # the address that others use may be a NAT's
        self._listener = Listener(address if is_loopback(address) else any_address, port, secret, self._admit)

    def all_workers(self, poll: Callable[[], None], wait_s: float = START_S) -> dict[int, Connection]:
        """Connections by rank. ``poll`` is called every ``POLL_S`` while waiting, and may raise to end it.

        Raises TimeoutError with the missing ranks, and ConnectionError if workers could not reach each other.
        """
        deadline_s = time.monotonic() + wait_s
        while True:
            with self._changed:
                if self._changed.wait_for(lambda: len(self._joined) == self._n_workers, POLL_S):
                    break
                missing = sorted(set(range(self._n_workers)) - self._joined.keys())
            poll()
            if time.monotonic() > deadline_s:
                raise TimeoutError(missing)
        addresses = {hello["address"] for _, hello in self._joined.values()}
        if len({is_loopback(address) for address in addresses}) > 1:
            near = next(address for address in addresses if is_loopback(address))
            raise ConnectionError(
                f"some workers are at {near}, where those of other hosts do not reach them; wanted the address of "
                f"their host's network as its address in hosts.yaml"
            )
        # an order takes its time to arrive: moment 0 of an iteration is later by as much for all workers
        delay_s = max(hello["round_trip_s"] for _, hello in self._joined.values())
        for connection, _ in self._joined.values():
            connection.send_bytes(json.dumps({"delay_s": delay_s}).encode())
        return {rank: connection for rank, (connection, _) in self._joined.items()}

    def close(self) -> None:
        self._listener.close()

    def _admit(self, channel: Channel) -> None:
        hello = channel.receive(HANDSHAKE_S)
        if hello.get("purpose") == "clock":
            with _framed(channel) as connection, contextlib.suppress(EOFError):
                while connection.recv_bytes(64):
                    connection.send_bytes(repr(time.monotonic()).encode())
            return
        rank = int(hello["rank"])
        known = {"address": str(hello["address"]), "round_trip_s": float(hello["round_trip_s"])}
        with self._changed:
            if rank in self._joined or not 0 <= rank < self._n_workers:
                raise ValueError(rank)
            self._joined[rank] = _framed(channel), known
            self._changed.notify_all()


class CoordinatorClock:
    """The difference between this host's monotonic clock and the coordinator's, measured anew every few seconds."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.round_trip_s = self.delay_s = self._offset_s = 0.0
        """``delay_s``: seconds by which all workers postpone moments, while orders are on their way."""
        self.ask()
        threading.Thread(target=self._ask_forever, daemon=True).start()

    def ask(self) -> None:
        """Measure the difference anew. Raises OSError or EOFError if the coordinator does not answer."""
        answers = []
        for _ in range(N_REQUESTS):
            asked_s = time.monotonic()
            self._connection.send_bytes(b"?")
            theirs_s = float(self._connection.recv_bytes(64))
            answered_s = time.monotonic()
            answers.append((answered_s - asked_s, (asked_s + answered_s) / 2 - theirs_s))
        self.round_trip_s, self._offset_s = min(answers)

    def offset_s(self) -> float:
        """Seconds to add to a moment in an order to have it by this host's clock."""
        return self._offset_s + self.delay_s

    def _ask_forever(self) -> None:
        with contextlib.suppress(OSError, EOFError):  # the worker notices the loss of the coordinator by itself
            while True:
                time.sleep(ASK_EVERY_S)
                self.ask()


def join_run(
    address: str, port: int, secret: str, rank: int, wait_s: float = START_S
) -> tuple[Connection, str, CoordinatorClock]:
    """A connection to the coordinator, the address of this host that other hosts reach, and the coordinator's clock.

    Waits until all workers have connected. Raises ConnectionLost if the coordinator cannot be reached for ``wait_s``
    or does not hold the secret, Refused if it belongs to another run, and EOFError or OSError if it gives up before.
    """
    clock_channel = _authenticated(address, port, secret, wait_s)
    clock_channel.send(purpose="clock")
    clock = CoordinatorClock(_framed(clock_channel))
    channel = _authenticated(address, port, secret, wait_s)
    channel.send(rank=rank, address=channel.own_address, round_trip_s=clock.round_trip_s)
    connection = _framed(channel)
    clock.delay_s = float(json.loads(connection.recv_bytes())["delay_s"])
    return connection, channel.own_address, clock


def list_names(ranks: Collection[int], name: Callable[[int], str], most: int = 4) -> str:
    """``ada, barbara and 3 more``"""
    names = [name(rank) for rank in ranks]
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _authenticated(address: str, port: int, secret: str, wait_s: float) -> Channel:
    channel = connect(address, port, retry_s=wait_s)
    respond(channel, secret)
    return channel


def _framed(channel: Channel) -> Connection:
    """The channel's socket as a connection of whole messages, which ``multiprocessing.connection.wait`` can await."""
    return Connection(channel.raw().detach())
