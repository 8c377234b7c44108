"""What a new plan changed, as one line of text."""

from typing import Any

import pandas as pd

from dtfm_lab.domain.units import format_s
from dtfm_lab.planning import Difference

NAMED = 4
"""Most devices that are named."""
SAME = 5e-4
"""Share of the cost below which a change is not mentioned."""


def describe_change(difference: Difference) -> str:
    """Return the cost before and after, the network's own part in the difference, and which devices moved where."""
    return f"{_cost(difference)}; {_devices(difference)}"


def _cost(difference: Difference) -> str:
    before_s, after_s = difference.before.cost.total_s, difference.after.cost.total_s
    change = (after_s - before_s) / before_s if before_s > 0 else 0.0
    if abs(change) < SAME:
        words, link = f"the cost stays at {format_s(after_s)}", ":"
    else:
        share = f"{abs(change):.1%}".replace("%", " %")
        words = f"{format_s(before_s)} → {format_s(after_s)} ({share} {'more' if change > 0 else 'less'})"
        link = ", of which"
    carried = difference.carried
    if carried is not None and abs(carried.total_s - before_s) > SAME * before_s:
        words += f"{link} the network itself {_signed(carried.total_s - before_s)}"
        if abs(after_s - carried.total_s) > SAME * before_s:
            words += f", moving devices {_signed(after_s - carried.total_s)}"
    return words


def _devices(difference: Difference) -> str:
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


def _signed(seconds: float) -> str:
    return f"{'+' if seconds >= 0 else '−'}{format_s(abs(seconds))}"
