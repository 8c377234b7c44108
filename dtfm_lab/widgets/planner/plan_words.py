"""A plan in words: its seconds, its lower bound, its dollars, and how it changed.

It contains no widget.
"""

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape
from typing import Any, NamedTuple

import pandas as pd

from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.plan.choices import words_of
from dtfm_lab.domain.units import compact_counts, counted, format_s, format_share
from dtfm_lab.figures.measures import format_dollars
from dtfm_lab.planning import Difference
from dtfm_lab.widgets.lab_state import LabState

PLANNING = "Planning…"


def say_without_plan(lab_state: LabState, words: str, say: Callable[[str], None]) -> None:
    """Call ``say`` with the text of an empty pane, now and at every change of it.

    The text is ``PLANNING`` while a first plan is being searched for, else ``words``.
    """

    def follow() -> None:
        say(PLANNING if lab_state.is_planning else words)

    lab_state.observe(lambda _: follow(), "is_planning")
    follow()


def result_words(plan: Plan) -> str:
    """Return ``iteration 24.1 s, at most 1.2 times faster with any plan``, or the communication cost and its gap."""
    if plan.objective == "communication" or plan.iteration_s is None:
        return f"communication cost {format_s(plan.cost.total_s)}, gap {format_share(plan.gap)}"
    return f"iteration {format_s(plan.iteration_s)}{_at_most(plan, ', ')}"


def _at_most(plan: Plan, before: str, after: str = "") -> str:
    return f"{before}{plan.speed_up_words}{after}" if plan.speed_up_words else ""


def headline(plan: Plan) -> str:
    """Return a plan's iteration time, communication cost, dollars and shape as HTML lines."""
    cost, parts = plan.cost, []
    if plan.iteration_s is not None:
        parts.append(f"iteration <b>{format_s(plan.iteration_s)}</b>{_at_most(plan, ' (', ')')}")
    communication = format_s(cost.total_s)
    how = (
        f" = data parallel {format_s(cost.data_parallel_s)} + pipeline {format_s(cost.pipeline_s)}; "
        f"lower bound {format_s(plan.lower_bound_s)}, gap {format_share(plan.gap)}"
    )
    # Without seconds, or if it is the aim, the cost is the main number.
    if plan.iteration_s is None or plan.objective == "communication":
        communication = f"<b>{communication}</b>{how}"
    parts.append(f"communication cost {communication}")
    dollars = plan.price_per_billion_tokens
    if dollars or (dollars is not None and plan.objective == "price"):
        hourly = f"{format_dollars(plan.price_per_hour)} per hour{_free(plan)}"
        parts.append(f"{format_dollars(dollars)} per billion {plan.job.counted}, {hourly}")
    lines = [" · ".join(parts), f"{shape_line(plan)} · by {escape(plan.planner)}", choices_line(plan)]
    return "<br>".join(filter(None, lines))


def choices_line(plan: Plan) -> str:
    """Return what the search chose and what the job pinned: ``Chosen: TP 8, 4 stages x 4 replicas · pinned: 1f1b``."""
    by_origin = {"Chosen": words_of(plan.job, plan.chosen), "pinned": words_of(plan.job, plan.given)}
    return " · ".join(f"{what}: {escape(words)}" for what, words in by_origin.items() if words)


def _free(plan: Plan) -> str:
    """Return in words how many devices of the plan have no price and so count as free. Empty if all have a price."""
    n = sum(not plan.topology.devices[int(d)].price_per_hour for d in plan.placement.devices.flat)
    return f" ({counted(n, 'device')} without a price {'counts' if n == 1 else 'count'} as free)" if n else ""


def shape_line(plan: Plan) -> str:
    """Return ``6 stages x 4 replicas, blocks 6 2 2 5 5 4, adaptive-1f1b, idle: 8 of 32, all of host-4``."""
    job = plan.job
    parts = [counted(job.n_stages, "stage") + " x " + counted(job.n_replicas, "replica")]
    if (blocks := plan.blocks_per_stage) is not None:
        parts.append("blocks " + compact_counts(blocks))
        size = "of 1 sequence" if job.microbatch == 1 else f"of {job.microbatch} sequences"
        counts = job.microbatch_counts
        alike = len(set(counts)) == 1
        each = f"{counts[0]:,} micro-batches each" if alike else f"micro-batches {compact_counts(counts)}"
        parts += [f"{each} {size}", escape(job.schedule_name)]
        parts += ["recomputing activations"] if job.checkpoints != "none" else []
    parts += [escape(plan.idle_words)] if plan.idle_devices else []
    return ", ".join(parts)


NAMED = 4
"""Maximum number of moves that are described. The devices of all other moves are only counted."""
LISTED_CHANGES = ("stays", "moved", "gone idle", "come in", "added")
"""Changes of a device that are reported.

"stays" is included because the stage of such a device may have a new number. A device that left the network is not
reported, because the user removed it.
"""
BY_SHAPE = {"blocks": "stages resized", "shares": "work shares changed", "warm-up forwards": "warm-up changed"}
"""{part of a plan with a number per stage or pipeline: words for its change}. If the shape changes, so do these parts,
and they are not reported."""


class Move(NamedTuple):
    """A device's stage in the plan before and in the plan after, numbered as on the map. None if it has no stage."""

    was: int | None
    now: int | None

    @property
    def words(self) -> str:
        if self.was is None:
            return f"into stage {self.now}"
        return "idle" if self.now is None else f"stage {self.was} → {self.now}"


@dataclass
class MovedGroup:
    """The moves of a region's devices, or of a device without a region."""

    name: str
    n_devices: int = 0
    moves: Counter[Move] = field(default_factory=Counter)

    @property
    def as_one(self) -> Move | None:
        """The move that all its devices share. None if they differ."""
        return next(iter(self.moves)) if set(self.moves.values()) == {self.n_devices} else None


def describe_moves(difference: Difference) -> str:
    """Return which devices moved and what else of the plan changed. Empty if nothing did.

    Stages of plans with different shapes cannot be compared, so the change of shape is reported instead of moves.
    """
    was, now = (f"{plan.job.n_stages} x {plan.job.n_replicas}" for plan in (difference.before, difference.after))
    moves = _who_moved(difference) if was == now else [f"{was} → {now} stages x replicas"]
    anew = BY_SHAPE if was == now else dict.fromkeys(BY_SHAPE, "")
    choices = [anew.get(what, f"{what} {old} → {new}") for what, (old, new) in difference.choices.items()]
    words = ", ".join(filter(None, [*moves, *choices]))
    return words if moves else f"{words[:1].upper()}{words[1:]}"  # a name keeps its own case


def _who_moved(difference: Difference) -> list[str]:
    groups = _groups(difference)
    swapped = _swapped(groups)
    # A swap of whole groups counts the devices of both, so it comes before smaller moves.
    phrases = [(2 * one.n_devices, f"{one.name} and {other.name} swapped stages") for one, other in swapped]
    done = {group.name for pair in swapped for group in pair}
    for group in groups:
        for move, n in group.moves.items() if group.name not in done else ():
            who = group.name if n == group.n_devices else f"{n} of {group.name}"
            phrases.append((n, f"{who} {move.words}"))
    if not phrases and (n := len(difference.new_pipelines)):
        return [f"{n} of {counted(difference.after.job.n_replicas, 'pipeline')} re-paired"]
    # The largest moves first, since only a few are named.
    phrases.sort(key=lambda phrase: -phrase[0])
    named, rest = (sum(n for n, _ in part) for part in (phrases[:NAMED], phrases[NAMED:]))
    if rest > named:  # if many moved, their number says more than four names
        return [f"{named + rest} of {counted(len(difference.after.topology), 'device')} moved"]
    more = [f"{rest} more device{'s' * (rest != 1)} moved"] if rest else []
    return [words for _, words in phrases[:NAMED]] + more


def _groups(difference: Difference) -> list[MovedGroup]:
    """Return a group for each region, or device without a region, in which a device moved."""
    plans = (difference.before, difference.after)
    region_of = {device.name: device.region for plan in plans for device in plan.topology.devices}
    groups: defaultdict[str, MovedGroup] = defaultdict(lambda: MovedGroup(""))
    for row in difference.devices.itertuples():
        device = str(row.device)
        name = region_of[device] or device
        group = groups[name]
        group.name = name
        group.n_devices += 1
        move = _move(row)
        if row.change in LISTED_CHANGES and move.was != move.now:
            group.moves[move] += 1
    return [group for group in groups.values() if group.moves]


def _move(row: Any) -> Move:
    was, now = (None if pd.isna(stage) else int(stage) for stage in (row.stage_before, row.stage_after))
    if was == now and not pd.isna(row.matched_stage):
        now = int(row.matched_stage)
    return Move(was, now)


def _swapped(groups: list[MovedGroup]) -> list[tuple[MovedGroup, MovedGroup]]:
    """Return the pairs of groups that swapped places as a whole."""
    by_move: dict[Move, MovedGroup] = {}
    pairs = []
    for group in groups:
        move = group.as_one
        if move is None or None in move:
            continue
        # Popped, so that each group is in one pair at most.
        if (other := by_move.pop(Move(move.now, move.was), None)) is not None:
            pairs.append((other, group))
        else:
            by_move[move] = group
    return pairs
