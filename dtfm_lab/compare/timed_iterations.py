"""The rows of a comparison as arrays over the nodes of a task graph, with the owner of each node."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from dtfm_lab.compare.attribution import Times
from dtfm_lab.compare.dependencies import Dependencies
from dtfm_lab.domain.errors import TraceError
from dtfm_lab.domain.schedule.task_graph import SEND
from dtfm_lab.domain.units import FloatArray, IntArray

ACTION = ["replica", "stage", "kind", "microbatch", "peer"]
"""Columns of a frame that identify an action within an iteration."""


class TimedIterations(NamedTuple):
    """Iterations that synchronise, or that do not, with their predicted and measured times."""

    dependencies: Dependencies
    predicted: Times
    measured: Times
    group: IntArray
    """(nodes,) owner of each action, as a row of ``owners``: its link or device."""
    late_group: IntArray
    """(nodes,) owner of each action's delay: for messages the card, where messages queue at cards."""

    @classmethod
    def of(
        cls, rows: pd.DataFrame, dependencies: Dependencies, numbers: IntArray, names: pd.DataFrame, *, one_card: bool
    ) -> TimedIterations:
        """The iterations ``numbers`` of ``Comparison.rows``; raises TraceError where they hold other actions."""
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
                f"{len(given)} actions in {len(numbers)} iterations, {len(there)} of them in the schedule; "
                f"wanted {shape[0]} in each"
            )
        first = there.iloc[:: len(numbers)]
        place = pd.MultiIndex.from_frame(names)
        group, late_group = (
            np.asarray(place.get_indexer(pd.MultiIndex.from_frame(owner(first))), dtype=np.int64)
            for owner in (_owner, _card if one_card else _owner)
        )
        times = {}
        for which in ("predicted", "measured"):
            start_s, end_s = (there[f"{end}_s_{which}"].to_numpy().reshape(shape) for end in ("start", "end"))
            times[which] = Times.of(dependencies, start_s, end_s, group if one_card else None)
        return cls(dependencies, times["predicted"], times["measured"], group, late_group)

    def own_s(self, times: Times, n_groups: int) -> FloatArray:
        """(3, groups, iterations) seconds of durations, latencies and delays of each group.

        Durations and latencies are those of computations and receives, delays those of all actions.
        """
        counts = self.dependencies.graph.role != SEND
        whole = np.zeros((3, n_groups, times.duration_s.shape[1]))
        np.add.at(whole[0], self.group[counts], times.duration_s[counts])
        np.add.at(whole[1], self.group[counts], times.latency_s[counts])
        np.add.at(whole[2], self.late_group, times.late_s)
        return whole


def owners(rows: pd.DataFrame, *, one_card: bool) -> pd.DataFrame:
    """Columns of and name of all links and devices, and of the devices' cards where messages queue there."""
    parts = [_owner(rows), _card(rows)] if one_card else [_owner(rows)]
    return pd.concat(parts, ignore_index=True).drop_duplicates(ignore_index=True)


def _owner(rows: pd.DataFrame) -> pd.DataFrame:
    """The owner of each action: its link, or its device."""
    message = rows["link"] != ""
    return pd.DataFrame(
        {"of": np.where(message, "link", "device"), "name": np.where(message, rows["link"], rows["device"])}
    )


def _card(rows: pd.DataFrame) -> pd.DataFrame:
    """The owner of each action's delay: its device, or for messages the card by which they leave or come in."""
    of = np.where(rows["link"] != "", "card", "device")
    return pd.DataFrame({"of": of, "name": rows["device"].to_numpy()})
