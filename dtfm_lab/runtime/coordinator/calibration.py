"""Expected duration of each computation of a run, and the scale of the paced clock, from the calibration iterations.

A calibration iteration runs the same program, with the same messages, on a copy of each stage. Timing each computation
alone in a loop would give 5 to 10 % less, because caches stay warm and other cores idle.

The coordinator simulates what workers cannot know while they compute: when messages arrive, or in which order. If
messages queue at the receiver's NIC, the arrival of one depends on all others sent to it. On the virtual clock all
times follow from the CPU seconds of the computations. So the workers measure these, ignoring the links, and the
coordinator then simulates the iteration event by event (``replay``).

If the two directions between two devices alternate (transport ``blocking``), a send may have to wait for a message from
the other end. That message depends on what the other end still has to compute. So the order is fixed before the first
iteration. The simulator derives it from the run's profile (``turns_of``), and a prediction from that profile has the
same order. Both ends of a pair see all its messages, so they need not ask the coordinator.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from dtfm_lab.costs.efficiency import speeds_of
from dtfm_lab.costs.seconds import analytic
from dtfm_lab.domain.network import Links
from dtfm_lab.domain.schedule import PASSES, Action, Kind
from dtfm_lab.domain.schedule.task_graph import COMPUTATION, task_graph
from dtfm_lab.domain.trace import ComputeTime
from dtfm_lab.runtime.protocol.orders import Train
from dtfm_lab.runtime.protocol.run_options import RunSpec
from dtfm_lab.simulation.engine import PlacedTasks, simulate_iteration

WARM_UPS = 2
"""Number of first calibration iterations that are not counted. Only 1 if an iteration takes longer than LONG_S."""
LONG_S = 0.5
FEWEST = 3
"""Minimum number of calibration iterations that are counted. More are run only while they took less than LONG_S
together."""
MOST = 6
"""Maximum number of calibration iterations that are counted."""
PADDING = 5.0
"""Paced clock: minimum ratio of a computation's padded time to its wall time in calibration (the 90th percentile)."""
LARGEST_SCALE = 40.0
"""Paced clock: maximum wall seconds per second of the run. Only unequal devices may exceed it: see ``LONGEST_S``. If
this scale is too small, because the devices are much faster than this machine, computations are stretched to what the
machine can keep up with. ``RunCalibration.stretched`` counts them."""
LONGEST_S = 10.0
"""Paced clock, on a network of unequal devices: maximum wall seconds of an iteration in which they keep their ratio."""
SPREAD_UNDER_LOAD = 0.06
"""Virtual clock: ``compute_spread`` if computing threads wait for a core all the time. If they wait less, the spread is
smaller in proportion. CPU seconds grow when caches are shared: by up to 8 % on a machine where other processes used
three quarters of the time."""
HALVINGS = 20
"""Steps of the bisection for the seconds of a message. 20 halvings reach a millionth of the iteration."""
UNEQUAL = (Kind.PACK, Kind.REDUCE, Kind.STEP)
"""Computations whose amount may differ between replicas of one stage. ``calibrate`` averages only the others over
replicas."""

Work = tuple[int, int, Kind]
"""A kind of computation of one worker: (stage, replica, kind)."""


class MeasuredDurations(NamedTuple):
    """Durations of one kind of computation of one worker."""

    cpu_s: float
    """Mean CPU seconds of the computing thread. A mean, because an iteration adds up slow and fast computations."""
    wall_s: float
    """Mean wall seconds, which the real clock counts."""
    crowded_wall_s: float
    """90th percentile of wall seconds, with all workers busy at the same time."""


class RunCalibration(NamedTuple):
    """What the workers and the predictions get before the first iteration."""

    profile: list[ComputeTime]
    time_scale: float
    """Wall seconds per second of the run; 1 unless the clock is paced."""
    stretched: int
    """Number of profile rows that take longer than on the network's device, because this machine is too slow (paced
    clock)."""
    message_s: float = 0.0
    """Seconds from a computation's end to the start of a computation on another worker that waits for it (real
    clock)."""
    compute_spread: float = 0.0
    """Standard deviation of the logarithm of a duration: of each computation on the virtual clock, of an iteration on
    the real clock, 0 on the paced clock."""


def calibrate(
    spec: RunSpec, measured: Mapping[Work, MeasuredDurations], iterations_s: Sequence[float] = ()
) -> RunCalibration:
    """Return the expected duration of every computation of the run.

    ``iterations_s``: seconds that whole calibration iterations took.
    """
    # Replicas of a stage compute the same on the same machine, so their mean is steadier than each duration.
    alike: dict[Work, list[float]] = defaultdict(list)
    group = {key: key if key[2] in UNEQUAL else (key[0], -1, key[2]) for key in measured}
    for key, figures in measured.items():
        alike[group[key]].append(figures.wall_s if spec.clock == "real" else figures.cpu_s)
    seconds = {key: statistics.fmean(alike[group[key]]) for key in measured}
    if spec.clock != "paced":
        rows, busy_s = _rows(seconds), sum(figures.cpu_s for figures in measured.values())
        # 1 - CPU / wall: how much of the time computing threads waited for a core
        waiting = 1 - busy_s / max(sum(figures.wall_s for figures in measured.values()), busy_s) if busy_s > 0 else 0.0
        if spec.clock == "virtual":
            return RunCalibration(rows, 1.0, 0, compute_spread=SPREAD_UNDER_LOAD * waiting)
        n, spread = len(iterations_s), 0.0
        if n > 1 and min(iterations_s) > 0:  # spread of the next iteration, predicted from these
            spread = float(np.std(np.log(iterations_s), ddof=1)) * (1 + 1 / n) ** 0.5
        return RunCalibration(rows, 1.0, 0, _message_s(spec, rows, iterations_s), spread)
    seconds = _device_seconds(spec, seconds)
    if spec.time_scale is not None:
        return RunCalibration(_rows(seconds), spec.time_scale, 0)
    needed_s = {key: PADDING * figures.crowded_wall_s for key, figures in measured.items()}
    # at least 1: a second of the run never passes faster than a second of the wall
    enough = max(1.0, *(needed_s[key] / seconds[key] for key in seconds))
    if enough <= LARGEST_SCALE:
        return RunCalibration(_rows(seconds), enough, 0)
    if in_proportion := _in_proportion(spec, seconds, enough):
        return in_proportion
    stretched = sum(seconds[key] * LARGEST_SCALE < needed_s[key] for key in seconds)
    seconds = {key: max(each_s, needed_s[key] / LARGEST_SCALE) for key, each_s in seconds.items()}
    return RunCalibration(_rows(seconds), LARGEST_SCALE, stretched)


def _message_s(spec: RunSpec, rows: list[ComputeTime], iterations_s: Sequence[float]) -> float:
    """Return the seconds per message with which a simulated iteration takes as long as the measured ones.

    On real links these seconds cover what a worker does between computations, and its waiting for a core when workers
    or other processes share it. 0 if the computations alone take as long, or if nothing is sent.
    """
    if not iterations_s:
        return 0.0
    whole_s = statistics.median(iterations_s)

    def predicted_s(message_s: float) -> float:
        links = Links.free(len(spec.plan.topology)).delayed(message_s)
        return simulate_iteration(spec.plan, spec.built, rows, links).makespan_s

    # the computations alone take as long, or nothing is sent, so that no delay makes the iteration longer
    if predicted_s(0.0) >= whole_s or predicted_s(whole_s) < whole_s:
        return 0.0
    low_s, high_s = 0.0, whole_s
    for _ in range(HALVINGS):
        middle_s = (low_s + high_s) / 2
        low_s, high_s = (middle_s, high_s) if predicted_s(middle_s) < whole_s else (low_s, middle_s)
    return high_s


def _in_proportion(spec: RunSpec, seconds: Mapping[Work, float], enough: float) -> RunCalibration | None:
    """Return a calibration in which unequal devices keep the ratio of their speeds, although they outrun this machine.

    ``enough`` is the scale at which all computations fit. If an iteration is then short enough, the links are slowed
    down by the same scale. Otherwise all computations are stretched by the same factor, and links take relatively less
    time. None if both take too long, or if all devices are equal.
    """
    if len(set(speeds_of(spec.plan.job, spec.plan.topology.devices))) == 1:
        return None
    for scale in (enough, LARGEST_SCALE):
        rows = _rows({key: each_s * enough / scale for key, each_s in seconds.items()})
        if scale * simulate_iteration(spec.plan, spec.built, rows, spec.links).makespan_s <= LONGEST_S:
            return RunCalibration(rows, scale, 0 if scale == enough else len(rows))
    return None


def _rows(seconds: Mapping[Work, float]) -> list[ComputeTime]:
    return [ComputeTime(*key, each_s) for key, each_s in sorted(seconds.items())]


def _device_seconds(spec: RunSpec, cpu_s: Mapping[Work, float]) -> dict[Work, float]:
    """Return the durations on the network's devices.

    A pass takes its FLOP divided by the device's speed. Averaging and the optimizer step are not described by FLOP.
    They are slower than on this machine by the same factor as the forward pass.
    """
    analytic_rows = analytic(spec.plan, spec.programs(synchronise=True))
    device_s = {(row.stage, row.replica, row.kind): row.seconds for row in analytic_rows}

    def seconds(stage: int, replica: int, kind: Kind) -> float:
        if kind in PASSES:
            return device_s[stage, replica, kind]
        slower = device_s[stage, replica, Kind.FORWARD] / cpu_s[stage, replica, Kind.FORWARD]
        return cpu_s[stage, replica, kind] * slower

    return {key: seconds(*key) for key in cpu_s}


Row = list[Any]
"""A row of a spans event: iteration, replica, [stage, kind, microbatch, peer], start_s, end_s."""


def replay(spec: RunSpec, iteration: int, rows: Iterable[Row]) -> list[Row]:
    """Return the spans of a whole iteration on the run's links, given the spans that all workers reported.

    Only the durations of computations are taken from ``rows``. Their times, and all messages, are simulated again.
    """
    tasks = _placed_tasks(spec, spec.synchronises(iteration))
    graph = tasks.graph
    took_s = {(replica, Action(*action)): end_s - start_s for _, replica, action, start_s, end_s in rows}
    compute_s = np.zeros(len(graph))
    for node in np.flatnonzero(graph.role == COMPUTATION).tolist():
        compute_s[node] = took_s[int(graph.replica[node]), graph.actions[graph.action[node]]]
    simulated = replace(tasks, compute_s=compute_s).simulate(spec.links)
    columns = (graph.replica, graph.action, simulated.start_s, simulated.end_s)
    return [
        [iteration, replica, list(graph.actions[action]), start_s, end_s]
        for replica, action, start_s, end_s in zip(*(column.tolist() for column in columns), strict=True)
    ]


@lru_cache(maxsize=2)
def _placed_tasks(spec: RunSpec, synchronises: bool) -> PlacedTasks:
    programs = spec.programs(synchronise=synchronises)
    return PlacedTasks.of(spec.plan, programs, [ComputeTime(*work, 0.0) for work in task_graph(programs).computations])


Turns = list[list[int]]
"""Pairs of positions in one worker's program: a send, and the receive of the message that must have arrived before
it."""


def turns_of(spec: RunSpec, profile: Iterable[ComputeTime]) -> dict[int, list[Turns]]:
    """Return, by rank, the turns in an iteration that does not synchronise, and in one that does.

    A send that follows another send of the same device is left out, because it waits for that message's arrival in any
    case. Both are empty if messages do not alternate, or if the coordinator replays them.
    """
    turns: dict[int, list[Turns]] = {rank: [[], []] for rank in range(len(spec.workers))}
    if spec.plan.job.transport != "blocking" or spec.replays:
        return turns
    rows = tuple(profile)
    for synchronise in (False, True):
        tasks = PlacedTasks.of(spec.plan, spec.programs(synchronise=synchronise), rows)
        device, ahead = tasks.graph.device, tasks.simulate(spec.links).ahead
        first = np.searchsorted(device, np.arange(device.max() + 1))
        sends = np.flatnonzero(ahead >= 0)
        for send in sends[device[sends] == device[ahead[sends]]].tolist():
            rank = spec.rank(int(tasks.graph.position[send]), int(tasks.graph.replica[send]))
            turns[rank][synchronise].append([send - int(first[device[send]]), int(ahead[send] - first[device[send]])])
    return turns


def train_orders(spec: RunSpec, calibration: RunCalibration) -> dict[int, Train]:
    """Return the ``Train`` order of each rank: expected durations, time scale and turns."""
    turns = turns_of(spec, calibration.profile)
    orders: dict[int, Train] = {}
    for rank, (position, replica) in enumerate(spec.workers):
        held = spec.built.stages_of(position)
        rows = [(row.stage, row.kind, row.seconds) for row in calibration.profile if row.replica == replica]
        specified_s = [row for row in rows if row[0] in held]
        orders[rank] = Train(specified_s=specified_s, time_scale=calibration.time_scale, turns=turns[rank])
    return orders


def still_counted(n_counted: int, counted_s: float) -> int:
    """Return how many more calibration iterations will be counted, if each takes as long as those so far."""
    if not n_counted:
        return FEWEST
    enough = math.ceil(LONG_S * n_counted / counted_s) if counted_s > 0 else MOST
    return min(max(enough, FEWEST), MOST) - n_counted
