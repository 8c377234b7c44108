"""What nobody can exceed who knows the future: the most samples of a fleet's hours.

At no moment does any policy train faster than the best way to work with whoever is ready to serve, and whenever
nobody could, it takes at least the shorter of a restart and a regrouping before somebody does. What a policy pays for
its changes while it works is not counted against foresight, which may prepare them beside the work.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dtfm_lab.domain.units import FloatArray
from dtfm_lab.extensions.elasticity.availability import Availability
from dtfm_lab.extensions.elasticity.moments import moments
from dtfm_lab.extensions.elasticity.policy import Fleet, ReconfigurationCosts


def foresight(
    availability: Availability,
    fleet: Fleet,
    costs: ReconfigurationCosts,
    *,
    full_batch: bool = True,
    progress: Callable[[float], object] | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Times, the first 0 and the last the end, and the most samples that any policy has by then.

    ``full_batch`` where every step trains on the job's whole batch, by the whole model. ``progress`` is called with the
    seconds of each change.
    """
    times, samples = [0.0], [0.0]
    present: frozenset[int] = frozenset()
    rate, able_from_s = 0.0, 0.0

    def pass_until(until_s: float) -> None:
        if rate and times[-1] < able_from_s < until_s:
            times.append(able_from_s)
            samples.append(samples[-1])
        works = until_s > able_from_s
        samples.append(samples[-1] + (rate * (until_s - times[-1]) if works else 0.0))
        times.append(until_s)

    for moment in moments(availability, costs.start_s):
        pass_until(moment.time_s)
        if progress is not None:
            progress(moment.time_s)
        present = (present - moment.left) | moment.ready
        before, rate = rate, fleet.most_samples_per_s(present, full_batch=full_batch) if present else 0.0
        if not before and rate:
            able_from_s = moment.time_s + min(
                min(costs.restarting(n), costs.regrouping(n)) for n in range(1, len(present) + 1)
            )
    pass_until(availability.end_s)
    return np.array(times), np.array(samples)


def most_samples(
    availability: Availability, fleet: Fleet, costs: ReconfigurationCosts, *, full_batch: bool = True
) -> float:
    """An upper bound of the samples of every policy: the last value of ``foresight``."""
    return float(foresight(availability, fleet, costs, full_batch=full_batch)[1][-1])
