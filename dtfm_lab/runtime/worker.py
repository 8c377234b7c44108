"""One worker process: joins the others, profiles its stage, then trains it iteration by iteration."""

from __future__ import annotations

import datetime
import gc
import hashlib
import json
import os
import sys
import threading
import time
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from dtfm_lab.domain.schedule import Kind
from dtfm_lab.domain.trace import Span
from dtfm_lab.runtime.clocks import Clock, PacedClock, RealClock, VirtualClock
from dtfm_lab.runtime.device_math import DeviceMath
from dtfm_lab.runtime.execute import Executor
from dtfm_lab.runtime.incoming import incoming, targets
from dtfm_lab.runtime.profile import REHEARSALS, ComputeLog
from dtfm_lab.runtime.spec import RunSpec
from dtfm_lab.runtime.text import TextBatches
from dtfm_lab.runtime.transport import GlooTransport

REPORT_EVERY_S = 0.05
"""spans travel in batches: often enough to be watched, seldom enough not to disturb"""
GLOO_TIMEOUT = datetime.timedelta(hours=1)
"""the crew notices a dead worker long before; this only bounds a forgotten machine"""


class Reporter:
    """Events to the crew, spans in batches; called from the computing thread and sender threads."""

    def __init__(self, connection: Connection, rank: int) -> None:
        self._connection, self._rank = connection, rank
        self._lock = threading.Lock()
        self._rows: list[list[Any]] = []
        self._last_s = 0.0

    def event(self, event: str, **values: Any) -> None:
        with self._lock:
            self._flush()
            self._write({"event": event, "rank": self._rank, **values})

    def span(self, span: Span) -> None:
        with self._lock:
            self._rows.append([span.iteration, span.replica, list(span.action), span.start_s, span.end_s])
            if time.monotonic() - self._last_s > REPORT_EVERY_S:
                self._flush()

    def _flush(self) -> None:
        if self._rows:
            self._write({"event": "spans", "rank": self._rank, "rows": self._rows})
            self._rows, self._last_s = [], time.monotonic()

    def _write(self, values: dict[str, Any]) -> None:
        self._connection.send_bytes(json.dumps(values).encode())


def main(spec: RunSpec, rank: int, connection: Connection) -> None:
    """Body of the process; leaves by ``os._exit``, because gloo's threads cannot be joined once a peer is gone."""
    threading.Thread(target=_leave_with_the_crew, args=(os.getppid(),), daemon=True).start()
    report = Reporter(connection, rank)
    status = 0
    try:
        _work(spec, rank, connection, report)
    except BaseException as error:
        traceback.print_exc()
        report.event("error", message=f"{type(error).__name__}: {error}")
        status = 1
    sys.stderr.flush()
    os._exit(status)


def _work(spec: RunSpec, rank: int, connection: Connection, report: Reporter) -> None:
    torch.set_num_threads(1)
    position, replica = spec.workers[rank]
    _join(connection.recv()["port"], rank, len(spec.workers))
    report.event("ready", torch=torch.__version__)

    job = spec.plan.job
    batches = TextBatches(spec.text, job.modelled().seq_len, job.global_batch, spec.seed)
    copy = DeviceMath(spec, position, replica)
    expected = incoming(spec, position, replica, copy.flat.parameters.numel())
    iterations = range(-REHEARSALS, spec.iterations)
    transport = GlooTransport(expected, targets(spec, position, replica), iterations)
    log = ComputeLog()

    def play(executor: Executor, order: dict[str, Any]) -> float:
        batch = batches.share(max(order["iteration"], 0), replica, job.n_replicas, job.n_microbatches)
        return executor.iteration(order["iteration"], batch, order["began_monotonic_s"])

    rehearsal = Executor(spec, position, replica, copy, transport, VirtualClock(), {}, lambda span: None, log)
    for _ in range(REHEARSALS):
        play(rehearsal, connection.recv())
        report.event("rehearsed")
    report.event("profiled", rows=[[*work, *m] for work, m in log.measured().items()])
    del copy, rehearsal
    gc.collect()  # or what was rehearsed on, which refers to itself, stays in memory during the run

    train = connection.recv()
    drawn_s = {(stage, Kind(kind)): seconds for stage, kind, seconds in train["drawn_s"]}
    clock = _clock(spec.clock, train["time_scale"])
    math = DeviceMath(spec, position, replica)
    executor = Executor(spec, position, replica, math, transport, clock, drawn_s, report.span, log)
    report.event("built")
    for _ in range(spec.iterations):
        order = connection.recv()
        loss = play(executor, order)
        report.event(
            "finished",
            loss=loss if math.holds_last else None,
            late_messages=clock.late_messages,
            overruns=clock.overruns,
        )
    _leave_parameters(spec, replica, math, report)
    dist.barrier()  # nobody closes a connection while another still reads from it
    report.event("left")


def _join(port: int, rank: int, n_workers: int) -> None:
    if sys.platform == "linux":
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"  # loopback only; gloo would look up the host's name
    store = dist.TCPStore("127.0.0.1", port, n_workers, is_master=False, timeout=GLOO_TIMEOUT)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=n_workers, timeout=GLOO_TIMEOUT)


def _clock(name: str, time_scale: float) -> Clock:
    match name:
        case "virtual":
            return VirtualClock()
        case "paced":
            return PacedClock(time_scale)
    return RealClock()


def _leave_parameters(spec: RunSpec, replica: int, math: DeviceMath, report: Reporter) -> None:
    arrays = {
        stage: {name: p.detach().numpy() for name, p in module.named_parameters()}
        for stage, module in math.modules.items()
    }
    every = [np.ascontiguousarray(a).tobytes() for own in arrays.values() for a in own.values()]
    if spec.parameters_folder is not None and replica == 0:
        for stage, own in arrays.items():
            np.savez(Path(spec.parameters_folder) / f"stage-{stage}.npz", **own)
    report.event("parameters", sha256=hashlib.sha256(b"".join(every)).hexdigest())


def _leave_with_the_crew(crew: int) -> None:
    """A crew that was killed cannot tell us; having another parent does."""
    while os.getppid() == crew:
        time.sleep(0.2)
    os._exit(1)
