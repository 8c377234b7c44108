"""Attribute the error of an iteration: divide the change of its length among the actions that differed.

An iteration is as long as the longest chain of actions that wait for each other. Let every duration, latency and delay
move from its predicted to its measured value, all together and linearly. At each moment the iteration grows by what
grows on the chain that is longest at that moment. Integrated over the whole change, this divides the error completely,
and no action is charged for waiting for others (Aumann and Shapley 1974).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from dtfm_lab.compare.dependencies import Dependencies
from dtfm_lab.domain.errors import TraceError
from dtfm_lab.domain.schedule.task_graph import SEND
from dtfm_lab.domain.units import FloatArray, IntArray, counted

if TYPE_CHECKING:
    import pandas as pd

SAMPLES = 17
"""Number of points between predicted and measured at which the longest chain is computed."""
ACTION = ["replica", "stage", "kind", "microbatch", "peer"]
"""Columns of a frame that identify an action within an iteration."""
Mask = npt.NDArray[np.bool_]
BATCH = 16
"""Number of iterations computed at once. More would take more memory."""


class Times(NamedTuple):
    """Seconds that each action itself takes, without waiting for other actions; all arrays are (nodes, iterations).

    Together with the dependencies, they determine when every action starts and ends.
    """

    duration_s: FloatArray
    latency_s: FloatArray
    """For a receive, seconds from the start of its send until its first byte arrives; 0 for all other actions."""
    late_s: FloatArray
    """Delay: how much later an action started than its dependencies allowed."""

    @classmethod
    def of(cls, dependencies: Dependencies, start_s: FloatArray, end_s: FloatArray, link: IntArray | None) -> Times:
        """Return the times of actions that started and ended at these seconds, each (nodes, iterations).

        Give ``link``, the number of each node's link, if first bytes may wait for the receiver's NIC. The latency of a
        link is then the shortest latency of its messages in the same iteration.
        """
        received = dependencies.send_of >= 0
        latency_s = np.zeros_like(start_s)
        latency_s[received] = (start_s - start_s[dependencies.send_of])[received]
        if link is not None:
            shortest_s = np.full((link.max() + 1, start_s.shape[1]), np.inf)
            np.minimum.at(shortest_s, link[received], latency_s[received])
            latency_s[received] = shortest_s[link[received]]
        ready_s = np.zeros_like(start_s)
        for at, sources in enumerate(dependencies.before):
            if sources:
                ready_s[at] = end_s[list(sources)].max(axis=0)
            if received[at]:
                ready_s[at] = np.maximum(ready_s[at], start_s[dependencies.send_of[at]] + latency_s[at])
        return cls(end_s - start_s, latency_s, start_s - ready_s)


class TimedIterations(NamedTuple):
    """Iterations of one kind (all synchronise, or none does), with their predicted and measured times."""

    dependencies: Dependencies
    predicted: Times
    measured: Times
    group: IntArray
    """(nodes,) number of the link or device that each action belongs to: its row in ``owners``."""
    late_group: IntArray
    """(nodes,) row in ``owners`` that each action's delay is charged to: its link or device or, for messages that queue
    at NICs, the NIC."""

    @classmethod
    def of(
        cls, rows: pd.DataFrame, dependencies: Dependencies, numbers: IntArray, names: pd.DataFrame, *, one_nic: bool
    ) -> TimedIterations:
        """Return the iterations ``numbers`` of ``Comparison.rows``. ``names`` are the links, devices and NICs
        (``owners``). Raises TraceError if their actions differ from the graph's."""
        import pandas as pd  # takes a while to load

        graph = dependencies.graph
        actions = [graph.actions[number] for number in graph.action.tolist()]
        nodes = pd.DataFrame(
            [
                (replica, a.stage, a.kind.value, *(-1 if n is None else n for n in (a.microbatch, a.peer)))
                for replica, a in zip(graph.replica.tolist(), actions, strict=True)
            ],
            columns=ACTION,
        ).reset_index(names="node")
        given = rows[rows["iteration"].isin(numbers)]
        there = given.merge(nodes, on=ACTION, how="inner").sort_values(["node", "iteration"], kind="stable")
        shape = len(nodes), len(numbers)
        if len(given) != len(there) or len(there) != shape[0] * shape[1]:
            raise TraceError(
                f"{counted(len(given), 'action')} in {counted(len(numbers), 'iteration')}, {len(there)} of them in "
                f"the schedule; wanted {shape[0]} in each"
            )
        first = there.iloc[:: len(numbers)]
        place = pd.MultiIndex.from_frame(names)
        group, late_group = (
            np.asarray(place.get_indexer(pd.MultiIndex.from_frame(owner(first))), dtype=np.int64)
            for owner in (_owner, _nic if one_nic else _owner)
        )
        times = {}
        for which in ("predicted", "measured"):
            start_s, end_s = (there[f"{end}_s_{which}"].to_numpy().reshape(shape) for end in ("start", "end"))
            times[which] = Times.of(dependencies, start_s, end_s, group if one_nic else None)
        return cls(dependencies, times["predicted"], times["measured"], group, late_group)

    def own_s(self, times: Times, n_groups: int) -> FloatArray:
        """Return (3, groups, iterations) seconds of each group's durations, latencies and delays. A group is a link, a
        device or a NIC.

        Durations and latencies of sends are left out, because their receives stand for the messages. Every action can
        have a delay.
        """
        counts = self.dependencies.graph.role != SEND
        whole = np.zeros((3, n_groups, times.duration_s.shape[1]))
        np.add.at(whole[0], self.group[counts], times.duration_s[counts])
        np.add.at(whole[1], self.group[counts], times.latency_s[counts])
        np.add.at(whole[2], self.late_group, times.late_s)
        return whole

    def longer_s(self, n_groups: int) -> FloatArray:
        """Return (3, groups, iterations) seconds by which the durations, latencies and delays of each group (link,
        device or NIC) lengthen an iteration."""
        n_iterations = self.measured.duration_s.shape[1]
        found = np.zeros((3, n_groups, n_iterations))
        for first in range(0, n_iterations, BATCH):
            part = slice(first, first + BATCH)
            begin, end = (Times(*(column[:, part] for column in each)) for each in (self.predicted, self.measured))
            self._share_out(begin, end, found[:, :, part])
        return found

    def _share_out(self, begin: Times, end: Times, found: FloatArray) -> None:
        """Add to ``found`` the seconds that each group contributes to the change of an iteration's length from
        ``begin`` to ``end``."""
        n_iterations = begin.duration_s.shape[1]
        progress = np.tile(np.linspace(0.0, 1.0, SAMPLES), n_iterations)
        of = np.repeat(np.arange(n_iterations), SAMPLES)
        change = Times(*(b - a for a, b in zip(begin, end, strict=True)))
        # Moved in small steps from predicted to measured, because the critical path changes on the way.
        length_s, last, came_from, from_start = _makespans(self.dependencies, begin, change, progress, of)
        chains = list(_chains(last, came_from, from_start))
        growth_s = np.zeros(len(progress))
        for column, at, ended, by_start in chains:
            moved = ended * change.duration_s[at, of[column]] + by_start * change.latency_s[at, of[column]]
            growth_s[column] += moved + change.late_s[at, of[column]]
        weight = _weights(*(each.reshape(n_iterations, SAMPLES) for each in (progress, length_s, growth_s))).ravel()
        # Each sample charges only what is on its own critical path.
        for column, at, ended, by_start in chains:
            iteration, share = of[column], weight[column]
            np.add.at(found[0], (self.group[at], iteration), share * ended * change.duration_s[at, iteration])
            np.add.at(found[1], (self.group[at], iteration), share * by_start * change.latency_s[at, iteration])
            np.add.at(found[2], (self.late_group[at], iteration), share * change.late_s[at, iteration])


def owners(rows: pd.DataFrame, *, one_nic: bool) -> pd.DataFrame:
    """Return all links and devices, and NICs if messages queue there: one row each, with the columns ``of`` and
    ``name``."""
    import pandas as pd  # takes a while to load

    parts = [_owner(rows), _nic(rows)] if one_nic else [_owner(rows)]
    return pd.concat(parts, ignore_index=True).drop_duplicates(ignore_index=True)


def _owner(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the owner of each action: its link or its device."""
    import pandas as pd  # takes a while to load

    message = rows["link"] != ""
    return pd.DataFrame(
        {"of": np.where(message, "link", "device"), "name": np.where(message, rows["link"], rows["device"])}
    )


def _nic(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the owner of each action's delay: its device, or for messages the NIC that they pass."""
    import pandas as pd  # takes a while to load

    of = np.where(rows["link"] != "", "nic", "device")
    return pd.DataFrame({"of": of, "name": rows["device"].to_numpy()})


def _chains(last: IntArray, came_from: IntArray, from_start: Mask) -> Iterator[tuple[IntArray, IntArray, Mask, Mask]]:
    """Walk back along the longest chain of every column (one sample of one iteration), all columns at once.

    Yields four arrays per step: the columns that still continue, the node of each, True if the node's own duration
    counts (not if the next node waited for its start), and True if the node waited for the start of its send.
    """
    column, at = np.arange(len(last)), last
    ended = np.ones(len(last), dtype=bool)
    while len(column):
        by_start = from_start[at, column]
        yield column, at, ended, by_start
        at = came_from[at, column]
        goes_on = at >= 0
        column, at, ended = column[goes_on], at[goes_on], ~by_start[goes_on]


def _weights(progress: FloatArray, length_s: FloatArray, growth_s: FloatArray) -> FloatArray:
    """Return (iterations, samples) weights: on which fraction of the way from predicted to measured each sample's chain
    counts as the longest.

    The length is the maximum of many straight lines, so one chain takes over from another where the lines of
    neighbouring samples cross. The growth therefore adds up to the whole error, even with few samples.
    """
    offset_s = length_s - growth_s * progress
    with np.errstate(divide="ignore", invalid="ignore"):
        meet = (offset_s[:, :-1] - offset_s[:, 1:]) / (growth_s[:, 1:] - growth_s[:, :-1])
    middle = (progress[:, :-1] + progress[:, 1:]) / 2
    meet = np.clip(np.where(np.isfinite(meet), meet, middle), progress[:, :-1], progress[:, 1:])
    return np.asarray(np.diff(meet, axis=1, prepend=0.0, append=1.0))


def _makespans(
    dependencies: Dependencies, begin: Times, change: Times, progress: FloatArray, of: IntArray
) -> tuple[FloatArray, IntArray, IntArray, Mask]:
    """Simulate all samples of all iterations at once, one per column.

    Returns four arrays. Per column: the seconds until the last node ends, and that node. Per node and column: the node
    that it waited for last (-1 for none), and True if it waited for that node's start rather than its end.
    """
    shape = len(dependencies.graph), len(progress)
    start_s, end_s = np.empty(shape), np.empty(shape)
    came_from = np.full(shape, -1, dtype=np.int64)
    from_start = np.zeros(shape, dtype=bool)
    columns = np.arange(shape[1])
    send_of = dependencies.send_of.tolist()
    for at in dependencies.order:
        ready_s: FloatArray | float = 0.0
        if sources := dependencies.before[at]:
            if len(sources) == 1:
                ready_s = end_s[sources[0]]
                came_from[at] = sources[0]
            else:
                ends_s = end_s[list(sources)]
                best = ends_s.argmax(axis=0)
                ready_s = ends_s[best, columns]
                came_from[at] = np.array(sources)[best]
        if (send := send_of[at]) >= 0:
            there_s = start_s[send] + begin.latency_s[at, of] + progress * change.latency_s[at, of]
            by_start = there_s >= ready_s if sources else np.ones(shape[1], dtype=bool)
            from_start[at] = by_start
            came_from[at][by_start] = send
            ready_s = np.maximum(ready_s, there_s) if sources else there_s
        start_s[at] = ready_s + begin.late_s[at, of] + progress * change.late_s[at, of]
        end_s[at] = start_s[at] + begin.duration_s[at, of] + progress * change.duration_s[at, of]
    return end_s.max(axis=0), end_s.argmax(axis=0), came_from, from_start
