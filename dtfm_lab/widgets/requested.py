"""Whether a plan is of the job that is chosen, which may leave to the planner what the plan's job names."""

from dataclasses import fields

from dtfm_lab.domain.job import Job


def is_plan_of(planned: Job, job: Job) -> bool:
    """Whether a plan's job is the other with what that leaves open."""
    if planned == job:
        return True
    differing = {field.name for field in fields(Job) if getattr(planned, field.name) != getattr(job, field.name)}
    return differing <= set(job.left_open)
