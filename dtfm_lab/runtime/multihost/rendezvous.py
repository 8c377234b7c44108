"""The coordinator's end of a rendezvous that stays open for the whole run: hosts come, are lost, and come back.

A process that knocks for a rank becomes its worker once there is none, or the one before is lost. While that one
lives, the process is turned away.
"""

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from dtfm_lab.runtime.coordinator.worker_handle import RemoteWorker, WorkerHandle
from dtfm_lab.runtime.coordinator.worker_pool import RunFailed
from dtfm_lab.runtime.multihost.joining import APPEAR_S, AWAIT_S, SILENT_S
from dtfm_lab.runtime.protocol.certificates import Certificates
from dtfm_lab.runtime.protocol.connections import HANDSHAKE_S, Channel, Listener, any_address, is_loopback
from dtfm_lab.runtime.protocol.json_lines import emit
from dtfm_lab.runtime.protocol.message_stream import MessageStream

POLL_S = 0.2
ANNOUNCE_S = 20.0
"""Seconds of waiting for hosts that have not come yet after which that is said; for lost ones it is said at once."""
LINGER_S = 15.0
"""Longest time that the end of the run is told to workers that come late, such as one that was just restarting."""
TOKEN = ".dtfm-lab-shared-"
"""Beginning of the name of a file by which a shared folder is recognised."""


class Rendezvous:
    """Lets workers in; ``start`` hands them out by rank, and ``finish`` tells all of them how the run ended."""

    def __init__(
        self,
        address: str,
        port: int,
        secret: str,
        names: Collection[str],
        *,
        poll: Callable[[], None] = lambda: None,
        changes: dict[str, Any] | None = None,
        shared_folder: str | None = None,
        await_s: float = AWAIT_S,
        silent_s: float = SILENT_S,
        certificates: Certificates | None = None,
    ) -> None:
        """Listen on the port. Raises LabError if it is taken.

        Parameters
        ----------
        names
            Of the workers by rank, for people.
        poll
            Called every ``POLL_S`` while a worker is awaited; may raise to end that.
        changes
            What every worker changes in its RunSpec.
        shared_folder
            A folder that must be the same on all hosts.
        await_s
            Seconds for a worker to come, or to come back.
        silent_s
            Seconds without an acknowledgement after which a connection is lost.
        """
        self._names, self._poll = list(names), poll
        self._changes, self._shared_folder = changes or {}, shared_folder
        self._await_s, self._silent_s = await_s, silent_s
        self._knocks: dict[int, tuple[RemoteWorker, float]] = {}
        self._living: dict[int, RemoteWorker] = {}
        self._verdict: tuple[int, str] | None = None
        self._told: set[int] = set()
        self._failure = ""
        self._changed = threading.Condition()
        where = address if is_loopback(address) else any_address()  # the address that others use may be a NAT's
        self._listener = Listener(where, port, secret, self._admit, certificates=certificates)

    def start(self, rank: int) -> WorkerHandle:
        """Wait for a process that is this worker. Raises RunFailed if none comes, or what ``poll`` raises."""
        before = self._living.pop(rank, None)
        since_s = time.monotonic() if before is None else before.last_message_s
        announced = False
        while True:
            with self._changed:
                self._changed.wait_for(lambda: rank in self._knocks or self._failure, POLL_S)
                if self._failure:
                    raise RunFailed(self._failure)
                worker, _ = self._knocks.pop(rank, (None, 0.0))
            if worker is not None:
                worker.pump()
                if worker.is_open:
                    self._living[rank] = worker
                    self._check_addresses()
                    return worker
            self._poll()
            for other in self._living.values():
                other.pump()
                other.is_stuck()  # turns away who knocks for a rank whose worker lives
            waited_s = time.monotonic() - since_s
            names = list_names(self._missing(), self._names.__getitem__)
            if waited_s > self._await_s:
                what = "did not come" if before is None else "did not come back"
                raise RunFailed(f"{names} {what} within {self._await_s:g} s; wanted run.sh on every host")
            if not announced and waited_s > (0.0 if before else ANNOUNCE_S):
                announced = True
                wanted = "run.sh of its host, started there or on another machine with the run folder"
                emit("awaiting", workers=names, wanted=wanted, seconds=self._await_s)

    def finish(self, status: int, why: str) -> None:
        """Tell all workers to exit with this status, also those that come in the next seconds; then close."""
        with self._changed:
            self._verdict = status, why
            told = {rank: worker for rank, (worker, _) in self._knocks.items()} | self._living
            self._knocks = {}
        for worker in told.values():
            worker.dismiss(status, why)
        deadline_s = time.monotonic() + LINGER_S
        while time.monotonic() < deadline_s:
            for rank, worker in told.items():
                worker.pump()
                if worker.heard_exit:
                    self._told.add(rank)
            if len(self._told) == len(self._names):
                break
            time.sleep(POLL_S / 4)
        self._listener.close()

    def _missing(self) -> list[int]:
        return [rank for rank in range(len(self._names)) if rank not in self._living and rank not in self._knocks]

    def _check_addresses(self) -> None:
        near = {worker.own_address for worker in self._living.values() if is_loopback(worker.own_address)}
        if near and len(near) < len({worker.own_address for worker in self._living.values()}):
            raise RunFailed(
                f"some workers are at {min(near)}, where those of other hosts do not reach them; wanted the address of "
                f"their host's network as its address in hosts.yaml"
            )

    def _admit(self, channel: Channel) -> None:
        hello = channel.receive(HANDSHAKE_S)
        if hello.get("purpose") == "clock":
            channel.lose_when_silent(self._silent_s)
            return _tell_the_time(MessageStream(channel.raw()))
        rank = int(hello["rank"])
        if not 0 <= rank < len(self._names):
            raise ValueError(rank)
        if self._verdict is not None:
            channel.send(over=self._verdict[0], why=self._verdict[1])
            self._told.add(rank)
            return None
        with _token_in(self._shared_folder) as shared:
            channel.send(changes=self._changes, shared=shared)
            answer = channel.receive(HANDSHAKE_S + (APPEAR_S if shared else 0.0))
        if "cannot" in answer:
            with self._changed:
                self._failure = self._failure or str(answer["cannot"])
                self._changed.notify_all()
            return None
        channel.lose_when_silent(self._silent_s)
        stream = MessageStream(channel.raw())
        worker = RemoteWorker(rank, stream, float(hello["round_trip_s"]), str(hello["address"]), self._await_s)
        worker.knocked_s = lambda: self._knocks[rank][1] if rank in self._knocks else None
        worker.refuse = lambda: self._refuse(rank)
        with self._changed:
            late = self._verdict
            if late is None:
                earlier = self._knocks.get(rank)
                self._knocks[rank] = worker, time.monotonic()
                self._changed.notify_all()
        if late is not None:
            worker.dismiss(*late)
        elif earlier is not None:
            earlier[0].dismiss(1, f"another process came for worker {self._names[rank]}; wanted one only")
        return None

    def _refuse(self, rank: int) -> None:
        with self._changed:
            knock = self._knocks.pop(rank, None)
        if knock is not None:
            emit("refused", worker=self._names[rank], address=knock[0].own_address)
            where = self._living[rank].own_address
            knock[0].dismiss(1, f"worker {self._names[rank]} lives already, at {where}; wanted one process for it")


def list_names(ranks: Collection[int], name: Callable[[int], str], most: int = 4) -> str:
    """``ada, barbara and 3 more``"""
    names = [name(rank) for rank in ranks]
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _tell_the_time(stream: MessageStream) -> None:
    with contextlib.suppress(EOFError, OSError):
        while stream.recv_bytes():
            stream.send_bytes(repr(time.monotonic()).encode())
    stream.close()


@contextlib.contextmanager
def _token_in(folder: str | None) -> Iterator[dict[str, str] | None]:
    """Keep a file of a new name in the folder: a host that does not see it has another folder."""
    if folder is None:
        yield None
        return
    file = Path(folder) / f"{TOKEN}{secrets.token_hex(8)}"
    file.touch()
    try:
        yield {"folder": folder, "file": file.name}
    finally:
        file.unlink(missing_ok=True)
