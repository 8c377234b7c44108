"""Policies that look ahead: they move state before a device leaves, or weigh a change against the time until the next
one.

Source of ``parcae``: Duan et al., "Parcae: Proactive, Liveput-Optimized DNN Training on Preemptible Instances", NSDI
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
    """Migrates to other devices before an announced departure, while work continues.

    After an unannounced loss it regroups. Parcae also predicts departures that were not announced. That is not
    modelled.
    """

    every_s: float = QUARTER_S
    """Seconds of training between two checkpoints, which are needed if all replicas of a stage are lost."""

    def decide(self, now: Situation) -> Response | None:
        if now.operation is None:
            return restarted(now)
        if now.lost:
            return regrouped(now, now.operation)
        return migrated(now, now.operation) or joined(_staying(now), now.operation, at_step=True)


def _staying(now: Situation) -> Situation:
    """Return the situation as if devices that have announced their departure had already left."""
    return replace(now, present=now.present - now.leaving)


def migrated(now: Situation, operation: Operation) -> Response | None:
    """Return the answer that migrates to the best operation of the devices that stay. It is prepared while work
    continues.

    None if no device in use has announced its departure, or if too few devices stay.
    """
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
    """The lab's own policy: it continues in the way that is expected to train most samples until the next change.

    After a loss it does what trains more: the peers of a stage share its work as in SWARM, or all devices regroup in
    the best shape as in Oobleck. It treats an announced departure as Parcae does. If arrivals or another shape allow a
    faster operation, the policy prepares it while work continues. It does so only if that pays within the expected time
    until the next loss, which follows from the losses so far.

    Checkpoints follow Daly's interval. It depends on the rate of setbacks (returns to a checkpoint). The policy
    estimates that rate from the setbacks so far, and from how past losses would have affected the current plan. A
    plan's value is its speed less the cost of checkpoints and setbacks.
    """

    every_s: float = QUARTER_S
    """Seconds of training between two checkpoints if writing one costs nothing, or if no setback is expected."""
    most_ahead_s: float = 3600.0
    """Maximum seconds that the policy looks ahead, even if no loss is expected for longer."""
    keeps_step: bool = True
    """True if the current step continues when peers take over a lost device's work. False if the step restarts, as in
    ``lab.run``."""

    def decide(self, now: Situation) -> Response | None:
        if now.operation is None or (now.lost and not now.fleet.survives(now.operation, now.lost)):
            return self._safe(now, restarted(now))
        if now.lost:
            return self._safe(now, self._after_loss(now, now.operation))
        if (moving := migrated(now, now.operation)) is not None:
            return self._safe(now, moving)
        return self._improved(now, now.operation)

    def _ahead_s(self, now: Situation) -> float:
        """Return the expected seconds until the next loss, at most ``most_ahead_s``."""
        return min(self.most_ahead_s, now.mean_life_s / max(1, len(now.present)))

    def _best(self, now: Situation, present: frozenset[int], operation: Operation) -> Operation | None:
        """Return the best operation for the devices online, by the plan for them or by the plan for an earlier fleet.

        In a plan, all stages have the same number of replicas. If one stage can spare a device and another cannot, a
        plan for more devices is faster. Peers then share the work of the missing ones. A plan for fewer devices may be
        faster too, because no search is certain to find the best. The other devices then stand by.
        """
        best = now.fleet.operation(present, operation)
        worth = 0.0 if best is None else self._worth(now, best)
        for other in dict.fromkeys(now.earlier):
            # Only fleets that contain the current one, or are in it, can share its work.
            alike = present < other or other < present
            # A little more than the best: equal plans must not be switched by rounding.
            way = now.fleet.shared(other, present, operation, worth * (1 + 1e-9)) if alike else None
            if way is not None and (its_worth := self._worth(now, way)) > worth * (1 + 1e-9):
                best, worth = way, its_worth
        return best

    def _worth(self, now: Situation, operation: Operation) -> float:
        """Return the samples per second of an operation, less the cost of checkpoints and setbacks at the best
        checkpoint interval."""
        cost_s = now.costs.checkpoint_s
        if cost_s <= 0:
            return operation.samples_per_s
        between_s = self._between_setbacks_s(now, operation)
        if between_s == math.inf:
            return operation.samples_per_s
        # Daly's interval balances the cost of checkpoints and of repeated work.
        every_s = daly_s(cost_s, between_s)
        return operation.samples_per_s * every_s / (between_s * math.expm1((every_s + cost_s) / between_s))

    def _after_loss(self, now: Situation, operation: Operation) -> Response:
        """Answer a loss: peers share the work first, and the policy may prepare a regrouping later. It regroups at once
        if that trains more until the next change, or if peers cannot share the work."""
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
        # ahead_s - pause_s may be negative: if a change comes before both pauses end, the shorter pause still wins
        return at_once if its_worth * (ahead_s - at_once.pause_s) > by_sharing else sharing

    def _improved(self, now: Situation, operation: Operation) -> Response | None:
        """Return the answer that prepares a faster operation while work continues. During a pause, it switches to that
        operation at the end of the pause. None if no operation is faster, or if preparing it does not pay."""
        better = self._best(now, now.present - now.leaving, operation)
        if better is None:
            return None
        worth, before = self._worth(now, better), self._worth(now, operation)
        if worth <= before * (1 + 1e-9):
            return None
        # A pause is under way anyway, so the new devices come along.
        if now.pause_left_s > 0:
            return self._safe(now, taken_along(now, better))
        change = prepared(now, better)
        assert change.after_s is not None, "it takes its seconds while the work continues"
        # The gain until the next change must exceed what the pause costs.
        gain = (worth - before) * max(0.0, self._ahead_s(now) - change.after_s)
        return self._safe(now, change) if gain > operation.samples_per_s * change.pause_s else None

    def _safe(self, now: Situation, response: Response) -> Response:
        """Return the response with the best checkpoint interval for its operation.

        It is unchanged if it has no operation or if checkpoints are free.
        """
        if response.operation is None or now.costs.checkpoint_s <= 0:
            return response
        between_s = self._between_setbacks_s(now, response.operation)
        return replace(
            response, every_s=self.every_s if between_s == math.inf else daly_s(now.costs.checkpoint_s, between_s)
        )

    def _between_setbacks_s(self, now: Situation, operation: Operation) -> float:
        """Return the mean seconds between two setbacks to a checkpoint.

        The rate of setbacks is the average of two estimates. The first counts the setbacks so far. The second is for
        this operation. It is the larger of two rates: how often past losses would have sent it back to a checkpoint,
        and how often its devices that are alone in their stage are expected to leave.

        One extra setback in ``most_ahead_s`` extra seconds keeps rates above 0 at first. If departures are announced,
        only the first estimate is used. If then no setback has happened, the result is infinite, and checkpoints are as
        frequent as in other policies.
        """
        if now.costs.notice_s > 0 and not now.setbacks:
            return math.inf
        # One more than were seen, so that a quiet start does not promise that nothing will happen.
        was = would = (now.setbacks + 1) / (now.time_s + self.most_ahead_s)
        if now.costs.notice_s <= 0:
            since_s = now.departures[0][0] if now.losses > len(now.departures) else 0.0
            grid = now.fleet.grid(operation)
            replicas = grid.shape[1]
            fatal = sum(
                len(left & operation.devices) >= replicas and not now.fleet.survives(operation, left)
                for _, left in now.departures
            )
            # a device that left permanently is in no current operation, but the others leave as often
            alone = int((np.isin(grid, list(operation.devices)).sum(axis=1) == 1).sum())
            would = (fatal + 1) / (now.time_s - since_s + self.most_ahead_s)
            would = max(would, alone * now.losses / max(now.device_s, 1.0))
        # The mean of both rates: what happened, and what would happen to this operation.
        return 2 / (was + would)
