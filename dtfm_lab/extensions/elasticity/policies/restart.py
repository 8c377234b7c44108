"""Restart from a checkpoint, as most clusters do, and choose how often to write one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from dtfm_lab.extensions.elasticity.policy import (
    QUARTER_S,
    Policy,
    PolicyEvent,
    Response,
    Situation,
    WorkKept,
    policies,
)


def young_s(checkpoint_s: float, mean_between_losses_s: float) -> float:
    """Return the seconds of work between two checkpoints by Young's first-order formula, sqrt(2 C M): C seconds per
    checkpoint, M seconds between losses.

    Source: J. W. Young, "A first order approximation to the optimum checkpoint interval", CACM 17 (1974).
    """
    return math.sqrt(2 * checkpoint_s * mean_between_losses_s)


def daly_s(checkpoint_s: float, mean_between_losses_s: float) -> float:
    """Return the seconds of work between two checkpoints by Daly's higher-order formula.

    If a checkpoint takes at least twice the mean time between losses, the result is that mean time. Source: J. T. Daly,
    "A higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 22 (2006), equation 37.
    """
    c, m = checkpoint_s, mean_between_losses_s
    if c >= 2 * m:
        return m
    return math.sqrt(2 * c * m) * (1 + math.sqrt(c / (2 * m)) / 3 + c / (18 * m)) - c


@policies.register("restart")
@dataclass(frozen=True, kw_only=True)
class Restart(Policy):
    """A loss stops everything. All processes restart on the remaining devices, from the newest checkpoint."""

    every_s: float = QUARTER_S
    """Seconds of training between two checkpoints."""
    joins: Literal["loss", "checkpoint"] = "loss"
    """When arrivals are included: at the next ``loss``, or at the next ``checkpoint``, which then costs a restart."""
    checkpoint_after_loss: bool = False
    """True if a checkpoint follows the first step after a restart."""
    loses_steps: bool = True
    """True if training goes back to the newest checkpoint after a loss. False if only the current step is lost, as with
    a checkpoint written when the loss is announced."""

    def decide(self, now: Situation) -> Response | None:
        # the cost is for the old number of devices, because the new one is not chosen yet
        pause_s = now.costs.restarting(len(now.present if now.operation is None else now.operation.devices))
        if now.operation is None:
            return Response(now.fleet.operation(now.present), pause_s=pause_s)
        if now.lost:
            return Response(
                now.fleet.operation(now.present, now.operation),
                pause_s=pause_s,
                keeps=WorkKept.CHECKPOINT if self.loses_steps else WorkKept.STEPS,
                checkpoint_next=self.checkpoint_after_loss,
            )
        return _joining(self, now, pause_s)


def _joining(policy: Restart, now: Situation, pause_s: float) -> Response | None:
    """Return the response to arrivals, or None if they have to wait or would change nothing.

    During a restart, they join it. Otherwise they join at a checkpoint if ``joins`` is "checkpoint" and they make
    training faster. Until that checkpoint, the response leaves the operation unchanged and asks for a new decision
    there.
    """
    assert now.operation is not None
    better = now.fleet.operation(now.present, now.operation)
    # The same devices, so a restart would gain nothing.
    if better is None or better.devices == now.operation.devices:
        return None
    # A restart is under way, so the arrivals join without another pause.
    if now.pause_left_s > 0:
        return Response(better, pause_s=now.pause_left_s, meanwhile=now.meanwhile, keeps=WorkKept.STEP)
    if policy.joins == "checkpoint" and better.samples_per_s > now.operation.samples_per_s:
        # At a checkpoint nothing is lost by stopping.
        if now.asked is not PolicyEvent.CHECKPOINT:
            return Response(now.operation, keeps=WorkKept.STEP, again=PolicyEvent.CHECKPOINT)
        return Response(better, pause_s=pause_s)
    return None
