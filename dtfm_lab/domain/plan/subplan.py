"""Cut a part out of a plan, for machines that cannot run all of it.

The part keeps the first stages of the first pipelines, with their devices, links, micro-batches and layers. The
topology stays whole. The last kept stage gets the head, so that the part computes a loss.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dtfm_lab.domain.errors import PlanError, TraceError
from dtfm_lab.domain.job import Job, LayerKind
from dtfm_lab.domain.network import shortened
from dtfm_lab.domain.options import whole
from dtfm_lab.domain.plan.plan import CostBreakdown, Placement, Plan
from dtfm_lab.domain.trace import Subplan, TracedPlan
from dtfm_lab.domain.units import counted

LEAST_TO_SYNCHRONISE = 4
"""Smallest number of workers for two pipelines of two stages, so that replicas have to synchronise."""
AS_RECORDED = {"synchronise_every": "averages_every"}
"""Field of a trace's context -> the field of the job that it records, if that has another name."""
SIDES = ("stages", "pipelines")


def subplan_for(plan: Plan, workers: int | Sequence[int]) -> tuple[Plan, Subplan | None]:
    """Return the part of a plan that ``workers`` can run, and which part it is.

    Return the plan itself and None if the workers can run all of it.

    Parameters
    ----------
    workers
        The maximum number of workers, from which ``largest_shape`` chooses a shape. Or (stages, pipelines), clipped to
        the plan's shape.

    Raises JobError if a count is not a whole number, and PlanError if a sequence does not have two entries.
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
    kept = Subplan(tuple(range(shape[0])), tuple(range(shape[1])), of_stages, of_pipelines)
    return cut_subplan(plan, kept), kept


def largest_shape(of: tuple[int, int], workers: int) -> tuple[int, int]:
    """Return the largest (stages, pipelines) within ``of`` that at most ``workers`` workers can run.

    All stages are kept if at least one whole pipeline fits, and then as many pipelines as possible. Otherwise the
    result is the first stages of two pipelines, so that replicas synchronise. It is one pipeline if the plan has only
    one, or if two would have fewer than two stages.
    """
    n_stages, n_pipelines = of
    if n_stages <= workers:
        return n_stages, min(n_pipelines, workers // n_stages)
    pipelines = 2 if n_pipelines > 1 and workers >= LEAST_TO_SYNCHRONISE else 1
    return workers // pipelines, pipelines


def cut_subplan(plan: Plan, kept: Subplan | None) -> Plan:
    """Return only the kept stages and pipelines of a plan. Without ``kept``, or if the whole plan is kept, return the
    plan itself.

    The cost is the cost of the kept stages in the whole plan, with all its pipelines. Raises TraceError unless they are
    the first stages and pipelines of a plan of this shape.
    """
    shape = plan.placement.devices.shape
    if kept is None or shape == (n := (len(kept.stages), len(kept.pipelines))):
        return plan
    n_stages, n_pipelines = n
    there = 0 < n_stages <= shape[0] and 0 < n_pipelines <= shape[1]
    if not there or kept != Subplan(tuple(range(n_stages)), tuple(range(n_pipelines)), *shape):
        raise TraceError(
            f"{kept.sentence} ran, of a plan of {counted(kept.of_stages, 'stage')} x "
            f"{counted(kept.of_pipelines, 'replica')}; this one has {shape[0]} x {shape[1]}; wanted the same"
        )
    cost = CostBreakdown(
        group_s=plan.cost.group_s[:n_stages],
        hop_s=plan.cost.hop_s[: n_stages - 1],
        weights_s=plan.cost.weights_s[:n_stages, :n_stages],
    )
    return plan.changed(
        job=_part_of_job(plan.job, n_stages, n_pipelines),
        placement=Placement(plan.placement.devices[:n_stages, :n_pipelines]),
        cost=cost,
        lower_bound_s=0.0,
    )


def check_same_plan(plan: Plan, ran: TracedPlan, *fields: str) -> None:
    """Raise TraceError if a trace ran on other devices, another network, or with other values of these fields.

    ``fields`` are fields of ``TracedPlan``. Those that the trace leaves empty are not compared.
    """
    if ran.devices != (devices := plan.device_names):
        raise TraceError(f"the trace ran on stages {ran.devices}, this plan has {devices}; wanted the same")
    # Old traces have no fingerprint.
    if ran.topology_fingerprint not in ("", plan.topology.fingerprint):
        raise TraceError(
            f"the trace ran on network {ran.topology_fingerprint} ({ran.topology}), this plan is for "
            f"{plan.topology.fingerprint} ({plan.topology.name}); wanted the same"
        )
    for what in fields:
        if (found := getattr(ran, what)) != (wanted := getattr(plan.job, AS_RECORDED.get(what, what))) and found:
            raise TraceError(f"the trace ran with {what} {found}, this plan's job has {wanted}; wanted the same")


def _part_of_job(job: Job, n_stages: int, n_pipelines: int) -> Job:
    model = job.modelled()
    counts, warmups = job.microbatch_counts[:n_pipelines], job.warmups
    batch: dict[str, Any] = {"n_replicas": n_pipelines, "global_batch": sum(counts) * job.microbatch}
    batch["microbatches_per_replica"] = None if len(set(counts)) == 1 else counts
    if n_stages == job.n_stages:
        return replace(job, **batch)
    n_layers = sum(job.cut(job.n_stages)[:n_stages])
    # The last stage kept ends the model now, so it takes the head.
    head = tuple(layer for layer in model.layers[-1:] if layer.kind is LayerKind.HEAD)
    blocks = job.blocks_per_stage
    if blocks is None and job.cut_by != "blocks":  # a part of the model alone would be cut at other places
        blocks = model.even_cut(job.n_stages, job.cut_by)
    blocks = None if blocks is None else blocks[:n_stages]
    return replace(
        job,
        **batch,
        n_stages=n_stages,
        warmups=None if warmups is None else warmups[:n_stages],
        model=replace(model, layers=model.layers[:n_layers] + head),
        blocks_per_stage=blocks,
    )
