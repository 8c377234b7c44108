"""A part of a plan as a plan of its own, for machines that cannot hold all of it.

What is kept stays as it is: devices, links and micro-batches, and the layers of each kept stage; the network is whole.
The first stages are kept, and the first pipelines. The last of them gets the head, so that there is a loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dtfm_lab.domain.checks import whole
from dtfm_lab.domain.errors import PlanError, TraceError
from dtfm_lab.domain.job import Job, LayerKind
from dtfm_lab.domain.network import shortened
from dtfm_lab.domain.plan.plan import CostBreakdown, Placement, Plan
from dtfm_lab.domain.trace import Rehearsed

LEAST_TO_SYNCHRONISE = 4
"""workers, from which on two pipelines of two stages or more can run"""
SIDES = ("stages", "pipelines")


def rehearse(plan: Plan, workers: int | Sequence[int]) -> tuple[Plan, Rehearsed | None]:
    """The part of a plan that so many workers can run, and which it is; the plan itself and None where that is all.

    Parameters
    ----------
    workers
        At most so many, shared out by ``largest_shape``; or (stages, pipelines), at most those of the plan.

    Raises JobError where a count is none, PlanError where there are more than two.
    """
    of_stages, of_pipelines = plan.placement.devices.shape
    if isinstance(workers, Sequence) and not isinstance(workers, str):
        if len(workers) != 2:
            raise PlanError(f"workers is {shortened(workers)}; wanted a count, or stages and pipelines")
        stages, pipelines = (whole("workers", what, n) for what, n in zip(SIDES, workers, strict=True))
        shape = min(stages, of_stages), min(pipelines, of_pipelines)
    else:
        shape = largest_shape((of_stages, of_pipelines), whole("run", "workers", workers))
    if shape == (of_stages, of_pipelines):
        return plan, None
    kept = Rehearsed(tuple(range(shape[0])), tuple(range(shape[1])), of_stages, of_pipelines)
    return reduced(plan, kept), kept


def largest_shape(of: tuple[int, int], workers: int) -> tuple[int, int]:
    """(stages, pipelines) out of so many, on so many workers at most.

    All stages, and as many pipelines as that allows; where not even one does, the first stages of two pipelines, so
    that replicas synchronise, or of one where there is only one or two would be too short.
    """
    n_stages, n_pipelines = of
    if n_stages <= workers:
        return n_stages, min(n_pipelines, workers // n_stages)
    pipelines = 2 if n_pipelines > 1 and workers >= LEAST_TO_SYNCHRONISE else 1
    return workers // pipelines, pipelines


def reduced(plan: Plan, kept: Rehearsed | None) -> Plan:
    """These stages and pipelines alone; the plan as it is where ``kept`` is None, or where it is that part already.

    The cost is what they have in the whole plan, with all its pipelines. Raises TraceError where they are not the
    first ones of a plan of this shape.
    """
    shape = plan.placement.devices.shape
    if kept is None or shape == (n := (len(kept.stages), len(kept.pipelines))):
        return plan
    n_stages, n_pipelines = n
    there = 0 < n_stages <= shape[0] and 0 < n_pipelines <= shape[1]
    if not there or kept != Rehearsed(tuple(range(n_stages)), tuple(range(n_pipelines)), *shape):
        raise TraceError(
            f"{kept.sentence} ran, of a plan of {kept.of_stages} stages x {kept.of_pipelines} replicas; this one has "
            f"{shape[0]} x {shape[1]}; wanted the same"
        )
    cost = CostBreakdown(
        group_s=plan.cost.group_s[:n_stages],
        hop_s=plan.cost.hop_s[: n_stages - 1],
        weights_s=plan.cost.weights_s[:n_stages, :n_stages],
    )
    return replace(
        plan,
        job=_part_of_job(plan.job, n_stages, n_pipelines),
        placement=Placement(plan.placement.devices[:n_stages, :n_pipelines]),
        cost=cost,
        lower_bound_s=0.0,
    )


def _part_of_job(job: Job, n_stages: int, n_pipelines: int) -> Job:
    model = job.modelled()
    global_batch = job.global_batch // job.n_replicas * n_pipelines
    if n_stages == job.n_stages:
        return replace(job, n_replicas=n_pipelines, global_batch=global_batch)
    n_layers = sum(job.cut(job.n_stages)[:n_stages])
    head = tuple(layer for layer in model.layers[-1:] if layer.kind is LayerKind.HEAD)
    blocks = None if job.blocks_per_stage is None else job.blocks_per_stage[:n_stages]
    return replace(
        job,
        n_stages=n_stages,
        n_replicas=n_pipelines,
        global_batch=global_batch,
        model=replace(model, layers=model.layers[:n_layers] + head),
        blocks_per_stage=blocks,
    )
