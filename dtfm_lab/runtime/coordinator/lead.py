"""One run from its specification to its last event."""

import contextlib
from collections.abc import Callable

from dtfm_lab.domain.errors import LabError
from dtfm_lab.runtime.coordinator.coordinator import Coordinator
from dtfm_lab.runtime.coordinator.worker_handle import StartWorker
from dtfm_lab.runtime.coordinator.worker_pool import RunFailed
from dtfm_lab.runtime.protocol.processes import CommandReader, InputClosed, emit
from dtfm_lab.runtime.protocol.run_options import RunSpec


def lead(
    commands: CommandReader,
    read_spec: Callable[[], RunSpec],
    starter: Callable[[RunSpec], StartWorker],
    on_end: Callable[[int, str], None] = lambda status, why: None,
) -> None:
    """Carry out one run and report how it ended: done, stopped or failed.

    ``starter`` is called after the first event is emitted, and may wait for workers of other hosts. ``on_end`` is
    called with an exit status, and the reason if it is not 0, while the workers still exist.
    """
    coordinator = None
    status, why = 1, "the coordinator broke down"
    try:
        spec = read_spec()
        emit("starting", workers=len(spec.workers))
        coordinator = Coordinator(spec, commands, starter(spec))
        coordinator.run()
        status, why = 0, ""
        emit("done")
    except InputClosed:
        why = "the run was stopped"
        with contextlib.suppress(OSError):  # the client may be gone
            emit("stopped")
    except (RunFailed, LabError) as error:
        why = str(error)
        emit("failed", message=why)
    finally:
        on_end(status, why)
        if coordinator is not None:
            coordinator.end()
