"""How one plan became another, in words: the value before and after, what the network did to it, and who moved."""

from collections.abc import Callable
from typing import Any

import pandas as pd

from dtfm_lab.domain.plan import Plan
from dtfm_lab.planning import Difference, objectives
from dtfm_lab.widgets.measures import measure_of
from dtfm_lab.widgets.planner.objective_controls import COMMUNICATION

NAMED = 4
"""Most devices that are named in the line; the rest are counted."""
SAME = 5e-4
"""Share of the cost below which a change is not mentioned."""


def describe_change(difference: Difference, start: Plan | None = None) -> str:
    """Return the value before and after, the part of the difference that the network itself makes, and the moves.

    ``start`` is the old placement on the new network, where the plan was searched by its simulated seconds.
    """
    return f"{_cost(difference, start)}; {describe_moves(difference)}"


def _cost(difference: Difference, start: Plan | None) -> str:
    before, after = difference.before, difference.after
    objective = after.objective if None not in (before.iteration_s, after.iteration_s) else COMMUNICATION
    words = measure_of(objective).words
    if objective == COMMUNICATION:
        was, now = before.cost.total_s, after.cost.total_s
        carried = None if difference.carried is None else difference.carried.total_s
        return _of_change(was, now, carried, "the cost", words)
    value = objectives[objective].value
    known = start is not None and start.iteration_s is not None
    carried = value(start) if start is not None and known else None
    return _of_change(value(before), value(after), carried, f"the {measure_of(objective).noun}", words)


def _of_change(was: float, now: float, carried: float | None, noun: str, words: Callable[[float], str]) -> str:
    def signed(amount: float) -> str:
        return f"{'+' if amount >= 0 else '−'}{words(abs(amount))}"

    change = (now - was) / was if was > 0 else 0.0
    if abs(change) < SAME:
        text, link = f"{noun} stays at {words(now)}", ":"
    else:
        share = f"{abs(change):.1%}".replace("%", " %")
        text = f"{words(was)} → {words(now)} ({share} {'more' if change > 0 else 'less'})"
        link = ", of which"
    if carried is not None and abs(carried - was) > SAME * was:
        text += f"{link} the network itself {signed(carried - was)}"
        if abs(now - carried) > SAME * was:
            text += f", moving devices {signed(now - carried)}"
    return text


def describe_moves(difference: Difference) -> str:
    """Return which devices moved, the first of them by name."""
    table = difference.devices
    moved = table[table["change"].isin(["moved", "gone idle", "come in", "removed", "added"])]
    if moved.empty:
        return "no device moved"
    first = moved[moved["change"].isin(["removed", "added"])]  # the causes before the effects
    named = pd.concat([first, moved.drop(first.index)])
    words = [_move(row) for row in named.head(NAMED).itertuples()]
    more = f" and {len(moved) - NAMED} more" if len(moved) > NAMED else ""
    return f"{len(moved)} device{'s' * (len(moved) != 1)} changed: {', '.join(words)}{more}"


def _move(row: Any) -> str:
    """Return one device's move, with each plan's own stage numbers from 0, as the map shows them."""
    name, was, now = row.device, row.stage_before, row.stage_after
    if row.change == "removed":
        return f"{name} left"
    if pd.isna(now):
        return f"{name} joined, idle" if row.change == "added" else f"{name} idle"
    if pd.isna(was):
        return f"{name} {'joined, ' if row.change == 'added' else ''}into stage {now}"
    if was == now and not pd.isna(row.matched_stage):
        now = row.matched_stage
    return f"{name} stage {was} → {now}"
