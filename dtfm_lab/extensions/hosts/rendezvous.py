"""A rendezvous that stays open for the whole run, because workers join, are lost, and return.

``join_run`` is the worker's side. It connects twice: for orders and events, and to ask for the time. The monotonic
clocks of hosts have different origins, so a worker asks for the coordinator's time every few seconds. It uses the
answer with the shortest round trip. The remaining error is at most half of that round trip.

``Rendezvous`` is the coordinator's side. A process that asks for a rank becomes its worker if the rank has none, or
once the previous worker is lost. While the previous worker is alive, the process is refused.
"""

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.registry import in_a_row
from dtfm_lab.extensions.hosts.hosts import RunFolder
from dtfm_lab.extensions.hosts.remote_worker import MessageStream, RemoteWorker
from dtfm_lab.runtime.coordinator.worker_handle import WorkerHandle
from dtfm_lab.runtime.coordinator.worker_pool import RunFailed
from dtfm_lab.runtime.protocol.channels import HANDSHAKE_S, Channel, ConnectionLost, Refused
from dtfm_lab.runtime.protocol.connections import Listener, any_address, authenticated, is_loopback
from dtfm_lab.runtime.protocol.processes import emit
from dtfm_lab.runtime.protocol.run_options import RunSpec

ASK_EVERY_S = 5.0
"""Seconds between two requests for the time. Clocks of computers drift apart by tens of microseconds per second."""
N_REQUESTS = 8
"""Number of requests for the time at each measurement. The answer with the shortest round trip is used."""
APPEAR_S = 15.0
"""Maximum seconds until a file that the first host wrote to a shared folder appears on another host."""


class RunOver(Exception):
    """The run has ended. ``status`` is the exit status of this host."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class CoordinatorClock:
    """The difference between this host's monotonic clock and the coordinator's. A thread measures it every few
    seconds."""

    def __init__(self, connection: MessageStream) -> None:
        self._connection = connection
        self.round_trip_s = self._offset_s = 0.0
        self.ask()
        threading.Thread(target=self._ask_forever, daemon=True).start()

    def ask(self) -> None:
        """Measure the difference. Raises OSError or EOFError if the coordinator does not answer."""
        answers = []
        for _ in range(N_REQUESTS):
            asked_s = time.monotonic()
            self._connection.send_bytes(b"?")
            theirs_s = float(self._connection.recv_bytes())
            answered_s = time.monotonic()
            answers.append((answered_s - asked_s, (asked_s + answered_s) / 2 - theirs_s))
        # The quickest answer had the least queueing, so its middle is nearest to the other clock's reading.
        self.round_trip_s, self._offset_s = min(answers)

    def offset_s(self) -> float:
        """Return the seconds to add to a time of the coordinator's clock to convert it to this host's clock."""
        return self._offset_s

    def _ask_forever(self) -> None:
        with contextlib.suppress(OSError, EOFError):  # the worker notices the loss of the coordinator by itself
            while True:
                time.sleep(ASK_EVERY_S)
                self.ask()


@dataclass(frozen=True)
class Joined:
    """What a worker gets when it joins a run."""

    connection: MessageStream
    own_address: str
    """Address of this host as other hosts reach it."""
    clock: CoordinatorClock
    changes: dict[str, Any]
    """Values of RunSpec fields that replace the values in the run folder. They differ only if the run was resumed."""


def join_run(folder: RunFolder, rank: int, host: str) -> Joined:
    """Join the coordinator's run as the worker of this rank.

    Raises ConnectionLost if the coordinator cannot be reached for ``folder.await_s`` or does not hold the secret.
    Raises Refused if it belongs to another run, RunOver if the run has ended, and LabError if this host does not share
    the run's checkpoint folder. Raises EOFError or OSError if the coordinator is lost while joining.
    """
    # The clock has a separate connection, because messages on the other would delay the answers.
    clock_channel = _connected(folder)
    with _may_come_back():
        clock_channel.send(purpose="clock")
    clock_channel.lose_when_silent(folder.silent_s)
    clock = CoordinatorClock(MessageStream(clock_channel.raw()))
    channel = _connected(folder)
    with _may_come_back():
        channel.send(rank=rank, host=host, address=channel.own_address, round_trip_s=clock.round_trip_s)
        answer = channel.receive(HANDSHAKE_S)
    if "over" in answer:
        raise RunOver(int(answer["over"]), str(answer.get("why")))
    with _may_come_back():
        try:
            _require_shared(answer.get("shared"), host)
        except LabError as error:
            channel.send(cannot=str(error))
            raise
        channel.send(ready=True)
    channel.lose_when_silent(folder.silent_s)
    return Joined(MessageStream(channel.raw()), channel.own_address, clock, dict(answer["changes"]))


def _connected(folder: RunFolder) -> Channel:
    where = folder.address, folder.port, folder.spec.secret
    return authenticated(*where, retry_s=folder.await_s, certificates=folder.certificates)


@contextlib.contextmanager
def _may_come_back() -> Iterator[None]:
    """Turn ConnectionLost into EOFError within the block: a coordinator that was reached before and is lost now may
    return."""
    try:
        yield
    except Refused:
        raise
    except ConnectionLost as error:
        raise EOFError(str(error)) from None


def _require_shared(shared: dict[str, str] | None, host: str) -> None:
    """Raise LabError unless the checkpoint folder on this host is the same as on the first host: the file that the
    first host has just created in it must be visible here. A run without checkpoints has no ``shared``."""
    if shared is None:
        return
    folder, deadline_s = Path(shared["folder"]), time.monotonic() + APPEAR_S
    # Network file systems show a new file with a delay.
    while not (folder / shared["file"]).exists():
        if not folder.is_dir() or time.monotonic() > deadline_s:
            raise LabError(f"checkpoint_folder {folder} on host {host} is not the first host's; wanted a shared folder")
        time.sleep(0.2)


POLL_S = 0.2
ANNOUNCE_S = 20.0
"""Seconds of waiting for hosts until a message is printed. If a lost worker is awaited, the message is printed at
once."""
LINGER_S = 15.0
"""Maximum seconds after the run's end in which late workers, such as one that is restarting, can still learn about
it."""
NAMED = 4
"""Maximum number of workers named in a message."""
TOKEN = ".dtfm-lab-shared-"
"""Beginning of the name of the file by which hosts recognise a shared folder."""


class Rendezvous:
    """Lets workers join. ``start`` returns them by rank, and ``finish`` tells all of them how the run ended."""

    def __init__(self, folder: RunFolder, spec: RunSpec, poll: Callable[[], None] = lambda: None) -> None:
        """Listen on the run's port. Raises LabError if the port is taken.

        Parameters
        ----------
        spec
            The folder's spec, or after a resumption the same spec for the remaining iterations. Workers are sent the
            fields that changed. Its checkpoint folder must be the same on all hosts.
        poll
            Called every ``POLL_S`` while waiting for a worker. It may raise to end the wait.
        """
        self._spec, self._poll, self._folder = spec, poll, folder
        self._names = [spec.device_name(*where) for where in spec.workers]
        self._knocks: dict[int, tuple[RemoteWorker, float]] = {}
        self._living: dict[int, RemoteWorker] = {}
        self._verdict: tuple[int, str] | None = None
        self._answered: set[int] = set()
        self._failure = ""
        self._changed = threading.Condition()
        # another address may belong to a NAT and not to this host, so listen on all
        where = folder.address if is_loopback(folder.address) else any_address()
        self._listener = Listener(where, folder.port, spec.secret, self._admit, certificates=folder.certificates)

    def start(self, rank: int) -> WorkerHandle:
        """Wait until a process joins as the worker of this rank, and return its handle. Raises RunFailed if none joins
        within the folder's ``await_s``, or if a host cannot take part. Errors of ``poll`` pass through."""
        before = self._living.pop(rank, None)
        # A worker that was lost has been missing since its last message, not since now.
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
                other.is_stuck()  # turns away processes that ask for the rank of a live worker
            waited_s = time.monotonic() - since_s
            names = in_a_row([self._names[missing] for missing in self._missing()], NAMED)
            if waited_s > self._folder.await_s:
                what = "did not come" if before is None else "did not come back"
                raise RunFailed(f"{names} {what} within {self._folder.await_s:g} s; wanted run.sh on every host")
            if not announced and waited_s > (0.0 if before else ANNOUNCE_S):
                announced = True
                wanted = "run.sh of its host, started there or on another machine with the run folder"
                emit("awaiting", workers=names, wanted=wanted, seconds=self._folder.await_s)

    def finish(self, status: int, why: str) -> None:
        """Tell all workers to exit with this status, also workers that join within the next ``LINGER_S`` seconds. Close
        when all have answered, at the latest after that time."""
        with self._changed:
            self._verdict = status, why
            known = {rank: worker for rank, (worker, _) in self._knocks.items()} | self._living
            self._knocks = {}
        # Told outside the lock, since sending may wait for the network.
        for worker in known.values():
            worker.dismiss(status, why)
        deadline_s = time.monotonic() + LINGER_S
        # A worker that starts again just now gets the message too, instead of waiting for a run that has ended.
        while time.monotonic() < deadline_s:
            for rank, worker in known.items():
                worker.pump()
                if worker.heard_exit:
                    self._answered.add(rank)
            if len(self._answered) == len(self._names):
                break
            time.sleep(POLL_S / 4)
        self._listener.close()

    def _missing(self) -> list[int]:
        return [rank for rank in range(len(self._names)) if rank not in self._living and rank not in self._knocks]

    def _check_addresses(self) -> None:
        near = {worker.own_address for worker in self._living.values() if is_loopback(worker.own_address)}
        # Loopback is right only if all workers are on this host.
        if near and len(near) < len({worker.own_address for worker in self._living.values()}):
            raise RunFailed(
                f"some workers are at {min(near)}, which other hosts cannot reach; wanted a network address of their "
                f"host in hosts.yaml"
            )

    def _admit(self, channel: Channel) -> None:
        hello = channel.receive(HANDSHAKE_S)
        if hello.get("purpose") == "clock":
            channel.lose_when_silent(self._folder.silent_s)
            return _tell_the_time(MessageStream(channel.raw()))
        rank = int(hello["rank"])
        if not 0 <= rank < len(self._names):
            raise ValueError(rank)
        if self._verdict is not None:
            channel.send(over=self._verdict[0], why=self._verdict[1])
            self._answered.add(rank)
            return None
        changes = {name: getattr(self._spec, name) for name in ("resume_from", "first_iteration", "iterations")}
        with _token_in(self._spec.checkpoint_folder) as shared:
            channel.send(changes=changes, shared=shared)
            answer = channel.receive(HANDSHAKE_S + (APPEAR_S if shared else 0.0))
        if "cannot" in answer:
            with self._changed:
                self._failure = self._failure or str(answer["cannot"])
                self._changed.notify_all()
            return None
        channel.lose_when_silent(self._folder.silent_s)
        stream = MessageStream(channel.raw())
        worker = RemoteWorker(rank, stream, float(hello["round_trip_s"]), str(hello["address"]), self._folder.await_s)
        worker.knocked_s = lambda: self._knocks[rank][1] if rank in self._knocks else None
        worker.refuse = lambda: self._refuse(rank)
        with self._changed:
            late = self._verdict
            if late is None:
                # The newest process is taken, because an older process can have lost its connection unnoticed.
                earlier = self._knocks.get(rank)
                self._knocks[rank] = worker, time.monotonic()
                self._changed.notify_all()
        if late is not None:
            worker.dismiss(*late)
        elif earlier is not None:
            earlier[0].dismiss(1, f"another process joined as worker {self._names[rank]}; wanted only one")
        return None

    def _refuse(self, rank: int) -> None:
        with self._changed:
            knock = self._knocks.pop(rank, None)
        if knock is not None:
            emit("refused", worker=self._names[rank], address=knock[0].own_address)
            where = self._living[rank].own_address
            knock[0].dismiss(1, f"worker {self._names[rank]} already runs, at {where}; wanted one process for it")


def _tell_the_time(stream: MessageStream) -> None:
    with contextlib.suppress(EOFError, OSError):
        while stream.recv_bytes():
            stream.send_bytes(repr(time.monotonic()).encode())
    stream.close()


@contextlib.contextmanager
def _token_in(folder: str | None) -> Iterator[dict[str, str] | None]:
    """Create a file in the folder for the duration of the block, and yield its folder and name. A host that does not
    see the file has another folder. Yields None without a folder."""
    if folder is None:
        # Without checkpoints nothing has to be shared.
        yield None
        return
    file = Path(folder) / f"{TOKEN}{secrets.token_hex(8)}"
    file.touch()
    try:
        yield {"folder": folder, "file": file.name}
    finally:
        file.unlink(missing_ok=True)
