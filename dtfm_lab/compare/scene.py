"""The rows of a comparison as arrays over what waits for what, and whose each action is."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from dtfm_lab.compare.shares import Times
from dtfm_lab.compare.waits import Waits
from dtfm_lab.domain.errors import TraceError
from dtfm_lab.domain.schedule import Lane
from dtfm_lab.domain.units import FloatArray, IntArray

ACTION = ["replica", "stage", "kind", "microbatch", "peer"]
"""what tells the actions of an iteration apart, in a frame"""


class Scene(NamedTuple):
    """Iterations of one kind."""

    waits: Waits
    predicted: Times
    measured: Times
    group: IntArray
    """(nodes,) row of the owners: whose an action is"""
    late_group: IntArray
    """whose its delay is: on cards, messages wait for others there"""

    @classmethod
    def of(cls, rows: pd.DataFrame, waits: Waits, numbers: IntArray, names: pd.DataFrame, *, one_card: bool) -> Scene:
        """From ``Comparison.rows``, of the iterations ``numbers``; raises TraceError where they hold other actions."""
        nodes = pd.DataFrame(
            [
                (replica, a.stage, a.kind.value, *(-1 if n is None else n for n in (a.microbatch, a.peer)))
                for replica, a in waits.nodes
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
            times[which] = Times.of(waits, start_s, end_s, group if one_card else None)
        return cls(waits, times["predicted"], times["measured"], group, late_group)

    def own_s(self, times: Times, n_groups: int) -> FloatArray:
        """(3, groups, iterations) durations and latencies of a group's computations, or of its messages as they come
        in, and the delays of all its actions."""
        computes = np.array([action.lane is Lane.COMPUTE for _, action in self.waits.nodes])
        counts = computes | (self.waits.send_of >= 0)
        whole = np.zeros((3, n_groups, times.duration_s.shape[1]))
        np.add.at(whole[0], self.group[counts], times.duration_s[counts])
        np.add.at(whole[1], self.group[counts], times.latency_s[counts])
        np.add.at(whole[2], self.late_group, times.late_s)
        return whole


def owners(rows: pd.DataFrame, *, one_card: bool) -> pd.DataFrame:
    """All links and devices, and the devices' cards where messages queue there: of, name."""
    parts = [_owner(rows), _card(rows)] if one_card else [_owner(rows)]
    return pd.concat(parts, ignore_index=True).drop_duplicates(ignore_index=True)


def _owner(rows: pd.DataFrame) -> pd.DataFrame:
    """Whose each action is: its link's, or its device's."""
    message = rows["link"] != ""
    return pd.DataFrame(
        {"of": np.where(message, "link", "device"), "name": np.where(message, rows["link"], rows["device"])}
    )


def _card(rows: pd.DataFrame) -> pd.DataFrame:
    """The same, but of a message the device whose card it leaves or comes in by."""
    of = np.where(rows["link"] != "", "card", "device")
    return pd.DataFrame({"of": of, "name": rows["device"].to_numpy()})
