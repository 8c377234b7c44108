"""A run on several hosts: on each, torchrun's agent starts one process a worker, and the first's a coordinator, too.

``torchrun ... -m dtfm_lab.runtime.hosted RUN_FOLDER --host NAME``, as ``dtfm-lab export`` writes it into ``run.sh``.
The coordinator writes events to standard output and the measured trace into the run folder. A worker that is lost is
started again by its host's agent, or by a person; it takes its rank again and gets its state from a replica or a
checkpoint. A coordinator that is lost begins again at the newest checkpoint in the run's folder.
"""

import contextlib
import json
import os
import select
import signal
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, TextIO

from dtfm_lab.domain.errors import LabError, RunError
from dtfm_lab.files import save_trace
from dtfm_lab.runtime.client.record import RunRecord
from dtfm_lab.runtime.coordinator.coordinator import lead
from dtfm_lab.runtime.coordinator.worker_handle import StartWorker
from dtfm_lab.runtime.multihost.export import RunFolder, load_run_folder
from dtfm_lab.runtime.multihost.joining import RunOver, join_run
from dtfm_lab.runtime.multihost.rendezvous import Rendezvous
from dtfm_lab.runtime.protocol import checkpoint_folders
from dtfm_lab.runtime.protocol.agent_notes import agent, note
from dtfm_lab.runtime.protocol.connections import ConnectionLost, Refused
from dtfm_lab.runtime.protocol.corpus import Corpus
from dtfm_lab.runtime.protocol.json_lines import InputClosed
from dtfm_lab.runtime.protocol.processes import exit_with_parent
from dtfm_lab.runtime.protocol.run_spec import RunSpec


def rank_of(folder: RunFolder, host: str, environment: Mapping[str, str]) -> int:
    """Return the rank of the worker that this process is.

    Raises LabError if torchrun did not start it, or started another number of processes than the host has workers.
    """
    if host not in folder.hosts:
        raise LabError(f"no host named {host} in {folder.path.name}; wanted one of {', '.join(folder.hosts)}")
    workers = folder.hosts[host]
    try:
        rank, size = int(environment["LOCAL_RANK"]), int(environment["LOCAL_WORLD_SIZE"])
    except (KeyError, ValueError):
        raise LabError(f"LOCAL_RANK is not set; wanted torchrun to start this: hosts/{host}/run.sh") from None
    if size != len(workers) or not 0 <= rank < size or environment.get("GROUP_WORLD_SIZE", "1") != "1":
        raise LabError(
            f"process {rank} of {size} was started, but host {host} has {len(workers)} workers and an agent of its "
            f"own; wanted hosts/{host}/run.sh as it stands"
        )
    return workers[rank]


def run_worker(folder: RunFolder, host: str) -> NoReturn:
    """Be a worker until the coordinator orders the exit."""
    rank, local_rank = rank_of(folder, host, os.environ), int(os.environ["LOCAL_RANK"])
    from dtfm_lab.runtime.worker import worker  # imports torch, which the coordinator does without

    where, spec = f"the coordinator at {folder.address} port {folder.port}", folder.spec
    try:
        joined = join_run(
            folder.address,
            folder.port,
            spec.secret,
            rank,
            host,
            await_s=folder.await_s,
            silent_s=folder.silent_s,
            certificates=folder.certificates,
        )
    except Refused as error:
        raise RunError(f"{where} belongs to another run ({error}); wanted the same run folder on every host") from None
    except ConnectionLost as error:
        raise RunError(f"{where} {error}") from None
    except (OSError, EOFError):
        sys.exit(1)  # the coordinator was lost just then, and may come back
    note(joined=rank)

    def leave(order: dict[str, Any]) -> int:
        status, why = int(order.get("status", 0)), str(order.get("why", ""))
        note(end=[status, why])
        with contextlib.suppress(OSError):  # the coordinator does not wait for ever to hear it
            joined.connection.send_bytes(json.dumps({"event": "exits", "rank": rank}).encode())
        return status

    spec = replace(spec, **joined.changes)
    if spec.parameters_folder is not None:
        Path(spec.parameters_folder).mkdir(parents=True, exist_ok=True)
    worker.main(
        spec,
        rank,
        joined.connection,
        host=joined.own_address,
        local_rank=local_rank,
        clock_offset_s=joined.clock.offset_s,
        certificates=folder.certificates,
        on_exit=leave,
    )
    raise AssertionError("a worker exits its process")


class Interrupts:
    """The commands of a run that nobody but Ctrl-C commands: it ends the run on all hosts."""

    def __init__(self) -> None:
        self.fd, write = os.pipe()
        signal.signal(signal.SIGINT, lambda *_: os.write(write, b"!"))

    def poll(self) -> None:
        """Raise InputClosed after an interrupt."""
        if select.select([self.fd], [], [], 0)[0]:
            raise InputClosed

    def read(self) -> list[dict[str, Any]]:
        raise InputClosed

    def complete(self) -> list[dict[str, Any]]:
        return []


class RecordedOutput:
    """Standard output that also records the events that are written to it."""

    def __init__(self, record: RunRecord, output: TextIO) -> None:
        self._record, self._output = record, output

    def write(self, line: str) -> int:
        self._record.absorb(json.loads(line))
        return self._output.write(line)

    def flush(self) -> None:
        self._output.flush()


def run_coordinator(folder: RunFolder) -> NoReturn:
    """Coordinate workers that connect from their hosts, and save the trace."""
    commands = Interrupts()
    spec = resumed(folder.spec)
    record = RunRecord(spec)
    sys.stdout = RecordedOutput(record, sys.stdout)
    rendezvous: list[Rendezvous] = []

    def starter(spec: RunSpec) -> StartWorker:
        changes = {name: getattr(spec, name) for name in ("resume_from", "first_iteration", "iterations")}
        rendezvous.append(
            Rendezvous(
                folder.address,
                folder.port,
                spec.secret,
                [spec.device_name(*where) for where in spec.workers],
                poll=commands.poll,
                changes=changes,
                shared_folder=spec.checkpoint_folder,
                await_s=folder.await_s,
                silent_s=folder.silent_s,
                certificates=folder.certificates,
            )
        )
        return rendezvous[0].start

    def end(status: int, why: str) -> None:
        note(end=[status, why])
        try:
            if status == 0:
                save_trace(record.trace(), folder.path / "measured.json")
        finally:
            for one in rendezvous:
                one.finish(status, why)

    lead(commands, lambda: spec, starter, end)
    os._exit(0 if record.status == "done" else 1)  # threads may wait for workers that will not connect


def main() -> None:
    """Exit with status 0 where the run is done, 1 where it failed, 2 where the input is wrong."""
    exit_with_parent(agent())
    try:
        match sys.argv[1:]:
            case ["--coordinator", path]:
                run_coordinator(load_run_folder(path))
            case [path, "--host", host]:
                run_worker(load_run_folder(path), host)
        raise LabError("wanted RUN_FOLDER --host NAME, as dtfm-lab export writes it into hosts/NAME/run.sh")
    except RunOver as over:
        note(end=[over.status, str(over)])
        sys.exit(over.status)
    except LabError as error:
        status = 1 if isinstance(error, RunError) else 2
        if os.environ.get("LOCAL_RANK") is None:
            sys.stderr.write(f"dtfm_lab.runtime.hosted: {error}\n")
        note(end=[status, str(error)])
        sys.exit(status)


def resumed(spec: RunSpec) -> RunSpec:
    """Return the spec of the iterations that are left. Raises LabError for a checkpoint of another run."""
    if spec.checkpoint_folder is None:
        return spec
    folder = Path(spec.checkpoint_folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LabError(f"checkpoint_folder {folder}: cannot be made: {error.strerror or error}") from None
    if (newest := checkpoint_folders.latest(folder)) is None or newest.iteration <= spec.first_iteration:
        return spec
    corpus = Corpus.of(spec.text, spec.trained.modelled().seq_len)
    notes = checkpoint_folders.resumable(
        newest, spec.trained, seed=spec.seed, learning_rate=spec.learning_rate, corpus=corpus
    )
    if notes:
        raise LabError(f"checkpoint_folder {folder} is of another run: {notes[0]}; wanted another folder")
    last = spec.first_iteration + spec.iterations
    if newest.iteration >= last:
        raise LabError(
            f"checkpoint_folder {folder} holds iteration {newest.iteration}, and the run ends with {last}; wanted more "
            f"iterations, or another folder"
        )
    left = last - newest.iteration
    return replace(spec, resume_from=os.fspath(newest.folder), first_iteration=newest.iteration, iterations=left)


if __name__ == "__main__":
    main()
