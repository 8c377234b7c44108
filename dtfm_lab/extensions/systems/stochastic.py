"""Stochastic pipelines in virtual time: each micro-batch is sent to one of the next stage's devices as it comes.

No schedule can say beforehand which device passes which micro-batch, so this is a simulator of its own, of the same
links and the same seconds of computations as ``simulate``; where every stage has one device, both give the same times
for the order that comes out.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise

import numpy as np

from dtfm_lab.domain.errors import JobError
from dtfm_lab.domain.job import Job, boundary_bytes, message_bytes
from dtfm_lab.domain.network import Links
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import COMPUTE, RECEIVES, SENDS, Action, Kind, Programs
from dtfm_lab.domain.trace import RunContext, Trace
from dtfm_lab.domain.trace.run_context import SWING
from dtfm_lab.simulation.durations import analytic
from dtfm_lab.simulation.efficiency import GivenEfficiency
from dtfm_lab.simulation.engine import programs_of
from dtfm_lab.simulation.schedules import build
from dtfm_lab.simulation.simulate import plan_context, shared_cards, spreads_of

KINDS = tuple(Kind)
NUMBER = {kind: i for i, kind in enumerate(KINDS)}
FORWARD, BACKWARD, SEND_F, SEND_B = (NUMBER[k] for k in (Kind.FORWARD, Kind.BACKWARD, Kind.SEND_F, Kind.SEND_B))
RECEIVED = {NUMBER[send]: NUMBER[receive] for send, receive in SENDS.items()}
NONE = -1
"""Of a micro-batch that an action has not, and of a row that waited for nothing."""
NO_OFFSET = 10**6
"""Of an action without another end, or with one that its kind tells."""
N_COLUMNS = 8
Then = Callable[[float, int], None]
"""What follows a message or a computation, at a time, behind a row."""


def simulate_stochastic(
    plan: Plan,
    *,
    rng: np.random.Generator,
    in_flight: int,
    by_throughput: bool = True,
    resends_inputs: bool = False,
    efficiency: GivenEfficiency,
    queueing: str,
) -> Trace:
    """One iteration of a plan whose pipelines are drawn for each micro-batch.

    A device serves what has arrived first, forward or backward. A backward goes back over the devices of its forward.
    When all micro-batches of the batch have left a stage, its devices average, as the job says. In the trace,
    micro-batches are numbered over all pipelines, and a message names the offset of the device that it goes to.

    Parameters
    ----------
    in_flight
        Micro-batches that may be on their way at once; a further one begins when one is back from the first stage.
    by_throughput
        Whether a micro-batch goes to the device with the least work handed out so far, in seconds of that device
        (interleaved weighted round-robin); by chance otherwise, all alike. Ties are drawn.
    resends_inputs
        Whether a gradient travels with the input of the stage that it goes to, which that stage computes again.

    Raises
    ------
    JobError
        Choices that this simulator does not know: sends that block, averages beside the passes or after some iterations
        only, parameters or gradients that replicas gather in their passes.
    """
    _check(plan.job)
    run = _IterationRun(plan, rng, Links.of(plan.topology, queueing), efficiency, by_throughput, resends_inputs)
    run.simulate(in_flight)
    return run.trace()


class _IterationRun:
    """The events of one iteration in the order of time, and the rows of its trace.

    A device has a number: stage x replicas + replica.
    """

    def __init__(
        self,
        plan: Plan,
        rng: np.random.Generator,
        links: Links,
        efficiency: GivenEfficiency,
        by_throughput: bool,
        resends_inputs: bool,
    ) -> None:
        job, self.plan, self.links, self.resends_inputs = plan.job, plan, links, resends_inputs
        self.n_stages, self.n_replicas = plan.placement.devices.shape
        self.n_microbatches, self.hop_bytes = sum(job.microbatch_counts), boundary_bytes(job, self.n_stages)
        self.programs = _ends_of(plan)
        self.profile, self.efficiency = analytic(plan, self.programs, efficiency, links), efficiency
        self.seconds = {(row.stage, row.replica, row.kind): row.seconds for row in self.profile}
        places = [(s, r) for s in range(self.n_stages) for r in range(self.n_replicas)]
        self.pass_s = [[self.seconds[s, r, kind] for kind in (Kind.FORWARD, Kind.BACKWARD)] for s, r in places]
        self.waiting: list[deque[tuple[int, int, float, Then]]] = [deque() for _ in places]
        self.busy = [False] * len(places)
        self.device = plan.placement.devices.ravel().tolist()
        self.chances = _chances(rng)
        weights = [sum(both) if by_throughput else 0.0 for both in self.pass_s]
        self.balancers = [
            [(0.0, next(self.chances), r, weights[s * self.n_replicas + r]) for r in range(self.n_replicas)]
            for s in range(self.n_stages)
        ]
        for balancer in self.balancers:
            heapq.heapify(balancer)
        self.path = [[NONE] * self.n_stages for _ in range(self.n_microbatches)]
        self.begun, self.left = 0, [self.n_microbatches] * self.n_stages
        self.events: list[tuple[float, int, Then, int]] = []
        self.number = 0
        self.rows: list[float] = []
        """Replica, kind, stage, micro-batch, offset, start_s, end_s and after of the first row, of the second..."""
        self.free: dict[int, tuple[float, int]] = {}
        """By number of a link or card, when it is free and the row that occupies it until then."""
        self.moving_s: dict[float, list[list[float]]] = {}
        self.everyone = np.arange(len(plan.topology))
        sender, receiver = np.meshgrid(self.everyone, self.everyone, indexing="ij")
        self.leaving, self.coming = (queue.tolist() for queue in links.queues(sender, receiver))
        self.latency_s = links.latency_s.tolist()
        self.ends = [_End(self, stage, replica) for stage, replica in places]

    def simulate(self, in_flight: int) -> None:
        """Fill the rows."""
        for _ in range(in_flight):
            self._begin(0.0, NONE)
        while self.events:
            now, _, then, row = heapq.heappop(self.events)
            then(now, row)

    def _begin(self, now: float, after: int) -> None:
        if self.begun < self.n_microbatches:
            self.path[self.begun][0] = self._drawn(0)
            self.begun += 1
            self._pass(0, 0, self.begun - 1, now, after)

    def _pass(self, stage: int, backward: int, microbatch: int, now: float, after: int) -> None:
        device = stage * self.n_replicas + self.path[microbatch][stage]
        then = partial(self._returned, stage, microbatch) if backward else partial(self._forwarded, stage, microbatch)
        self.compute(now, device, (FORWARD, BACKWARD)[backward], microbatch, self.pass_s[device][backward], then, after)

    def _forwarded(self, stage: int, microbatch: int, now: float, row: int) -> None:
        """A forward was computed: its micro-batch is routed to the next stage, or goes back from the last."""
        if stage == self.n_stages - 1:
            self._pass(stage, 1, microbatch, now, row)
            return
        here, there = self.path[microbatch][stage], self._drawn(stage + 1)
        self.path[microbatch][stage + 1] = there
        then = partial(self._pass, stage + 1, 0, microbatch)
        self.send(now, SEND_F, (stage, here), (stage + 1, there), microbatch, self.hop_bytes[stage + 1], row, then)

    def _returned(self, stage: int, microbatch: int, now: float, row: int) -> None:
        """A backward was computed: its gradient goes back the way of the forward."""
        if stage == 0:
            self._begin(now, row)
        else:
            here, there = self.path[microbatch][stage], self.path[microbatch][stage - 1]
            # the input of the first stage is tokens, next to nothing
            n_bytes = self.hop_bytes[stage] + (self.hop_bytes[stage - 1] if self.resends_inputs else 0.0)
            then = partial(self._pass, stage - 1, 1, microbatch)
            self.send(now, SEND_B, (stage, here), (stage - 1, there), microbatch, n_bytes, row, then)
        self.left[stage] -= 1
        if not self.left[stage]:
            for replica in range(self.n_replicas):
                self.ends[stage * self.n_replicas + replica].begin(now, row)

    def _drawn(self, stage: int) -> int:
        """The replica that the next micro-batch goes to: the least work handed out, ties by chance."""
        load, _, replica, seconds = self.balancers[stage][0]
        heapq.heapreplace(self.balancers[stage], (load + seconds, next(self.chances), replica, seconds))
        return replica

    def compute(self, now: float, device: int, kind: int, number: int, seconds: float, then: Then, after: int) -> None:
        """Begin a computation when its device is free."""
        if self.busy[device]:
            self.waiting[device].append((kind, number, seconds, then))
        else:
            self.busy[device] = True
            self._run(now, device, kind, number, seconds, then, after)

    def _run(self, now: float, device: int, kind: int, number: int, seconds: float, then: Then, after: int) -> None:
        stage, replica = divmod(device, self.n_replicas)
        row = self._row(replica, kind, stage, number, NO_OFFSET, now, now + seconds, after)
        self._at(now + seconds, partial(self._computed, device, then), row)

    def _computed(self, device: int, then: Then, now: float, row: int) -> None:
        """What follows a computation, and the next one that waits for the device."""
        then(now, row)
        if self.waiting[device]:
            kind, number, seconds, follows = self.waiting[device].popleft()
            self._run(now, device, kind, number, seconds, follows, row)
        else:
            self.busy[device] = False

    def send(
        self,
        now: float,
        kind: int,
        sender: tuple[int, int],
        receiver: tuple[int, int],
        number: int,
        n_bytes: float,
        after: int,
        then: Then,
        peer: int | None = None,
    ) -> None:
        """Send a message from one (stage, replica) to another as soon as its link is free."""
        n = self.n_replicas
        here, there = self.device[sender[0] * n + sender[1]], self.device[receiver[0] * n + receiver[1]]
        if n_bytes not in self.moving_s:
            table = self.links.moving_s(self.everyone[:, None], self.everyone[None, :], n_bytes)
            self.moving_s[n_bytes] = table.tolist()
        moving_s, queue = self.moving_s[n_bytes][here][there], self.leaving[here][there]
        offset = ((receiver[1] - sender[1]) % n or NO_OFFSET) if peer is None else peer
        start_s, row = self._occupied(queue, now, moving_s, after, (sender[1], kind, sender[0], number, offset))
        first_s, card = start_s + self.latency_s[here][there], self.coming[here][there]
        received = receiver[1], RECEIVED[kind], receiver[0], number, offset
        if card < 0:
            self._at(first_s + moving_s, then, self._row(*received, first_s, first_s + moving_s, row))
        else:
            self._at(first_s, partial(self._come_in, card, moving_s, received, then), row)

    def _come_in(
        self, card: int, moving_s: float, received: tuple[int, ...], then: Then, now: float, after: int
    ) -> None:
        """Receive a message whose first byte is there, when the card is free."""
        start_s, row = self._occupied(card, now, moving_s, after, received)
        self._at(start_s + moving_s, then, row)

    def _occupied(
        self, queue: int, now: float, moving_s: float, after: int, named: tuple[int, ...]
    ) -> tuple[float, int]:
        """When a message takes a link or a card, as soon as that is free, and its row."""
        start_s, last = self.free.get(queue, (0.0, NONE))
        if start_s <= now:
            start_s, last = now, after
        row = self._row(*named, start_s, start_s + moving_s, last)
        self.free[queue] = start_s + moving_s, row
        return start_s, row

    def _at(self, when_s: float, then: Then, row: int) -> None:
        self.number += 1
        heapq.heappush(self.events, (when_s, self.number, then, row))

    def _row(self, *values: float) -> int:
        self.rows += values
        return len(self.rows) // N_COLUMNS - 1

    def trace(self) -> Trace:
        """What happened, sorted by replica and time."""
        columns = np.array(self.rows).reshape(-1, N_COLUMNS).T
        replica, kind, stage, number, offset, after = columns[[0, 1, 2, 3, 4, 7]].astype(np.int64)
        start_s, end_s = columns[5:7]
        least, each = int(offset.min()), (self.n_stages, len(KINDS), int(number.max()) + 2, int(np.ptp(offset)) + 1)
        code = np.ravel_multi_index((stage, kind, number + 1, offset - least), each)
        known, action = np.unique(code, return_inverse=True)
        actions = tuple(
            Action(s, KINDS[k], m - 1 if m else None, None if peer + least == NO_OFFSET else peer + least)
            for s, k, m, peer in zip(*(one.tolist() for one in np.unravel_index(known, each)), strict=True)
        )
        order = np.lexsort((action, end_s, start_s, replica))
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        after = np.where(after < 0, NONE, place[after])
        # as if it did nothing but compute, because at other speeds it would route otherwise
        spreads, whole_s = spreads_of(self.plan, self.efficiency), float(end_s.max())
        swing = math.exp(SWING * max(map(max, spreads["compute_spread"])))
        drawn = {"n_microbatches": self.n_microbatches, "microbatches_per_replica": (), "orders": ()}
        context = plan_context(self.plan, self.programs.schedule) | drawn
        return Trace(
            RunContext(
                source="simulated",
                clock="model",
                schedule="stochastic",
                links="drawn",
                profile=self.profile,
                queueing=self.links.queueing,
                cards=shared_cards(self.plan, self.links),
                **context,
                **spreads,
                swings=((whole_s / swing, whole_s * swing),),
            ),
            actions,
            np.zeros(len(order), dtype=np.int64),
            replica[order],
            action[order],
            start_s[order],
            end_s[order],
            after[order],
        )


class _End:
    """What a device does when all micro-batches have left its stage: averaging with the others, and the step."""

    def __init__(self, run: _IterationRun, stage: int, replica: int) -> None:
        self.run, self.stage, self.replica = run, stage, replica
        n_before = len(run.programs.pipeline(stage, replica))
        self.steps = run.programs.tails[stage][replica]
        self.receives = {step.action: i for i, step in enumerate(self.steps) if step.action.kind in RECEIVES}
        self.followers: list[list[int]] = [[] for _ in self.steps]
        self.first: list[int] = []
        """Steps that wait for the passes."""
        in_turn = [i for i, step in enumerate(self.steps) if step.in_turn]
        self.next_in_turn = dict(pairwise(in_turn))
        self.left: list[int] = []
        for i, step in enumerate(self.steps):
            needs = {max(need - n_before, NONE) for need in step.needs}
            self.left.append(len(needs) + (i in in_turn[1:]))
            for need in needs:
                (self.first if need < 0 else self.followers[need]).append(i)

    def begin(self, now: float, row: int) -> None:
        """The passes are over since the end of a row."""
        for i in self.first:
            self._ready(i, now, row)

    def _ready(self, i: int, now: float, row: int) -> None:
        """One of what a step waits for is there."""
        self.left[i] -= 1
        if self.left[i]:
            return
        run, step = self.run, self.steps[i]
        action, kind = step.action, step.action.kind
        number = NONE if action.microbatch is None else action.microbatch
        if kind in COMPUTE:
            device = self.stage * run.n_replicas + self.replica
            seconds = run.seconds[self.stage, self.replica, kind] * step.fraction
            run.compute(now, device, NUMBER[kind], number, seconds, partial(self._done, i), row)
            return
        other = action.other_end(self.replica, run.n_replicas)
        here, n_bytes = (self.stage, self.replica), message_bytes(run.plan.job, run.programs.schedule, step)
        run.send(now, NUMBER[kind], here, other, number, n_bytes, row, partial(self._arrived, i), action.peer)

    def _arrived(self, i: int, now: float, row: int) -> None:
        """A message that this device sent has arrived at the other end."""
        action = self.steps[i].action
        stage, replica = action.other_end(self.replica, self.run.n_replicas)
        other = self.run.ends[stage * self.run.n_replicas + replica]
        other._done(other.receives[action.counterpart()], now, row)
        if i in self.next_in_turn:
            self._ready(self.next_in_turn[i], now, row)

    def _done(self, i: int, now: float, row: int) -> None:
        for follower in self.followers[i]:
            self._ready(follower, now, row)


def _check(job: Job) -> None:
    wanted = {"transport": "overlapped", "overlap": False, "synchronise_every": 1}
    for what, value in wanted.items():
        if (found := getattr(job, what)) != value:
            raise JobError(f"job {job.name}: {what} is {found}; stochastic pipelines know {value} only")
    if job.gathers_passes:
        raise JobError(f"job {job.name}: sharding is {job.sharding}; stochastic pipelines know none and zero-1 only")


def _ends_of(plan: Plan) -> Programs:
    """Programs of one micro-batch a pipeline, for what comes after the passes."""
    job = plan.job.with_fields(global_batch=plan.job.n_replicas * plan.job.microbatch, schedule="gpipe")
    short = plan.changed(job=job)
    return programs_of(short, build(short, "gpipe"))


def _chances(rng: np.random.Generator) -> Iterator[float]:
    """Endless random numbers, drawn many at a time."""
    while True:
        yield from rng.random(4096).tolist()
