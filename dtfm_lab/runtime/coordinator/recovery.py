"""The states to which a run can return (a data-parallel peer's or a checkpoint), and when checkpoints are written."""

import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from dtfm_lab.domain.errors import FileError
from dtfm_lab.domain.units import counted
from dtfm_lab.files.reading import explained
from dtfm_lab.runtime.protocol import checkpoint_folders
from dtfm_lab.runtime.protocol.locks import FolderLock
from dtfm_lab.runtime.protocol.run_options import RunSpec


@dataclass(frozen=True)
class Recovery:
    """A state from which all workers can continue."""

    version: int
    """Number of iterations done in this state."""
    donors: dict[int, int] = field(default_factory=dict)
    """Rank without a state -> rank that sends it."""
    checkpoint: str | None = None
    """Folder that all workers read. None if donors send the state, or if all workers make the initial one."""

    def describe_source(self, spec: RunSpec, rank: int) -> str:
        """Return where this rank's state comes from, in words for the user."""
        if self.checkpoint is not None:
            return f"checkpoint of iteration {self.version}"
        return spec.device_name(*spec.workers[self.donors[rank]]) if rank in self.donors else "the beginning"


def find_recovery(
    spec: RunSpec, lost: Collection[int], done: int, checkpoint: tuple[int, str] | None
) -> Recovery | None:
    """Return how to continue after ``done`` iterations without the memory of the lost ranks. None if their state is
    lost.

    ``checkpoint`` is (iterations, folder) of the newest. With local updates, each replica has its own optimizer
    state and, between two averages, its own parameters. With sharding, each replica has its own shard of the
    optimizer states. In both cases only a checkpoint leads to the same losses.
    """
    if done == spec.first_iteration:
        return Recovery(done)  # each worker makes the first state from the seed or the resumed checkpoint
    if not lost or not _why_alone(spec):
        donors = {rank: _living_peer(spec, rank, lost) for rank in lost}
        if all(donor is not None for donor in donors.values()):
            return Recovery(done, {rank: donor for rank, donor in donors.items() if donor is not None})
    return None if checkpoint is None else Recovery(checkpoint[0], checkpoint=checkpoint[1])


def holders(spec: RunSpec, living: Collection[int]) -> set[int] | None:
    """Return which of the remaining ranks hand their state over to a new plan.

    One replica of each stage if all replicas are equal, otherwise every rank. None if a part of the state is lost,
    because none of the remaining ranks has it.
    """
    if _why_alone(spec):
        # every rank has a part of the state that no other rank has
        return set(living) if len(living) == len(spec.workers) else None
    first: dict[int, int] = {}
    for rank in sorted(living):
        first.setdefault(spec.workers[rank][0], rank)
    return set(first.values()) if len(first) == spec.plan.job.n_stages else None


def why_unrecoverable(spec: RunSpec, rank: int) -> str:
    """Return why ``find_recovery`` found nothing, in one clause."""
    if why := _why_alone(spec):
        return f"{why}; wanted a checkpoint to go back to"
    stages = describe_stages(spec, rank)
    return f"no other replica holds {stages}; wanted a data-parallel peer, or a checkpoint to go back to"


def _why_alone(spec: RunSpec) -> str:
    """Return why no replica has the state of another. Empty if all replicas are equal, or if there is only one."""
    job = spec.plan.job
    if job.n_replicas == 1:
        return ""
    if job.synchronise_every > 1:
        return "with local updates no other replica has the same state"
    if job.sharding != "none":
        return f"with {job.sharding} no other replica holds its shard of the optimizer states"
    return ""


def describe_stages(spec: RunSpec, rank: int) -> str:
    """Return the stages of a rank for messages to the user: ``stage 1`` or ``stages 1, 3``."""
    held = spec.built.stages_of(spec.workers[rank][0])
    return f"stage{'s' if len(held) > 1 else ''} {', '.join(map(str, held))}"


def _living_peer(spec: RunSpec, rank: int, lost: Collection[int]) -> int | None:
    """Return the rank of the next living replica of the same stages; None if all are lost."""
    position, replica = spec.workers[rank]
    n_replicas = spec.plan.job.n_replicas
    members, in_turn = spec.members(position), ((replica + step) % n_replicas for step in range(1, n_replicas))
    others = (spec.rank(position, other) for other in in_turn if other in members)
    return next((other for other in others if other not in lost), None)


HANDED = "handed-"
"""Prefix of the names of folders that hold the state for a new plan."""


class CheckpointPolicy:
    """Decides when and where checkpoints are written: to the user's folder, or to a temporary one that ``close``
    removes.

    The user's folder stays locked until ``close``, so that no other run writes to it.
    """

    def __init__(self, spec: RunSpec) -> None:
        """Lock the user's folder, if any. Raises FileError if another run uses it, or if a file cannot be read."""
        self._spec = spec
        self._every = spec.checkpoint_every
        # so that a resumed run writes after the same iterations as one that was never interrupted
        self._latest = spec.first_iteration - spec.first_iteration % max(1, self._every)
        """Number of iterations at the newest checkpoint. Before there is one, the multiple of the interval at or before
        the first iteration."""
        self._after_next = False
        self._temporary: str | None = None
        self._n_handed = 0
        self._corpus = spec.corpus.opened()
        self._written: list[Path] = []
        self._earlier_losses: tuple[float, ...] = ()
        self._states: list[tuple[int, str]] = []
        """(iterations done, folder) of every state to which the run can return, the newest last."""
        if spec.resume_from is not None:
            self._earlier_losses = checkpoint_folders.read(Path(spec.resume_from), contents=False).losses
            self._states = [(spec.first_iteration, spec.resume_from)]
        self._lock = None if spec.checkpoint_folder is None else FolderLock(spec.checkpoint_folder)
        if self._lock is not None:
            self._lock.hold()

    @property
    def why_unlocked(self) -> str:
        """Why another run could write to the folder at the same time. Empty if it cannot."""
        return "" if self._lock is None else self._lock.unsupported

    def is_due(self, done: int, last: int) -> bool:
        """Return True if a checkpoint is due after ``done`` of ``last`` iterations."""
        if done == last:
            return self._spec.checkpoint_folder is not None or self._spec.sample_bytes > 0
        over = self._after_next or 0 < self._every <= done - self._latest
        return self._spec.checkpoint_folder is not None and over

    def change_interval(self, every: int, after_next: bool) -> None:
        """Write a checkpoint every ``every`` iterations from now on. With ``after_next``, also write one after the next
        iteration."""
        self._every, self._after_next = every, self._after_next or after_next

    @property
    def newest(self) -> tuple[int, str] | None:
        """(iterations done, folder) of the newest state to which the run can return, whole or damaged. None if there is
        none."""
        return self._states[-1] if self._states else None

    def forget_damaged(self) -> list[str]:
        """Drop states until the contents of ``newest`` are intact. Return why each dropped one is not used.

        Dropped checkpoints are written again when the run has repeated their iterations.
        """
        found: list[str] = []
        while self._states:
            _, folder = self._states[-1]
            try:
                if not Path(folder).name.startswith(
                    HANDED
                ):  # a handed-over folder has no description, and is short-lived
                    checkpoint_folders.read(Path(folder))
                break
            except FileError as error:
                found.append(str(error))
                self._states.pop()
                self._written = [path for path in self._written if str(path) != folder]
                self._latest = self._states[-1][0] if self._states else self._spec.first_iteration
        instead = (
            f"; the state after {counted(self._states[-1][0], 'iteration')} is used instead" if self._states else ""
        )
        return [why + instead for why in found]

    def handed_over(self, done: int, folder: str) -> None:
        """Make this folder the state to which a failed run goes back. The workers wrote it after ``done`` iterations,
        for a new plan."""
        self._states.append((done, folder))

    @contextmanager
    def writing(self, done: int, losses: Sequence[float], digests: Mapping[str, str] | None = None) -> Iterator[Path]:
        """Yield the folder for every stage's tensors. It becomes a checkpoint when the block ends without an error.

        ``digests``: SHA-256 of the files by name. The block may add to it.

        Raises FileError if it cannot be written. Nothing of it is left then, and earlier checkpoints are unchanged.
        """
        spec = self._spec
        self._latest, self._after_next = done, False
        # a run that was set back writes its later checkpoints again
        self._states = [state for state in self._states if state[0] < done]
        folder = checkpoint_folders.folder_for(self._parent(), done)
        checkpoint_folders.prepare(folder)
        try:
            yield folder
            checkpoint_folders.seal(
                checkpoint_folders.Checkpoint(
                    folder=folder,
                    iteration=done,
                    job=spec.trained,
                    seed=spec.seed,
                    learning_rate=spec.learning_rate,
                    text=Path(self._corpus.path).name,
                    text_digest=self._corpus.digest,
                    losses=(*self._earlier_losses, *losses),
                    versions={name: version(name) for name in ("dtfm_lab", "torch")},
                ),
                digests,
            )
        except FileError:
            checkpoint_folders.prune([folder], keep=0)
            raise
        self._written = checkpoint_folders.prune([*(old for old in self._written if old != folder), folder])
        kept = {str(path) for path in self._written} | {spec.resume_from}
        self._states = [state for state in self._states if state[1] in kept] + [(done, str(folder))]

    def hand_over_folder(self) -> Path:
        """Return a new folder for the state that goes to a new plan. Earlier ones are removed.

        Raises FileError if it cannot be made.
        """
        parent = Path(self._temporary_folder())
        self._n_handed += 1
        folder = parent / f"{HANDED}{self._n_handed:06d}"
        checkpoint_folders.prepare(folder)
        for old in parent.glob(f"{HANDED}*"):
            if old != folder:
                shutil.rmtree(old, ignore_errors=True)
                self._states = [state for state in self._states if state[1] != str(old)]
        return folder

    def follow(self, spec: RunSpec) -> None:
        """Write checkpoints of another plan from now on."""
        self._spec = spec

    def close(self) -> None:
        """Remove the temporary folder, if any, and unlock the user's."""
        if self._lock is not None:
            self._lock.release()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def _parent(self) -> str:
        if self._spec.checkpoint_folder is not None:
            return self._spec.checkpoint_folder
        return self._temporary_folder()

    def _temporary_folder(self) -> str:
        with explained(f"checkpoint in {tempfile.gettempdir()}"):
            self._temporary = self._temporary or tempfile.mkdtemp(prefix="dtfm_lab-")
        return self._temporary
