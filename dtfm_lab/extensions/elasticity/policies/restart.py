"""Restart from a checkpoint, as most clusters do; and how often to write one."""

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
    """Seconds of work between two checkpoints, Young's first order: sqrt(2 C M).

    Source: J. W. Young, "A first order approximation to the optimum checkpoint interval", CACM 17 (1974).
    """
    return math.sqrt(2 * checkpoint_s * mean_between_losses_s)


def daly_s(checkpoint_s: float, mean_between_losses_s: float) -> float:
    """Seconds of work between two checkpoints, Daly's higher order; the mean time between losses where a checkpoint
    takes more than twice that.

    Source: J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 22 (2006),
    equation 37.
    """
    c, m = checkpoint_s, mean_between_losses_s
    if c >= 2 * m:
        return m
    return math.sqrt(2 * c * m) * (1 + math.sqrt(c / (2 * m)) / 3 + c / (18 * m)) - c


@policies.register("restart")
@dataclass(frozen=True, kw_only=True)
class Restart(Policy):
    """A loss stops everything: all processes start again on who is left, from the newest checkpoint."""

    every_s: float = QUARTER_S
    """A checkpoint every quarter of an hour, unless another interval is given."""
    joins: Literal["loss", "checkpoint"] = "loss"
    """Who comes is taken in at the next ``loss``, or at the next ``checkpoint``, which costs a restart, too."""
    checkpoint_after_loss: bool = False
    """Whether the first step after a restart is followed by a checkpoint."""
    loses_steps: bool = True
    """Whether a loss goes back to the newest checkpoint; False where one is written when a loss is announced."""
    meanwhile: bool = False
    """Whether steps go on while the restart is prepared, though somebody is lost: not possible, but what Varuna's and
    Oobleck's authors simulate, and needed to compare with them."""

    def decide(self, now: Situation) -> Response | None:
        # what a restart takes is known of the fleet that is lost, not of the one to come
        pause_s = now.costs.restarting(len(now.present if now.operation is None else now.operation.devices))
        if now.operation is None:
            return Response(now.fleet.operation(now.present), pause_s=pause_s)
        if now.lost:
            return Response(
                now.fleet.operation(now.present, now.operation),
                pause_s=pause_s,
                keeps=WorkKept.CHECKPOINT if self.loses_steps else WorkKept.STEPS,
                meanwhile=self.meanwhile,
                checkpoint_next=self.checkpoint_after_loss,
            )
        return _joining(self, now, pause_s)


def _joining(policy: Restart, now: Situation, pause_s: float) -> Response | None:
    """Who comes while processes start is taken along; else it waits, or joins at the next checkpoint."""
    assert now.operation is not None
    better = now.fleet.operation(now.present, now.operation)
    if better is None or better.devices == now.operation.devices:
        return None
    if now.pause_left_s > 0:
        return Response(better, pause_s=now.pause_left_s, meanwhile=now.meanwhile, keeps=WorkKept.STEP)
    if policy.joins == "checkpoint" and better.samples_per_s > now.operation.samples_per_s:
        if now.asked is not PolicyEvent.CHECKPOINT:
            return Response(now.operation, keeps=WorkKept.STEP, again=PolicyEvent.CHECKPOINT)
        return Response(better, pause_s=pause_s)
    return None
