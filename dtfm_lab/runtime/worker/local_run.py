"""The process of a run on this machine: it coordinates the workers, which are forks of itself.

``python -m dtfm_lab.runtime.worker.local_run`` reads a RunSpec as its first line of standard input, then commands, and
writes events as JSON lines. It loads torch once, which saves each worker the import; it computes nothing, because a
fork copies one thread only. The end of its input means that the client is gone: then every worker is killed.
"""

import gc
import multiprocessing
import os
import sys
from typing import Any

from dtfm_lab.runtime.coordinator.coordinator import lead
from dtfm_lab.runtime.coordinator.turn import await_turn
from dtfm_lab.runtime.coordinator.worker_handle import StartWorker, WorkerHandle
from dtfm_lab.runtime.protocol.corpus import Corpus
from dtfm_lab.runtime.protocol.json_lines import CommandReader
from dtfm_lab.runtime.protocol.run_spec import RunSpec


def forked_workers(spec: RunSpec) -> StartWorker:
    """Return a function that forks a worker from this process; where the system cannot fork, it spawns one."""
    from dtfm_lab.runtime.worker import worker  # torch

    forks = sys.platform == "linux"
    context: Any = multiprocessing.get_context("fork" if forks else "spawn")  # its class depends on the system
    # The text is opened once, so that every replacement trains on the same bytes, even if the file is replaced.
    corpus = Corpus.of(spec.text, spec.trained.modelled().seq_len).opened() if forks else None

    def start(rank: int) -> WorkerHandle:
        ours, theirs = context.Pipe()
        process = context.Process(target=worker.main, args=(spec, rank, theirs, corpus), daemon=True)
        process.start()
        theirs.close()
        return WorkerHandle(rank, ours, process)

    return start


def prepare_to_fork() -> None:
    """Load torch and all that a worker needs, so that forks of this process begin with as little work as possible."""
    import torch
    import torch.fx.experimental.symbolic_shapes  # autograd would load it in every worker, at the first backward

    import dtfm_lab.runtime.worker.worker  # noqa: F401

    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()  # the garbage collectors of the forks need not look through what was imported


def main() -> None:
    """Carry out one run; does not return."""
    commands = CommandReader()

    def starter(spec: RunSpec) -> StartWorker:
        await_turn(commands)  # and load torch, which takes memory, only then
        prepare_to_fork()
        return forked_workers(spec)

    lead(commands, lambda: RunSpec.from_line(commands.first_line()), starter)
    os._exit(0)  # unloading torch takes time


if __name__ == "__main__":
    main()
