"""Replanning: a new plan from an old one, for a network where devices left or joined or links changed.

The search begins with the old plan, its holes (places of lost devices) filled, and with variants that have fewer
pipelines or stages. It also tries neighbouring shapes (``SearchRequest.nearby``). Of all plans found, it takes the one
that minimises::

    value x (1 + move_s / horizon_s)

``value`` is the old plan's objective, such as seconds of an iteration. ``move_s`` is how long the model state moves
(``planning.moving``). It is spread over the horizon, an hour of training by default. Devices therefore stay where they
are if the gain would not pay for their move within that time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, isclose

import numpy as np

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology, as_number, shortened
from dtfm_lab.domain.plan import Placement, Plan
from dtfm_lab.domain.registry import unknown
from dtfm_lab.domain.units import format_bytes, format_s
from dtfm_lab.planning.adapting import nearest, nearest_grid, starting_plans
from dtfm_lab.planning.evaluate import SETTLED, fitting_seconds, opened, placed, simulated
from dtfm_lab.planning.iteration.replayed_plan import ReplayedPlan
from dtfm_lab.planning.iteration.search import kernels_are_ready
from dtfm_lab.planning.iteration.structured.candidates import unpriced_plan
from dtfm_lab.planning.moving import Moves, moves
from dtfm_lab.planning.search import PlanStep, objectives, search, value_of

HORIZON_S = 3600.0
"""Default horizon: a move has to pay within this many seconds of training."""
STEPS = 24
"""Number of search steps if there is no limit in seconds."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Replan:
    """A new plan compared with the old one, and the model state that has to move."""

    before: Plan
    plan: Plan
    """The new plan, on the present network."""
    stay: Plan | None
    """The old plan with only its holes (places of lost devices) filled, by idle or new devices. None if there are too
    few devices or the plan does not fit."""
    moves: Moves
    """The parameters and optimizer states that move, with sender and receiver."""
    stay_moves: Moves | None
    """The moves for ``stay``; None if there is no ``stay``."""
    horizon_s: float

    def __repr__(self) -> str:
        return f"<Replan: {self.sentence}>"

    @property
    def move_s(self) -> float:
        """Seconds until every device has the state that it needs."""
        return self.moves.move_s

    @property
    def stays(self) -> bool:
        """True if the new plan is ``stay``: the old plan with only its holes filled."""
        return self.plan is self.stay

    @cached_property
    def pays_after_s(self) -> float | None:
        """Seconds after the change when the new plan catches up with ``stay`` in iterations done.

        0.0 if its state moves no longer than that of ``stay``, or if there is no ``stay``. None if it never catches up,
        or if the new plan is ``stay``.
        """
        if self.stays:
            return None
        if self.stay is None or self.stay_moves is None:
            return 0.0
        new, old = value_of(self.plan), value_of(self.stay)
        later_s = self.move_s - self.stay_moves.move_s
        if later_s <= 0:
            return 0.0
        # solves (t - move_s) / new = (t - stay_moves.move_s) / old for t: equally many iterations done
        return (self.move_s * old - self.stay_moves.move_s * new) / (old - new) if new < old else None

    @cached_property
    def sentence(self) -> str:
        """A sentence on what happens to the plan, what moves, and when the move pays."""
        shape = "{} x {}".format(*self.plan.placement.devices.shape)
        value = _words(self.plan)
        if self.stays and not len(self.moves):
            return f"The plan stays: {shape}, {value}, and nothing moves."
        moved = len(np.unique(self.moves.receiver))
        what = f"{moved} device{'s get' if moved > 1 else ' gets'} {format_bytes(self.moves.total_bytes)}"
        words = [
            f"{'The holes are filled' if self.stays else 'A new plan'}: {shape}, {value}",
            f"{what} in {format_s(self.move_s)}" if moved else "nothing moves",
        ]
        if not self.stays and self.stay is not None:
            words.append(self._beside(self.stay))
        if lost := sorted(set(self.moves.stage[self.moves.from_checkpoint].tolist())):
            named = ("stage " if len(lost) == 1 else "stages ") + ", ".join(map(str, lost))
            words.append(f"{named} from a checkpoint, so all devices go back to its step")
        return "; ".join(words) + "."

    def _beside(self, stay: Plan) -> str:
        """Return words that compare the new plan with ``stay``."""
        alone = f"only filling the holes ({_words(stay)})"
        if value_of(self.plan) > value_of(stay) and self.stay_moves is not None:
            move_s, within = format_s(self.stay_moves.move_s), format_s(self.horizon_s)
            return f"{alone} would not pay for its move of {move_s} within {within}"
        after_s = self.pays_after_s
        return f"ahead {f'after {format_s(after_s)}' if after_s else 'at once'} of {alone}"


def _words(plan: Plan) -> str:
    value, unit = value_of(plan), objectives[plan.objective].unit.replace("tokens", plan.job.counted)
    return format_s(value) if unit == "s" else f"{value:.4g} {unit}"


def network_after(
    plan: Plan,
    *,
    lost: Iterable[str] = (),
    joined: Iterable[str] | Topology = (),
    changed: Topology | None = None,
) -> Topology:
    """Return the plan's network after devices were lost or joined, or links changed. Its devices are in the order of
    ``joined`` or ``changed`` if either is a network.

    Raises UnknownName for a lost device that the plan's network does not have. Raises PlanError for a joined device
    that the new network does not have, a device that is both lost and joined, a remaining device that the new network
    lacks, two networks, arguments of the wrong type, and if no device is left. See ``lab.replan``.
    """
    there = plan.topology
    if isinstance(joined, Topology):
        if changed is not None:
            raise PlanError("joined and changed are both networks; wanted one, and names in joined")
        whole, new = joined, [name for name in joined.names if name not in set(there.names)]
    else:
        whole, new = there if changed is None else changed, _names("joined", joined)
    if not isinstance(whole, Topology):
        raise PlanError(f"changed is {shortened(whole)}; wanted a Topology")
    gone = _names("lost", lost)
    for name in gone:
        if name not in there.names:
            raise unknown("device of this plan's network", name, there.names)
    for name in new:
        if name not in whole.names:
            raise PlanError(f"joined names {name!r}, which {whole.name} does not have; wanted a Topology that has it")
    kept = (set(there.names) - set(gone)) | set(new)
    if both := sorted(set(gone) & set(new)):
        raise PlanError(f"{both[0]} is both lost and joined; wanted one of the two")
    if missing := [name for name in there.names if name in kept and name not in whole.names]:
        raise PlanError(f"{whole.name} lacks {missing[0]}, which is not lost; wanted all devices that are left")
    if not kept:
        raise PlanError(f"no device of {there.name} is left; wanted one, or one that joins")
    return whole if kept == set(whole.names) else whole.subset([name for name in whole.names if name in kept])


def _names(what: str, given: Iterable[str]) -> list[str]:
    names = list(given) if isinstance(given, Iterable) and not isinstance(given, str) else None
    if names is None or not all(isinstance(name, str) for name in names):
        raise PlanError(f"{what} is {shortened(given)}; wanted a list of names of devices")
    return names


def replan(
    plan: Plan,
    network: Topology,
    *,
    seconds: float | None = None,
    seed: int = 0,
    horizon_s: float | None = None,
) -> Replan:
    """Plan again on a network that changed. Keeps the same plan if nothing has changed. See ``lab.replan``."""
    horizon_s = _checked(horizon_s)
    plan.job.modelled()
    plan = simulated(plan)
    if network.names == plan.topology.names and network.fingerprint == plan.topology.fingerprint:
        nothing = moves(plan, plan)
        return Replan(before=plan, plan=plan, stay=plan, moves=nothing, stay_moves=nothing, horizon_s=horizon_s)
    begun = starting_plans(plan, network)
    # the others have fewer pipelines or stages, so they are not the old plan
    same = [one.placement.devices for one in begun if one.job == plan.job]
    stay = placed(plan, same[0], plan.job, network, seconds_of=_seconds) if same else None
    stay_moves = None if stay is None else moves(plan, stay)
    least = inf
    if stay is not None and stay_moves is not None:
        least = value_of(stay) * (1 + stay_moves.move_s / horizon_s)
    improving: list[PlanStep] = []
    how = {"queueing": plan.queueing, "efficiency": plan.efficiency, "seed": seed, "improve_bound": False}
    how |= {"steps": STEPS} if seconds is None else {"seconds": seconds}
    for step in search(network, asked_of(plan, len(network)), objective=plan.objective, nearby=tuple(begun), **how):
        # the fastest plan may move too much to pay, so every improvement is kept for the choice below
        if step.best_s < (improving[-1].best_s if improving else least):
            improving.append(step)
    chosen_step: tuple[PlanStep, Plan] | None = None
    for step in reversed(improving):
        if step.best_s >= least:  # earlier plans are slower, so they cannot win even if they move nothing
            break
        near = _kept_near(step, plan)
        worth = step.best_s * (1 + moves(plan, near).move_s / horizon_s)
        if worth < least:
            chosen_step, least = (step, near), worth
    chosen = stay if chosen_step is None else _planned(*chosen_step, plan)
    assert chosen is not None, "a search yields at least one step"
    found = moves(plan, chosen)
    # the search does not yield slower plans that move less; communication costs of two shapes cannot be compared
    for one in begun if plan.objective != "communication" else ():
        if moves(plan, one).move_s < found.move_s:
            slower = placed(plan, one.placement.devices, one.job, network, seconds_of=_seconds)
            worth = inf if slower is None else value_of(slower) * (1 + moves(plan, slower).move_s / horizon_s)
            if slower is not None and worth < least:
                chosen, found, least = slower, moves(plan, slower), worth
    return Replan(before=plan, plan=chosen, stay=stay, moves=found, stay_moves=stay_moves, horizon_s=horizon_s)


def _checked(horizon_s: object) -> float:
    number = HORIZON_S if horizon_s is None else as_number(horizon_s)
    if number is None or not 0 < number < inf:
        raise PlanError(f"horizon_s is {shortened(horizon_s)}; wanted seconds above 0")
    return number


def _kept_near(step: PlanStep, before: Plan) -> Plan:
    """Return the step's plan, unpriced, with interchangeable devices exchanged so that as many as possible keep their
    place in the plan ``before``."""
    found = unpriced_plan(step.topology, step.job, step.best, step.queueing)
    return replace(found, placement=Placement(nearest_grid(found, before)))


def _planned(step: PlanStep, near: Plan, before: Plan) -> Plan:
    """Return the step's plan, priced, with the placement of ``near``, its variant from ``_kept_near``.

    If the compiled replay does not cover the plan, or if the exchange of devices changes the iteration time, return
    ``nearest(step.plan, before)``.
    """
    replay = ReplayedPlan.of(near) if step.objective != "communication" else None
    if replay is None or not isclose(replay.iteration_s, step.iteration_s, rel_tol=1e-9):
        # no replay, or the exchange changes the time: `nearest` simulates, and keeps the step's plan if needed
        return nearest(step.plan, before)
    return step.replayed_plan(near.placement.devices, replay.iteration_s)


def _seconds(plan: Plan) -> float | None:
    """Return the seconds of a plan's iteration; None if the plan does not fit the memory.

    Uses the compiled replay if it is ready and covers the plan. One simulation takes a fifth of the time of the whole
    search.
    """
    replay = ReplayedPlan.of(plan) if kernels_are_ready() else None
    if replay is None:
        return fitting_seconds(plan)
    return replay.iteration_s if replay.fits else None


def asked_of(plan: Plan, n_devices: int) -> Job:
    """Return the job to plan again: the plan's job with the fields open that were open in the plan's search, except
    ``SETTLED``.

    The shape is open too if the network has fewer devices than the job needs, or if it is unknown which fields were
    open (``opened``). A plan for the communication cost keeps its shape if it can, because the job's message sizes
    depend on it.
    """
    if plan.objective == "communication":
        job = plan.job
        return job if job.n_tasklets <= n_devices else job.freed("n_stages", "n_replicas").fitted(n_devices)
    if plan.left_open is None:
        return opened(plan)
    job = plan.job.freed(*(what for what in plan.left_open if what not in SETTLED))
    return job if (job.n_stages or 1) * (job.n_replicas or 1) <= n_devices else opened(plan)
