"""Seconds of an iteration, in closed form, for every way to train on a layout.

A pipeline's iteration is the path of its first micro-batch there and back, one period for every further micro-batch,
and the averaging of gradients. The period is set by the slowest stage, the busiest link, or a loop of neighbouring
stages that wait for each other's messages. With more micro-batches in flight, such loops do not bind. The formulas hold
for 1F1B if every pair of devices has its own link. Waits for shared NICs are counted by the number of messages that
share a NIC. The simulator prices the best of these plans, so an estimate only has to rank them.

Arrays have the axes C (micro-batch and checkpointing), S (stages) and P (pipelines, or a single one for all if devices
are alike).
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Links, Topology
from dtfm_lab.domain.units import BoolArray, FloatArray, IntArray
from dtfm_lab.planning.iteration.problem import SearchTarget, roles_of
from dtfm_lab.planning.iteration.structured.layouts import (
    WAYS_TO_AVERAGE,
    Average,
    GridLayout,
    StageTables,
    averages,
    ring,
)

MOST_LOOKED_AT = 48
"""Maximum number of devices of a set whose links ``Estimator.promise_s`` examines."""
SHARDINGS_TOGETHER = (("none", "zero-1"), ("zero-2",), ("zero-3",))
"""Groups of shardings whose passes take the same time."""
LONGEST_LOOP = 4
"""Maximum number of stages in a loop of neighbouring stages that is priced. The loop of all stages is priced, too.
Loops between the two lengths seldom bind."""
WARMUP_FACTOR = 1.25
"""Factor on the number of micro-batches in flight that hides the messages of a steady pipeline. The waits for shared
NICs, which the period does not count, need some more."""
MOST_IN_FLIGHT = 10**6
"""Cap on micro-batches in flight, so that the number that memory has room for fits an integer."""
KEPT_PER_SHARDING = 2
"""Number of the best ways to train, per layout and sharding, that are kept for the simulator."""


@dataclass(frozen=True, eq=False, order=False)
class LayoutEstimate:
    """A way to train on a layout, with its estimated objective: seconds or dollars of an iteration."""

    value: float
    of: Estimator = field(repr=False)
    layout: GridLayout = field(repr=False)
    microbatch: int
    checkpointing: int
    """Index in ``StageTables.checkpointings``."""
    sharding: str
    synchronisation: str
    overlap: bool
    blocks: IntArray
    period_s: FloatArray
    """(P,) seconds that each further micro-batch of a pipeline takes."""
    fill_s: FloatArray
    """(P,) seconds that do not depend on the number of micro-batches. A pipeline takes ``fill_s + n * period_s``
    seconds for n micro-batches."""
    warmups: IntArray | None
    """(S,) warm-up forwards of each stage; None for the warm-ups of 1F1B."""


class Estimator:
    """Estimates the layouts of one network whose devices are groups of GPUs."""

    def __init__(self, topology: Topology, links: Links, tables: StageTables, job: Job, target: SearchTarget) -> None:
        """``job`` is the job as requested. The job of ``tables`` also has its tensor parallelism."""
        self.topology, self.links, self.tables, self.job, self.target = topology, links, tables, job, target
        self.combinations = [(m, c) for m in tables.microbatches for c in range(len(tables.checkpointings))]
        self.n_microbatches = np.array([job.global_batch // m for m, _ in self.combinations])
        self._cuts: dict[bytes, IntArray] = {}
        self._latest: tuple[object, list[Average]] = (None, [])

    @cached_property
    def _stacked(self) -> tuple[FloatArray, ...]:
        """Tables of all combinations C of micro-batch size and checkpointing.

        - (C, K, L + 1) seconds forward, and the same backward
        - (C, 2, 2, K) seconds of the embedding and the head
        - (C, 4, L + 1) bytes kept, and bytes held in addition while a backward recomputes
        - (C, L + 1) bytes of a message over each boundary
        """
        passes = [self.tables.passes(*one) for one in self.combinations]
        held = [self.tables.held(*one) for one in self.combinations]
        problem = self.tables.plain_problem()
        crossing = {m: problem.passes(m).hop_bytes for m in self.tables.microbatches}
        return (
            np.array([one.forward_s for one in passes]),
            np.array([one.backward_s for one in passes]),
            np.array([one.ends_s for one in passes]),
            np.array([one.kept_bytes for one in held]),
            np.array([one.again_bytes for one in held]),
            np.array([crossing[m] for m, _ in self.combinations]),
        )

    @cached_property
    def _receive(self) -> FloatArray:
        """(C, K, L + 1) seconds in which a group of GPUs gathers a message between stages."""
        return np.array([self.tables.passes(*one).receive_s for one in self.combinations])

    @cached_property
    def _price_per_s(self) -> FloatArray:
        return np.array([device.price_per_hour for device in self.topology.devices]) / 3600.0

    @cached_property
    def _by_place(self) -> IntArray:
        """(N,) the order in which devices join the rings of sharded parameters: by region, then by host."""
        regions = {name: i for i, name in enumerate(self.topology.regions)}
        keys = [(regions[d.region], d.host or f" {i}", i) for i, d in enumerate(self.topology.devices)]
        place = np.empty(len(keys), dtype=np.int64)
        place[sorted(range(len(keys)), key=keys.__getitem__)] = np.arange(len(keys))
        return place

    def promise_s(self, members: IntArray) -> float:
        """Return a rough time of an iteration on these devices, which decides what to try first.

        It is the time of the passes, plus the time to send all gradients and receive the averages over one link: the
        slowest that is needed to join the devices.
        """
        some = members[np.linspace(0, len(members) - 1, min(len(members), MOST_LOOKED_AT)).astype(int)]
        if len(some) == 1:
            return self.least_s(members)
        a, b = _joining_link(self.links.bandwidth_bytes_per_s[np.ix_(some, some)])
        a, b = some[a], some[b]
        message_s = self._gradient_bytes / self.links.bandwidth_bytes_per_s[a, b] + self.links.latency_s[a, b]
        return self.least_s(members) + 2.0 * float(message_s)

    @cached_property
    def _gradient_bytes(self) -> float:
        return float(self.tables.gradient_bytes(np.array([self.tables.n_blocks])).sum())

    def least_s(self, members: IntArray) -> float:
        """Return the seconds in which these devices, never idle, do all passes of the batch. The micro-batch size and
        checkpointing are the quickest."""
        counts = np.bincount(self.tables.kind_of[members], minlength=len(self.tables.kinds))
        return float((self.n_microbatches / (counts / self._whole_s).sum(axis=1)).min())

    def cut(self, kind: IntArray) -> IntArray:
        """Return (S,) blocks that make the slowest stage as fast as possible. ``kind``, (S, R), is the kind of each
        device."""
        given = self.job.blocks_per_stage
        if given is not None:
            return np.array(given, dtype=np.int64)
        *_, ends, _, _, _ = self._stacked
        block_s = self._block_s[kind].mean(axis=1)
        key = np.round(block_s / block_s.min(), 3).tobytes()
        if key not in self._cuts:
            extra = ends[0].sum(axis=1)  # (2, K)
            taken = np.zeros(len(kind))
            taken[0] += extra[0][kind[0]].mean()
            taken[-1] += extra[1][kind[-1]].mean()
            least = self.tables.plain_problem().least_blocks(len(kind))
            self._cuts[key] = evened_blocks(taken + (1 + least) * block_s, block_s, self.tables.n_blocks, least)
        return self._cuts[key]

    def hopeless(self, layout: GridLayout, best_s: float) -> bool:
        """Return True if the passes alone, or the messages between stages alone, take longer than ``best_s``."""
        n_stages, n_replicas = layout.shape
        if self.least_s(layout.grid.ravel()) > best_s:
            return True
        if self._alike:
            # equal stages process one micro-batch per round, and the last stage begins after n_stages - 1 rounds
            rounds = np.maximum(-(-self.n_microbatches // n_replicas), 1) + n_stages - 1
            if float((rounds * self._whole_s[:, 0]).min()) / n_stages > best_s:
                return True
        if n_stages == 1:
            return False
        per_byte = layout.hops.alone_s_per_byte
        return bool(per_byte.min() > 0 and self._crossing_bytes / (1.0 / per_byte).sum() > best_s)

    @cached_property
    def _crossing_bytes(self) -> float:
        """Bytes of the whole batch over the stage boundary with the smallest messages."""
        return self.job.global_batch / self.combinations[0][0] * float(self._stacked[-1][0, 1:-1].min(initial=0.0))

    @cached_property
    def _alike(self) -> bool:
        return len(self.tables.kinds) == 1

    @cached_property
    def _whole_s(self) -> FloatArray:
        """(C, K) seconds of the whole model's passes of one micro-batch."""
        forward, backward, ends, *_ = self._stacked
        return np.asarray(forward[:, :, -1] + backward[:, :, -1] + ends.sum(axis=(1, 2)))

    def estimates(self, layout: GridLayout, *, coarse: bool = False) -> list[LayoutEstimate]:
        """Return the best ways, by the estimate, to train on a layout that fit its devices' memory.

        With ``coarse``, ZeRO-2 and ZeRO-3 in pipelines are left out, because they seldom pay.
        """
        kind = self.tables.kind_of[layout.grid]
        found = self._of_cut(layout, kind, self.cut(kind), coarse=coarse)
        if not found and (blocks := self._roomy_cut(layout, kind)) is not None:
            found = self._of_cut(layout, kind, blocks, coarse=coarse)
        return found

    def _of_cut(self, layout: GridLayout, kind: IntArray, blocks: IntArray, *, coarse: bool) -> list[LayoutEstimate]:
        tables, n_replicas = self.tables, layout.shape[1]
        ends = np.cumsum(blocks)
        alike = bool((kind == kind[0, 0]).all())
        stage = _Stage(self, layout, kind[:, :1] if alike else kind, blocks, ends, alike)
        shardings = tables.shardings if n_replicas > 1 else tables.shardings[:1]
        found: list[LayoutEstimate] = []
        alone = coarse and layout.shape[0] > 1 and len(shardings) > 2
        for together in SHARDINGS_TOGETHER[:1] if alone else SHARDINGS_TOGETHER:
            rows = [row for one in together if one in shardings for row in self._rows(layout, one, stage, ends)]
            if rows and stage.possible(rows[0].sharding).any():
                overlaps = _overlaps(self.job, n_replicas, rows[0].sharding)
                found += self._best(layout, stage, rows, stage.priced(rows, overlaps))
        return found

    def _roomy_cut(self, layout: GridLayout, kind: IntArray) -> IntArray | None:
        """Return (S,) blocks that fit each stage's memory, with the micro-batch size, checkpointing and sharding that
        hold least. The slowest stage is as fast as that allows.

        None if there is no such cut, or if the job gives one.
        """
        n_stages, n_replicas = layout.shape
        if self.job.blocks_per_stage is not None:
            return None
        needs = self._least_bytes(n_replicas)
        memory = self.tables.memory_bytes[kind].min(axis=1)
        room = (needs[roles_of(n_stages)] <= memory[:, None]).sum(axis=1) - 1
        least = self.tables.plain_problem().least_blocks(n_stages)
        if (room < least).any() or room.sum() < self.tables.n_blocks:
            return None
        block_s = self._block_s[kind].mean(axis=1)
        return evened_blocks((1 + least) * block_s, block_s, self.tables.n_blocks, least, room)

    def _least_bytes(self, n_replicas: int) -> FloatArray:
        """Return (4, L + 1) bytes of a stage by its role and blocks, with one micro-batch in flight and the micro-batch
        size, checkpointing and sharding that hold least."""
        *_, kept, again, _ = self._stacked
        held = (kept + again).min(axis=0)
        statics = [self.tables.static_bytes(one, n_replicas) for one in self.tables.shardings]
        return np.asarray(held + np.minimum.reduce([one for one in statics if one is not None]))

    @cached_property
    def _block_s(self) -> FloatArray:
        """(K,) seconds of an average block's passes."""
        forward, backward, *_ = self._stacked
        return np.asarray((forward + backward)[0, :, -1] / self.tables.n_blocks)

    def _rows(self, layout: GridLayout, sharding: str, stage: _Stage, ends: IntArray) -> list[_Averaging]:
        """Return the ways to average under a sharding, each with the seconds and bytes of every stage."""
        tables, job, n_replicas = self.tables, self.job, layout.shape[1]
        static = tables.static_bytes(sharding, n_replicas)
        if static is None:
            return []
        ways: tuple[str, ...] = WAYS_TO_AVERAGE if job.synchronisation is None else (job.synchronisation,)
        if sharding != "none":  # each replica averages its own shard
            ways = tuple(one for one in ways if one in ("ring", "sharded", "sharded-at-once")) or ("ring",)
        held, nothing = static[stage.role, stage.blocks], np.zeros(len(ends))
        if sharding == "zero-3" or n_replicas == 1:
            return [_Averaging(sharding, ways[0], nothing, nothing, nothing, held)]
        problem, parameters = tables.problem(0, sharding), tables.parameters(ends)
        assert problem is not None  # as there are static_bytes
        gradients, back = problem.gradient_bytes(parameters), problem.average_bytes(parameters)
        return [
            _Averaging(sharding, one.how, one.seconds(gradients, back), one.latency_s, gradients, held)
            for one in self._averages(layout, ways)
        ]

    def _averages(self, layout: GridLayout, ways: tuple[str, ...]) -> list[Average]:
        key = layout, ways
        if self._latest[0] != key:
            self._latest = key, averages(layout, self.topology, ways)
        return self._latest[1]

    def _best(self, layout: GridLayout, stage: _Stage, rows: list[_Averaging], priced: _Priced) -> list[LayoutEstimate]:
        """Return the few ways with the best estimates. ``priced.seconds`` is (V, C, Y, O)."""
        seconds = priced.seconds
        value = seconds
        if self.target.limited or self.target.dollars:
            rate = float(self._price_per_s[layout.grid].sum())
            if rate > self.target.max_price_per_hour / 3600.0:
                return []
            allowed = np.isfinite(seconds) & (seconds <= self.target.max_iteration_s)
            value = np.where(allowed, np.where(allowed, seconds, 0.0) * (rate if self.target.dollars else 1.0), np.inf)
        flat = value.ravel()
        n_kept = KEPT_PER_SHARDING * len({row.sharding for row in rows})
        order = np.argpartition(flat, min(n_kept, flat.size - 1))[:n_kept]
        found = []
        for at in order.tolist():
            if not math.isfinite(flat[at]):
                continue
            v, c, y, o = np.unravel_index(at, value.shape)
            microbatch, checkpointing = self.combinations[c]
            found.append(
                LayoutEstimate(
                    value=float(flat[at]),
                    of=self,
                    layout=layout,
                    microbatch=microbatch,
                    checkpointing=checkpointing,
                    sharding=rows[y].sharding,
                    synchronisation=rows[y].how,
                    overlap=priced.overlaps[o],
                    blocks=stage.blocks,
                    period_s=priced.period_s[v][c],
                    fill_s=priced.fill_s[v][c],
                    warmups=None if v == 0 else priced.in_flight[v][c] - 1,
                )
            )
        return found


class _Averaging(NamedTuple):
    """A way to average on a layout. Arrays are (S,)."""

    sharding: str
    how: str
    seconds: FloatArray
    latency_s: FloatArray
    """The part of ``seconds`` that is latency. With buckets, each bucket takes it once."""
    gradient_bytes: FloatArray
    static_bytes: FloatArray


@dataclass(frozen=True, eq=False)
class _Priced:
    seconds: FloatArray
    """(V, C, Y, O) seconds; infinite if memory is lacking.

    - V: number of micro-batches in flight: as in 1F1B, or as many as hide messages and fit memory
    - C: micro-batch size and checkpointing
    - Y: way to average
    - O: whether averaging overlaps the last backward
    """
    overlaps: list[bool]
    period_s: list[FloatArray]
    """One array (C, P) for each V: seconds per micro-batch of a pipeline."""
    fill_s: list[FloatArray]
    in_flight: list[IntArray]
    """One array (C, S) for each V: micro-batches in flight."""


class _Stage:
    """The stages of one layout and cut, with all combinations of micro-batch size and checkpointing."""

    def __init__(
        self, of: Estimator, layout: GridLayout, kind: IntArray, blocks: IntArray, ends: IntArray, alike: bool
    ) -> None:
        self.of, self.layout, self.kind, self.blocks, self.alike = of, layout, kind, blocks, alike
        n = len(blocks)
        self.role = roles_of(n)
        forward, backward, extra, *_, crossing = of._stacked
        begins = ends - blocks
        self.block_f = forward[:, kind, ends[:, None]] - forward[:, kind, begins[:, None]]
        self.block_b = backward[:, kind, ends[:, None]] - backward[:, kind, begins[:, None]]
        self.end_f = np.zeros_like(self.block_f)
        self.end_b = np.zeros_like(self.block_b)
        for at, which in ((0, 0), (n - 1, 1)):
            self.end_f[:, at] += extra[:, which, 0][:, kind[at]]
            self.end_b[:, at] += extra[:, which, 1][:, kind[at]]
        self.crossing = crossing[:, ends[:-1]]  # (C, S - 1)
        hops = layout.hops

        def reduce(links: FloatArray) -> FloatArray:
            return np.asarray(links.max(axis=1, keepdims=True)) if alike and n > 1 else links

        self.there_s = self.crossing[:, :, None] * reduce(hops.there_s_per_byte) + reduce(hops.there_latency_s)
        self.back_s = self.crossing[:, :, None] * reduce(hops.back_s_per_byte) + reduce(hops.back_latency_s)
        if n > 1 and of.links.message_bytes is not None:  # measured messages may take longer than bytes / bandwidth
            a, b = layout.grid[:-1], layout.grid[1:]
            sizes = [self.crossing[:, s, None] for s in range(n - 1)]
            for seconds, late, ends_of in (
                (self.there_s, hops.there_latency_s, (a, b)),
                (self.back_s, hops.back_latency_s, (b, a)),
            ):
                moving = [of.links.moving_s(ends_of[0][s], ends_of[1][s], size) for s, size in enumerate(sizes)]
                each = np.stack(moving, axis=1) + late
                seconds[:] = each.max(axis=2, keepdims=True) if alike else each
        self.busiest_s = self.crossing.max(axis=1, initial=0.0) * hops.busiest_s_per_byte  # (C,)
        self.receive_f = np.zeros_like(self.block_f)
        self.receive_b = np.zeros_like(self.block_b)
        if n > 1 and (receive := of._receive).any():
            self.receive_f[:, 1:] = receive[:, kind[1:], begins[1:, None]]
            self.receive_b[:, :-1] = receive[:, kind[:-1], ends[:-1, None]]

    def possible(self, sharding: str) -> BoolArray:
        """Return (C,) True if every replica gets a micro-batch and, with zero-2 and zero-3, all get equally many."""
        n_replicas, n = self.layout.grid.shape[1], self.of.n_microbatches
        enough = n >= n_replicas
        return np.asarray(enough & (n % n_replicas == 0) if sharding in ("zero-2", "zero-3") else enough)

    def _passes(self, sharding: str) -> tuple[FloatArray, FloatArray]:
        """Return (C, S, P) seconds of a forward and a backward of one micro-batch, with the messages of sharded
        parameters."""
        n_replicas = self.layout.grid.shape[1]
        if sharding not in ("zero-2", "zero-3") or n_replicas == 1:
            return (
                self.block_f + self.end_f + self.receive_f,
                self.block_b + self.end_b + self.receive_b,
            )
        rounds = ring(self.layout, by_place=self.of._by_place)
        late, per_byte = rounds.latency_s[:, None] / 2, rounds.there_s_per_byte[:, None]  # of one gathering
        sizes = self.of.tables.message_bytes(sharding)
        gathers = [late + per_byte * size for size, _ in sizes]
        scatters = [late + per_byte * size for _, size in sizes]
        if sharding == "zero-2":
            gathers = [0.0 * one for one in gathers]
            scattered = 1.0 - n_replicas / self.of.n_microbatches[:, None, None]  # the last scatters count as averaging
            scatters = [one * np.maximum(scattered, 0.0) for one in scatters]
        n, k = len(self.blocks), self.blocks[:, None].astype(float)
        each = np.maximum(k, 1.0)  # a stage of the embedding or the head alone has no block
        first, last = np.zeros((n, 1)), np.zeros((n, 1))
        first[0], last[-1] = bool(self.of.tables.ends[0]), bool(self.of.tables.ends[1])
        each_f, each_b = self.block_f / each, self.block_b / each
        block_g, ends_g = gathers[0], first * gathers[1] + last * gathers[2]
        block_s = scatters[0]
        forward = np.where(first > 0, gathers[1], block_g) + k * np.maximum(each_f, block_g)
        forward = forward + np.maximum(self.end_f, last * gathers[2])
        backward = np.where(last > 0, gathers[2], block_g) + k * np.maximum(each_b, block_g + block_s)
        backward = backward + np.maximum(self.end_b, ends_g) + np.where(first > 0, scatters[1], block_s)
        return forward + self.receive_f, backward + self.receive_b

    def priced(self, rows: list[_Averaging], overlaps: list[bool]) -> _Priced:
        """Return the seconds of an iteration for every combination (see ``_Priced.seconds``)."""
        of, n, sharding = self.of, len(self.blocks), rows[0].sharding
        forward, backward = self._passes(sharding)
        both = forward + backward
        round_trip = self.there_s + self.back_s
        if n > 1 and of.job.transport != "overlapped":  # a device waits until its message has arrived
            both[:, :-1] += self.there_s
            both[:, 1:] += self.back_s
        whole = both.sum(axis=1) + round_trip.sum(axis=1)  # (C, P)
        slowest = np.maximum(both.max(axis=1), self.busiest_s[:, None])
        plain = np.arange(n)[::-1]
        deep = np.broadcast_to(plain, (len(whole), n))
        variants: list[tuple[FloatArray, IntArray]] = [(slowest, deep + 1)]
        memory, last_b = self._memory(), backward.max(axis=2)
        static = np.array([row.static_bytes for row in rows])
        before = np.zeros((len(whole), n))  # from each stage's last backward to the end of the first stage's
        if n > 1:
            variants = [(np.maximum(slowest, self._loops(both, round_trip)), deep + 1)]
            before[:, 1:] = np.cumsum(backward[:, :-1] + self.back_s, axis=1).min(axis=2)
            if of.job.schedule in (None, "adaptive-1f1b") and of.job.warmups is None:
                away = self._away(both, round_trip)
                deep = self._deep(away, slowest, plain)
                for bytes_ in np.unique(static, axis=0):
                    in_flight = np.minimum(deep + 1, self._room_for(memory - bytes_))
                    waits = (away / np.maximum(in_flight, 1)[:, :, None]).max(axis=1)
                    variants.append((np.maximum(slowest, waits), in_flight))
        average_s, late_s = np.array([row.seconds for row in rows]), np.array([row.latency_s for row in rows])
        n_buckets = np.clip(np.ceil(rows[0].gradient_bytes / of.job.bucket_bytes), 1.0, self.blocks + 1.0)
        possible = self.possible(sharding)
        fewest = -(-of.n_microbatches // self.layout.grid.shape[1])[:, None]
        seconds, fills = [], []
        for period, in_flight in variants:
            fill = whole - period
            total = self._total(period, fill, whole, sharding)
            held = self._held(np.minimum(in_flight, fewest))
            fits = (static + held[:, None] <= memory).all(axis=2) & possible[:, None]  # (C, Y)
            fits = np.asarray(fits & (in_flight.min(axis=1) > 0)[:, None])
            end = (total[:, None] - before)[:, None]  # (C, 1, S)
            ways = []
            for overlap in overlaps:
                after = end + average_s
                if overlap:
                    # later buckets send their rounds in the gaps that latencies leave
                    begun = end - (last_b * (1.0 - 1.0 / n_buckets))[:, None]
                    after = np.maximum(begun + average_s, end + (average_s - late_s) / n_buckets + late_s)
                ways.append(np.where(fits, after.max(axis=2) + self._tied_s, np.inf))
            seconds.append(np.stack(ways, axis=2))  # (C, Y, O)
            fills.append(fill)
        periods, flights = [period for period, _ in variants], [in_flight for _, in_flight in variants]
        return _Priced(np.array(seconds), overlaps, periods, fills, flights)

    def _away(self, both: FloatArray, round_trip: FloatArray) -> FloatArray:
        """Return (C, S, P) seconds from a stage's forward of a micro-batch to the end of its backward, if nothing
        waits."""
        away = both.copy()
        away[:, :-1] += round_trip
        return np.asarray(np.cumsum(away[:, ::-1], axis=1)[:, ::-1])

    def _deep(self, away: FloatArray, slowest: FloatArray, plain: IntArray) -> IntArray:
        """Return (C, S) warm-up forwards that hide the messages of a steady pipeline. They never rise along the
        pipeline."""
        wanted = np.ceil(WARMUP_FACTOR * (away / slowest[:, None]).max(axis=2)).astype(np.int64) - 1
        return np.asarray(np.maximum.accumulate(np.maximum(wanted, plain)[:, ::-1], axis=1)[:, ::-1])

    def _room_for(self, left_bytes: FloatArray) -> IntArray:
        """Return (C, S) micro-batches in flight that fit in ``left_bytes`` on each stage. They never rise along the
        pipeline."""
        none = np.zeros(self.role.shape, dtype=np.int64)
        *_, kept, _, _ = self.of._stacked
        room = np.floor((left_bytes - self._held(none)) / np.maximum(kept[:, self.role, self.blocks], 1.0))
        return np.asarray(np.minimum.accumulate(np.clip(room, 0, MOST_IN_FLIGHT).astype(np.int64), axis=1))

    def _total(self, period: FloatArray, fill: FloatArray, whole: FloatArray, sharding: str) -> FloatArray:
        """Return (C,) seconds until the last pipeline has processed its micro-batches."""
        n_replicas, n = self.layout.grid.shape[1], self.of.n_microbatches
        even = np.asarray((fill + -(-n // n_replicas)[:, None] * period).max(axis=1))
        if self.alike or sharding in ("zero-2", "zero-3") or self.of.job.microbatches_per_replica is not None:
            return even
        rate = 1.0 / period
        shared = (n + (fill * rate).sum(axis=1)) / rate.sum(axis=1) + 0.5 * period.min(axis=1)
        return np.asarray(np.minimum(np.maximum(shared, whole.max(axis=1)), even))

    def _loops(self, both: FloatArray, round_trip: FloatArray) -> FloatArray:
        """Return (C, P) seconds per micro-batch of the slowest loop of neighbouring stages under 1F1B."""
        n = both.shape[1]
        found = (both.sum(axis=1) + round_trip.sum(axis=1)) / n
        loop = both
        for length in range(2, min(LONGEST_LOOP, n - 1) + 1):
            loop = loop[:, :-1] + both[:, length - 1 :] + round_trip[:, length - 2 :]
            found = np.maximum(found, loop.max(axis=1) / length)
        return np.asarray(found)

    def _memory(self) -> FloatArray:
        """Return (S,) bytes of usable memory on the smallest device of each stage."""
        return np.asarray(self.of.tables.memory_bytes[self.kind].min(axis=1))

    def _held(self, in_flight: IntArray) -> FloatArray:
        """Return (C, S) bytes of activations and messages with ``in_flight`` micro-batches in flight."""
        *_, kept, again, _ = self.of._stacked
        here = kept[:, self.role, self.blocks] * in_flight + again[:, self.role, self.blocks]
        here[:, 1:] += self.crossing
        here[:, :-1] += self.crossing
        return np.asarray(here)

    @cached_property
    def _tied_s(self) -> float:
        """Seconds in which the first and the last stage exchange a tied embedding's gradient."""
        problem = self.of.tables.plain_problem()
        grid, links = self.layout.grid, self.of.links
        if len(grid) == 1 or not problem.tied_parameters:
            return 0.0
        a, b = grid[0], grid[-1]
        each = problem.embedding_bytes / links.bandwidth_bytes_per_s[a, b] + links.latency_s[a, b]
        shared = 1
        if self.layout.shares_nics:
            shared = int(np.bincount(self.layout.hosts[0]).max())
        return float(each.max()) * shared


def evened_blocks(
    next_s: FloatArray, each_s: FloatArray, n_blocks: int, least: IntArray, room: FloatArray | IntArray | None = None
) -> IntArray:
    """Return (S,) blocks, at least ``least`` per stage. Each further block goes to the stage that then takes least.

    ``next_s``, (S,), are a stage's seconds with one block more than ``least``. ``each_s``, (S,), are the seconds that
    each further block adds. No stage gets more than ``room``, (S,) blocks, as long as others have room.
    """
    blocks, each, most = least.tolist(), each_s.tolist(), [n_blocks] * len(least) if room is None else room.tolist()
    # a heap of stages by their seconds with one more block; full stages wait until all are full
    stages = list(zip(next_s.tolist(), range(len(blocks)), strict=True))
    queue = [one for one in stages if blocks[one[1]] < most[one[1]]]
    full = [one for one in stages if blocks[one[1]] >= most[one[1]]]
    heapq.heapify(queue)
    for _ in range(n_blocks - sum(blocks)):
        if not queue:
            queue, full, most = full, [], [n_blocks] * len(blocks)
            heapq.heapify(queue)
        takes_s, s = heapq.heappop(queue)
        blocks[s] += 1
        if blocks[s] < most[s]:
            heapq.heappush(queue, (takes_s + each[s], s))
        else:
            full.append((takes_s + each[s], s))
    return np.array(blocks, dtype=np.int64)


def _joining_link(bandwidth: FloatArray) -> tuple[int, int]:
    """Return the slowest link of the maximum spanning tree by bandwidth, found with Prim's algorithm."""
    slowest, link = math.inf, (0, 1)
    reached, nearest = bandwidth[0].copy(), np.zeros(len(bandwidth), dtype=np.int64)
    inside = np.zeros(len(bandwidth), dtype=bool)
    inside[0] = True
    for _ in range(len(bandwidth) - 1):
        at = int(np.where(inside, -1.0, reached).argmax())
        if reached[at] < slowest:
            slowest, link = float(reached[at]), (int(nearest[at]), at)
        inside[at] = True
        nearer = bandwidth[at] > reached
        reached, nearest = np.where(nearer, bandwidth[at], reached), np.where(nearer, at, nearest)
    return link


def _overlaps(job: Job, n_replicas: int, sharding: str) -> list[bool]:
    """Return the values of ``overlap`` to try: the job's, or both if it is open. With one replica or zero-3 there is
    nothing to overlap, so only False is tried."""
    if job.overlap is not None:
        return [job.overlap]
    return [False] if n_replicas == 1 or sharding == "zero-3" else [False, True]
