"""One host of a run on several hosts: an agent that starts the host's workers, and on the first host the coordinator.

``python -m dtfm_lab.extensions.hosts.hosted RUN_FOLDER --host NAME``, as ``dtfm-lab export`` writes it into ``run.sh``.
The agent loads torch once and forks these processes, so it can restart a lost one at once. The agent itself never
computes with torch: that would start threads, and a fork copies only one. The agent opens no port, because the run
folder says which workers it has to start.

The coordinator writes events to standard output and the measured trace into the run folder. A lost worker is restarted
with the same rank and gets its state from a replica or a checkpoint. A lost coordinator is restarted and resumes from
the newest checkpoint in the run's folder.
"""

import contextlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn, TextIO

from dtfm_lab.domain.errors import LabError, RunError
from dtfm_lab.extensions.hosts.hosts import RunFolder, load_run_folder
from dtfm_lab.extensions.hosts.rendezvous import Rendezvous, RunOver, join_run
from dtfm_lab.files import save_trace
from dtfm_lab.runtime.client.record import RunRecord
from dtfm_lab.runtime.coordinator.lead import lead
from dtfm_lab.runtime.coordinator.worker_handle import StartWorker
from dtfm_lab.runtime.protocol import checkpoint_folders
from dtfm_lab.runtime.protocol.channels import ConnectionLost, Refused
from dtfm_lab.runtime.protocol.orders import Exit
from dtfm_lab.runtime.protocol.processes import (
    CommandReader,
    InputClosed,
    ended_children,
    exit_after,
    exit_with_parent,
)
from dtfm_lab.runtime.protocol.run_options import RunSpec

COORDINATOR = -1
"""Number of the coordinator in tables that identify workers by their ranks."""
MOST_IN_VAIN = 5
"""The run fails on this host if this many restarts of a process in a row end before it joins the run."""
LEAVE_S = 20.0
"""Maximum seconds for the other processes of a host to exit once one of them knows that the run has ended."""
POLL_S = 0.05

Note = Callable[..., None]
"""Tells the agent that a process has joined (``joined=rank``), or that the run is over (``end=[status, reason]``)."""


class HostAgent:
    """The processes of one host. Lost ones are restarted until the run is over."""

    def __init__(self, folder: RunFolder, host: str) -> None:
        if host not in folder.hosts:
            raise LabError(f"no host named {host} in {folder.path.name}; wanted one of {', '.join(folder.hosts)}")
        self._folder, self._host = folder, host
        self._coordinates = host == next(iter(folder.hosts))
        self._notes, self._note_end = os.pipe()
        # Reading the notes must never wait, since this process also watches for ended processes.
        os.set_blocking(self._notes, False)
        self._ranks: dict[int, int] = {}
        """Rank of each process, by process id."""
        self._in_vain: dict[int, int] = {}
        """By rank, the number of restarts in a row that ended before the process joined the run. -1 once it has
        joined."""
        self._end: tuple[int, str] | None = None
        """Exit status of this host and the reason, once the run is over."""

    def serve(self) -> int:
        """Start the host's processes and restart lost ones until the run is over. Return the exit status of this
        host."""
        from dtfm_lab.runtime.worker.local_run import prepare_to_fork  # loads torch

        # Loaded once, before the fork, so that the processes share its memory.
        prepare_to_fork(self._folder.spec)
        if self._coordinates:  # Ctrl-C ends the run on all hosts; on another host, the agent and its workers alone
            signal.signal(signal.SIGINT, self._interrupt_coordinator)
        try:
            for rank in (*([COORDINATOR] if self._coordinates else []), *self._folder.hosts[self._host]):
                self._start(rank)
            while self._end is None:
                time.sleep(POLL_S)
                ended = [self._ranks.pop(pid) for pid, _ in ended_children()]
                self._take_notes()  # a process that has ended has written all its notes
                for rank in ended if self._end is None else ():
                    self._start_again(rank)
            deadline_s = time.monotonic() + LEAVE_S
            while self._ranks and time.monotonic() < deadline_s:
                time.sleep(POLL_S)
                for pid, _ in ended_children():
                    # They got the order to leave, so they are not started again.
                    del self._ranks[pid]
        finally:
            for pid in self._ranks:
                # Whatever is still there after the deadline would outlive the run.
                os.kill(pid, signal.SIGKILL)
        status, why = self._end
        if why:
            _say(f"host {self._host}: {why}")
        return status

    def _start(self, rank: int) -> None:
        if (pid := os.fork()) == 0:
            exit_after(self._be, rank, os.getppid())
        self._ranks[pid] = rank

    def _start_again(self, rank: int) -> None:
        self._in_vain[rank] = self._in_vain.get(rank, -1) + 1
        if self._in_vain[rank] == MOST_IN_VAIN:
            self._end = 1, f"a process was restarted {MOST_IN_VAIN} times and ended each time before it joined the run"
            return
        what = "the coordinator" if rank == COORDINATOR else f"worker {rank}"
        _say(f"host {self._host}: {what} ended and is restarted")
        self._start(rank)

    def _take_notes(self) -> None:
        with contextlib.suppress(BlockingIOError):
            for line in os.read(self._notes, 1 << 16).splitlines():
                match json.loads(line):
                    case {"joined": rank}:
                        self._in_vain[rank] = -1
                    case {"end": [status, why]} if self._end is None:
                        self._end = status, why

    def _note(self, **values: Any) -> None:
        os.write(self._note_end, json.dumps(values).encode() + b"\n")  # atomic, because it is shorter than PIPE_BUF

    def _interrupt_coordinator(self, *_: object) -> None:
        for pid, rank in self._ranks.items():
            if rank == COORDINATOR:
                os.kill(pid, signal.SIGINT)

    def _be(self, rank: int, agent: int) -> None:
        """Be the worker of this rank, or the coordinator, in a forked process. ``agent`` is the agent's process id."""
        # Ctrl-C reaches the whole group, but only the agent decides what ends.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # A worker without its agent would hold its port and its GPU for ever.
        exit_with_parent(agent)
        try:
            if rank == COORDINATOR:
                run_coordinator(self._folder, self._note)
            run_worker(self._folder, self._host, rank, self._note)
        except RunOver as over:
            self._note(end=[over.status, str(over)])
        except LabError as error:
            self._note(end=[1 if isinstance(error, RunError) else 2, str(error)])


def run_worker(folder: RunFolder, host: str, rank: int, note: Note) -> NoReturn:
    """Be a worker until the coordinator orders it to exit."""
    from dtfm_lab.runtime.worker import worker  # loads torch, which the coordinator does not need
    from dtfm_lab.runtime.worker.own_host import OwnHost

    where, spec = f"the coordinator at {folder.address} port {folder.port}", folder.spec
    try:
        joined = join_run(folder, rank, host)
    except Refused as error:
        raise RunError(f"{where} belongs to another run ({error}); wanted the same run folder on every host") from None
    except ConnectionLost as error:
        raise RunError(f"{where} {error}") from None
    except (OSError, EOFError):
        sys.exit(1)  # the coordinator was lost just now and may return: the agent restarts this process
    note(joined=rank)

    def leave(order: Exit) -> int:
        note(end=[order.status, order.why])
        with contextlib.suppress(OSError):  # the coordinator may have stopped waiting
            joined.connection.send_bytes(json.dumps({"event": "exits", "rank": rank}).encode())
        return order.status

    worker.main(
        replace(spec, **joined.changes),
        rank,
        joined.connection,
        host=OwnHost(
            address=joined.own_address,
            local_rank=folder.hosts[host].index(rank),
            certificates=folder.certificates,
            clock_offset_s=joined.clock.offset_s,
            on_exit=leave,
        ),
    )
    raise AssertionError("a worker exits its process")


class Interrupts(CommandReader):
    """The input of a run that takes no commands but Ctrl-C, which ends the run on all hosts."""

    def __init__(self) -> None:
        super().__init__()
        self.fd, write = os.pipe()
        signal.signal(signal.SIGINT, lambda *_: os.write(write, b"!"))

    def poll(self) -> None:
        """Raise InputClosed after an interrupt."""
        if select.select([self.fd], [], [], 0)[0]:
            raise InputClosed

    def read_more(self) -> None:
        raise InputClosed


class RecordedOutput:
    """Standard output that also records the events written to it."""

    def __init__(self, record: RunRecord, output: TextIO) -> None:
        self._record, self._output = record, output

    def write(self, line: str) -> int:
        self._record.absorb(json.loads(line))
        return self._output.write(line)

    def flush(self) -> None:
        self._output.flush()


def run_coordinator(folder: RunFolder, note: Note) -> NoReturn:
    """Coordinate workers that connect from their hosts, and save the trace."""
    commands = Interrupts()
    spec = checkpoint_folders.resumed(folder.spec)
    record = RunRecord(spec)
    sys.stdout = RecordedOutput(record, sys.stdout)
    rendezvous: list[Rendezvous] = []

    def starter(spec: RunSpec) -> StartWorker:
        rendezvous.append(Rendezvous(folder, spec, commands.poll))
        note(joined=COORDINATOR)
        return lambda _, rank: rendezvous[0].start(rank)

    def end(status: int, why: str) -> None:
        note(end=[status, why])
        try:
            # The workers get the message in any case, or they would wait for a coordinator that has failed to save.
            if status == 0:
                save_trace(record.trace(), folder.path / "measured.json")
        finally:
            for one in rendezvous:
                one.finish(status, why)

    lead(commands, lambda: spec, starter, end)
    os._exit(0 if record.status == "done" else 1)  # threads may wait for workers that will not connect


def main() -> None:
    """Exit with status 0 if the run is done, 1 if it failed, 2 if the input is wrong, 130 after Ctrl-C."""
    try:
        match sys.argv[1:]:
            case [path, "--host", host]:
                sys.exit(HostAgent(load_run_folder(path), host).serve())
        raise LabError("wanted RUN_FOLDER --host NAME, as dtfm-lab export writes it into hosts/NAME/run.sh")
    except LabError as error:
        _say(str(error))
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


def _say(line: str) -> None:
    sys.stderr.write(f"dtfm_lab.extensions.hosts.hosted: {line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main()
