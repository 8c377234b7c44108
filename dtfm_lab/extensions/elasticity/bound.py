"""An upper bound on the samples of any policy, even one that knows the future.

At every moment the bound trains as fast as the best plan for the devices that are ready. When training becomes possible
again, or for the first time, the bound waits for a restart or a regrouping, whichever is shorter. Other changes cost
nothing, because a policy with foresight could prepare them during training.
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
    """Return times, from 0 to the end, and the maximum number of samples that any policy can have by then.

    With ``full_batch``, the bound only holds for policies whose every step trains the whole model on the job's whole
    batch. ``progress`` is called at each change with its time in seconds.
    """
    times, samples = [0.0], [0.0]
    present: frozenset[int] = frozenset()
    rate, able_from_s = 0.0, 0.0

    def pass_until(until_s: float) -> None:
        # The curve has a corner here: nothing is trained before the first plan can be ready.
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
        # The best that any policy could do with these devices, so no policy is above it.
        before, rate = rate, fleet.most_samples_per_s(present, full_batch=full_batch) if present else 0.0
        if not before and rate:
            # Whatever the policy, it needs one of these pauses before it first trains.
            able_from_s = moment.time_s + min(
                min(costs.restarting(n), costs.regrouping(n)) for n in range(1, len(present) + 1)
            )
    pass_until(availability.end_s)
    return np.array(times), np.array(samples)
