"""Who sits where in a run: orders go out to all, answers come back, and it is noticed when someone is missing."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Collection
from multiprocessing.connection import Connection, wait
from typing import Any

from dtfm_lab.runtime.coordinator.recovery import nothing_left, stages_of
from dtfm_lab.runtime.coordinator.worker_handle import Seat, Seats
from dtfm_lab.runtime.protocol.json_lines import StandardInput
from dtfm_lab.runtime.protocol.run_spec import RunSpec

TICK_S = 0.2
"""between looks at whether everyone still moves"""
BLAME_S = 1.0
"""connections broke: wait so long for the culprit before making all of them anew"""
PATIENCE_S = 300.0
"""with all workers waiting for each other"""
STILL_PATIENCE_S = 30.0
"""for one who stands still and cannot be replaced"""
MOVES_S = 2.0
"""a heartbeat not older than this: whoever stood still moves again"""

Answer = dict[str, Any]


class Failed(Exception):
    """The run cannot go on; the message is for the user."""


class Lost(Exception):
    """These ranks' workers are gone or stand still; none of them: connections broke for no reason that is known."""

    def __init__(self, how: dict[int, str], answered: Collection[int] = ()) -> None:
        self.how = how
        self.answered = frozenset(answered)
        """ranks that had done what was ordered"""


class Roster:
    """A seat for every rank, and those who lost theirs because they stood still."""

    def __init__(
        self,
        spec: RunSpec,
        commands: StandardInput,
        new_seat: Seats,
        *,
        replaceable: Callable[[Collection[int]], bool],
        on_spans: Callable[[list[Any]], None],
    ) -> None:
        """``replaceable``: whether the run can go on without the memory of these ranks."""
        self._spec, self._commands, self._new_seat = spec, commands, new_seat
        self._replaceable, self._on_spans = replaceable, on_spans
        self.doing = "while starting"
        self.glitch = ""
        """what a worker said when connections broke and nobody was lost"""
        self.epoch = 0
        """counts the orders to join; what was ordered before the newest counts no more"""
        self.seats: list[Seat] = []
        self._absent: dict[int, Seat] = {}
        self._stand_ins: dict[int, Seat] = {}
        """by rank: who gives its place back, until that is done"""
        self._slowdowns: dict[int, float] = {}
        self._unsent: set[int] = set()
        """ranks that do not know how slow they are to be"""
        for rank in range(len(spec.workers)):
            self.seats.append(new_seat(rank))

    def listening(self) -> None:
        """Wait until every worker has said where it listens. Raises Lost."""
        self._gather("listening", lambda: all(seat.address is not None for seat in self.seats))

    def all(self, do: str, each: dict[int, dict[str, Any]] | None = None, **order: Any) -> list[Answer]:
        """Give every worker the order, return their answers by rank. Raises Lost and Failed."""
        for rank, seat in enumerate(self.seats):
            with contextlib.suppress(OSError):  # who is gone is found out below
                seat.order(do, epoch=self.epoch, **order, **({} if each is None else each[rank]))
        return self._gather(do)

    def replace(self, rank: int, how: str, *, may_return: bool) -> None:
        """A new worker; the old one may come back if it only stood still."""
        if may_return and how == STOOD_STILL and rank not in self._absent:
            self._absent[rank] = self.seats[rank]
        else:
            self.seats[rank].end()
        self.seats[rank] = self._new_seat(rank)

    def returned(self) -> dict[int, Seat]:
        """Those who stood still and move again, no longer counted among the absent."""
        moving = {}
        for rank, seat in list(self._absent.items()):
            if seat.gone() is not None or not seat.reads:
                self._absent.pop(rank).end()
            elif seat.address is not None and not seat.stopped() and seat.heard_s > time.monotonic() - MOVES_S:
                moving[rank] = self._absent.pop(rank)
        return moving

    def seat_again(self, rank: int, seat: Seat) -> None:
        """In place of who stood in, who stays at hand until ``settle``."""
        self._stand_ins[rank] = self.seats[rank]
        self.seats[rank] = seat

    def settle(self, *, done: bool) -> set[int]:
        """Who stood in goes; or, where it is not done and they are still there, gets the place back: those ranks."""
        back = set()
        for rank, stand_in in self._stand_ins.items():
            if done or stand_in.gone() is not None or stand_in.stopped():
                stand_in.end()
            else:
                self.seats[rank].end()
                self.seats[rank] = stand_in
                back.add(rank)
        self._stand_ins = {}
        return back

    def slow_again(self, ranks: Collection[int]) -> None:
        """A new worker on a slowed device is as slow."""
        self._unsent |= set(ranks) & self._slowdowns.keys()
        self._send_slowdowns()

    def device(self, rank: int) -> str:
        return self._spec.device_name(*self._spec.workers[rank])

    def name(self, rank: int) -> str:
        _, replica = self._spec.workers[rank]
        return f"worker {self.device(rank)} ({stages_of(self._spec, rank)}, replica {replica})"

    def leave(self) -> None:
        """Everyone may go."""
        for seat in self.seats:
            with contextlib.suppress(OSError):
                seat.order("exit")

    def end(self) -> None:
        """Everyone goes."""
        for seat in [*self.seats, *self._absent.values(), *self._stand_ins.values()]:
            seat.end()

    def _gather(self, do: str, enough: Callable[[], bool] = lambda: False) -> list[Answer]:
        answers: dict[int, Answer] = {}
        last_s = time.monotonic()
        broken_s, broken = None, ""
        while len(answers) < len(self.seats) and not enough():
            for seat, message in self._heard():
                match message["event"]:
                    case "error":
                        raise Failed(f"{self.name(seat.rank)} failed {self.doing}: {message['message']}")
                    case "alive" if not message["works"]:
                        continue
                    case "alive":
                        pass
                    case _ if message.get("epoch", self.epoch) != self.epoch:
                        continue
                    case "broken":
                        broken_s, broken = broken_s or time.monotonic(), message["message"]
                    case "listening":
                        seat.address = message["address"]
                    case "spans":
                        self._on_spans(message["rows"])
                    case event if event == do:
                        answers[seat.rank] = message
                last_s = time.monotonic()
            self._look_around(answers)
            now_s = time.monotonic()
            if broken_s is not None and now_s - broken_s > BLAME_S:
                self.glitch = broken
                raise Lost({}, answers)
            if now_s - last_s > PATIENCE_S:
                silent = next(rank for rank in range(len(self.seats)) if rank not in answers)
                raise Failed(f"{self.name(silent)} was silent for {PATIENCE_S:.0f} s {self.doing}")
        return [answers[rank] for rank in sorted(answers)]

    def _heard(self) -> list[tuple[Seat, Answer]]:
        """What workers said, once anyone did or TICK_S are over; commands of the kernel are obeyed."""
        self._obey(self._commands.complete())  # may have come in one piece with the line before
        self._send_slowdowns()
        seated = {seat.connection: seat for seat in self.seats if seat.reads}
        absent = {seat.connection: seat for seat in self._absent.values() if seat.reads}
        sentinels = [seat.process.sentinel for seat in self.seats if seat.process is not None]
        said = []
        for thing in wait([*seated, *absent, *sentinels, self._commands.fd], timeout=TICK_S):
            if thing == self._commands.fd:
                self._obey(self._commands.read())
            elif isinstance(thing, Connection):
                seat = seated.get(thing) or absent[thing]
                for message in seat.answers():
                    if thing in seated:
                        said.append((seat, message))
                    elif message["event"] == "listening":
                        seat.address = message["address"]
        return said

    def _look_around(self, answered: Collection[int]) -> None:
        """Raises Lost where someone is gone, or stands still and can be replaced."""
        lost = {seat.rank: how for seat in self.seats if (how := seat.gone()) is not None}
        for rank in [seat.rank for seat in self.seats if seat.rank not in lost and seat.still()]:
            if self._replaceable({*lost, rank}):
                lost[rank] = STOOD_STILL
            elif time.monotonic() - self.seats[rank].heard_s > STILL_PATIENCE_S:
                patience = f"{STOOD_STILL} for {STILL_PATIENCE_S:.0f} s"
                raise Failed(f"{self.name(rank)} {patience} {self.doing}: {nothing_left(self._spec, rank)}")
        if lost:
            raise Lost(lost, answered)

    def _obey(self, commands: list[dict[str, Any]]) -> None:
        for command in commands:
            rank = command["rank"]
            match command["command"]:
                case "kill":
                    self.seats[rank].signal(signal.SIGKILL)
                case "pause":
                    self.seats[rank].signal(signal.SIGSTOP)
                case "resume":
                    for seat in (self.seats[rank], self._absent.get(rank)):
                        if seat is not None:
                            seat.signal(signal.SIGCONT)
                case "slow":
                    self._slowdowns[rank] = command["factor"]
                    self._unsent.add(rank)

    def _send_slowdowns(self) -> None:
        """But to none who stands still: what it does not read would fill the way to it."""
        for rank in [rank for rank in self._unsent if not self.seats[rank].stopped()]:
            self._unsent.remove(rank)
            with contextlib.suppress(OSError):
                self.seats[rank].order("slow", factor=self._slowdowns[rank])


STOOD_STILL = "stood still"
