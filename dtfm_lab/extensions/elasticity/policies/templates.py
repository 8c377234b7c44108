"""Go on with whole copies of the state that others hold: no checkpoint is read as long as one of each stage is left.

Sources: Jang et al., "Oobleck: Resilient Distributed Training of Large Models Using Pipeline Templates", SOSP 2023;
Athlur et al., "Varuna: Scalable, Low-cost Training of Massive Deep Learning Models", EuroSys 2022.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dtfm_lab.extensions.elasticity.history import Operation
from dtfm_lab.extensions.elasticity.policies.restart import Restart
from dtfm_lab.extensions.elasticity.policy import QUARTER_S, Policy, Response, Situation, WorkKept, policies


@policies.register("varuna")
@dataclass(frozen=True, kw_only=True)
class Varuna(Restart):
    """Morphing: a loss is a restart from the newest checkpoint in the best shape for who is left; who comes joins at
    the next checkpoint. A checkpoint follows every tenth step, and the first one after a loss."""

    every_steps: int = 10
    every_s: float = float("inf")
    joins: Literal["loss", "checkpoint"] = "checkpoint"
    checkpoint_after_loss: bool = True


@policies.register("oobleck")
@dataclass(frozen=True, kw_only=True)
class Oobleck(Policy):
    """Templates: a loss costs the step under way and seconds to regroup in the best shape for who is left, the state
    coming from peers. Only where a stage has nobody left, the newest checkpoint is loaded."""

    joins: Literal["loss", "step"] = "loss"
    """Who comes is taken in at the next ``loss``, as in Oobleck's simulator, or after the ``step``."""
    every_s: float = QUARTER_S
    """A checkpoint every quarter of an hour, for the loss of a whole stage."""
    meanwhile: bool = False
    """Whether the step under way may end while they regroup, though somebody is lost: not possible, but what
    Oobleck's authors simulate, and needed to compare with them."""

    def decide(self, now: Situation) -> Response | None:
        if now.operation is None:
            return restarted(now)
        if now.lost:
            return regrouped(now, now.operation, meanwhile=self.meanwhile)
        return joined(now, now.operation, at_step=self.joins == "step")


def restarted(now: Situation) -> Response:
    """Everything from the newest checkpoint, with the best for who is there."""
    pause_s = now.costs.restarting(len(now.present))
    return Response(now.fleet.operation(now.present), pause_s=pause_s, keeps=WorkKept.CHECKPOINT)


def regrouped(
    now: Situation, operation: Operation, *, best: Operation | None = None, meanwhile: bool = False
) -> Response:
    """The best for who is left, if no other is given, with the state of peers where each stage has one, and the step
    under way lost."""
    if not now.fleet.survives(operation, now.lost):
        return restarted(now)
    best = now.fleet.operation(now.present, operation) if best is None else best
    if best is None:
        return Response(None)
    pause_s = now.costs.regrouping(len(operation.devices)) + now.move_s(best)
    return Response(best, pause_s=pause_s, meanwhile=meanwhile)


def joined(now: Situation, operation: Operation, *, at_step: bool) -> Response | None:
    """Who comes while others regroup is taken along; else after a step, where that is wanted and faster.

    What they need is moved to them beside the work, so that only the regrouping stops it.
    """
    if not at_step and now.pause_left_s <= 0:
        return None
    better = now.fleet.operation(now.present, operation) if now.spare else None
    if better is None or better.devices == operation.devices:
        return None
    if now.pause_left_s > 0:
        return taken_along(now, better)
    if better.samples_per_s <= operation.samples_per_s:
        return None
    return prepared(now, better)


def taken_along(now: Situation, better: Operation) -> Response:
    """Another operation after the pause that is under way, which lasts until its state is there, too."""
    return Response(
        better, pause_s=max(now.pause_left_s, now.move_s(better)), meanwhile=now.meanwhile, keeps=WorkKept.STEP
    )


def prepared(now: Situation, better: Operation) -> Response:
    """Another operation at the end of a step, its state moved beside the work before."""
    pause_s = now.costs.regrouping(len(better.devices))
    return Response(better, pause_s=pause_s, keeps=WorkKept.STEP, after_s=now.move_s(better))
