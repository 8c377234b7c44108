"""Devices that are alike as one class, with links no worse than those of any of its members.

A bound that takes every class for a number of equal devices, each as fast, as large and as well linked as the best of
its class, holds for the devices themselves. Where a class holds interchangeable devices only, nothing is lost.

A cut of a network has two sides between which messages take long. Whatever crosses it pays for it: pipelines that cross
pass no more micro-batches than the best link across carries, and stages with devices on both sides average across. Any
cut gives a valid bound. Good ones part groups of devices that are near each other from all others, so candidates come
from joining the nearest classes first.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt

from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.iteration.problem import IterationProblem

MOST_CLASSES = 40
"""Most classes of a bound; where more devices differ, the least different are put together."""
TOLERANCES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, np.inf)
"""Relative differences of two devices of one class, tried in this order."""
TYPICAL_BYTES = 2.0**23
"""Size of the message by whose seconds links are compared."""


@dataclass(frozen=True, eq=False)
class DeviceClasses:
    """C classes of the N devices of a problem."""

    problem: IterationProblem
    of_device: IntArray
    """(N,) class of each device."""

    @classmethod
    def of(cls, problem: IterationProblem, most: int = MOST_CLASSES) -> Self:
        """The finest classes of which there are no more than ``most``; interchangeable devices always share one.

        A class never holds devices of different speeds, memories or prices before all tolerances for links are tried.
        """
        n = problem.n_devices
        everyone = np.arange(n)
        message_s = problem.latency_s + problem.links.moving_s(everyone[:, None], everyone[None, :], TYPICAL_BYTES)
        kinds = np.stack([problem.flop_per_s, problem.memory_bytes, problem.price_per_hour, *problem.reached], axis=1)
        for tolerance in TOLERANCES:
            of_device = grouped(
                kinds, link_matrices(problem.topology) if tolerance == 0 else (message_s,), tolerance, most
            )
            if of_device is not None:
                return cls(problem, of_device)
        rank = np.argsort(np.argsort(problem.flop_per_s, kind="stable"), kind="stable")
        return cls(problem, rank * most // n)  # more kinds than classes: neighbours in speed share one

    @cached_property
    def count(self) -> IntArray:
        """(C,) devices of each class."""
        return np.bincount(self.of_device)

    def flop_per_s(self, microbatch: int) -> FloatArray:
        """(C,) FLOP/s of the fastest with these micro-batches."""
        return self._most(self.problem.flop_per_s_of(microbatch))

    @cached_property
    def memory_bytes(self) -> FloatArray:
        """(C,) bytes of the largest."""
        return self._most(self.problem.memory_bytes)

    @cached_property
    def price_per_hour(self) -> FloatArray:
        """(C,) US dollars of the cheapest."""
        return -self._most(-self.problem.price_per_hour)

    @cached_property
    def latency_s(self) -> FloatArray:
        """(C, C) least seconds from a device of the row's class to another of the column's; infinite where none."""
        return self.least(self.problem.latency_s)

    @cached_property
    def _least_s_per_byte(self) -> FloatArray:
        return self.least(1.0 / self.problem.topology.bandwidth_bytes_per_s)

    def moving_s(self, n_bytes: float) -> FloatArray:
        """(C, C) least seconds for which a message of this size occupies a link; infinite where there is none."""
        if self.problem.links.message_bytes is None:
            return n_bytes * self._least_s_per_byte
        everyone = np.arange(self.problem.n_devices)
        return self.least(self.problem.links.moving_s(everyone[:, None], everyone[None, :], n_bytes))

    def least(self, of_pairs: FloatArray) -> FloatArray:
        """(C, C) least of an (N, N) matrix over two different devices of two classes; infinite where there are none."""
        order = np.argsort(self.of_device, kind="stable")
        begins = np.searchsorted(self.of_device[order], np.arange(len(self.count)))
        apart = np.where(np.eye(len(of_pairs), dtype=bool), np.inf, of_pairs)[np.ix_(order, order)]
        columns = np.minimum.reduceat(apart, begins, axis=1)
        rows: FloatArray = np.minimum.reduceat(columns, begins, axis=0)
        return rows

    def _most(self, of_devices: FloatArray) -> FloatArray:
        most = np.full(len(self.count), -np.inf)
        np.maximum.at(most, self.of_device, of_devices)
        return most


def link_matrices(topology: Topology) -> tuple[FloatArray, ...]:
    """The (N, N) matrices that say what a link is: latency, bandwidth, the seconds of each measured message size."""
    links = (topology.latency_s, topology.bandwidth_bytes_per_s)
    if topology.message_s is None:
        return links
    return (*links, *np.moveaxis(np.nan_to_num(topology.message_s, nan=-1.0), 2, 0))


def grouped(kinds: FloatArray, matrices: tuple[FloatArray, ...], tolerance: float, most: int) -> IntArray | None:
    """(N,) classes, each of devices like its first one; None where they are more than ``most``."""
    n = len(kinds)
    of_device = np.full(n, -1, dtype=np.int64)
    n_classes = 0
    for first in range(n):
        if of_device[first] >= 0:
            continue
        if n_classes == most and tolerance > 0:
            return None
        alike = (of_device < 0) & (kinds == kinds[first]).all(axis=1)
        others = np.flatnonzero(alike & (np.arange(n) != first))
        for matrix in matrices:
            others = others[_alike(matrix, first, others, tolerance) & _alike(matrix.T, first, others, tolerance)]
        of_device[first] = n_classes
        of_device[others] = n_classes
        n_classes += 1
    return of_device if n_classes <= most else None


def _alike(matrix: FloatArray, first: int, others: IntArray, tolerance: float) -> npt.NDArray[np.bool_]:
    """Which of ``others`` have links to all third devices like those of ``first``."""
    if not len(others) or tolerance == np.inf:
        return np.ones(len(others), dtype=bool)
    rows, row = matrix[others], matrix[first][None, :]
    third = np.ones((len(others), len(matrix)), dtype=bool)
    third[:, first] = False
    third[np.arange(len(others)), others] = False
    alike = np.maximum(rows, row) <= np.minimum(rows, row) * (1 + tolerance) if tolerance else rows == row
    same: npt.NDArray[np.bool_] = (alike | ~third).all(axis=1)
    return same


LEAST_RATIO = 1.15
"""Least ratio of a message's seconds across a cut to those within a side for which the cut is tried."""
MOST_CUTS = 3


def cuts_of(classes: DeviceClasses, message_s: FloatArray) -> list[IntArray]:
    """(C,) sides, 0 or 1, of a few cuts, the one across which messages take longest first.

    ``message_s`` is (C, C). Groups are joined by the least time of the slower direction (single linkage).
    """
    n = len(classes.count)
    if n < 2:
        return []
    slower = np.maximum(message_s, message_s.T)
    group = np.arange(n)
    found: list[tuple[float, IntArray]] = []
    while (n_groups := len(np.unique(group))) > 1:
        apart = np.where(group[:, None] != group[None, :], slower, np.inf)
        joined_s = apart.min()
        for one in np.unique(group):
            inside = group == one
            across_s = slower[np.ix_(inside, ~inside)].min()
            if n_groups == 2 or across_s > joined_s:
                found.append((across_s, (~inside).astype(np.int64)))
        i, j = np.unravel_index(np.argmin(apart), apart.shape)
        group = np.where(group == group[j], group[i], group)
    return _ranked(found, slower, classes.count)


def _ranked(found: list[tuple[float, IntArray]], slower: FloatArray, count: IntArray) -> list[IntArray]:
    usual_s = np.median(np.repeat(np.where(np.isfinite(slower), slower, np.inf).min(axis=1), count))
    seen: set[tuple[int, ...]] = set()
    cuts: list[IntArray] = []
    for across_s, side in sorted(found, key=lambda one: -one[0]):
        side = side if side[0] == 0 else 1 - side
        if across_s < LEAST_RATIO * usual_s or tuple(side.tolist()) in seen or len(cuts) == MOST_CUTS:
            continue
        seen.add(tuple(side.tolist()))
        cuts.append(side)
    return cuts
