"""Shapes that a plan may have: stages and replicas within the model, the batch, the devices and the job's pins."""

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.planning.iteration.problem import IterationProblem

MOST_SHAPES = 320
"""Most shapes that are tried from the start; of more, those with replicas on a geometric scale."""


def shapes_of(problem: IterationProblem, microbatch: int, most_shapes: int = MOST_SHAPES) -> list[tuple[int, int]]:
    """(S, R), fewest stages first. Empty where the job's pins and this size of micro-batches allow none."""
    job, n = problem.job, problem.n_devices
    n_microbatches = job.global_batch // microbatch
    found = []
    for s in [job.n_stages] if job.n_stages is not None else range(1, min(problem.n_blocks, n) + 1):
        most = min(n // s, n_microbatches)
        replicas = range(1, most + 1) if job.n_replicas is None else [job.n_replicas] * (job.n_replicas <= most)
        # replicas that gather parameters pass as many micro-batches
        found += [(s, r) for r in replicas if s <= problem.n_blocks and not (job.gathers_passes and n_microbatches % r)]
    if len(found) <= most_shapes:
        return found
    ratio = 1.05
    while len(thinned := [shape for shape in found if _on_scale(shape[1], n // shape[0], ratio)]) > most_shapes:
        ratio *= 1.05
    return thinned


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
