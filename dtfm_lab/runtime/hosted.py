"""A run on several hosts, started by torchrun: every process is a worker, and the first also starts the coordinator.

``torchrun ... -m dtfm_lab.runtime.hosted RUN_FOLDER`` on every host, as ``dtfm-lab export`` writes it. The first
process writes the coordinator's events to standard output and the measured trace into the run folder. A lost worker is
not replaced: torchrun ends its whole host, so the run ends, with a message of one line.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from multiprocessing.connection import Connection, wait
from typing import NoReturn

from dtfm_lab.domain.errors import LabError, RunError
from dtfm_lab.files import save_trace
from dtfm_lab.runtime.client.record import Record
from dtfm_lab.runtime.coordinator.coordinator import lead
from dtfm_lab.runtime.coordinator.worker_handle import StartWorker, WorkerHandle
from dtfm_lab.runtime.coordinator.worker_pool import RunFailed
from dtfm_lab.runtime.multihost.export import RunFolder, load_run_folder
from dtfm_lab.runtime.multihost.rendezvous import Rendezvous, join_run, list_names
from dtfm_lab.runtime.protocol.connections import ConnectionLost, Refused
from dtfm_lab.runtime.protocol.json_lines import CommandReader
from dtfm_lab.runtime.protocol.run_spec import RunSpec

AS_COORDINATOR, AS_WORKER = "--coordinator", "--worker"
LEAVE_S = 10.0
"""Longest time for the first worker to exit after the coordinator."""


def rank_of(folder: RunFolder, environment: Mapping[str, str]) -> int:
    """Return the rank of the worker that this process is.

    Raises LabError if torchrun did not start it, or started another number of processes than the folder has workers.
    """
    try:
        rank, size = int(environment["RANK"]), int(environment["WORLD_SIZE"])
    except (KeyError, ValueError):
        raise LabError("RANK and WORLD_SIZE are not set; wanted torchrun to start this: see README.md") from None
    if size != len(folder.workers) or not 0 <= rank < size:
        raise LabError(
            f"process {rank} of {size} was started, but the run has {len(folder.workers)} workers; wanted torchrun's "
            f"lines as they stand in README.md, one on each host"
        )
    return folder.workers[rank]


def run_worker(folder: RunFolder, rank: int, local_rank: int) -> NoReturn:
    """Be a worker until the coordinator orders the exit. ``local_rank`` is the worker's number on this host."""
    from dtfm_lab.runtime.worker import worker  # imports torch, which the first process does without

    where = f"the coordinator at {folder.crew_address} port {folder.crew_port}"
    try:
        connection, own, clock = join_run(folder.crew_address, folder.crew_port, folder.spec.secret, rank)
    except Refused as error:
        raise RunError(f"{where} belongs to another run ({error}); wanted the same run folder on every host") from None
    except ConnectionLost as error:
        raise RunError(f"{where} {error}") from None
    except (OSError, EOFError) as error:
        raise RunError(f"{where}: {error or 'it hung up'}") from None
    worker.main(
        folder.spec, rank, connection, forked=False, host=own, local_rank=local_rank, clock_offset_s=clock.offset_s
    )
    raise AssertionError("a worker exits its process")


def run_coordinator(folder: RunFolder) -> NoReturn:
    """Coordinate workers that connect from their hosts."""
    commands = CommandReader()
    lead(commands, lambda: folder.spec, lambda spec: connected_workers(folder, spec, commands))
    os._exit(0)  # threads may wait for workers that will not connect


def connected_workers(folder: RunFolder, spec: RunSpec, commands: CommandReader) -> StartWorker:
    """Wait until all workers have connected, and return a function that hands out each once. Raises RunFailed."""

    def name(rank: int) -> str:
        return spec.device_name(*spec.workers[rank])

    def check_input() -> None:
        if wait([commands.fd], timeout=0):
            commands.read()  # raises InputClosed; there are no workers yet to which commands could apply

    connections: dict[int, Connection] = {}
    try:
        rendezvous = Rendezvous(folder.crew_address, folder.crew_port, spec.secret, len(spec.workers))
        connections.update(rendezvous.all_workers(check_input))
    except TimeoutError as error:
        (missing,) = error.args
        raise RunFailed(f"workers did not come: {list_names(missing, name)}; wanted run.sh on every host") from None
    except OSError as error:
        raise RunFailed(str(error)) from None

    def start(rank: int) -> WorkerHandle:
        if rank not in connections:
            raise RunFailed(f"worker {name(rank)} was lost, and nobody replaces it; wanted all hosts to start again")
        return WorkerHandle(rank, connections.pop(rank), None)

    return start


def run_first(folder: RunFolder) -> None:
    """Start the coordinator and the first worker, pass the events on, and save the trace. Raises RunError."""
    this = [sys.executable, "-m", "dtfm_lab.runtime.hosted"]
    record = Record(folder.spec)
    coordinator = subprocess.Popen(
        [*this, AS_COORDINATOR, str(folder.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    worker = subprocess.Popen([*this, AS_WORKER, str(folder.path)], stdin=subprocess.DEVNULL)
    try:
        assert coordinator.stdout is not None
        for line in coordinator.stdout:
            record.absorb(json.loads(line))
            sys.stdout.write(line)
            sys.stdout.flush()
        if record.running:
            raise RunError(f"the coordinator ended without a word, exit status {coordinator.wait()}")
        save_trace(record.trace(), folder.path / "measured.json")
        with contextlib.suppress(subprocess.TimeoutExpired):
            worker.wait(LEAVE_S)
    finally:
        coordinator.kill()
        worker.kill()


def main() -> None:
    """Exit with status 0 where the run is done, 1 where it failed, 2 where the input is wrong."""
    *role, path = sys.argv[1:] or [""]
    try:
        if len(role) > 1 or not path or (role and role[0] not in (AS_COORDINATOR, AS_WORKER)):
            raise LabError("wanted one argument: a run folder, as dtfm-lab export writes it")
        folder = load_run_folder(path)
        if role == [AS_COORDINATOR]:
            run_coordinator(folder)
        rank = rank_of(folder, os.environ)
        if rank == folder.workers[0] and role != [AS_WORKER]:
            run_first(folder)
        else:
            run_worker(folder, rank, int(os.environ.get("LOCAL_RANK", "0")))
    except LabError as error:
        sys.stderr.write(f"dtfm_lab.runtime.hosted: {error}\n")
        sys.exit(1 if isinstance(error, RunError) else 2)


if __name__ == "__main__":
    main()
