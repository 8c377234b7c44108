"""A run on several hosts, started by torchrun: every process becomes a worker, the crew runs beside the first.

``torchrun ... -m dtfm_lab.runtime.hosted RUN_FOLDER`` on every host, as ``dtfm-lab export`` writes it. The first
process writes the crew's events to standard output and the measured trace into the run folder. Nobody replaces a
worker that is lost: torchrun ends its whole host, so the run ends, in one line.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, wait
from typing import NoReturn

from dtfm_lab.domain.errors import LabError, RunError
from dtfm_lab.files import save_trace
from dtfm_lab.runtime.client.record import Record
from dtfm_lab.runtime.multihost.export import RunFolder, load_run_folder
from dtfm_lab.runtime.multihost.rendezvous import Door, come_in, names_of

AS_CREW, AS_WORKER = "--crew", "--worker"
LEAVE_S = 10.0
"""for the first worker to leave when the crew has"""


def rank_of(folder: RunFolder, environment: Mapping[str, str]) -> int:
    """Which worker this process is; raises LabError where torchrun did not start it, or not as the folder says."""
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


def work(folder: RunFolder, rank: int, local_rank: int) -> NoReturn:
    """Be a worker until the crew says exit; ``local_rank`` counts the workers of this host."""
    from dtfm_lab.runtime.worker import worker  # with torch, which the first process does not need

    where = f"the crew at {folder.crew_address} port {folder.crew_port}"
    try:
        connection, own = come_in(folder.crew_address, folder.crew_port, bytes.fromhex(folder.spec.secret), rank)
    except AuthenticationError:
        raise RunError(f"{where} belongs to another run; wanted the same run folder on every host") from None
    except (OSError, EOFError) as error:
        raise RunError(f"{where}: {error or 'it hung up'}") from None
    worker.main(folder.spec, rank, connection, forked=False, host=own, local_rank=local_rank)
    raise AssertionError("a worker leaves its process")


def lead(folder: RunFolder) -> None:
    """Be the crew of workers that come from elsewhere; commands and events as ``runtime.crew`` has them."""
    from dtfm_lab.runtime.coordinator.coordinator import Crew
    from dtfm_lab.runtime.coordinator.worker_handle import Seat
    from dtfm_lab.runtime.coordinator.worker_pool import Failed
    from dtfm_lab.runtime.protocol.json_lines import KernelGone, StandardInput, tell

    spec = folder.spec
    commands, crew = StandardInput(), None
    came: dict[int, Connection] = {}

    def name(rank: int) -> str:
        return spec.device_name(*spec.workers[rank])

    def look() -> None:
        if wait([commands.fd], timeout=0):
            commands.read()  # raises KernelGone; there is nobody to obey yet

    def seat(rank: int) -> Seat:
        if rank not in came:
            raise Failed(f"worker {name(rank)} was lost, and nobody replaces it; wanted all hosts to start again")
        return Seat(rank, came.pop(rank), None)

    try:
        tell("starting", workers=len(spec.workers))
        door = Door(folder.crew_address, folder.crew_port, bytes.fromhex(spec.secret), len(spec.workers))
        came.update(door.all_workers(look))
        crew = Crew(spec, commands, seat)
        crew.run()
        tell("done")
    except KernelGone:
        with contextlib.suppress(OSError):
            tell("stopped")
    except TimeoutError as error:
        (missing,) = error.args
        tell("failed", message=f"workers did not come: {names_of(missing, name)}; wanted run.sh on every host")
    except (Failed, LabError, ConnectionError) as error:
        tell("failed", message=str(error))
    except OSError as error:
        tell("failed", message=f"port {folder.crew_port} cannot be held: {error.strerror or error}")
    finally:
        if crew is not None:
            crew.end()
    sys.stdout.flush()
    os._exit(0)  # threads wait for workers that will not come


def accompany(folder: RunFolder) -> None:
    """Start the crew and the first worker, pass the crew's events on, and keep the trace; raises RunError."""
    this = [sys.executable, "-m", "dtfm_lab.runtime.hosted"]
    record = Record(folder.spec)
    crew = subprocess.Popen(
        [*this, AS_CREW, str(folder.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    worker = subprocess.Popen([*this, AS_WORKER, str(folder.path)], stdin=subprocess.DEVNULL)
    try:
        assert crew.stdout is not None
        for line in crew.stdout:
            record.absorb(json.loads(line))
            sys.stdout.write(line)
            sys.stdout.flush()
        if record.running:
            raise RunError(f"the crew ended without a word, exit status {crew.wait()}")
        save_trace(record.trace(), folder.path / "measured.json")
        with contextlib.suppress(subprocess.TimeoutExpired):
            worker.wait(LEAVE_S)
    finally:
        crew.kill()
        worker.kill()


def main() -> None:
    """Exit status 0 done, 1 the run failed, 2 the input is wrong."""
    *role, path = sys.argv[1:] or [""]
    try:
        if len(role) > 1 or not path or (role and role[0] not in (AS_CREW, AS_WORKER)):
            raise LabError("wanted one argument: a run folder, as dtfm-lab export writes it")
        folder = load_run_folder(path)
        if role == [AS_CREW]:
            lead(folder)
        else:
            rank = rank_of(folder, os.environ)
            if rank == folder.workers[0] and role != [AS_WORKER]:
                accompany(folder)
            else:
                work(folder, rank, int(os.environ.get("LOCAL_RANK", "0")))
    except LabError as error:
        sys.stderr.write(f"dtfm_lab.runtime.hosted: {error}\n")
        sys.exit(1 if isinstance(error, RunError) else 2)


if __name__ == "__main__":
    main()
