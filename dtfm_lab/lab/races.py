"""Replays of policies at several values of one quantity."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dtfm_lab.domain.availability import Availability
from dtfm_lab.domain.errors import TraceError
from dtfm_lab.domain.history import History
from dtfm_lab.domain.network import as_number, shortened
from dtfm_lab.elasticity import Policy, policy_of
from dtfm_lab.elasticity.policies.restart import Restart, young_s
from dtfm_lab.elasticity.policy import QUARTER_S
from dtfm_lab.elasticity.race import RATE, Race, race_over

EVERY_S = "every_s"
"""The option of every policy that says how often it writes a checkpoint."""
USUAL = {RATE: (2.0, 7), EVERY_S: (2**0.5, 11)}
"""Where no values are given: the ratio of two, and how many."""
MOST_VALUES = 1000


def raced(
    replay: Callable[..., History],
    availability: Availability,
    policy: str | Policy | Sequence[str | Policy],
    over: str,
    values: Sequence[float] | None,
    precision: float,
    numbers: Mapping[str, Any],
    options: Mapping[str, Any],
) -> Race:
    """The race of one policy or several over a quantity; ``numbers`` and ``options`` are what else the replays take,
    the numbers that are theirs and those that are the policy's. Raises TraceError."""
    asked = [policy] if isinstance(policy, str | Policy) else list(policy)
    if not asked:
        raise TraceError("policy is an empty list; wanted one policy at least")
    share = as_number(precision)
    if share is None or not 0 < share <= 1:
        raise TraceError(f"precision is {shortened(precision)}; wanted a share above 0, at most 1")

    def play(value: float) -> tuple[History, ...]:
        hours = availability.faster(value) if over == RATE else availability
        changed = {} if over == RATE else {over: value}
        return tuple(replay(hours, one, **{**numbers, **options, **changed}) for one in asked)

    first = policy_of(asked[0], **options)
    goes_back = len(asked) == 1 and isinstance(first, Restart) and first.loses_steps and not first.every_steps
    writes_s = numbers["checkpoint_s"]
    return Race(
        over=over,
        points=race_over(play, _values(over, values, writes_s, availability), share),
        checkpoint_s=writes_s if over == EVERY_S and goes_back else None,
    )


def _values(
    over: str, given: Sequence[float] | None, writes_s: float | None, availability: Availability
) -> Sequence[float]:
    """The values of what varies, ascending. Raises TraceError for any that are none."""
    wanted = f"wanted 1 to {MOST_VALUES} numbers, or a tuple of lowest, highest and how many"
    if given is None:
        if over not in USUAL:
            raise TraceError(f"{over} varies, and no values are given; {wanted}")
        between_s = availability.mean_between_losses_s
        centre = 1.0 if over == RATE else QUARTER_S
        if over == EVERY_S and writes_s and between_s < np.inf:
            centre = young_s(writes_s, between_s)
        ratio, n = USUAL[over]
        return [float(centre * ratio ** (i - n // 2)) for i in range(n)]
    listed = isinstance(given, Sequence | np.ndarray) and not isinstance(given, str)
    numbers = [as_number(value) for value in given] if listed else []
    checked = [value for value in numbers if value is not None and 0 <= value < np.inf]
    if not 1 <= len(numbers) <= MOST_VALUES or len(checked) < len(numbers):
        raise TraceError(f"values of {over} are {shortened(given)}; {wanted}")
    if isinstance(given, tuple) and len(given) == 3:
        low, high, several = checked
        if not (0 < low < high and several in range(2, MOST_VALUES + 1)):
            raise TraceError(f"values of {over} are {shortened(given)}; {wanted}")
        return [float(value) for value in np.geomspace(low, high, int(several))]
    return sorted(set(checked))
