"""Redundant computation: each device can do its successor's work, so a loss does not stop its pipeline.

Source: Thorpe et al., "Bamboo: Making Preemptible Instances Resilient for Affordable Training of Large DNNs", NSDI
2023. The rule for when to rebalance comes from its simulator.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dtfm_lab.extensions.elasticity.history import Operation
from dtfm_lab.extensions.elasticity.policy import (
    QUARTER_S,
    Policy,
    PolicyEvent,
    Response,
    Situation,
    WorkKept,
    policies,
)

MOST_AT_RISK = 0.05
"""Pipelines are rebalanced when more than this share of the devices are so critical that losing one more of them would
force a restart."""


@policies.register("bamboo")
@dataclass(frozen=True, kw_only=True)
class Bamboo(Policy):
    """The device of the previous stage takes over a lost device's stage, until pipelines are rebalanced.

    Steps are slower until then.
    """

    slowdown: float = 1.5
    """Factor on the seconds of a step while a device does the work of two stages: 1.5 in Bamboo's simulator."""
    redundant_share: float = 0.25
    """Share of every step spent on redundant work, if the speed comes from a plan. Speeds in a table include it. A
    device also computes its successor's forward pass. Its own forward and backward passes take three times as long, so
    the share is a quarter."""
    loses_steps: bool = True
    """True if training goes back to the newest checkpoint when two neighbours are lost. False if only the current step
    is lost."""
    every_s: float = QUARTER_S
    """Seconds of training between two checkpoints, which are needed if two neighbours are lost."""

    def decide(self, now: Situation) -> Response | None:
        if now.operation is None or (now.pause_left_s > 0 and now.lost):
            return Response(self._begun(now), pause_s=now.costs.restarting(len(now.present)))
        if now.lost:
            return self._taken_over(now, now.operation)
        if now.pause_left_s > 0:
            return Response(self._begun(now), pause_s=now.pause_left_s)
        # Changes wait for the end of a step, so that nothing is lost.
        if now.asked is not PolicyEvent.STEP:
            return Response(now.operation, keeps=WorkKept.STEP, again=PolicyEvent.STEP)
        if not self._to_rebalance(now, now.operation):
            return None
        return Response(self._begun(now), pause_s=now.costs.regrouping(len(now.present)), keeps=WorkKept.STEP)

    def _begun(self, now: Situation) -> Operation | None:
        """Return the best operation for the devices online; None if they are too few. If its speed comes from a plan,
        redundant work slows it."""
        best = now.fleet.operation(now.present)
        if best is None or best.plan is None or not self.redundant_share:
            return best
        return replace(best, step_s=best.step_s / (1 - self.redundant_share), redundant_share=self.redundant_share)

    def _taken_over(self, now: Situation, operation: Operation) -> Response:
        """Continue the step: the device before each lost one does its work. If two neighbours are lost, restart."""
        grid = now.fleet.grid(operation)
        before = [int(grid[stage - 1, replica]) for stage, replica in np.argwhere(np.isin(grid, list(now.lost)))]
        taking = frozenset(before)
        # A device that does two stages cannot take a third, nor can one that has left.
        fatal = len(taking) < len(before) or taking & (operation.doubled | now.lost) or now.lost & operation.doubled
        if fatal:
            keeps = WorkKept.CHECKPOINT if self.loses_steps else WorkKept.STEPS
            return Response(self._begun(now), pause_s=now.costs.restarting(len(now.present)), keeps=keeps)
        slowed = operation.losing(
            now.lost,
            doubled=operation.doubled | taking,
            step_s=operation.step_s * (1 if operation.slowed else self.slowdown),
            slowed=True,
        )
        return Response(slowed, keeps=WorkKept.STEP, again=PolicyEvent.STEP)

    def _to_rebalance(self, now: Situation, operation: Operation) -> bool:
        """Return True if pipelines should be rebalanced. That is so if spare devices can replace all lost ones, if a
        better operation uses more devices, or if too many devices are critical (``MOST_AT_RISK``)."""
        doubled = len(operation.doubled)
        if doubled and (len(now.spare) >= doubled or 2 * doubled / len(operation.devices) > MOST_AT_RISK):
            return True
        better = self._begun(now)
        return better is not None and len(better.devices) > len(operation.devices)
