"""Whether a plan is of the job that is chosen, which may leave to the planner what the plan's job names."""

from dataclasses import fields

from dtfm_lab.domain.job import Job

LEFT_OPEN = (
    "n_stages",
    "n_replicas",
    "microbatch",
    "schedule",
    "warmups",
    "blocks_per_stage",
    "microbatches_per_replica",
)
"""Fields of a job that are the planner's to choose where they are None."""


def is_plan_of(planned: Job, job: Job) -> bool:
    """Whether a plan's job is the other with what that leaves open; a planner may recompute where only that fits."""
    if planned == job:
        return True
    differing = {field.name for field in fields(Job) if getattr(planned, field.name) != getattr(job, field.name)}
    return differing <= {name for name in LEFT_OPEN if getattr(job, name) is None} | (
        set() if job.recompute else {"recompute"}
    )
