"""Look ahead: move before a device is gone, and only where the time until the next change pays for it.

Source of the first: Duan et al., "Parcae: Proactive, Liveput-Optimized DNN Training on Preemptible Instances", NSDI
2024.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dtfm_lab.extensions.elasticity.history import Operation
from dtfm_lab.extensions.elasticity.policies.restart import daly_s
from dtfm_lab.extensions.elasticity.policies.templates import joined, prepared, regrouped, restarted, taken_along
from dtfm_lab.extensions.elasticity.policy import QUARTER_S, Policy, Response, Situation, WorkKept, policies


@policies.register("parcae")
@dataclass(frozen=True, kw_only=True)
class Parcae(Policy):
    """Migrates while an announced departure is still to come, the work going on meanwhile; what comes unannounced is a
    regrouping. Parcae also predicts departures that nobody has announced: that is not modelled."""

    every_s: float = QUARTER_S
    """A checkpoint every quarter of an hour, for the loss of a whole stage."""

    def decide(self, now: Situation) -> Response | None:
        if now.operation is None:
            return restarted(now)
        if now.lost:
            return regrouped(now, now.operation)
        return migrated(now, now.operation) or joined(_staying(now), now.operation, at_step=True)


def _staying(now: Situation) -> Situation:
    """As if who has announced a departure were gone already."""
    return replace(now, present=now.present - now.leaving)


def migrated(now: Situation, operation: Operation) -> Response | None:
    """To the best of who will stay, prepared beside the work; None where nobody of the operation is about to go."""
    if not operation.devices & now.leaving:
        return None
    best = now.fleet.operation(now.present - now.leaving, operation)
    if best is None:
        return None
    pause_s = now.costs.regrouping(len(best.devices)) + now.move_s(best)
    return Response(best, pause_s=max(now.pause_left_s, pause_s), meanwhile=True)


@policies.register("goodput")
@dataclass(frozen=True, kw_only=True)
class Goodput(Policy):
    """The lab's own: of all ways to go on, the one with most samples until the next change is to be expected.

    After a loss the peers of a stage share its work as in SWARM, or all regroup in the best shape as in Oobleck,
    whichever makes more; an announced departure is met as in Parcae. When something better exists, with who came or in
    another shape, it is prepared beside the work, where the time left pays for it. Hazards are those seen so far.
    Checkpoints follow Daly's interval for the setbacks so far and for those that a plan would have seen, and a plan is
    worth what they leave of it.
    """

    every_s: float = QUARTER_S
    """A checkpoint every quarter of an hour where writing one costs nothing."""
    most_ahead_s: float = 3600.0
    """No further ahead is counted on."""
    keeps_step: bool = True
    """Whether a step under way goes on where peers share the work, or is begun again, as by workers of ``lab.run``."""

    def decide(self, now: Situation) -> Response | None:
        if now.operation is None or (now.lost and not now.fleet.survives(now.operation, now.lost)):
            return self._safe(now, restarted(now))
        if now.lost:
            return self._safe(now, self._after_loss(now, now.operation))
        if (moving := migrated(now, now.operation)) is not None:
            return self._safe(now, moving)
        return self._improved(now, now.operation)

    def _ahead_s(self, now: Situation) -> float:
        """Seconds until the next change is to be expected."""
        return min(self.most_ahead_s, now.mean_life_s / max(1, len(now.present)))

    def _best(self, now: Situation, present: frozenset[int], operation: Operation) -> Operation | None:
        """The fastest of the plan for who is there and of those for the fleets that were there before.

        In a plan all stages have as many replicas. Where one stage can spare a device and another cannot, a plan that
        was made for more devices is the faster one, with peers who share the work of those who have left. And no search
        is sure to find the best: a plan that it found for fewer may be faster, with the others standing by.
        """
        best = now.fleet.operation(present, operation)
        worth = 0.0 if best is None else self._worth(now, best)
        for other in dict.fromkeys(now.earlier):
            alike = present < other or other < present
            way = now.fleet.shared(other, present, operation, worth * (1 + 1e-9)) if alike else None
            if way is not None and (its_worth := self._worth(now, way)) > worth * (1 + 1e-9):
                best, worth = way, its_worth
        return best

    def _worth(self, now: Situation, operation: Operation) -> float:
        """Samples a second, checkpoints and setbacks at their best interval taken off."""
        cost_s = now.costs.checkpoint_s
        if cost_s <= 0:
            return operation.samples_per_s
        between_s = self._between_setbacks_s(now, operation)
        if between_s == math.inf:
            return operation.samples_per_s
        every_s = daly_s(cost_s, between_s)
        return operation.samples_per_s * every_s / (between_s * math.expm1((every_s + cost_s) / between_s))

    def _after_loss(self, now: Situation, operation: Operation) -> Response:
        """Sharing their work, and regrouping beside it where that pays; or regrouping at once, where that is better."""
        shared = now.fleet.rerouted(operation, now.lost)
        at_once = regrouped(now, operation, best=self._best(now, now.present, operation))
        if shared is None:
            return at_once
        keeps, done = (WorkKept.STEP, now.step_done) if self.keeps_step else (WorkKept.STEPS, 0.0)
        sharing = Response(shared, pause_s=now.pause_left_s, keeps=keeps, again=now.pause_left_s)
        if (better := at_once.operation) is None:
            return sharing
        ahead_s, kept = self._ahead_s(now), done * operation.samples
        beside_s = now.move_s(better) + (1 - done) * shared.step_s
        until_s = min(beside_s, ahead_s)
        worth, its_worth = self._worth(now, shared), self._worth(now, better)
        then = max(worth, its_worth) * (ahead_s - until_s)
        by_sharing = worth * (until_s - now.pause_left_s) + then + kept
        # where the next change is nearer than the end of the pause, the shorter pause is still the better
        return at_once if its_worth * (ahead_s - at_once.pause_s) > by_sharing else sharing

    def _improved(self, now: Situation, operation: Operation) -> Response | None:
        """Something faster for who is there, prepared beside the work, where that pays."""
        better = self._best(now, now.present - now.leaving, operation)
        if better is None:
            return None
        worth, before = self._worth(now, better), self._worth(now, operation)
        if worth <= before * (1 + 1e-9):
            return None
        if now.pause_left_s > 0:
            return self._safe(now, taken_along(now, better))
        change = prepared(now, better)
        assert change.after_s is not None, "it takes its seconds beside the work"
        gain = (worth - before) * max(0.0, self._ahead_s(now) - change.after_s)
        return self._safe(now, change) if gain > operation.samples_per_s * change.pause_s else None

    def _safe(self, now: Situation, response: Response) -> Response:
        """With the best interval between checkpoints for what is at work next."""
        if response.operation is None or now.costs.checkpoint_s <= 0:
            return response
        between_s = self._between_setbacks_s(now, response.operation)
        return replace(
            response, every_s=self.every_s if between_s == math.inf else daly_s(now.costs.checkpoint_s, between_s)
        )

    def _between_setbacks_s(self, now: Situation, operation: Operation) -> float:
        """Seconds until work goes back to a checkpoint, in the mean: by how often it did so far, and, where nobody
        announces a departure, by how often it would have with this operation at work, judging by the latest losses, or
        by how often a device leaves that serves its stage alone; both count alike. One more of each is expected after
        an hour. Infinite where departures are announced and none has set it back so far: then checkpoints are written
        as often as by others."""
        if now.costs.notice_s > 0 and not now.setbacks:
            return math.inf
        was = would = (now.setbacks + 1) / (now.time_s + self.most_ahead_s)
        if now.costs.notice_s <= 0:
            since_s = now.departures[0][0] if now.losses > len(now.departures) else 0.0
            grid = now.fleet.grid(operation)
            replicas = grid.shape[1]
            fatal = sum(
                len(left & operation.devices) >= replicas and not now.fleet.survives(operation, left)
                for _, left in now.departures
            )
            # who has left for good is in no operation of today, but others leave as often
            alone = int((np.isin(grid, list(operation.devices)).sum(axis=1) == 1).sum())
            would = (fatal + 1) / (now.time_s - since_s + self.most_ahead_s)
            would = max(would, alone * now.losses / max(now.device_s, 1.0))
        return 2 / (was + would)
