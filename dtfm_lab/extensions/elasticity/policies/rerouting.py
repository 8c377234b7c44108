"""Policies that move no state after a loss: other devices do the lost device's work, or it is skipped.

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
    """Base class of policies that continue after a loss with the operation that ``adapted`` returns. They include
    arrivals after a step."""

    every_s: float = QUARTER_S
    """Seconds of training between two checkpoints, which are needed if all replicas of a stage are lost."""
    keeps_step: bool = True
    """True if the current step continues at the new speed after a loss. False if the step restarts, as in
    ``lab.run``."""

    def decide(self, now: Situation) -> Response | None:
        if now.operation is None:
            return restarted(now)
        if not now.lost:
            return joined(now, now.operation, at_step=True)
        # If a stage has no replica left, its state is only in a checkpoint.
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
        """Return the operation in which the peers of lost devices share their work. None if another shape is needed."""
        return now.fleet.rerouted(operation, now.lost)

    def pausing(self, now: Situation, operation: Operation) -> float:
        """Return the seconds of the pause after a loss."""
        return 0.0


@policies.register("recycle")
@dataclass(frozen=True, kw_only=True)
class ReCycle(Adapting):
    """The peers of a lost device share its micro-batches and fit them into their idle time.

    Peers hold the same stage. The current step restarts.
    """

    keeps_step: bool = False

    def pausing(self, now: Situation, operation: Operation) -> float:
        return now.costs.regrouping(len(now.present))


@policies.register("swarm")
@dataclass(frozen=True, kw_only=True)
class Swarm(Adapting):
    """Micro-batches of a lost device, also those in flight, are rerouted to peers of its stage, so no step is lost.

    Another system, GWTF, reroutes along the cheapest flow. In this model that takes the same time, because the peers of
    a stage share its work evenly.
    """


@policies.register("torchft")
@dataclass(frozen=True, kw_only=True)
class TorchFT(Adapting):
    """A pipeline that loses a device leaves the averaging, with its share of the batch.

    The others notice the loss when they average. They do not commit the step, and repeat it after a new quorum. An
    arrival joins after a step, once it has fetched its state from a peer.
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
    """A pipeline that loses a device continues without that stage's layers, until the device is replaced.

    Until then it trains only a part of the model, at the same speed. ``skipping_samples`` of the history counts such
    samples. Alternating between whole and shortened models changes what is learned. The authors train this way on
    purpose, skipping up to a third of the layers.
    """

    most_skipped: float = 1 / 3
    """Maximum share of a pipeline's stages that may be missing. If one pipeline lacks more, all pipelines with missing
    stages leave the averaging, as in torchft."""
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
