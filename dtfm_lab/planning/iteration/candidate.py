"""What the search yields: a plan as arrays, not yet a Plan."""

from dataclasses import dataclass, field

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.units import IntArray


@dataclass(frozen=True, eq=False, kw_only=True)
class Candidate:
    """The best plan so far of a search for seconds or dollars, and how far the search is."""

    grid: IntArray = field(repr=False)
    """(S, R) device indices of the topology."""
    blocks: IntArray
    """(S,) blocks of each stage."""
    shares: IntArray
    """(R,) micro-batches of each pipeline."""
    warmups: IntArray | None
    """(S,) forwards that each stage runs ahead; None where the schedule says it."""
    schedule: str
    microbatch: int
    """Sequences of a micro-batch."""
    checkpointing: str
    value: float
    """The objective: seconds, or dollars, of an iteration."""
    iteration_s: float
    """Seconds of an iteration."""
    evaluations: int
    """Number of plans priced so far, those that annealing only tried included."""
    operator: str = ""
    """What made the newest plan tried, and of which shape."""
    complete: bool = True
    """False for progress that is shown but not counted as a step."""
    compiling_s: float = 0.0
    """Seconds waited so far for kernels to be compiled; no time limit counts them."""

    def job(self, job: Job) -> Job:
        """The job with all that the plan chose."""
        n_stages, n_replicas = self.grid.shape
        return job.with_fields(
            n_stages=n_stages,
            n_replicas=n_replicas,
            microbatch=self.microbatch,
            recompute=self.checkpointing == "stage",
            checkpointing=job.checkpointing or ("none" if self.checkpointing == "stage" else self.checkpointing),
            schedule=self.schedule,
            blocks_per_stage=tuple(self.blocks.tolist()),
            microbatches_per_replica=tuple(self.shares.tolist()),
            warmups=None if self.warmups is None else tuple(self.warmups.tolist()),
        )
