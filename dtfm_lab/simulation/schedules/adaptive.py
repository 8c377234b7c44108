"""Choose the warm-ups of adaptive-1f1b: how many forwards each device runs before it alternates, for a given network.

With enough warm-up forwards, the gradients of a micro-batch are back when their turn comes, however long the round
trip. More of them cost memory, and also time if messages queue. The depth of a device is its number of warm-up
forwards. A closed form gives the depths that a steady pipeline needs. Filling and draining need more, for which we have
no formula. So multiples of the steady depths are simulated, and forwards that save no time are removed.

``Makespans`` simulates many tuples of depths, without building a schedule and a task graph for each.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from numbers import Integral

import numpy as np

from dtfm_lab.costs.seconds import compute_seconds
from dtfm_lab.domain.errors import ScheduleError
from dtfm_lab.domain.job import boundary_bytes
from dtfm_lab.domain.network import Links, shortened
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Kind, taking_turns, with_warmups
from dtfm_lab.domain.schedule.task_graph import COMPUTATION, TaskGraph
from dtfm_lab.domain.trace import ComputeTime
from dtfm_lab.domain.units import FloatArray, IntArray, counted
from dtfm_lab.simulation.engine import PlacedTasks, programs_of, takes_rings_whole, without_edges

Warmups = tuple[int, ...]


class Makespans:
    """Simulates one iteration for given warm-ups: called with (devices,) depths, it returns seconds. Equal depths are
    simulated once.

    Replicas average in this iteration if they do in every one. The job's ``overlap`` and absent devices are ignored.

    Warm-ups change only the order in which devices compute and, if sends block, which passes wait for the arrival of a
    message. One task graph without this order is therefore built once. The edges of each order are added to it.
    """

    def __init__(self, plan: Plan, profile: tuple[ComputeTime, ...], links: Links) -> None:
        self._plan, self._profile, self._links = plan, profile, links
        self._simulated: dict[Warmups, float] = {}

    def __len__(self) -> int:
        """Return the number of tuples of depths that were simulated."""
        return len(self._simulated)

    def __call__(self, depths: IntArray) -> float:
        warmups = tuple(depths.tolist())
        if warmups not in self._simulated:
            tasks = replace(self._unordered, extra_edges=self._lanes(warmups))
            self._simulated[warmups] = tasks.simulate(self._links).makespan_s
        return self._simulated[warmups]

    def fewest(self, limit_s: float) -> IntArray:
        """Return the depths with the smallest sum, of those whose simulated iteration takes at most ``limit_s``."""
        within = (warmups for warmups, seconds in self._simulated.items() if seconds <= limit_s)
        return np.array(min(within, key=lambda warmups: (sum(warmups), warmups)))

    @cached_property
    def _unordered(self) -> PlacedTasks:
        job = self._plan.job
        most = job.n_microbatches - 1  # the last forward alternates with the first backward in any case
        of_1f1b = tuple(min(depth, most) for depth in range(job.n_stages - 1, -1, -1))
        plain = with_warmups("adaptive-1f1b", job.n_microbatches, of_1f1b)
        # only the order of whole passes is removed, so warm-ups are chosen without overlap; and no device changes its
        # order because others are absent
        plan = self._plan
        if job.overlap or plan.absent:
            plan = plan.changed(job=job.with_fields(overlap=False), absent=())
        synchronise, whole_rings = job.averages_every == 1, takes_rings_whole(plan.job, plain)
        programs = programs_of(plan, plain, synchronise=synchronise, whole_rings=whole_rings)
        tasks = PlacedTasks.of(plan, programs, self._profile)
        return replace(tasks, graph=_without_lanes(tasks.graph))

    @cached_property
    def _passes(self) -> tuple[IntArray, ...]:
        return _passes_of(self._unordered.graph)

    def _lanes(self, warmups: Warmups) -> tuple[IntArray, IntArray]:
        """Return (sources, targets) of edges from each pass to the next pass on its device.

        If sends block, the next pass also waits for the arrival of the message that the pass sends.
        """
        before, after = [], []
        arrival = self._arrivals
        for passes in self._passes:
            m = passes.shape[2] // 2
            forwards, backwards = range(m), range(m, 2 * m)
            turns = np.array([taking_turns(forwards, backwards, min(warmup, m)) for warmup in warmups])
            lanes = np.take_along_axis(passes, turns[:, None, :], axis=2)
            before.append(lanes[:, :, :-1].ravel())
            after.append(lanes[:, :, 1:].ravel())
        source, target = np.concatenate(before), np.concatenate(after)
        sent = np.flatnonzero(arrival[source] >= 0)
        return np.concatenate([source, arrival[source[sent]]]), np.concatenate([target, target[sent]])

    @cached_property
    def _arrivals(self) -> IntArray:
        """(nodes,) for each pass whose device waits until the pass's message has arrived, the receive of that message.
        -1 for all other nodes."""
        graph = self._unordered.graph
        arrival = np.full(len(graph), -1, dtype=np.int64)
        sends = np.flatnonzero(graph.takes_turns)
        arrival[sends - 1] = graph.partner[sends]  # a send directly follows its producer
        return arrival


@lru_cache(maxsize=2)  # the same graph is used for other links
def _without_lanes(graph: TaskGraph) -> TaskGraph:
    """Return the graph without the edges that order passes: from the previous pass on the same device, and from an
    arrival on another device."""
    n = len(graph)
    passing = np.isin([action.kind for action in graph.actions], [Kind.FORWARD, Kind.BACKWARD])[graph.action]
    passing &= graph.role == COMPUTATION
    nodes = np.flatnonzero(passing)
    before, after = nodes[:-1], nodes[1:]
    neighbours = (graph.position[before] == graph.position[after]) & (graph.replica[before] == graph.replica[after])
    source = graph.sources
    edges = source * n + graph.successors
    by_key = np.argsort(edges, kind="stable")
    # if a pass also needs the previous one, the edge exists twice, and one stays
    lanes = by_key[np.searchsorted(edges[by_key], (before * n + after)[neighbours])]
    gone = passing[graph.successors] & (graph.device[source] != graph.device[graph.successors])
    gone[lanes] = True
    return without_edges(graph, gone)


@lru_cache(maxsize=2)
def _passes_of(graph: TaskGraph) -> tuple[IntArray, ...]:
    """Return (devices, replicas, 2 M) the nodes of the forwards of micro-batches 0 to M - 1, then of their backwards.

    There is one array for each number M of micro-batches that a pipeline has.
    """
    programs = graph.programs
    most = programs.schedule.n_microbatches
    column = np.full(len(graph.actions), -1)
    for i, action in enumerate(graph.actions):
        if action.kind in (Kind.FORWARD, Kind.BACKWARD) and action.microbatch is not None:
            column[i] = action.microbatch + (action.kind is Kind.BACKWARD) * most
    nodes = np.empty((programs.n_positions, programs.n_replicas, 2 * most), dtype=np.int64)
    passing = np.flatnonzero(column[graph.action] >= 0)
    at = column[graph.action[passing]]
    nodes[graph.position[passing], graph.replica[passing], at] = passing
    counts = (programs.microbatch_counts[replicas[0]] for replicas in programs.replicas)
    columns = (np.concatenate([np.arange(m), np.arange(most, most + m)]) for m in counts)
    return tuple(nodes[:, replicas][:, :, which] for replicas, which in zip(programs.replicas, columns, strict=True))


ALIKE = 1e-9
"""Makespans count as equal if they differ by less than this, relatively, because that is only rounding."""
FACTORS = 1.1 ** np.arange(24)
"""Multiples of the steady depths to try. Beyond a factor of 9, no network that we tried got faster."""
PATIENCE = 5
"""The search ends after this number of factors in a row without a gain."""
MOST_SIMULATIONS = 60
"""Once this number of simulations is exceeded, removing superfluous forwards is not repeated."""
OFFSETS = np.arange(8) / 8
"""Fractions of a forward that are tried. Each is subtracted from the depths scaled down to the memory limit, which are
then rounded up. The larger the fraction, the more devices get one warm-up forward less."""


def choose_warmups(
    plan: Plan, profile: Iterable[ComputeTime], links: Links, most_activations: int | Sequence[int] | None = None
) -> Warmups:
    """Return, per device of a pipeline, the fewest warm-up forwards that were found to make the iteration shortest.

    These are the warm-ups of 1F1B if no others are better. Some tens of candidates are simulated. Equal arguments give
    equal results.

    Parameters
    ----------
    profile
        Seconds of all computations, one stage per device.
    most_activations
        Maximum number of activations that a device may hold at once: one number for all, or one per device. A device
        with w warm-up forwards holds w + 1.

    Raises
    ------
    ScheduleError
        A limit is below 1, or there is not one per device.
    TraceError
        The profile has no time for a computation.
    """
    job, profile = plan.job, tuple(profile)
    makespan_s = Makespans(plan, profile, links)
    deepest = _deepest(job.n_stages, job.n_microbatches, most_activations)
    plain = np.minimum(np.arange(job.n_stages)[::-1], job.n_microbatches - 1)
    steady = np.maximum(_steady(plan, profile, links), plain)

    best = min((np.minimum(plain, deepest), deepest), key=makespan_s)
    if most_activations is not None:
        scaled = _scaled_down(steady, deepest)
        best = min((best, *(_rounded(scaled - offset) for offset in OFFSETS)), key=makespan_s)
    missed = 0
    for factor in FACTORS:
        tried = np.minimum(_rounded(factor * steady), deepest)
        better = makespan_s(tried) < makespan_s(best) * (1 - ALIKE)
        best, missed = (tried, 0) if better else (best, missed + 1)
        if missed == PATIENCE:
            break
    limit_s = makespan_s(best) * (1 + ALIKE)
    if (plain <= deepest).all() and makespan_s(plain) <= limit_s:
        return tuple(plain.tolist())
    chosen = makespan_s.fewest(limit_s)
    # fewer forwards on one device can make forwards of others superfluous
    while (fewer := _shrunk(chosen, makespan_s, limit_s)).sum() < chosen.sum():
        chosen = fewer
        if len(makespan_s) > MOST_SIMULATIONS:
            break
    return tuple(chosen.tolist())


def _shrunk(depths: IntArray, makespan_s: Makespans, limit_s: float) -> IntArray:
    """Return reduced depths. From the last device to the first, each is reduced as far as the iteration stays within
    ``limit_s``."""
    below = 0  # no device may go deeper than the one before
    for device in reversed(range(len(depths))):
        least, most = below, int(depths[device])
        tried_depth = most - 1  # most often not even one fewer is possible
        while least < most:
            tried = depths.copy()
            tried[device] = tried_depth
            if makespan_s(tried) <= limit_s:
                depths, most = tried, tried_depth
            elif tried_depth == most - 1:
                break
            else:
                least = tried_depth + 1
            tried_depth = (least + most) // 2
        below = int(depths[device])
    return depths


def _rounded(depths: FloatArray) -> IntArray:
    return np.asarray(np.maximum(np.ceil(depths - ALIKE), 0).astype(np.int64))


def _deepest(n_devices: int, n_microbatches: int, most_activations: int | Sequence[int] | None) -> IntArray:
    """Return (devices,) maximum depths within the limits. None exceeds the depth of the device before it, which has to
    send that many forwards."""
    if most_activations is None:
        most_activations = n_microbatches
    limits = list(most_activations) if isinstance(most_activations, Iterable) else [most_activations] * n_devices
    if len(limits) != n_devices:
        raise ScheduleError(f"most activations of {counted(len(limits), 'device')}; wanted one number, or {n_devices}")
    for device, limit in enumerate(limits):
        if not isinstance(limit, Integral) or isinstance(limit, bool) or limit < 1:
            raise ScheduleError(f"most activations of device {device} is {shortened(limit)}; wanted 1 or more")
    return np.minimum.accumulate(np.minimum(limits, n_microbatches).astype(np.int64) - 1)


def _scaled_down(depths: IntArray, deepest: IntArray) -> FloatArray:
    """Return (devices,) depths scaled down to the limits ``deepest``.

    If a device's limit is below its depth, the depths of all devices after it are reduced by at least the same factor.
    Otherwise some of these devices would wait for the whole rest of the pipeline.
    """
    shares: FloatArray = np.minimum.accumulate(np.minimum(deepest / np.maximum(depths, 1), 1.0))
    return depths * shares


def _steady(plan: Plan, profile: tuple[ComputeTime, ...], links: Links) -> IntArray:
    """Return (devices,) depths with which a full pipeline loses no time, in any replica.

    In a steady pipeline, everything repeats with a period, which the slowest device or link sets. Each device has its
    forward and its backward at fixed times of the period. Micro-batch 0 is followed down and up the pipeline. Its
    backward at a device runs in the first period in which its gradient has arrived. The depth is the number of periods
    until then.
    """
    grid = plan.placement.devices
    n_devices, n_replicas = grid.shape
    forward_s, backward_s = (
        compute_seconds([(s, r, kind) for s in range(n_devices) for r in range(n_replicas)], profile).reshape(
            grid.shape
        )
        for kind in (Kind.FORWARD, Kind.BACKWARD)
    )
    down, up = (grid[:-1], grid[1:]), (grid[1:], grid[:-1])  # sender and receiver
    n_bytes = np.array(boundary_bytes(plan.job, n_devices))[1:-1, None]
    sending_down_s, sending_up_s = (links.moving_s(*hop, n_bytes) for hop in (down, up))
    messages = [(*down, sending_down_s), (*up, sending_up_s)]
    period_s = max(float((forward_s + backward_s).max()), _busiest_s(links, messages))
    if period_s == 0:
        return np.zeros(n_devices, dtype=np.int64)
    hops_s = sending_down_s + links.latency_s[down] + sending_up_s + links.latency_s[up]

    depths = np.zeros(grid.shape, dtype=np.int64)
    away_s = np.zeros(n_replicas)  # from the end of a device's forward to when its gradient is there
    for device in reversed(range(n_devices)):
        ready_s = forward_s[device] + away_s
        depths[device] = np.maximum(np.ceil((ready_s + backward_s[device]) / period_s - ALIKE) - 1, 0)
        turn_s = np.maximum(ready_s, period_s * depths[device] + forward_s[device])
        if device:
            away_s = hops_s[device - 1] + turn_s + backward_s[device]
    return np.asarray(depths.max(axis=1))


def _busiest_s(links: Links, messages: list[tuple[IntArray, IntArray, FloatArray]]) -> float:
    """Return the seconds for which the messages of one micro-batch per pipeline occupy the busiest link or NIC, in one
    direction.

    ``messages`` has the senders, the receivers and the seconds of messages.
    """
    columns = zip(*messages, strict=True)
    sender, receiver, seconds = (np.concatenate([part.ravel() for part in column]) for column in columns)
    queues = np.concatenate(links.queues(sender, receiver))
    _, queue = np.unique(queues, return_inverse=True)
    busy_s = np.bincount(queue[queues >= 0], weights=np.tile(seconds, 2)[queues >= 0])
    return float(busy_s.max(initial=0))
