"""One worker process: does what the crew orders, one order after the other, and can be called back from any of them."""

from __future__ import annotations

import gc
import hashlib
import json
import os
import queue
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch

from dtfm_lab.domain.schedule import Action, Kind
from dtfm_lab.runtime.gpu import nccl
from dtfm_lab.runtime.protocol.connections import MessageConnection
from dtfm_lab.runtime.protocol.corpus import Corpus
from dtfm_lab.runtime.protocol.profile import ComputeLog
from dtfm_lab.runtime.protocol.run_spec import RunSpec
from dtfm_lab.runtime.worker.autograd_stage import Batch
from dtfm_lab.runtime.worker.batches import TextBatches
from dtfm_lab.runtime.worker.clocks import Clock, PacedClock, RealClock, VirtualClock
from dtfm_lab.runtime.worker.device_math import DeviceMath
from dtfm_lab.runtime.worker.execute import AT_ONCE, Executor
from dtfm_lab.runtime.worker.peer_listener import PeerListener
from dtfm_lab.runtime.worker.processors import make_processor
from dtfm_lab.runtime.worker.reporter import Reporter
from dtfm_lab.runtime.worker.transport import Aborted, SocketTransport

STATE = Action(0, Kind.RECV_P)
"""names the message in which a replacement gets parameters and optimiser"""


class Worker:
    """``obey`` runs on the main thread; ``listen`` on one of its own, so that what cannot wait does not."""

    def __init__(
        self,
        spec: RunSpec,
        rank: int,
        connection: MessageConnection,
        report: Reporter,
        host: str,
        local_rank: int,
        corpus: Corpus | None,
    ) -> None:
        self._spec, self._rank, self._connection, self._report = spec, rank, connection, report
        self._position, self._replica = spec.workers[rank]
        self._orders: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._transport: SocketTransport | None = None
        self._executor: Executor | None = None
        self._math: DeviceMath | None = None
        self._slowdown = 1.0
        self._obeys = False
        report.works = self._works
        self._lock = threading.Lock()
        self._epoch = 0
        """of the newest order to join; what was ordered before it counts no more"""
        self._listener = PeerListener(host, spec.secret)
        self._processor = make_processor(spec.runs_on, local_rank, shares=spec.clock != "real")
        self._log = ComputeLog()
        job = spec.trained
        self._batches = TextBatches(
            spec.text if corpus is None else corpus, job.modelled().seq_len, job.global_batch, spec.seed
        )

    def listen(self) -> None:
        """Queue orders; those that cannot wait are followed at once."""
        while True:
            try:
                order = json.loads(self._connection.recv_bytes())
            except (EOFError, OSError):
                os._exit(1)  # the crew is gone
            match order["do"]:
                case "slow":
                    self._slowdown = order["factor"]
                    if self._executor is not None:
                        self._executor.slowdown = self._slowdown
                    continue
                case "exit":
                    os._exit(0)
                case "join":
                    with self._lock:
                        self._epoch = order["epoch"]
                        if self._transport is not None:
                            self._transport.abort()
            self._orders.put(order)

    def obey(self) -> NoReturn:
        """Follow orders, one after the other; the last is to exit, which ``listen`` hears."""
        self._report.event("listening", address=list(self._listener.address), torch=torch.__version__)
        while True:
            order = self._orders.get()
            if order["epoch"] < self._epoch:
                continue
            self._obeys = True
            try:
                answer = getattr(self, f"_{order['do']}")(order)
                self._report.event(order["do"], epoch=order["epoch"], **answer)
            except Aborted:  # the order to join anew is on its way
                continue
            except ConnectionError as error:  # the crew knows, or will, who is gone
                self._report.event("broken", epoch=order["epoch"], message=str(error))
            finally:
                self._obeys = False

    def _offer(self, order: dict[str, Any]) -> dict[str, Any]:
        """What the other ends of this worker's pairs need to meet it from GPU to GPU."""
        if not nccl.available():
            return {"gpu": None, "ids": []}
        into = {*self._spec.targets(self._position, self._replica), *order["gives_state_to"]}
        ids = [[*pair, fresh.hex()] for pair, fresh in nccl.fresh_ids(self._rank, sorted(into)).items()]
        return {"gpu": str(torch.cuda.get_device_properties(self._processor.device).uuid), "ids": ids}

    def _join(self, order: dict[str, Any]) -> dict[str, Any]:
        """Connect to everyone anew; go back to where the run goes on, or get what is there from another."""
        spec, rank = self._spec, self._rank
        self._report.begin_epoch(order["epoch"])
        gives, takes = order["gives_state_to"], order["takes_state_from"]
        into = {*spec.targets(self._position, self._replica), *gives}
        out_of = {*spec.sources(self._position, self._replica), *([] if takes is None else [takes])}
        ids = {(source, target): bytes.fromhex(id) for source, target, id in order["ids"]}
        pairs = nccl.NcclPairs(rank, ids, self._processor.device) if ids else None
        addresses = {target: tuple(order["addresses"][target]) for target in into}
        with self._lock:
            if order["epoch"] < self._epoch:
                raise Aborted
            self._transport = SocketTransport(
                self._listener, spec.secret, order["epoch"], rank, sorted(out_of), addresses, self._processor, pairs
            )
        self._transport.stand()
        if self._executor is not None:
            self._executor.joins(self._transport)
        if order["train"] is not None and self._math is None:
            self._train(order["train"])
        version, math = order["version"], self._math
        if version is None or math is None:
            return {}
        math.abandon()
        if order["checkpoint"] is not None:
            self._read_checkpoint(order["checkpoint"], version)
        elif takes is not None:
            math.state.take(self._transport.receive(version, STATE).payload, version)
        else:
            math.state.go_back_to(version)
        for other in gives:
            self._transport.send(other, version, STATE, math.state.to_bytes(), lambda: AT_ONCE, lambda _: None)
        self._transport.flush()
        return {}

    def _calibrate(self, order: dict[str, Any]) -> dict[str, Any]:
        """An iteration on a copy of the stages, for its times."""
        if order["first"]:
            self._log.clear()
            self._build(VirtualClock(), {}, lambda span: None)
        self._log.counts = order["counts"]
        self._iteration(order)
        return {}

    def _profile(self, order: dict[str, Any]) -> dict[str, Any]:
        self._log.counts = False
        rows = [[*work, *m] for work, m in self._log.measured().items()]
        self._executor = self._math = None
        gc.collect()  # or what was rehearsed on, which refers to itself, stays in memory during the run
        return {"rows": rows}

    def _train(self, order: dict[str, Any]) -> dict[str, Any]:
        """Make the stages that will be trained."""
        drawn_s = {(stage, Kind(kind)): seconds for stage, kind, seconds in order["drawn_s"]}
        self._build(self._new_clock(order["time_scale"]), drawn_s, self._report.span)
        if self._spec.resume_from is not None:
            self._read_checkpoint(self._spec.resume_from, self._spec.first_iteration)
        return {}

    def _iterate(self, order: dict[str, Any]) -> dict[str, Any]:
        clock = self._clock
        late_before, over_before = clock.late_messages, clock.overruns
        loss = self._iteration(order)
        assert self._math is not None
        self._math.state.version = order["iteration"] + 1
        return {
            "loss": loss if self._math.holds_last else None,
            "late_messages": clock.late_messages - late_before,
            "overruns": clock.overruns - over_before,
        }

    def _evaluate(self, order: dict[str, Any]) -> dict[str, Any]:
        assert self._executor is not None
        assert self._math is not None
        job = self._spec.trained
        batch = self._batches.held_out(self._replica, job.n_replicas, job.n_microbatches)
        loss = self._executor.evaluate(order["number"], self._here(batch))
        return {"loss": loss if self._math.holds_last else None, "unigram_entropy": self._batches.unigram_entropy}

    def _checkpoint(self, order: dict[str, Any]) -> dict[str, Any]:
        from dtfm_lab.runtime.worker.checkpoint_tensors import write  # safetensors is loaded where it is used

        assert self._math is not None
        if self._replica == 0 or self._spec.plan.job.synchronise_every > 1:
            write(Path(order["folder"]), self._math.modules, self._math.state, self._replica)
        return {}

    def _leave(self, order: dict[str, Any]) -> dict[str, Any]:
        assert self._math is not None
        arrays = {
            stage: {name: p.detach().cpu().numpy() for name, p in module.named_parameters()}
            for stage, module in self._math.modules.items()
        }
        every = [np.ascontiguousarray(a).tobytes() for own in arrays.values() for a in own.values()]
        if self._spec.parameters_folder is not None and self._replica == 0:
            for stage, own in arrays.items():
                np.savez(Path(self._spec.parameters_folder) / f"stage-{stage}.npz", **own)
        return {"sha256": hashlib.sha256(b"".join(every)).hexdigest()}

    def _build(self, clock: Clock, drawn_s: dict[tuple[int, Kind], float], note: Any) -> None:
        assert self._transport is not None
        self._clock = clock
        self._math = DeviceMath(self._spec, self._position, self._replica, self._processor.device)
        self._executor = Executor(
            self._spec,
            self._position,
            self._replica,
            self._math,
            self._transport,
            clock,
            drawn_s,
            note,
            self._log,
            self._processor,
        )
        self._executor.slowdown = self._slowdown

    def _iteration(self, order: dict[str, Any]) -> float:
        assert self._executor is not None
        job, iteration = self._spec.trained, order["iteration"]
        batch = self._batches.share(max(iteration, 0), self._replica, job.n_replicas, job.n_microbatches)
        return self._executor.iteration(iteration, self._here(batch), order["began_monotonic_s"])

    def _new_clock(self, time_scale: float) -> Clock:
        match self._spec.clock:
            case "virtual":
                return VirtualClock()
            case "paced":
                return PacedClock(time_scale, self._look_up)
        return RealClock(self._look_up)

    def _look_up(self) -> None:
        """From a long sleep: raises Aborted where the run goes on without what this is for."""
        if self._transport is not None and self._transport.aborted:
            raise Aborted

    def _works(self) -> bool:
        return self._obeys and not (self._transport is not None and self._transport.waits)

    def _write(self, order: dict[str, Any]) -> dict[str, Any]:
        """What the model of a checkpoint writes; one worker is enough for that."""
        if self._rank:
            return {}
        from dtfm_lab.runtime.worker.generation import model_of, write

        model, job = model_of(order["folder"])
        n_bytes, seed = self._spec.sample_bytes, self._spec.seed
        return {"text": write(model, job.modelled().seq_len, order["prompt"], n_bytes, seed=seed)}

    def _here(self, batch: Batch) -> Batch:
        device = self._processor.device
        return [(inputs.to(device), targets.to(device)) for inputs, targets in batch]

    def _read_checkpoint(self, folder: str, version: int) -> None:
        from dtfm_lab.runtime.worker.checkpoint_tensors import read

        assert self._math is not None
        read(Path(folder), self._math.modules, self._math.state, self._replica)
        self._math.state.gradients.zero_()
        self._math.state.version = version


def main(
    spec: RunSpec,
    rank: int,
    connection: MessageConnection,
    corpus: Corpus | None = None,
    *,
    forked: bool = True,
    host: str = "127.0.0.1",
    local_rank: int | None = None,
) -> None:
    """Body of the process; leaves by ``os._exit``, because threads that wait for a peer cannot be joined.

    Parameters
    ----------
    corpus
        The text, where it is open already.
    forked
        By the crew, and to end with it; on another host, the end of the connection says that.
    host
        Where others reach this worker.
    local_rank
        Among the workers of this machine, for sharing out its GPUs; ``rank`` where all are here.
    """
    if forked:
        threading.Thread(target=_leave_with_the_crew, args=(os.getppid(),), daemon=True).start()
    report = Reporter(connection, rank)
    status = 0
    try:
        torch.set_num_threads(1)
        worker = Worker(spec, rank, connection, report, host, rank if local_rank is None else local_rank, corpus)
        threading.Thread(target=worker.listen, daemon=True).start()
        worker.obey()
    except BaseException as error:
        traceback.print_exc()
        report.event("error", message=f"{type(error).__name__}: {error}")
        status = 1
    sys.stderr.flush()
    os._exit(status)


def _leave_with_the_crew(crew: int) -> None:
    """A crew that was killed cannot tell us; having another parent does."""
    while os.getppid() == crew:
        time.sleep(0.2)
    os._exit(1)
