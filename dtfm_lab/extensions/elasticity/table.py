"""A fleet whose speed comes from a table of measured throughputs by number of devices."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.units import IntArray, counted
from dtfm_lab.extensions.elasticity.history import Operation
from dtfm_lab.extensions.elasticity.policy import kept

SHORTEST_S = 1e-6
"""Minimum seconds of a step in a table. A time of ten years, as a float in seconds, is only exact to 6e-8 s, so much
shorter steps would be lost to rounding."""


@dataclass(frozen=True, eq=False, kw_only=True)
class TableFleet:
    """A fleet whose throughput depends only on the number of devices. Raises PlanError for an empty table, a batch that
    is not above 0, or steps that are shorter than ``SHORTEST_S``.

    All devices online are used, as in the measurement, even if fewer would be faster. If the table has no row for their
    number, the next smaller number in it counts. Fewer devices than the smallest number in it cannot train. A table
    does not say how the batch is divided, so equal shares are assumed.
    """

    n_devices: int
    samples_per_s: Mapping[int, float]
    """Samples per second by number of devices."""
    batch: float
    """Samples per step."""
    _like: dict[int, Operation] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.samples_per_s or not self.batch > 0:
            raise PlanError(
                f"table of {counted(len(self.samples_per_s), 'row')}, batch of {self.batch}; wanted both above 0"
            )
        for n, rate in self.samples_per_s.items():
            if rate > 0 and not SHORTEST_S <= self.batch / rate < math.inf:
                raise PlanError(
                    f"table: {counted(n, 'device')} at {rate:g} samples per second take {self.batch / rate:.3g} s "
                    f"for a batch of {self.batch:g}; wanted {SHORTEST_S:g} s or more"
                )

    def _rate(self, n: int) -> float:
        """Return samples per second of ``n`` devices, 0 if they cannot train."""
        return self.samples_per_s[max(row for row in self.samples_per_s if row <= n)] if n >= self._fewest else 0.0

    @property
    def _fewest(self) -> int:
        return min(self.samples_per_s)

    def _step_s(self, n: int) -> float:
        return self.batch / self._rate(n)

    def operation(self, present: frozenset[int], current: Operation | None = None) -> Operation | None:
        """Return the operation that uses all devices online. None if they are too few."""
        n = len(present)
        # Kept by number, because only the number of devices matters in a table.
        if n not in self._like:
            step_s = self._step_s(n) if self._rate(n) > 0 else math.inf
            self._like[n] = Operation(devices=present, step_s=step_s, samples=self.batch)
        like = self._like[n]
        return None if like.step_s == math.inf else like.by(present)

    def without(self, operation: Operation, lost: frozenset[int]) -> Operation | None:
        """Return the operation in which each remaining device keeps its share of the batch and the step takes as long
        as before. None if fewer devices are left than the table's smallest number."""
        left = operation.devices - lost
        if len(left) < self._fewest:
            return None
        return replace(operation, devices=left, samples=operation.samples * len(left) / len(operation.devices))

    def rerouted(self, operation: Operation, lost: frozenset[int]) -> Operation | None:
        """Return the operation in which the remaining devices do all the work, at the table's speed for their number.
        None if they are too few."""
        return self.operation(operation.devices - lost)

    def shared(
        self, other: frozenset[int], present: frozenset[int], current: Operation | None, above: float
    ) -> Operation | None:
        """Return None: a table knows only one way to use a number of devices."""
        return None

    def survives(self, operation: Operation, lost: frozenset[int]) -> bool:
        """Return True if a device is left."""
        return not operation.devices <= lost

    def grid(self, operation: Operation) -> IntArray:
        """Return (1, devices) indices: all devices count as replicas of one stage."""
        return np.array([sorted(operation.devices | operation.left)], dtype=np.int64)

    def move_s(self, old: Operation | None, new: Operation) -> float:
        """Return 0: with a table, moving state is part of a restart or a regrouping."""
        return 0.0

    def most_samples_per_s(self, present: frozenset[int], *, full_batch: bool) -> float:
        """Return the samples per second of the fastest row with at most as many devices as are present.

        Without ``full_batch``, these devices' share of a larger row counts, too.
        """
        return self._most_of(len(present), full_batch)

    @kept
    def _most_of(self, n: int, full_batch: bool) -> float:
        sizes = {n, *self.samples_per_s} if full_batch else {n, *self.samples_per_s, self.n_devices}
        able = [size for size in sizes if self._rate(size) > 0 and (size <= n or not full_batch)]
        return max((self.batch / self._step_s(size) * min(1.0, n / size) for size in able), default=0.0)
