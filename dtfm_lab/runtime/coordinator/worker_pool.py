"""The workers of a run by rank: orders go to all of them, answers are gathered, and losses are detected."""

import contextlib
import signal
import time
from collections.abc import Callable, Collection
from multiprocessing.connection import wait
from typing import Any

from dtfm_lab.runtime.coordinator.recovery import describe_stages, why_unrecoverable
from dtfm_lab.runtime.coordinator.worker_handle import StartWorker, WorkerHandle, WorkLimits
from dtfm_lab.runtime.protocol.processes import CommandReader, emit
from dtfm_lab.runtime.protocol.run_options import RunSpec

CHECK_EVERY_S = 0.2
"""Longest time between two checks that every worker is alive."""
BLAME_S = 1.0
"""After a broken connection: time to find the lost worker, before all connections are made again without one."""
TIMEOUT_S = 300.0
"""The run fails when no worker has made progress for so long."""
STUCK_TIMEOUT_S = 30.0
"""The run fails when a worker that cannot be replaced has been stuck for so long."""
STOOD_STILL = "stood still"
"""``Fault.how`` of a worker that was stopped or silent."""

Answer = dict[str, Any]


class RunFailed(Exception):
    """The run cannot go on; the message is for the user."""


class WorkersLost(Exception):
    """Workers are gone or stuck; with no rank in ``how``, connections broke for no known reason."""

    def __init__(self, how: dict[int, str], answered: Collection[int] = ()) -> None:
        self.how = how
        """Rank -> how it was lost."""
        self.answered = frozenset(answered)
        """Ranks that had already done what was ordered."""


class WorkerPool:
    """A worker for every rank."""

    def __init__(
        self,
        spec: RunSpec,
        commands: CommandReader,
        start_worker: StartWorker,
        *,
        replaceable: Callable[[Collection[int]], bool],
        on_spans: Callable[[list[Any]], None],
    ) -> None:
        """Start all workers. ``replaceable`` returns whether the run can go on without the memory of these ranks."""
        self._spec, self._commands, self._start_worker = spec, commands, start_worker
        self._replaceable, self._on_spans = replaceable, on_spans
        self.limits = WorkLimits(spec)
        self.phase = "while starting"
        """What the run is doing, as a phrase for error messages: ``in iteration 3``."""
        self.connection_error = ""
        """The last message of a worker about broken connections that no lost worker explains."""
        self.epoch = 0
        """Number of the newest join order. Answers to earlier orders are ignored."""
        self.workers: list[WorkerHandle] = [start_worker(rank) for rank in range(len(spec.workers))]
        self._slowdowns: dict[int, float] = {}
        self._unsent_slowdowns: set[int] = set()

    def wait_until_listening(self) -> None:
        """Wait until every worker has reported its address. Raises WorkersLost."""
        self._gather("listening", lambda: all(worker.address is not None for worker in self.workers))

    def order_all(self, do: str, each: dict[int, dict[str, Any]] | None = None, **order: Any) -> list[Answer]:
        """Send an order to every worker, return their answers by rank. Raises WorkersLost and RunFailed."""
        for rank, worker in enumerate(self.workers):
            with contextlib.suppress(OSError):  # a worker that is gone is detected while gathering
                worker.order(do, epoch=self.epoch, **order, **({} if each is None else each[rank]))
        return self._gather(do)

    def replace(self, rank: int) -> None:
        """End the worker of this rank and start a new one."""
        self.workers[rank].end()
        self.workers[rank] = self._start_worker(rank)

    def send_slowdowns_again(self, ranks: Collection[int]) -> None:
        """Order the slowdowns of these ranks again, because a replacement must be as slow as the worker before it."""
        self._unsent_slowdowns |= set(ranks) & self._slowdowns.keys()
        self._send_slowdowns()

    def slow(self, rank: int, factor: float) -> None:
        """Let a worker compute so many times slower from now on."""
        self._slowdowns[rank] = factor
        self._unsent_slowdowns.add(rank)
        self._send_slowdowns()

    def device(self, rank: int) -> str:
        return self._spec.device_name(*self._spec.workers[rank])

    def describe(self, rank: int) -> str:
        """Return a rank for people: ``worker device-1 (stage 1, replica 0)``."""
        _, replica = self._spec.workers[rank]
        return f"worker {self.device(rank)} ({describe_stages(self._spec, rank)}, replica {replica})"

    def order_exit(self) -> None:
        """Let all workers exit by themselves."""
        for worker in self.workers:
            with contextlib.suppress(OSError):
                worker.order("exit")

    def end(self) -> None:
        """Kill all workers."""
        for worker in self.workers:
            worker.end()

    def _gather(self, do: str, is_enough: Callable[[], bool] = lambda: False) -> list[Answer]:
        answers: dict[int, Answer] = {}
        last_s = time.monotonic()
        broken_s, broken = None, ""
        while len(answers) < len(self.workers) and not is_enough():
            for worker, message in self._receive():
                match message["event"]:
                    case "error":
                        raise RunFailed(f"{self.describe(worker.rank)} failed {self.phase}: {message['message']}")
                    case "alive" if not message["works"]:
                        continue
                    case "alive":
                        pass
                    case _ if message.get("epoch", self.epoch) != self.epoch:
                        continue
                    case "broken":
                        broken_s, broken = broken_s or time.monotonic(), message["message"]
                    case "listening":
                        worker.address, worker.torch_version = message["address"], message["torch"]
                        emit("listening", workers=sum(other.address is not None for other in self.workers))
                    case "spans":
                        self._on_spans(message["rows"])
                    case event if event == do:
                        answers[worker.rank] = message
                last_s = time.monotonic()
            self._check_alive(answers, do)
            now_s = time.monotonic()
            if broken_s is not None and now_s - broken_s > BLAME_S:
                self.connection_error = broken
                raise WorkersLost({}, answers)
            if now_s - last_s > TIMEOUT_S:
                silent = next(rank for rank in range(len(self.workers)) if rank not in answers)
                raise RunFailed(f"{self.describe(silent)} was silent for {TIMEOUT_S:.0f} s {self.phase}")
        return [answers[rank] for rank in sorted(answers)]

    def _receive(self) -> list[tuple[WorkerHandle, Answer]]:
        """Wait up to CHECK_EVERY_S for messages and return them; commands of the client are carried out."""
        self._carry_out(self._commands.complete())  # these may have come in one piece with an earlier line
        self._send_slowdowns()
        active: dict[Any, WorkerHandle] = {worker.connection: worker for worker in self.workers if worker.is_open}
        sentinels = [worker.process.sentinel for worker in self.workers if worker.process is not None]
        messages = []
        for ready in wait([*active, *sentinels, self._commands.fd], timeout=CHECK_EVERY_S):
            if ready == self._commands.fd:
                self._carry_out(self._commands.read())
            elif worker := active.get(ready):
                messages += [(worker, message) for message in worker.receive()]
        return messages

    def _check_alive(self, answered: Collection[int], do: str) -> None:
        """Raise WorkersLost where a worker is gone, or is stuck and can be replaced."""
        self.limits.look(worker.progress for worker in self.workers)
        lost = {worker.rank: how for worker in self.workers if (how := worker.why_gone()) is not None}
        for rank in [worker.rank for worker in self.workers if worker.rank not in lost and worker.is_stuck()]:
            if self._replaceable({*lost, rank}):
                lost[rank] = STOOD_STILL
            elif time.monotonic() - self.workers[rank].last_message_s > STUCK_TIMEOUT_S:
                how = f"{STOOD_STILL} for {STUCK_TIMEOUT_S:.0f} s"
                raise RunFailed(f"{self.describe(rank)} {how} {self.phase}: {why_unrecoverable(self._spec, rank)}")
        heard = [worker for worker in self.workers if not worker.is_silent]
        for worker in [worker for worker in heard if worker.rank not in {*lost, *answered}]:
            if (overdue := self.limits.overdue(worker.rank, worker.progress, do)) is None:
                continue
            if not self._replaceable({*lost, worker.rank}):
                why = why_unrecoverable(self._spec, worker.rank)
                raise RunFailed(f"{self.describe(worker.rank)} {overdue} {self.phase}: {why}")
            lost[worker.rank] = overdue
        if lost:
            raise WorkersLost(lost, answered)

    def _carry_out(self, commands: list[dict[str, Any]]) -> None:
        for command in commands:
            rank = command["rank"]
            match command["command"]:
                case "kill":
                    self.workers[rank].signal(signal.SIGKILL)
                case "pause":
                    self.workers[rank].signal(signal.SIGSTOP)
                case "resume":
                    self.workers[rank].signal(signal.SIGCONT)
                case "slow":
                    self.slow(rank, command["factor"])

    def _send_slowdowns(self) -> None:
        """Send those that are due, except to stopped workers: what these do not read would fill their pipes."""
        for rank in [rank for rank in self._unsent_slowdowns if not self.workers[rank].is_stopped()]:
            self._unsent_slowdowns.remove(rank)
            with contextlib.suppress(OSError):
                self.workers[rank].order("slow", factor=self._slowdowns[rank])
