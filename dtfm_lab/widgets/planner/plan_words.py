"""A plan in words: its seconds, what no plan can beat, its dollars and who does what; and how it became another.

It contains no widget.
"""

import math
from html import escape

from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import format_s
from dtfm_lab.figures.theme import count
from dtfm_lab.planning.explain.sentences import none_of
from dtfm_lab.widgets import markup
from dtfm_lab.widgets.measures import format_dollars, format_times


def result_words(plan: Plan) -> str:
    """Return ``iteration 24.1 s, at most 1.2 times faster with any plan``, or the communication cost and its gap."""
    if plan.objective == "communication" or plan.iteration_s is None:
        return f"communication cost {format_s(plan.cost.total_s)}, gap {plan.gap:.1%}"
    return f"iteration {format_s(plan.iteration_s)}{_at_most(plan, ', ')}"


def _at_most(plan: Plan, before: str, after: str = "") -> str:
    left = plan.speed_up_left
    if left is None or not math.isfinite(left):
        return ""
    words = (
        f"{none_of(plan)} is faster" if left <= 1 else f"at most {format_times(left)} times faster with {plan.scope}"
    )
    return f"{before}{words}{after}"


def headline(plan: Plan) -> str:
    """Return both seconds, the dollars and the shape of a plan as one line of HTML."""
    cost, parts = plan.cost, []
    if plan.iteration_s is not None:
        parts.append(f"iteration <b>{format_s(plan.iteration_s)}</b>{_at_most(plan, ' (', ')')}")
    communication = format_s(cost.total_s)
    how = (
        f" = data parallel {format_s(cost.data_parallel_s)} + pipeline {format_s(cost.pipeline_s)}; "
        f"lower bound {format_s(plan.lower_bound_s)}, gap {plan.gap:.1%}"
    )
    if plan.iteration_s is None or plan.objective == "communication":
        communication = f"<b>{communication}</b>{how}"
    parts.append(f"communication cost {communication}")
    dollars = plan.price_per_billion_tokens
    if dollars or (dollars is not None and plan.objective == "price"):
        parts.append(
            f"{format_dollars(dollars)} a billion tokens, {format_dollars(plan.price_per_hour)} an hour{_free(plan)}"
        )
    return f"{' · '.join(parts)}<br>{shape_line(plan)} · by {escape(plan.planner)}"


def _free(plan: Plan) -> str:
    """Return how many devices that serve have no price, which counts as 0."""
    n = sum(not plan.topology.devices[int(d)].price_per_hour for d in plan.placement.devices.flat)
    return f" ({count(n, 'device')} without a price {'counts' if n == 1 else 'count'} as free)" if n else ""


def shape_line(plan: Plan) -> str:
    """Return ``6 stages x 4 replicas, blocks 6 2 2 5 5 4, 256 micro-batches, adaptive-1f1b, 8 devices idle``."""
    job = plan.job
    parts = [count(job.n_stages, "stage") + " x " + count(job.n_replicas, "replica")]
    if (blocks := plan.blocks_per_stage) is not None:
        parts.append("blocks " + compact_counts(blocks))
        size = "of 1 sequence" if job.microbatch == 1 else f"of {job.microbatch} sequences"
        counts = job.microbatch_counts
        each = (
            f"{counts[0]:,} micro-batches each" if len(set(counts)) == 1 else f"micro-batches {compact_counts(counts)}"
        )
        parts += [f"{each} {size}", escape(job.schedule_name)]
        parts += ["recomputing activations"] if job.checkpoints != "none" else []
    if plan.idle_devices:
        parts.append(f"{count(len(plan.idle_devices), 'device')} idle")
    return ", ".join(parts)


MOST_LISTED = 16
"""Counts up to which each is written."""


def compact_counts(counts: tuple[int, ...]) -> str:
    """Return ``6 2 2 5``; ``4 each`` where all are equal, and the least and the most of many."""
    if len(set(counts)) == 1:
        return f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} each"
    if len(counts) > MOST_LISTED:
        return f"{min(counts):,} to {max(counts):,}"
    return " ".join(map(str, counts))


def table_of(plan: Plan) -> str:
    """Return who does what as a table in HTML, a row a device; empty where the job has no model."""
    if plan.blocks_per_stage is None:
        return ""
    frame = plan.to_frame()[["stage", "replica", "device", "gpu", "blocks", "microbatches", "work_share"]]
    frame[["device", "gpu"]] = frame[["device", "gpu"]].map(escape)
    share = frame.pop("work_share").map("{:.0%}".format, na_action="ignore")
    return markup.table(frame.assign(**{"share of the work": share}), "dtfm-plan-devices", "devices of the plan")
