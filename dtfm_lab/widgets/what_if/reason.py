"""Why an iteration takes another time under a setting: what of a GPU's time changed most, and how it follows what was
turned. Everything is computed from two answers; it contains no widget."""

import math

from dtfm_lab.domain.trace import CAUSES
from dtfm_lab.domain.units import format_s
from dtfm_lab.widgets.what_if.answer import Answer

COMPUTING = "computing"
PARTS = {
    COMPUTING: "Computing",
    "synchronisation": "Averaging",
    "bandwidth": "Waiting for bandwidth",
    "latency": "Waiting for latency",
    "queue": "Waiting behind other messages",
    "dependency": "Waiting for other stages",
    "straggler": "Waiting for slower GPUs",
}
"""What a GPU's time goes to, in words."""
assert set(PARTS) == {COMPUTING, *(cause.value for cause in CAUSES)}, "every cause of waiting has words"
TURNED = {"bandwidth": "bandwidth", "latency": "latency", "global_batch": "the batch", "microbatch": "the micro-batch"}
"""Numbers of a setting that a part may follow."""
SAME = 5e-4
"""Share of an iteration below which a change is none."""
ONE_TO_ONE, PARTLY = 0.85, 0.25
"""Powers with which a part follows a number, from which on it is said to do so almost one to one, and partly."""


def headline(now: Answer, base: Answer) -> str:
    """Return ``Bandwidth × 0.5: 12.5 s → 22.9 s. Averaging is 79 % of a GPU's time and follows bandwidth almost one to
    one.``; empty where nothing is changed."""
    changed = now.setting.describe_changes(base.setting)
    if not changed:
        return ""
    return f"{changed[0].upper()}{changed[1:]}: {from_to(now, base)}. {reason(now, base)}"


def from_to(now: Answer, base: Answer) -> str:
    """Return ``12.5 s → 22.9 s``, or ``12.5 s as before``."""
    if abs(now.iteration_s - base.iteration_s) <= SAME * base.iteration_s:
        return f"{format_s(base.iteration_s)} as before"
    return f"{format_s(base.iteration_s)} → {format_s(now.iteration_s)}"


def reason(now: Answer, base: Answer) -> str:
    """Return one sentence about the part of a GPU's time that changed most, or is largest where nothing did."""
    largest = max(now.parts, key=lambda part: now.parts[part])
    if abs(now.iteration_s - base.iteration_s) <= SAME * base.iteration_s:
        return f"{PARTS[largest]} is {_share(largest, now)} of a GPU's time, and that does not change it."
    rose = now.iteration_s > base.iteration_s
    changes = {part: (now.parts[part] - base.parts[part]) * (1 if rose else -1) for part in now.parts}
    part = max(changes, key=lambda each: changes[each])
    turned = now.setting.changes_from(base.setting)
    if len(turned) == 1 and (name := next(iter(turned))) in TURNED:
        factor = now.setting.values[name] / base.setting.values[name]
        return f"{PARTS[part]} is {_share(part, now)} of a GPU's time and {_follows(part, name, factor, now, base)}."
    return f"{PARTS[part]} goes from {_share(part, base)} to {_share(part, now)} of a GPU's time."


def _follows(part: str, name: str, factor: float, now: Answer, base: Answer) -> str:
    """Return how a part's seconds follow a number that was multiplied by ``factor``, by the power between the two."""
    before_s, after_s = base.parts[part], now.parts[part]
    if before_s <= 0 or after_s <= 0:
        return f"was {_share(part, base)}"
    power = abs(math.log(after_s / before_s) / math.log(factor))
    if power >= ONE_TO_ONE:
        much = "almost one to one" if power < 2 - ONE_TO_ONE else "more than one to one"
        return f"follows {TURNED[name]} {much}"
    return f"follows {TURNED[name]} in part" if power >= PARTLY else f"hardly depends on {TURNED[name]}"


def _share(part: str, answer: Answer) -> str:
    whole_s = sum(answer.parts.values())
    share = answer.parts[part] / whole_s if whole_s > 0 else 0.0
    return f"{100 * share:.0f} %" if share >= 0.01 or share == 0 else "under 1 %"
