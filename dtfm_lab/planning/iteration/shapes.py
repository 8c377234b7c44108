"""Shapes that a plan may have: stages and replicas within the model, the batch, the devices and the job's pins."""

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.planning.iteration.problem import IterationProblem

MOST_SHAPES = 320
"""Most shapes that are tried from the start; of more, those with replicas on a geometric scale."""


def shapes_of(problem: IterationProblem, microbatch: int, most_shapes: int = MOST_SHAPES) -> list[tuple[int, int]]:
    """(S, R), fewest stages first. Empty where the job's pins and this size of micro-batches allow none."""
    job, n = problem.job, problem.n_devices
    stages = range(1, min(problem.n_blocks, n) + 1) if job.n_stages is None else [job.n_stages]
    found = [
        (s, r)
        for s in stages
        for r in (range(1, n // s + 1) if job.n_replicas is None else [job.n_replicas])
        if allows(problem, (s, r), microbatch)
    ]
    if len(found) <= most_shapes:
        return found
    ratio = 1.05
    while len(thinned := [shape for shape in found if _on_scale(shape[1], n // shape[0], ratio)]) > most_shapes:
        ratio *= 1.05
    return thinned


def allows(problem: IterationProblem, shape: tuple[int, int], microbatch: int) -> bool:
    """Whether the job, the model and the devices have room for a shape with micro-batches of this size."""
    job, (s, r) = problem.job, shape
    n_microbatches = job.global_batch // microbatch
    if (job.n_stages or s, job.n_replicas or r) != shape:
        return False
    # replicas that gather parameters pass as many micro-batches
    divides = not (job.gathers_passes and n_microbatches % r)
    return s <= problem.n_blocks and s * r <= problem.n_devices and r <= n_microbatches and divides


def _on_scale(r: int, most: int, ratio: float) -> bool:
    """Whether a number of replicas is one of most, most / ratio, most / ratio^2, ..."""
    allowed = float(most)
    while allowed > r:
        allowed = min(allowed / ratio, allowed - 1)
    return int(allowed) == r


def require_shapes(problem: IterationProblem) -> None:
    """Raise PlanError where no shape is left: too few devices, blocks or micro-batches for what the job pins."""
    if any(shapes_of(problem, microbatch) for microbatch in problem.microbatches):
        return
    job, n = problem.job, problem.n_devices
    wanted = f"{job.n_stages or 'any'} stages x {job.n_replicas or 'any'} replicas"
    raise PlanError(
        f"job {job.name}: {wanted} fit no plan on {n} devices of {problem.topology.name}, with {problem.n_blocks} "
        f"blocks and {job.global_batch // problem.microbatches[0]} micro-batches; wanted fewer"
    )
