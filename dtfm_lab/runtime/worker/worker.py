"""One worker process. It carries out the coordinator's orders one by one, and can be interrupted in any of them."""

import gc
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import torch

from dtfm_lab.domain.errors import FileError
from dtfm_lab.domain.schedule import Action, Kind
from dtfm_lab.domain.trace import Span
from dtfm_lab.runtime.protocol import orders
from dtfm_lab.runtime.protocol.channels import MessageConnection
from dtfm_lab.runtime.protocol.checkpoint_folders import digest_of
from dtfm_lab.runtime.protocol.corpus import Corpus
from dtfm_lab.runtime.protocol.processes import exit_with_parent
from dtfm_lab.runtime.protocol.run_options import RunSpec
from dtfm_lab.runtime.worker.autograd_stage import Batch
from dtfm_lab.runtime.worker.batches import batches_of
from dtfm_lab.runtime.worker.clocks import Clock, VirtualClock, clock_of
from dtfm_lab.runtime.worker.device_math import DeviceMath
from dtfm_lab.runtime.worker.execute import ProgramExecutor
from dtfm_lab.runtime.worker.own_host import ALONE, OwnHost
from dtfm_lab.runtime.worker.processors import keep_freed_memory, make_processor
from dtfm_lab.runtime.worker.reporter import ComputeLog, Reporter
from dtfm_lab.runtime.worker.transport import Aborted, PeerListener, Transport

COMPUTING = (orders.Calibrate, orders.Iterate, orders.Evaluate, orders.Write)
"""Orders without a time limit as a whole. Each of their computations has one, except for ``Write``, which takes as long
as the text that the user asked for."""
STATE = Action(0, Kind.RECV_P)
"""The receive action of the message that brings a replacement its training state."""

Answer = dict[str, Any]


def main(
    spec: RunSpec, rank: int, connection: MessageConnection, corpus: Corpus | None = None, host: OwnHost = ALONE
) -> None:
    """Run the worker process. It ends with ``os._exit``, because threads that wait for a peer cannot be joined.

    ``corpus`` is the training text, if it has been opened already.
    """
    exit_with_parent()
    report = Reporter(connection, rank)
    status = 0
    try:
        torch.set_num_threads(1)
        keep_freed_memory()
        worker = Worker(spec, rank, connection, report, corpus or spec.corpus, host)
        threading.Thread(target=worker.receive_orders, daemon=True).start()
        worker.follow_orders()
    except BaseException as error:
        traceback.print_exc()
        report.event("error", message=f"{type(error).__name__}: {error}")
        status = 1
    sys.stderr.flush()
    os._exit(status)


class Worker:
    """Carries out orders (``protocol.orders``) and answers each with an event of the same name.

    ``follow_orders`` runs on the main thread, ``receive_orders`` on another, so that urgent orders do not wait.
    """

    def __init__(
        self,
        spec: RunSpec,
        rank: int,
        connection: MessageConnection,
        report: Reporter,
        corpus: Corpus,
        host: OwnHost,
    ) -> None:
        self._spec, self._rank, self._connection, self._report = spec, rank, connection, report
        self._position, self._replica = spec.workers[rank]
        self._orders: queue.SimpleQueue[tuple[orders.InTurn, int]] = queue.SimpleQueue()
        self._transport: Transport | None = None
        self._executor: ProgramExecutor | None = None
        self._kept: DeviceMath | None = None
        """The stages of the previous executor, with which the next one continues."""
        self._slowdown = 1.0
        self._has_order = False
        report.is_busy = self._is_busy
        self._lock = threading.Lock()
        self._epoch = 0
        """Number of the newest ``Join``, ``HandOver`` or ``Become`` order. Orders of earlier epochs are ignored."""
        self._host = host
        self._listener = PeerListener(host.address, spec.secret, host.certificates)
        local_rank = rank if host.local_rank is None else host.local_rank
        self._processor = make_processor(spec.runs_on, local_rank, shares=spec.clock != "real")
        self._carrier = None
        if spec.uses_groups:
            from dtfm_lab.runtime.worker.group_pairs import make_carrier  # imports torch.distributed

            self._carrier = make_carrier(spec, self._listener.address[0], self._processor)
        self._log = ComputeLog()
        job = spec.trained
        self._corpus, self._batches = corpus, batches_of(job, corpus, spec.seed)

    def receive_orders(self) -> None:
        """Queue the coordinator's orders, and carry out at once those that cannot wait."""
        while True:
            try:
                order, epoch = orders.from_line(self._connection.recv_bytes())
            except (EOFError, OSError):
                os._exit(1)  # the coordinator is gone
            except ValueError as error:
                self._report.event("error", message=str(error))
                os._exit(1)
            match order:
                case orders.Slow():
                    self._slowdown = order.factor
                    if self._executor is not None:
                        self._executor.slowdown = self._slowdown
                    continue
                case orders.Exit():
                    os._exit(self._host.on_exit(order))
                case orders.Calibrate() | orders.Iterate():
                    # moments are given by the coordinator's clock; another host's clock differs
                    began_s = order.began_monotonic_s + self._host.clock_offset_s()
                    order = replace(order, began_monotonic_s=began_s)
                case orders.Join() | orders.HandOver() | orders.Become():
                    with self._lock:
                        self._epoch = epoch
                        if self._transport is not None:
                            self._transport.abort()
            self._orders.put((order, epoch))

    def follow_orders(self) -> NoReturn:
        """Carry out queued orders one after the other. The process ends in ``receive_orders``."""
        self._report.event("listening", address=list(self._listener.address), torch=torch.__version__)
        while True:
            order, epoch = self._orders.get()
            # a newer order to join has made it void
            if epoch < self._epoch:
                continue
            self._has_order = True
            try:
                with self._report.activity.of(None if isinstance(order, COMPUTING) else order.do):
                    answer = self._carry_out(order, epoch)
                self._report.event(order.do, epoch=epoch, **answer)
            except Aborted:  # an order to join again is queued
                continue
            except ConnectionError as error:  # the coordinator finds out which worker is lost
                self._report.event("broken", epoch=epoch, message=str(error))
            finally:
                self._has_order = False

    def _carry_out(self, order: orders.InTurn, epoch: int) -> Answer:
        """Carry out the order and return the values of the answer."""
        match order:
            case orders.Join():
                return self._join(order, epoch)
            case orders.HandOver():
                return self._hand_over(order, epoch)
            case orders.Become():
                return self._become(order)
            case orders.Calibrate():
                return self._calibrate(order)
            case orders.Profile():
                return self._profile()
            case orders.Train():
                return self._train(order)
            case orders.Iterate():
                return self._iterate(order)
            case orders.Evaluate():
                return self._evaluate(order)
            case orders.WriteCheckpoint():
                return self._checkpoint(order)
            case orders.Write():
                return self._write(order)
            case orders.Leave():
                return self._leave()

    def _join(self, order: orders.Join, epoch: int) -> Answer:
        """Make all connections again, and bring the training state to the version from which the run continues."""
        self._report.begin_epoch(epoch)
        transport = self._connect(order, epoch)
        if self._executor is not None:
            self._executor.transport = transport
        elif order.train is not None:
            self._train(order.train)
        version = order.version
        if version is None or self._executor is None:
            return {}
        math = self._executor.math
        math.discard()
        if order.checkpoint is not None:
            self._read_checkpoint(order.checkpoint, version)
        elif order.takes_state_from is not None:
            math.state.load_bytes(transport.receive(version, STATE).content, version)
        else:
            math.state.roll_back_to(version)
        for other in order.gives_state_to:
            transport.send(other, version, STATE, math.state.to_bytes())
        transport.flush()
        return {}

    def _hand_over(self, order: orders.HandOver, epoch: int) -> Answer:
        """Write this worker's tensors for a new plan, as they were after ``order.version`` iterations."""
        from dtfm_lab.runtime.worker.checkpoint_tensors import write

        self._report.begin_epoch(epoch)
        math = self._kept or self._current_executor.math
        math.discard()
        math.state.roll_back_to(order.version)
        if order.writes:
            try:
                write(Path(order.folder), math.modules, math.state, self._replica if order.each else 0)
            except (OSError, FileError) as error:
                return {"unwritten": str(error)}
        return {"unwritten": ""}

    def _become(self, order: orders.Become) -> Answer:
        """Take a rank in a new plan, and drop the training state, which has been handed over.

        With ``keeps``, the plan is the same without some devices, and the stages are kept as they were in that version.
        """
        math, self._kept = self._kept if self._executor is None else self._executor.math, None
        if math is not None and order.keeps is not None:
            math.discard()
            math.state.roll_back_to(order.keeps)
            self._kept = math
        spec = self._spec = RunSpec.from_line(order.spec)
        self._rank = self._report.rank = order.own_rank
        self._position, self._replica = spec.workers[self._rank]
        self._transport = self._executor = None
        self._log = ComputeLog()
        job = spec.trained
        self._batches = batches_of(job, self._corpus, spec.seed)
        gc.collect()
        return {}

    def _calibrate(self, order: orders.Calibrate) -> Answer:
        """Run an iteration on a copy of the stages to measure its computations."""
        if order.first:
            self._log.clear()
            self._build(VirtualClock(), {}, lambda span: None)
        self._log.counts = order.counts
        if self._spec.clock == "real":  # all workers begin at the same moment, as in the run
            time.sleep(max(0.0, order.began_monotonic_s - time.monotonic()))
        self._run_iteration(order)
        return {"took_s": time.monotonic() - order.began_monotonic_s}

    def _profile(self) -> Answer:
        """Return the times measured in calibration, and free its stages."""
        self._log.counts = False
        rows = [[*work, *m] for work, m in self._log.measured().items()]
        self._executor = None
        gc.collect()  # the executor and its stages form a cycle, which would stay in memory
        return {"rows": rows}

    def _train(self, order: orders.Train) -> Answer:
        """Make the stages that will be trained."""
        specified_s = {(stage, Kind(kind)): seconds for stage, kind, seconds in order.specified_s}
        kept = self._kept is not None
        clock = clock_of(self._spec.clock, order.time_scale, self._check_aborted)
        self._build(clock, specified_s, self._report.span, order.turns)
        if not kept and self._spec.resume_from is not None:
            self._read_checkpoint(self._spec.resume_from, self._spec.first_iteration)
        return {}

    def _iterate(self, order: orders.Iterate) -> Answer:
        """Train one iteration."""
        math, clock = self._current_executor.math, self._current_executor.clock
        late_before, overruns_before = clock.late_messages, clock.overruns
        loss = self._run_iteration(order)
        math.state.version = order.iteration + 1
        return {
            "loss": loss if math.holds_last else None,
            "late_messages": clock.late_messages - late_before,
            "overruns": clock.overruns - overruns_before,
        }

    def _evaluate(self, order: orders.Evaluate) -> Answer:
        """Return the loss on the held-out text."""
        executor = self._current_executor
        batch = self._batches.held_out(*self._share)
        loss = executor.evaluate(order.number, self._on_device(batch))
        return {"loss": loss if executor.math.holds_last else None, "unigram_entropy": self._batches.unigram_entropy}

    def _checkpoint(self, order: orders.WriteCheckpoint) -> Answer:
        """Write this worker's tensors. If replicas are equal, only the first writes. An error does not end the run."""
        from dtfm_lab.runtime.worker.checkpoint_tensors import write  # loads safetensors only when needed

        math = self._current_executor.math
        first = self._replica == self._spec.members(self._position)[0]
        if first or self._spec.plan.job.synchronise_every > 1 or math.all_reduce.splits_states:
            try:
                written = write(Path(order.folder), math.modules, math.state, 0 if first else self._replica)
                return {"unwritten": "", "digests": {path.name: digest_of(path) for path in written}}
            except (OSError, FileError) as error:
                return {"unwritten": str(error)}
        return {"unwritten": ""}

    def _write(self, order: orders.Write) -> Answer:
        """Generate text with the model of a checkpoint. Only the first worker does so."""
        if self._rank:
            return {}
        from dtfm_lab.runtime.worker.batches import generate, load_model

        model, job = load_model(order.folder)
        n_bytes, seed = self._spec.sample_bytes, self._spec.seed
        return {"text": generate(model, job.modelled().seq_len, order.prompt, n_bytes, seed=seed)}

    def _leave(self) -> Answer:
        """Return the digest of the trained parameters."""
        return {"sha256": self._current_executor.math.sha256}

    def _connect(self, order: orders.Join, epoch: int) -> Transport:
        """Connect to all workers with which this one exchanges messages. Raises Aborted if a newer order to join
        arrived."""
        spec, source = self._spec, order.takes_state_from
        to_ranks = {*spec.targets(self._position, self._replica), *order.gives_state_to}
        from_ranks = {*spec.sources(self._position, self._replica), *([] if source is None else [source])}
        addresses = {target: tuple(order.addresses[target]) for target in to_ranks}
        # under the lock, so that no order to join comes between the check and the new transport
        with self._lock:
            if epoch < self._epoch:
                raise Aborted
            transport = self._transport = Transport(
                self._listener,
                spec.secret,
                epoch,
                self._rank,
                sorted(from_ranks),
                addresses,
                self._processor,
                self._carrier,
            )
        transport.wait_connected()
        return transport

    def _build(
        self,
        clock: Clock,
        specified_s: dict[tuple[int, Kind], float],
        report: Callable[[Span], None],
        turns: Sequence[Sequence[Sequence[int]]] = ((), ()),
    ) -> None:
        assert self._transport is not None
        spec, where = self._spec, (self._position, self._replica)
        if (math := self._kept) is None:
            math = DeviceMath(spec, *where, self._processor.device)
        else:
            math.follow(spec, *where)
        self._kept = None
        self._executor = ProgramExecutor(
            spec, where, math, self._transport, clock, specified_s, report, self._log, self._processor, turns
        )
        self._executor.slowdown = self._slowdown
        self._executor.activity = self._report.activity

    @property
    def _current_executor(self) -> ProgramExecutor:
        """The executor, which an order to calibrate or to train has built."""
        assert self._executor is not None
        return self._executor

    def _run_iteration(self, order: orders.Calibrate | orders.Iterate) -> float:
        iteration = order.iteration
        batch = self._batches.share(max(iteration, 0), *self._share)
        return self._current_executor.iteration(iteration, self._on_device(batch), order.began_monotonic_s)

    @property
    def _share(self) -> tuple[int, Sequence[int]]:
        """Index of this worker's pipeline, and the number of micro-batches of each pipeline.

        If devices are absent, all pipelines count as one, because micro-batches then have the numbers that they have in
        the whole batch.
        """
        counts = self._spec.trained.microbatch_counts
        return (0, [sum(counts)]) if self._spec.plan.absent else (self._replica, counts)

    def _check_aborted(self) -> None:
        if self._transport is not None and self._transport.aborted:
            raise Aborted

    def _is_busy(self) -> bool:
        return self._has_order and not (self._transport is not None and self._transport.waiting)

    def _on_device(self, batch: Batch) -> Batch:
        device = self._processor.device
        return [tuple(part.to(device) for part in microbatch) for microbatch in batch]

    def _read_checkpoint(self, folder: str, version: int) -> None:
        from dtfm_lab.runtime.worker.checkpoint_tensors import read

        math = self._current_executor.math
        read(Path(folder), math.modules, math.state, self._replica)
        math.state.gradients.zero_()
        math.state.version = version
