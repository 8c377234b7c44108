"""Nobody moves: the work of a lost device goes to others, or is left out.

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
    """Goes on with what ``adapted`` makes of the operation, and takes in who comes after a step."""

    every_s: float = QUARTER_S
    """A checkpoint every quarter of an hour, for the loss of a whole stage."""
    keeps_step: bool = True
    """Whether the step under way goes on at the new pace, or is begun again, as by workers of ``lab.run``."""

    def decide(self, now: Situation) -> Response | None:
        if now.operation is None:
            return restarted(now)
        if not now.lost:
            return joined(now, now.operation, at_step=True)
        if not now.fleet.survives(now.operation, now.lost):
            return restarted(now)
        adapted = self.adapted(now, now.operation)
        if adapted is None:
            return regrouped(now, now.operation)
        pause_s = now.pause_left_s or self.pausing(now, now.operation)
        # asked again at once, devices that stand by are taken in
        again = pause_s if now.spare else None
        keeps = WorkKept.STEP if self.keeps_step else WorkKept.STEPS
        return Response(adapted, pause_s=pause_s, keeps=keeps, again=again)

    def adapted(self, now: Situation, operation: Operation) -> Operation | None:
        """The operation without the lost, whose peers share their work; None where only another shape can go on."""
        return now.fleet.rerouted(operation, now.lost)

    def pausing(self, now: Situation, operation: Operation) -> float:
        """Seconds until it goes on."""
        return 0.0


@policies.register("recycle")
@dataclass(frozen=True, kw_only=True)
class ReCycle(Adapting):
    """The peers of the same stage share the lost device's micro-batches and fill their idle seconds with them; the
    step under way is begun again."""

    keeps_step: bool = False

    def pausing(self, now: Situation, operation: Operation) -> float:
        return now.costs.regrouping(len(now.present))


@policies.register("swarm")
@dataclass(frozen=True, kw_only=True)
class Swarm(Adapting):
    """Micro-batches take another way to a peer of the lost stage, those under way, too: no step is lost.

    GWTF's rerouting along the cheapest flow has the same seconds here, as peers of a stage share its work evenly.
    """


@policies.register("torchft")
@dataclass(frozen=True, kw_only=True)
class TorchFT(Adapting):
    """A pipeline that loses a device leaves the averaging, with its share of the batch. The others find that out when
    they average, refuse to commit the step, and begin it again after a new quorum. Who comes joins when its state has
    been fetched from a peer, after a step."""

    keeps_step: bool = False
    full_batch = False

    def adapted(self, now: Situation, operation: Operation) -> Operation | None:
        return now.fleet.without(operation, now.lost)

    def pausing(self, now: Situation, operation: Operation) -> float:
        """The rest of the step, of which ``Manager.should_commit`` says at its end that it does not count, and the
        quorum."""
        return (1 - now.step_done) * operation.step_s + now.costs.regrouping(len(now.present))


@policies.register("skippipe")
@dataclass(frozen=True, kw_only=True)
class SkipPipe(Adapting):
    """A pipeline that loses a device goes on without its stage's layers, at the same pace, until it is repaired.

    What it trains meanwhile is trained by a part of the model: ``skipping_samples`` of the history. Training by whole
    and shortened models in turns changes what is learned; the authors train so on purpose, up to a third of the layers.
    """

    most_skipped: float = 1 / 3
    """Share of a pipeline's stages that may be missing; more, and it leaves as in torchft."""
    full_batch = False

    def adapted(self, now: Situation, operation: Operation) -> Operation | None:
        plan = operation.plan
        if plan is None:
            return now.fleet.without(operation, now.lost)
        gone = ~np.isin(now.fleet.grid(operation), list(operation.devices - now.lost))
        missing = gone.sum(axis=0)  # stages of each pipeline
        if (missing > self.most_skipped * len(gone)).any():
            return now.fleet.without(operation, now.lost)
        counts = np.array(plan.job.microbatch_counts)
        return operation.losing(now.lost, skipping_share=float(counts[missing > 0].sum() / counts.sum()))
