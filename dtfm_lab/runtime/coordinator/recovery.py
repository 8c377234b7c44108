"""Where the state of lost workers comes from: a data-parallel peer, a checkpoint, or nowhere."""

from collections.abc import Collection
from dataclasses import dataclass, field

from dtfm_lab.runtime.protocol.run_spec import RunSpec


@dataclass(frozen=True)
class Recovery:
    """A state from which all workers can go on."""

    version: int
    """Number of iterations that are done in this state."""
    donors: dict[int, int] = field(default_factory=dict)
    """Rank that lacks its state -> rank that sends it."""
    checkpoint: str | None = None
    """Folder that all workers read; None where donors send the state."""

    def describe_source(self, spec: RunSpec, rank: int) -> str:
        """Return where this rank's state comes from, for people."""
        if self.checkpoint is not None:
            return f"checkpoint of iteration {self.version}"
        return spec.device_name(*spec.workers[self.donors[rank]]) if rank in self.donors else "the beginning"


def find_recovery(
    spec: RunSpec, lost: Collection[int], done: int, checkpoint: tuple[int, str] | None
) -> Recovery | None:
    """Return how to go on after ``done`` iterations without the memory of the lost ranks; None if it is lost.

    ``checkpoint`` is (iterations, folder) of the newest. With local updates each replica has an optimiser state, and
    between two averages parameters, that no other replica has, and where replicas split the optimiser's states each has
    a shard of its own: only a checkpoint brings the same losses.
    """
    if done == spec.first_iteration:
        return Recovery(done)  # every worker makes the first state by itself, from the seed or the resumed checkpoint
    if not lost or not _why_alone(spec):
        donors = {rank: _living_peer(spec, rank, lost) for rank in lost}
        if all(donor is not None for donor in donors.values()):
            return Recovery(done, {rank: donor for rank, donor in donors.items() if donor is not None})
    return None if checkpoint is None else Recovery(checkpoint[0], checkpoint=checkpoint[1])


def why_unrecoverable(spec: RunSpec, rank: int) -> str:
    """Return why ``find_recovery`` found nothing, in one clause."""
    if why := _why_alone(spec):
        return f"{why}; wanted a checkpoint to go back to"
    stages = describe_stages(spec, rank)
    return f"no other replica holds {stages}; wanted a data-parallel peer, or a checkpoint to go back to"


def _why_alone(spec: RunSpec) -> str:
    """Return why no replica has the state of another one; empty where all are equal, or where there is only one."""
    job = spec.plan.job
    if job.n_replicas == 1:
        return ""
    if job.synchronise_every > 1:
        return "with local updates no other replica has the same state"
    if job.sharding != "none":
        return f"with {job.sharding} no other replica holds its shard of the optimiser's states"
    return ""


def describe_stages(spec: RunSpec, rank: int) -> str:
    """Return the stages of a rank for people: ``stage 1`` or ``stages 1, 3``."""
    held = spec.built.stages_of(spec.workers[rank][0])
    return f"stage{'s' if len(held) > 1 else ''} {', '.join(map(str, held))}"


def _living_peer(spec: RunSpec, rank: int, lost: Collection[int]) -> int | None:
    """Return the next living replica of the same stages."""
    position, replica = spec.workers[rank]
    n_replicas = spec.plan.job.n_replicas
    others = (spec.rank(position, (replica + step) % n_replicas) for step in range(1, n_replicas))
    return next((other for other in others if other not in lost), None)
