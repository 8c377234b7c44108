"""From one system's outcome to another's on the same network, choice by choice: each step is a plan, simulated.

The own plan takes the other's choices one after the other, then this lab places it, then comes the other's plan itself,
with its shape and cut, so that nothing is left over.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.plan import Plan
from dtfm_lab.planning.explain.sentences import counted
from dtfm_lab.systems.ablations import placements
from dtfm_lab.systems.outcome import Outcome, predicted
from dtfm_lab.systems.waterfall import Switch, Waterfall, WaterfallStep

TRANSPORT = ("transport",)
MEMORY = ("sharding", "checkpointing", "recompute", "attention")
SCHEDULE = ("schedule", "flush_every", "stages_per_device")
"""Fields of a job that order passes. Forwards ahead (``warmups``) are of one schedule and shape, and not among them."""
AVERAGING = (
    "synchronisation",
    "synchronise_every",
    "fragments",
    "fragment_delay",
    "overlap",
    "bucket_bytes",
    "compression",
    "gradient_compression",
    "gradient_dtype",
)


def stream_towards(outcome: Outcome, best: Outcome) -> Iterator[Waterfall]:
    """The steps so far from an outcome to a better one; both have plans. A step that changes nothing is left out, and
    one that the job does not allow goes with the next."""
    steps = [WaterfallStep(switch=Switch(sentence=f"{outcome.title}, as it is."), outcome=outcome)]
    yield Waterfall(steps=tuple(steps))
    for sentence, found in _outcomes(outcome, best):
        steps.append(WaterfallStep(switch=Switch(sentence=sentence), outcome=found, before=steps[-1]))
        yield Waterfall(steps=tuple(steps))


def _outcomes(outcome: Outcome, best: Outcome) -> Iterator[tuple[str, Outcome]]:
    strategy, budget = outcome.strategy, outcome.budget
    other, title = best.job, best.title
    before, fields, waiting = outcome, dict[str, Any](), list[str]()
    for names, words in (
        (TRANSPORT, f"messages that {_IN_WORDS[other.transport]}"),
        (MEMORY, _memory(other)),
        (AVERAGING, _averaging(other)),
        (SCHEDULE, f"passes in the order of {other.schedule_name}"),
    ):
        differs = {name: getattr(other, name) for name in names if getattr(other, name) != getattr(outcome.job, name)}
        if not differs or (names is SCHEDULE and outcome.job.n_stages == 1):
            continue
        fields |= differs
        waiting.append(words)
        try:
            changed = predicted(strategy, budget, outcome.plan.changed(job=outcome.job.with_fields(**fields)))
        except LabError:  # not without the choice that follows: the next step has both
            continue
        yield f"As {title}: {'; '.join(waiting)}.", changed
        before, waiting = changed, []
    if before is not outcome and before.iteration_s == best.iteration_s:  # nothing is left to explain
        return
    if (placed := _placed(outcome, before.plan)) is not None:
        yield "Devices placed by this lab, in its shape.", placed
    waiting.append(f"its shape and cut, {_shape(other)}")
    yield f"As {title}: {'; '.join(waiting)}.", best


def _placed(outcome: Outcome, plan: Plan) -> Outcome | None:
    """The fastest placement of the plan's shape that short searches find; None where none is faster."""
    strategy, budget = outcome.strategy, outcome.budget
    found = [predicted(strategy, budget, plan)]
    with suppress(LabError):  # a job that the search does not know
        found += [predicted(strategy, budget, one) for one in placements(plan, budget)]
    least = min(found, key=lambda one: one.iteration_s or 0.0)
    return None if least.iteration_s == found[0].iteration_s else least


def _shape(job: Job) -> str:
    tensor = f" x {job.tensor_parallel} GPUs a layer" if (job.tensor_parallel or 1) > 1 else ""
    stages, replicas = counted(job.n_stages, "stage"), counted(job.n_replicas, "replica")
    return f"{stages} x {replicas}{tensor}, micro-batches of {job.microbatch}"


def _memory(job: Job) -> str:
    kept = "no activations computed again" if job.checkpoints == "none" else f"checkpointing by {job.checkpoints}"
    return f"sharding {job.sharding}, {kept}"


def _averaging(job: Job) -> str:
    every = f" every {job.synchronise_every} iterations" if job.synchronise_every > 1 else ""
    late = " in fragments" if job.fragments > 1 else " during the last backward" if job.overlap else ""
    coded = "" if job.gradients_as == "none" else f" in {job.gradients_as}"
    precision = "" if job.gradient_dtype is None else f", gradients in {job.gradient_dtype}"
    return f"synchronisation {job.synchronisation}{every}{late}{coded}{precision}"


_IN_WORDS = {
    "overlapped": "hold no stage",
    "batched": "hold a stage, both directions at once",
    "blocking": "hold a stage",
}
