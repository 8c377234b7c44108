"""Where the state of lost workers comes from: a data-parallel peer, a checkpoint, or nowhere."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from dtfm_lab.runtime.protocol.run_spec import RunSpec


@dataclass(frozen=True)
class Recovery:
    """All workers go on from ``version``, the number of iterations that are done."""

    version: int
    donors: dict[int, int] = field(default_factory=dict)
    """rank that lacks its state -> rank that gives it"""
    checkpoint: str | None = None
    """folder that all read"""

    def told(self, spec: RunSpec, rank: int) -> str:
        """Where this rank's state comes from, for people."""
        if self.checkpoint is not None:
            return f"checkpoint of iteration {self.version}"
        return spec.device_name(*spec.workers[self.donors[rank]]) if rank in self.donors else "the beginning"


def recovery(spec: RunSpec, lost: Collection[int], done: int, checkpoint: tuple[int, str] | None) -> Recovery | None:
    """How to go on without these ranks' memory, ``done`` iterations being committed; None where nothing holds it.

    ``checkpoint``: iterations and folder of the newest. Where replicas update themselves alone, each has an optimiser
    state, and between two averages parameters, that no other has: only a checkpoint brings the same losses.
    """
    if done == spec.first_iteration:
        return Recovery(done)  # what one begins with, seed or checkpoint, every worker makes for itself
    if spec.plan.job.synchronise_every == 1:
        donors = {rank: _peer(spec, rank, lost) for rank in lost}
        if all(donor is not None for donor in donors.values()):
            return Recovery(done, {rank: donor for rank, donor in donors.items() if donor is not None})
    return None if checkpoint is None else Recovery(checkpoint[0], checkpoint=checkpoint[1])


def nothing_left(spec: RunSpec, rank: int) -> str:
    """Why there is no recovery."""
    if spec.plan.job.synchronise_every > 1 and spec.plan.job.n_replicas > 1:
        return "with local updates no other replica has the same state; wanted a checkpoint to go back to"
    return f"no other replica holds {stages_of(spec, rank)}; wanted a data-parallel peer, or a checkpoint to go back to"


def stages_of(spec: RunSpec, rank: int) -> str:
    """What this rank holds, for people."""
    held = spec.built.stages_of(spec.workers[rank][0])
    return f"stage{'s' if len(held) > 1 else ''} {', '.join(map(str, held))}"


def _peer(spec: RunSpec, rank: int, lost: Collection[int]) -> int | None:
    """The next living replica of the same stages."""
    position, replica = spec.workers[rank]
    n_replicas = spec.plan.job.n_replicas
    for step in range(1, n_replicas):
        other = spec.rank(position, (replica + step) % n_replicas)
        if other not in lost:
            return other
    return None
