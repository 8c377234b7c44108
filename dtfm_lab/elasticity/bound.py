"""What nobody can exceed who knows the future: the most samples of a fleet's hours.

At no moment does any policy train faster than the best way to work with whoever is ready to serve, and whenever
nobody could, it takes at least the shorter of a restart and a regrouping before somebody does. What a policy pays for
its changes while it works is not counted against foresight, which may prepare them beside the work.
"""

from __future__ import annotations

from dtfm_lab.domain.availability import Availability
from dtfm_lab.elasticity.policy import Costs, Fleet
from dtfm_lab.elasticity.replay import moments


def most_samples(availability: Availability, fleet: Fleet, costs: Costs, *, full_batch: bool = True) -> float:
    """An upper bound of the samples of every policy, each second's fleet at its best possible speed.

    ``full_batch`` where every step trains on the job's whole batch, by the whole model.
    """
    samples, rate, since_s, able_from_s = 0.0, 0.0, 0.0, 0.0
    present: frozenset[int] = frozenset()
    for moment in [*moments(availability, costs.start_s), None]:
        until_s = availability.end_s if moment is None else moment.time_s
        samples += rate * max(0.0, until_s - max(since_s, able_from_s))
        if moment is None:
            break
        present = (present - moment.left) | moment.ready
        before, rate = rate, fleet.most_samples_per_s(present, full_batch=full_batch) if present else 0.0
        if not before and rate:
            able_from_s = until_s + min(
                min(costs.restarting(n), costs.regrouping(n)) for n in range(1, len(present) + 1)
            )
        since_s = until_s
    return samples
