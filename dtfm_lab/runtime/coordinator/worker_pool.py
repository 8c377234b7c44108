"""The workers of a run by rank. Sends orders to all of them, gathers their answers and detects losses."""

import contextlib
import signal
import time
from collections.abc import Callable, Collection
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from dtfm_lab.domain.network import name_words
from dtfm_lab.runtime.coordinator.recovery import CheckpointPolicy, describe_stages, holders, why_unrecoverable
from dtfm_lab.runtime.coordinator.worker_handle import StartWorker, WorkerHandle, WorkLimits
from dtfm_lab.runtime.protocol.orders import Become, Exit, HandOver, Order, Slow
from dtfm_lab.runtime.protocol.processes import CommandReader, emit
from dtfm_lab.runtime.protocol.run_options import RunSpec

CHECK_EVERY_S = 0.2
"""Maximum seconds between two checks that every worker is alive."""
BLAME_S = 1.0
"""Seconds to find the lost worker after a connection broke. If none is found, all connections are made again."""
TIMEOUT_S = 300.0
"""The run fails if for this many seconds no worker makes progress, or no new plan follows after a device has left."""
STUCK_TIMEOUT_S = 30.0
"""The run fails if a worker that cannot be replaced is stopped (SIGSTOP) and has sent nothing for this many seconds."""
STOOD_STILL = "stood still"
"""``Fault.how`` of a worker that was stopped or silent."""

Answer = dict[str, Any]
SIGNALS = {"kill": signal.SIGKILL, "pause": signal.SIGSTOP, "resume": signal.SIGCONT}


class RunFailed(Exception):
    """The run cannot continue. The message is for the user."""


class WorkersLost(Exception):
    """Workers are gone or stuck. If ``how`` is empty, connections broke for an unknown reason."""

    def __init__(self, how: dict[int, str], answered: Collection[int] = ()) -> None:
        self.how = how
        """How each rank was lost, by rank."""
        self.answered = frozenset(answered)
        """Ranks that had already done what was ordered."""


class WorkerPool:
    """The workers of all ranks. A lost worker can be replaced by a new one."""

    def __init__(
        self,
        spec: RunSpec,
        commands: CommandReader,
        start_worker: StartWorker,
        checkpoints: CheckpointPolicy,
        replaceable: Callable[[Collection[int]], bool],
        on_spans: Callable[[list[Any]], None],
    ) -> None:
        """Start all workers. ``replaceable`` returns True if the run can continue without the memory of these ranks."""
        self._spec, self._commands, self._start_worker = spec, commands, start_worker
        self._checkpoints, self._replaceable, self._on_spans = checkpoints, replaceable, on_spans
        self.limits = WorkLimits(spec)
        self.phase = "while starting"
        """What the run is doing, as a phrase for error messages: ``in iteration 3``."""
        self.connection_error = ""
        """The last message of a worker about broken connections, if no lost worker explains them."""
        self.epoch = 0
        """Number of the newest ``Join``, ``HandOver`` or ``Become`` order. Answers to earlier orders are ignored."""
        self.workers: dict[int, WorkerHandle] = {rank: start_worker(spec, rank) for rank in range(len(spec.workers))}
        """The worker of each rank. Workers that have left are missing until a new plan says how to continue."""
        self.gone: set[int] = set()
        """Ranks whose devices have left permanently. They get no replacement."""
        self.new_plan: dict[str, Any] | None = None
        """The newest command to follow another plan, until it has been carried out."""
        self._slowdowns: dict[int, float] = {}
        self._unsent_slowdowns: set[int] = set()

    def wait_until_listening(self) -> None:
        """Wait until every worker has reported its address. Raises WorkersLost and RunFailed."""
        self._gather("listening", lambda: all(worker.address is not None for worker in self.workers.values()))

    def order_all(self, order: Order) -> list[Answer]:
        """Send an order to every worker and return their answers, sorted by rank. Raises WorkersLost and RunFailed."""
        return self.order_each(type(order), lambda rank: order)

    def order_each(self, kind: type[Order], order_of: Callable[[int], Order]) -> list[Answer]:
        """Send every worker the order for its rank. Return their answers, sorted by rank. All orders are of one kind.

        Raises WorkersLost and RunFailed.
        """
        for rank, worker in self.workers.items():
            with contextlib.suppress(OSError):  # _gather detects a worker that is gone
                worker.order(order_of(rank), self.epoch)
        return self._gather(kind.do)

    def replace(self, rank: int) -> None:
        """End the worker of this rank and start a new one."""
        self.workers[rank].end()
        self.workers[rank] = self._start_worker(self._spec, rank)

    def drop(self, ranks: Collection[int]) -> None:
        """End the workers of these ranks without replacing them."""
        for rank in ranks:
            if worker := self.workers.pop(rank, None):
                worker.end()

    def await_plan(self) -> None:
        """Wait for a command to follow a new plan. Raises RunFailed if none comes."""
        names = name_words(sorted(map(self.device, self.gone)))
        until_s = time.monotonic() + TIMEOUT_S
        while self.new_plan is None:
            if time.monotonic() > until_s:
                raise RunFailed(f"{names} left {self.phase}, and no new plan followed within {TIMEOUT_S:.0f} s")
            self._receive()

    def hand_over(self, folder: Callable[[], Path], done: int, stateless: Collection[int]) -> str | None:
        """Make the live workers write the state after ``done`` iterations for a new plan. Workers lost during that time
        are dropped.

        The state goes through files in the layout of a checkpoint. Workers of any division into stages can read it.
        Returns their folder, or None if a part of the state is lost, because no live worker has it. ``folder`` makes a
        folder. ``stateless`` are the ranks whose workers have not received their state yet. Raises RunFailed if a
        worker cannot write its part.
        """
        while (givers := holders(self._spec, self.workers.keys() - set(stateless))) is not None:
            written, unlike = str(folder()), len(givers) > self._spec.plan.job.n_stages
            self.epoch += 1
            each = {
                rank: HandOver(folder=written, version=done, writes=rank in givers, each=unlike)
                for rank in self.workers
            }
            try:
                answers = self.order_each(HandOver, each.__getitem__)
            except WorkersLost as loss:
                # another replica may write in its place, so the writers are chosen again
                self.drop(loss.how)
                continue
            if unwritten := [answer["unwritten"] for answer in answers if answer["unwritten"]]:
                raise RunFailed(f"no state could be handed over to a new plan: {unwritten[0]}")
            return written
        return None

    def only_loses(self, spec: RunSpec, stateless: Collection[int]) -> bool:
        """Return True if the new plan is the current one without devices that have left, so that all its workers can
        keep their stages. ``stateless`` as in ``hand_over``."""
        before = self._spec
        as_before = (before.plan.stages, before.plan.job) == (spec.plan.stages, spec.plan.job)
        named = {spec.device_name(*worker) for worker in spec.workers}
        living = {self.device(rank) for rank in self.workers.keys() - set(stateless)}
        return before.orders == spec.orders and as_before and named <= living

    def rest(self, seconds: float) -> None:
        """Let time pass while checking the workers. Raises WorkersLost and RunFailed."""
        until_s = time.monotonic() + seconds
        while (left_s := until_s - time.monotonic()) > 0:
            self._receive(left_s)
            self._check_alive((), "rest")

    def regroup(self, spec: RunSpec, keeps: int | None = None) -> tuple[int, set[int]]:
        """Give each live worker the rank that its device has in a new plan. End unused workers and start missing ones.

        Returns how many workers continue, and the ranks of the started ones.

        ``keeps``: number of iterations done in the state that continuing workers keep. None if they drop their state.
        """
        ranks = {spec.device_name(*worker): rank for rank, worker in enumerate(spec.workers)}
        living = {self.device(rank): worker for rank, worker in self.workers.items()}
        slowdowns = {self.device(rank): factor for rank, factor in self._slowdowns.items()}
        for name, worker in living.items():
            if name not in ranks:
                worker.end()
        self._spec, self.limits, self.gone = spec, WorkLimits(spec), set()
        self.workers = {rank: living[name] for name, rank in ranks.items() if name in living}
        for rank, worker in self.workers.items():
            worker.rank = rank
        self._slowdowns = {ranks[name]: factor for name, factor in slowdowns.items() if name in ranks}
        self._unsent_slowdowns = set(self._slowdowns)
        line = spec.to_line()
        while True:
            self.epoch += 1
            try:
                self.order_each(Become, lambda rank: Become(spec=line, own_rank=rank, keeps=keeps))
                break
            except WorkersLost as loss:
                self.drop(loss.how)
        n_kept = len(self.workers)
        started = set(ranks.values()) - self.workers.keys()
        for rank in started:
            self.workers[rank] = self._start_worker(spec, rank)
        self.workers = dict(sorted(self.workers.items()))
        return n_kept, started

    def send_slowdowns_again(self, ranks: Collection[int]) -> None:
        """Order the slowdowns of these ranks again. A replacement must be as slow as the worker before it."""
        self._unsent_slowdowns |= set(ranks) & self._slowdowns.keys()
        self._send_slowdowns()

    def slow(self, rank: int, factor: float) -> None:
        """Make a worker compute ``factor`` times slower from now on."""
        self._slowdowns[rank] = factor
        self._unsent_slowdowns.add(rank)
        self._send_slowdowns()

    def device(self, rank: int) -> str:
        return self._spec.device_name(*self._spec.workers[rank])

    def describe(self, rank: int) -> str:
        """Return the name of a rank for messages to the user: ``worker device-1 (stage 1, replica 0)``."""
        _, replica = self._spec.workers[rank]
        return f"worker {self.device(rank)} ({describe_stages(self._spec, rank)}, replica {replica})"

    def order_exit(self) -> None:
        """Order all workers to exit."""
        for worker in self.workers.values():
            with contextlib.suppress(OSError):
                worker.order(Exit())

    def end(self) -> None:
        """Kill all workers."""
        for worker in self.workers.values():
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
                        # a heartbeat of a worker that waits is not progress
                        continue
                    case "alive":
                        pass
                    case _ if message.get("epoch", self.epoch) != self.epoch:
                        # the answer to an older order
                        continue
                    case "broken":
                        broken_s, broken = broken_s or time.monotonic(), message["message"]
                    case "listening":
                        worker.address, worker.torch_version = message["address"], message["torch"]
                        emit("listening", workers=sum(other.address is not None for other in self.workers.values()))
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
                silent = next(rank for rank in self.workers if rank not in answers)
                raise RunFailed(f"{self.describe(silent)} was silent for {TIMEOUT_S:.0f} s {self.phase}")
        return [answers[rank] for rank in sorted(answers)]

    def _receive(self, most_s: float = CHECK_EVERY_S) -> list[tuple[WorkerHandle, Answer]]:
        """Wait for messages and return them. Also carry out the client's commands. The wait is at most ``most_s`` or
        CHECK_EVERY_S, whichever is shorter."""
        self._carry_out(self._commands.complete())  # they may have arrived together with an earlier line
        self._send_slowdowns()
        active: dict[Any, WorkerHandle] = {one.connection: one for one in self.workers.values() if one.is_open}
        sentinels = [worker.process.sentinel for worker in self.workers.values() if worker.process is not None]
        messages = []
        for ready in wait([*active, *sentinels, self._commands.fd], timeout=min(most_s, CHECK_EVERY_S)):
            if ready == self._commands.fd:
                self._carry_out(self._commands.read())
            elif worker := active.get(ready):
                messages += [(worker, message) for message in worker.receive()]
        return messages

    def _check_alive(self, answered: Collection[int], do: str) -> None:
        """Raise WorkersLost if a worker is gone, or is stuck and can be replaced.

        Raise RunFailed if a stuck worker cannot be replaced.
        """
        workers = self.workers.values()
        self.limits.look(worker.progress for worker in workers)
        lost = {worker.rank: how for worker in workers if (how := worker.why_gone()) is not None}
        for rank in [worker.rank for worker in workers if worker.rank not in lost and worker.is_stuck()]:
            if self._replaceable({*lost, rank}):
                lost[rank] = STOOD_STILL
            elif time.monotonic() - self.workers[rank].last_message_s > STUCK_TIMEOUT_S:
                how = f"{STOOD_STILL} for {STUCK_TIMEOUT_S:.0f} s"
                raise RunFailed(f"{self.describe(rank)} {how} {self.phase}: {why_unrecoverable(self._spec, rank)}")
        # the link of a silent worker may be down, so nothing is known of its work
        heard = [worker for worker in workers if not worker.is_silent]
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
            match command:
                case {"command": "follow"}:
                    self.new_plan = command
                case {"command": "leave", "device": device}:
                    self._leave(device)
                case {"command": "checkpoint_every", "iterations": iterations, "after_next": after_next}:
                    self._checkpoints.change_interval(iterations, after_next)
                case {"command": "slow", "rank": rank, "factor": factor} if rank in self.workers:
                    self.slow(rank, factor)
                case {"command": "kill" | "pause" | "resume" as what, "rank": rank} if rank in self.workers:
                    self.workers[rank].signal(SIGNALS[what])

    def _leave(self, name: str) -> None:
        """Record that a device has left permanently, and kill its worker. A waiting new plan that uses the device is
        discarded."""
        if self.new_plan is not None and name in self.new_plan["devices"]:
            # that plan was made before the device left
            self.new_plan = None
        for rank, worker in self.workers.items():
            if self.device(rank) == name:
                self.gone.add(rank)
                worker.signal(signal.SIGKILL)

    def _send_slowdowns(self) -> None:
        """Send the slowdowns that are due, except to stopped workers: unread orders would fill their pipes."""
        due = self._unsent_slowdowns & self.workers.keys()
        for rank in [rank for rank in due if not self.workers[rank].is_stopped()]:
            self._unsent_slowdowns.remove(rank)
            with contextlib.suppress(OSError):
                self.workers[rank].order(Slow(factor=self._slowdowns[rank]))
