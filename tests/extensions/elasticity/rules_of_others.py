"""The event rules of the simulators of Varuna, Oobleck and Bamboo in Oobleck's artefact, with their defects.

Each defect can be mended alone, so that what it does to a published number is measured. Times are whole milliseconds,
as there. Rules read from tools/simulator of github.com/SymbioticLab/Oobleck (MIT licence).
"""

from __future__ import annotations

import csv
import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

AVAILABILITY = Path(__file__).parents[3] / "topologies" / "availability"

COMES, LEAVES, READY, REGROUPED, REBALANCED, STEP, WRITTEN = range(7)
"""Kinds of events, in the order in which those of one instant happen."""
START_MS = 45_000
FEWEST = 12
"""Nodes of a pipeline; fewer do not train."""
NEVER_MS = 10**12
"""A step where the table has no throughput."""
RUNNING, REGROUPING, STOPPED = range(3)


@dataclass(frozen=True, kw_only=True)
class Defects:
    """What the simulators do that cannot be meant; each True as published."""

    stale_timers: bool = True
    """A loss while a restart is under way starts a second timer, the first still runs: the later one finds nobody
    waiting and stops training until the next node comes or goes."""
    heap_order: bool = True
    """A checkpoint fails where a later loss stands before its end in the heap's array, whatever their times are."""
    booked_late: bool = True
    """A checkpoint's end, before which a loss makes it fail, is booked as much later as it takes."""
    erases_ten: bool = True
    """A checkpoint that fails erases ten steps, however many were made since the last one; where fewer were made at
    all, zeros are put before the later ones, which then count for other seconds than their own."""
    late_comers: bool = True
    """Who is ready in the very millisecond in which a restart ends is still taken in."""
    writes_on: bool = True
    """A checkpoint under way when a restart ends is written to its end, though all processes have started anew."""
    any_loss: bool = True
    """The loss of a node that does not serve yet is a restart of all, too."""
    endless_step: bool = True
    """Where no plan fits so many nodes a step takes 32 years, which only the next loss ends, not who comes."""
    forgotten_spares: bool = True
    """Bamboo counts a standing-by node that has left as still there, and its loss slows those at work."""

    @classmethod
    def none(cls) -> Defects:
        return cls(**dict.fromkeys((each.name for each in fields(cls)), False))


@dataclass(order=True)
class Event:
    time_ms: int
    kind: int
    about: str | int = field(compare=False, default="")


def events_of(name: str) -> list[Event]:
    """The comings and goings of a trace that comes with the lab, in the order of its file: the simulators' results
    depend on that of one instant, too."""
    lines = (AVAILABILITY / f"{name}.csv").read_text().splitlines()
    rows = csv.DictReader(line for line in lines if not line.startswith("#"))
    return [
        Event(round(float(row["seconds"]) * 1000), COMES if row["event"] == "add" else LEAVES, row["node"])
        for row in rows
    ]


def queue_of(events: Iterable[Event]) -> list[Event]:
    """A heap of them; events of one instant and kind come out as they happen to lie in it."""
    queue: list[Event] = []
    for event in events:
        heapq.heappush(queue, event)
    heapq.heapify(queue)  # as there: it puts equal events in another order
    return queue


@dataclass
class Steps:
    """The steps made: from when to when, and at what rate each is counted."""

    batch: float
    spans: list[tuple[int, int]] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    begun_ms: int = -1

    def add(self, begin_ms: int, end_ms: int) -> None:
        self.spans.append((begin_ms, end_ms))
        self.rates.append(self.batch / (end_ms - begin_ms))

    def erase(self, since_ms: int) -> None:
        """Those that began then or later count for nothing; all where nothing began then but the very first."""
        first = next((i for i, span in enumerate(self.spans) if span[0] >= since_ms), len(self.spans))
        self.rates[first:] = [0.0] * len(self.rates[first:])

    def throughput(self) -> float:
        """Samples a second from the first restart's end to the last step's."""
        samples = sum((end - begin) * rate for (begin, end), rate in zip(self.spans, self.rates, strict=False))
        return 1000 * samples / (self.spans[-1][1] - self.begun_ms) if self.spans else 0.0


def row_of(n_nodes: int) -> int:
    """The row of the tables, of 15 to 30 nodes."""
    return min(max(n_nodes, 15), 30)


def restarting(
    events: Iterable[Event],
    samples_per_s: Mapping[int, float],
    batch: float,
    restart_s: Callable[[int], float],
    *,
    first_restart_s: float,
    checkpoint_s: float = 0.0,
    loses_steps: bool = False,
    defects: Defects,
) -> float:
    """Samples a second of Varuna (with checkpoints) or Oobleck (without): every loss is a restart of all, through
    which the step under way and those after it go on."""
    queue, steps, every = queue_of(events), Steps(batch), 10
    last_ms, checkpoint_ms = queue[-1].time_ms, int(checkpoint_s * 1000)
    ready: dict[str, bool] = {}
    serving: list[str] = []
    waiting: list[str] = []
    status, version, timer, made, step_ms, previous_ms = STOPPED, 0, 0, 0, 0, 0
    restart_ms, kept_until_ms, kept_before_ms, after_loss = round(first_restart_s * 1000), -1, -1, False

    def regroup(now_ms: int) -> None:
        nonlocal waiting, timer
        waiting, timer = [name for name, able in ready.items() if able], timer + 1
        ends_ms = now_ms + restart_ms - checkpoint_ms
        heapq.heappush(queue, Event(ends_ms - (not defects.late_comers), REGROUPED, timer))

    while queue:
        event = heapq.heappop(queue)
        now_ms = event.time_ms
        if now_ms >= last_ms:
            break
        if event.kind == COMES:
            ready[str(event.about)] = False
            heapq.heappush(queue, Event(now_ms + START_MS, READY, event.about))
        elif event.kind == LEAVES:
            del ready[str(event.about)]
            at_work = serving if status == RUNNING else waiting if status == REGROUPING else []
            if event.about not in at_work and not defects.any_loss:
                continue
            after_loss = True
            if loses_steps:
                steps.erase(kept_until_ms)
            status = REGROUPING
            regroup(now_ms)
        elif event.kind == READY and event.about in ready:
            ready[str(event.about)] = True
            if status == STOPPED:
                status = REGROUPING
                regroup(now_ms)
            elif status == REGROUPING:
                waiting.append(str(event.about))
        elif event.kind == REGROUPED and (defects.stale_timers or event.about == timer):
            if any(name not in ready for name in waiting):
                regroup(now_ms)
                continue
            version += 1
            serving, waiting = waiting, []
            row = row_of(sum(ready.values()))
            rate = samples_per_s[row]
            if len(serving) < FEWEST or not (rate or defects.endless_step):
                status = STOPPED
                continue
            if now_ms < previous_ms == kept_until_ms and not defects.writes_on:
                kept_until_ms = kept_before_ms
            status, restart_ms = RUNNING, round(restart_s(row) * 1000)
            step_ms = int(batch / rate * 1000) if rate else NEVER_MS
            heapq.heappush(queue, Event(now_ms + step_ms, STEP, version))
            if steps.begun_ms < 0:
                steps.begun_ms = previous_ms = now_ms
        elif event.kind == STEP and event.about == version:
            made += 1
            steps.add(previous_ms, now_ms)
            previous_ms = now_ms
            if checkpoint_ms and (made % every == 0 or after_loss):
                after_loss, previous_ms = False, now_ms + checkpoint_ms
                written = Event(previous_ms + checkpoint_ms * defects.booked_late, WRITTEN)
                heapq.heappush(queue, written)
                heapq.heapify(queue)
                if not (loses_steps and _fails(queue, written, serving, defects)):
                    kept_before_ms, kept_until_ms = kept_until_ms, previous_ms
                elif defects.erases_ten:
                    made = max(0, made - every)
                    steps.rates[-every:] = [0.0] * every
            heapq.heappush(queue, Event(previous_ms + step_ms, STEP, version))
    return steps.throughput()


def _fails(queue: list[Event], written: Event, serving: list[str], defects: Defects) -> bool:
    """Whether a loss comes before the checkpoint is written."""
    if not defects.heap_order:
        return any(
            event.kind == LEAVES and event.time_ms <= written.time_ms and (event.about in serving or defects.any_loss)
            for event in queue
        )
    loss_seen = False
    for event in queue:
        if event.kind == WRITTEN:
            return loss_seen
        loss_seen |= event.kind == LEAVES
    return False


@dataclass
class Node:
    able: bool = False
    stages: list[tuple[int, int]] = field(default_factory=list)
    """(pipeline, stage) that it serves: its own, and that of a lost successor. Empty where it stands by."""


def redundant(
    events: Iterable[Event],
    samples_per_s: Mapping[int, float],
    batch: float,
    *,
    rebalance_s: float,
    restart_s: float = 30.0,
    slowdown: float = 1.5,
    defects: Defects,
) -> float:
    """Samples a second of Bamboo: the node before a lost one takes over, and at a step's end they may rebalance."""
    queue, steps = queue_of(events), Steps(batch)
    last_ms = queue[-1].time_ms
    nodes: dict[str, Node] = {}
    waiting: list[str] = []
    status, version, timer, step_ms, previous_ms = STOPPED, 0, 0, 0, 0
    n_pipelines = n_spare = 0
    slowed_at: tuple[int, int] | None = None  # steps made and time at the first loss since all regrouped
    stretched = False

    def regroup(now_ms: int, kind: int) -> None:
        nonlocal waiting, status, timer
        status, waiting, timer = REGROUPING, [name for name, node in nodes.items() if node.able], timer + 1
        seconds = restart_s if kind == REGROUPED else rebalance_s
        heapq.heappush(queue, Event(now_ms + round(seconds * 1000), kind, timer))

    def taken_over(lost: Node) -> bool:
        """Whether the node before the lost one can do its stage, if that node is there at all."""
        if len(lost.stages) > 1:
            return False
        pipeline, stage = lost.stages[0]
        before = (pipeline, (stage - 1) % FEWEST)
        for node in nodes.values():
            if before in node.stages:
                node.stages.append(lost.stages[0])
                return len(node.stages) == 2
        return True

    def to_rebalance() -> bool:
        doubled = sum(len(node.stages) > 1 for node in nodes.values())
        active = n_pipelines * FEWEST - doubled
        if doubled and (n_spare >= doubled or 2 * doubled / active > 0.05):
            return True
        return (active + n_spare) // FEWEST > n_pipelines

    while queue:
        event = heapq.heappop(queue)
        now_ms = event.time_ms
        if now_ms >= last_ms:
            break
        if event.kind == COMES:
            nodes[str(event.about)] = Node()
            heapq.heappush(queue, Event(now_ms + START_MS, READY, event.about))
        elif event.kind == LEAVES:
            lost = nodes.pop(str(event.about))
            if lost.stages and not taken_over(lost):
                regroup(now_ms, REGROUPED)
                continue
            if not lost.stages and not defects.forgotten_spares:
                n_spare -= status == RUNNING and lost.able
                continue
            if status == RUNNING and slowed_at is None:
                slowed_at, stretched, step_ms = (len(steps.spans), now_ms), False, int(step_ms * slowdown)
        elif event.kind == READY and event.about in nodes:
            nodes[str(event.about)].able = True
            if status == STOPPED:
                regroup(now_ms, REGROUPED)
            elif status == REGROUPING:
                waiting.append(str(event.about))
            else:
                n_spare += 1
        elif event.kind in (REGROUPED, REBALANCED) and (defects.stale_timers or event.about == timer):
            if any(name not in nodes for name in waiting):
                regroup(now_ms, event.kind)
                continue
            n_pipelines = len(waiting) // FEWEST
            n_spare = len(waiting) - n_pipelines * FEWEST
            for i, name in enumerate(waiting):
                nodes[name].stages = [divmod(i, FEWEST)] if i < n_pipelines * FEWEST else []
            waiting, slowed_at, version = [], None, version + 1
            if not n_pipelines:
                status = STOPPED
                continue
            status, rate = RUNNING, samples_per_s[row_of(sum(node.able for node in nodes.values()))]
            step_ms = int(batch / rate * 1000)
            heapq.heappush(queue, Event(now_ms + step_ms, STEP, version))
            if steps.begun_ms < 0:
                steps.begun_ms = previous_ms = now_ms
        elif event.kind == STEP and event.about == version:
            if slowed_at is not None and not stretched and slowed_at[0] == len(steps.spans):
                stretched = True
                heapq.heappush(queue, Event(now_ms + int((now_ms - slowed_at[1]) * (slowdown - 1)), STEP, version))
                continue
            steps.add(previous_ms, now_ms)
            previous_ms = now_ms
            if to_rebalance():
                regroup(now_ms, REBALANCED)
            else:
                heapq.heappush(queue, Event(now_ms + step_ms, STEP, version))
    return steps.throughput()
