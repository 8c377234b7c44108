"""Policies that move no state: the work of a lost device goes to others, or is skipped.

Sources: Gandhi et al., "ReCycle: Resilient Training of Large DNNs using Pipeline Adaptation", SOSP 2024; Ryabinin et
al., "SWARM Parallelism", ICML 2023; Blagoev et al., "SkipPipe", 2025; torchft, github.com/pytorch/torchft.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dtfm_lab.extensions.elasticity.history import Operation
from dtfm_lab.extensions.elasticity.policies.templates import joined, regrouped, restarted
from dtfm_lab.extensions.elasticity.policy import QUARTER_S, Policy, Response, Situation, WorkKept, policies


@dataclass(frozen=True, kw_only=True)
class Adapting(Policy):
    """Continues with what ``adapted`` makes of the operation, and includes arrivals after a step."""

    every_s: float = QUARTER_S
    """A checkpoint every 15 minutes, for the loss of a whole stage."""
    keeps_step: bool = True
    """True if the current step continues at the new speed. False if it restarts, as it does for workers of
    ``lab.run``."""

    def decide(self, now: Situation) -> Response | None:
        if now.operation is None:
            return restarted(now)
        if not now.lost:
            return joined(now, now.operation, at_step=True)
        # A stage without any replica left is nowhere else, so only a checkpoint helps.
        if not now.fleet.survives(now.operation, now.lost):
            return restarted(now)
        adapted = self.adapted(now, now.operation)
        if adapted is None:
            return regrouped(now, now.operation)
        pause_s = now.pause_left_s or self.pausing(now, now.operation)
        # ask again right after the pause, to include standby devices
        again = pause_s if now.spare else None
        keeps = WorkKept.STEP if self.keeps_step else WorkKept.STEPS
        return Response(adapted, pause_s=pause_s, keeps=keeps, again=again)

    def adapted(self, now: Situation, operation: Operation) -> Operation | None:
        """Return the operation without the lost devices, whose peers share their work. None if another shape is
        needed."""
        return now.fleet.rerouted(operation, now.lost)

    def pausing(self, now: Situation, operation: Operation) -> float:
        """Return the seconds until work continues."""
        return 0.0


@policies.register("recycle")
@dataclass(frozen=True, kw_only=True)
class ReCycle(Adapting):
    """The peers of the same stage share the lost device's micro-batches, and fit them into their idle time. The current
    step restarts."""

    keeps_step: bool = False

    def pausing(self, now: Situation, operation: Operation) -> float:
        return now.costs.regrouping(len(now.present))


@policies.register("swarm")
@dataclass(frozen=True, kw_only=True)
class Swarm(Adapting):
    """Micro-batches are rerouted to a peer of the lost stage, including those in flight, so no step is lost.

    GWTF reroutes along the cheapest flow. It takes the same time here, because the peers of a stage share its work
    evenly.
    """


@policies.register("torchft")
@dataclass(frozen=True, kw_only=True)
class TorchFT(Adapting):
    """A pipeline that loses a device leaves the averaging, with its share of the batch.

    The others notice when they average. They refuse to commit the step, and repeat it after a new quorum. An arrival
    joins after a step, once it has fetched its state from a peer.
    """

    keeps_step: bool = False
    full_batch = False

    def adapted(self, now: Situation, operation: Operation) -> Operation | None:
        return now.fleet.without(operation, now.lost)

    def pausing(self, now: Situation, operation: Operation) -> float:
        """Return the rest of the step, which ``Manager.should_commit`` rejects at its end, plus the quorum."""
        return (1 - now.step_done) * operation.step_s + now.costs.regrouping(len(now.present))


@policies.register("skippipe")
@dataclass(frozen=True, kw_only=True)
class SkipPipe(Adapting):
    """A pipeline that loses a device continues without its stage's layers, at the same speed, until it is repaired.

    Until then only a part of the model is trained: see ``skipping_samples`` of the history. Alternating between whole
    and shortened models changes what is learned. The authors train this way on purpose, skipping up to a third of the
    layers.
    """

    most_skipped: float = 1 / 3
    """Maximum share of a pipeline's stages that may be missing. Above it, the pipeline leaves as in torchft."""
    full_batch = False

    def adapted(self, now: Situation, operation: Operation) -> Operation | None:
        plan = operation.plan
        if plan is None:
            return now.fleet.without(operation, now.lost)
        gone = ~np.isin(now.fleet.grid(operation), list(operation.devices - now.lost))
        missing = gone.sum(axis=0)  # stages of each pipeline
        # More than this and the model would train worse, by the policy's own limit.
        if (missing > self.most_skipped * len(gone)).any():
            return now.fleet.without(operation, now.lost)
        counts = np.array(plan.job.microbatch_counts)
        return operation.losing(now.lost, skipping_share=float(counts[missing > 0].sum() / counts.sum()))
