"""Fleets and policies with what the simulators of Varuna, Oobleck and Bamboo do, and no run can."""

import math
from dataclasses import dataclass, replace

import numpy as np

from dtfm_lab.domain.units import IntArray
from dtfm_lab.extensions.elasticity.api import TableFleet
from dtfm_lab.extensions.elasticity.history import History, Operation, TimeUse
from dtfm_lab.extensions.elasticity.policies.bamboo import Bamboo
from dtfm_lab.extensions.elasticity.policies.restart import Restart
from dtfm_lab.extensions.elasticity.policy import PolicyEvent, Response, Situation, WorkKept


@dataclass(frozen=True, eq=False, kw_only=True)
class SimulatedFleet(TableFleet):
    """A table whose devices form pipelines. Only whole ones are used, the others stand by."""

    fewest: int = 0
    """Minimum number of devices. Below the table's first row, that row's speed counts."""
    redundant_share: float = 0.0
    """Share of a step spent on redundant work."""
    pipeline: int = 1
    """Devices per pipeline."""
    standby_counts: bool = False
    """True if standby devices count towards the speed, as in Bamboo's simulator."""
    whole_ms: bool = False
    """True if step times are truncated to whole milliseconds, as in some simulators."""

    @property
    def _fewest(self) -> int:
        return self.fewest or min(self.samples_per_s)

    def _rate(self, n: int) -> float:
        if n < self._fewest:
            return 0.0
        rows = sorted(self.samples_per_s)
        return self.samples_per_s[max([row for row in rows if row <= n], default=rows[0])]

    def _step_s(self, n: int) -> float:
        seconds = super()._step_s(n)
        return int(seconds * 1000) / 1000 if self.whole_ms else seconds

    def operation(self, present: frozenset[int], current: Operation | None = None) -> Operation | None:
        n = len(present)
        serving = frozenset(sorted(present)[: n - n % self.pipeline])
        counted = n if self.standby_counts else len(serving)
        step_s = self._step_s(counted) if self._rate(counted) > 0 else math.inf
        if step_s == math.inf or not serving:
            return None
        like = Operation(devices=serving, step_s=step_s, samples=self.batch, redundant_share=self.redundant_share)
        return self._like.setdefault(counted, like).by(serving)

    def survives(self, operation: Operation, lost: frozenset[int]) -> bool:
        left = operation.devices - lost
        return not any(left.isdisjoint(group) for group in self.grid(operation).tolist())

    def grid(self, operation: Operation) -> IntArray:
        devices = np.array(sorted(operation.devices | operation.left), dtype=np.int64)
        if self.pipeline == 1:
            return devices[None]
        return devices[: len(devices) - len(devices) % self.pipeline].reshape(-1, self.pipeline).T


class SimulatedRestart(Restart):
    """Steps continue while the restart is prepared, though a device is lost."""

    def decide(self, now: Situation) -> Response | None:
        response = super().decide(now)
        return replace(response, meanwhile=True) if now.operation is not None and now.lost else response


class SimulatedBamboo(Bamboo):
    """The loss of a standby device slows the others until they are rebalanced, though none has to take over."""

    def decide(self, now: Situation) -> Response | None:
        operation = now.operation
        if operation is None or now.lost or now.pause_left_s > 0 or not now.left or operation.slowed:
            return super().decide(now)
        slowed = replace(operation, step_s=operation.step_s * self.slowdown, slowed=True)
        return Response(slowed, keeps=WorkKept.STEP, again=PolicyEvent.STEP)


def throughput(history: History) -> float:
    """Samples per second from the start of the first step, undone or not, to the end of the last that counts."""
    counted = np.flatnonzero(history.steps > 0)
    worked = np.flatnonzero((history.state == TimeUse.TRAINING) | (history.state == TimeUse.REDONE))
    if not len(counted):
        return 0.0
    return history.samples / float(history.end_s[counted[-1]] - history.start_s[worked[0]])
