"""Policies that regroup in the best shape for the remaining devices: Varuna from a checkpoint, Oobleck from copies of
the state on other devices.

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
    """Morphing: a loss means a restart from the newest checkpoint, in the best shape for the remaining devices.

    Arrivals join at the next checkpoint. A checkpoint follows every tenth step, and the first step after a loss.
    """

    every_steps: int = 10
    every_s: float = float("inf")
    joins: Literal["loss", "checkpoint"] = "checkpoint"
    checkpoint_after_loss: bool = True


@policies.register("oobleck")
@dataclass(frozen=True, kw_only=True)
class Oobleck(Policy):
    """Pipeline templates: a loss costs the current step, and some seconds to regroup the remaining devices in their
    best shape.

    State comes from peers. The newest checkpoint is loaded only if a stage has no device left.
    """

    joins: Literal["loss", "step"] = "loss"
    """When arrivals are included: at the next ``loss``, as in Oobleck's simulator, or after the current ``step``."""
    every_s: float = QUARTER_S
    """Seconds of training between two checkpoints, which are needed if all replicas of a stage are lost."""

    def decide(self, now: Situation) -> Response | None:
        if now.operation is None:
            return restarted(now)
        if now.lost:
            return regrouped(now, now.operation)
        return joined(now, now.operation, at_step=self.joins == "step")


def restarted(now: Situation) -> Response:
    """Return the answer that restarts everything from the newest checkpoint, with the best operation for the devices
    online."""
    pause_s = now.costs.restarting(len(now.present))
    return Response(now.fleet.operation(now.present), pause_s=pause_s, keeps=WorkKept.CHECKPOINT)


def regrouped(now: Situation, operation: Operation, *, best: Operation | None = None) -> Response:
    """Return the answer that switches to ``best``, by default the best operation for the devices online. The current
    step is lost.

    State comes from peers. If a stage has none left, everything restarts from the newest checkpoint. If too few devices
    are left for any operation, the run waits.
    """
    # Some stage has no replica left, so its state is only in a checkpoint.
    if not now.fleet.survives(operation, now.lost):
        return restarted(now)
    best = now.fleet.operation(now.present, operation) if best is None else best
    if best is None:
        return Response(None)
    pause_s = now.costs.regrouping(len(operation.devices)) + now.move_s(best)
    return Response(best, pause_s=pause_s)


def joined(now: Situation, operation: Operation, *, at_step: bool) -> Response | None:
    """Return the answer that includes arrivals: in a regrouping that is under way, or with ``at_step`` after a step, if
    that is faster. None otherwise: arrivals then wait.

    Their state is moved while work continues, so only the regrouping interrupts it.
    """
    if not at_step and now.pause_left_s <= 0:
        return None
    better = now.fleet.operation(now.present, operation) if now.spare else None
    if better is None or better.devices == operation.devices:
        return None
    if now.pause_left_s > 0:
        return taken_along(now, better)
    # A switch costs a pause, which a plan that is no faster never earns back.
    if better.samples_per_s <= operation.samples_per_s:
        return None
    return prepared(now, better)


def taken_along(now: Situation, better: Operation) -> Response:
    """Return the answer that switches to another operation at the end of the current pause. The pause is extended until
    the state has arrived."""
    return Response(
        better, pause_s=max(now.pause_left_s, now.move_s(better)), meanwhile=now.meanwhile, keeps=WorkKept.STEP
    )


def prepared(now: Situation, better: Operation) -> Response:
    """Return the answer that moves state while work continues, and then switches to another operation at the end of a
    step."""
    pause_s = now.costs.regrouping(len(better.devices))
    return Response(better, pause_s=pause_s, keeps=WorkKept.STEP, after_s=now.move_s(better))
