"""When a run writes checkpoints, where it writes them, and which older ones it removes."""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from dtfm_lab.domain.errors import FileError
from dtfm_lab.runtime.protocol import checkpoint_folders
from dtfm_lab.runtime.protocol.corpus import Corpus
from dtfm_lab.runtime.protocol.folder_lock import FolderLock
from dtfm_lab.runtime.protocol.run_spec import RunSpec


class CheckpointPolicy:
    """Checkpoints go to the folder that the user named, or to a temporary one that ``close`` removes.

    The user's folder is locked from the first moment until ``close``, so that no other run writes to it.
    """

    def __init__(self, spec: RunSpec) -> None:
        """Raises FileError where another run has the folder."""
        self._spec = spec
        self._temporary: str | None = None
        self._corpus = Corpus.of(spec.text, spec.trained.modelled().seq_len).opened()
        self._written: list[Path] = []
        self._earlier_losses: tuple[float, ...] = ()
        if spec.resume_from is not None:
            self._earlier_losses = checkpoint_folders.describe(spec.resume_from).losses
        self._lock = None if spec.checkpoint_folder is None else FolderLock(spec.checkpoint_folder)
        if self._lock is not None:
            self._lock.hold()

    @property
    def why_unlocked(self) -> str:
        """Why another run could write to the folder at the same time; empty where it cannot."""
        return "" if self._lock is None else self._lock.unsupported

    def is_due(self, done: int, last: int) -> bool:
        """Return whether a checkpoint is due after ``done`` of ``last`` iterations."""
        if done == last:
            return self._spec.checkpoint_folder is not None or self._spec.sample_bytes > 0
        every = self._spec.checkpoint_every
        return self._spec.checkpoint_folder is not None and every > 0 and done % every == 0

    @contextmanager
    def writing(self, done: int, losses: Sequence[float]) -> Iterator[Path]:
        """Yield the folder for every stage's tensors; it becomes a checkpoint when the block ends without an error.

        Raises FileError where it cannot be written: nothing of it is left then, and earlier ones are as they were.
        """
        spec = self._spec
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
                )
            )
        except FileError:
            checkpoint_folders.prune([folder], keep=0)
            raise
        self._written = checkpoint_folders.prune([*(old for old in self._written if old != folder), folder])

    def close(self) -> None:
        """Remove the temporary folder, if there is one, and unlock the user's."""
        if self._lock is not None:
            self._lock.release()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def _parent(self) -> str:
        if self._spec.checkpoint_folder is not None:
            return self._spec.checkpoint_folder
        try:
            self._temporary = self._temporary or tempfile.mkdtemp(prefix="dtfm_lab-")
        except OSError as error:
            raise FileError(f"checkpoint in {tempfile.gettempdir()}: cannot be written: {error.strerror}") from None
        return self._temporary
