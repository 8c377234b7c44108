"""Checkpoints as the crew keeps them: where the run was told to, or for the run's own use until it ends."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from dtfm_lab.runtime.protocol import checkpoint_folders
from dtfm_lab.runtime.protocol.corpus import Corpus
from dtfm_lab.runtime.protocol.run_spec import RunSpec


class Keeper:
    """Knows when a checkpoint is due, where it goes, and which older ones may go."""

    def __init__(self, spec: RunSpec) -> None:
        self._spec = spec
        self._own: str | None = None
        self._corpus = Corpus.of(spec.text, spec.trained.modelled().seq_len).opened()
        self._automatic: list[Path] = []
        self._before: tuple[float, ...] = ()
        if spec.resume_from is not None:
            self._before = checkpoint_folders.describe(spec.resume_from).losses

    def wants(self, done: int, last: int) -> bool:
        """Whether a checkpoint is due after so many iterations of ``last``."""
        if done == last:
            return self._spec.checkpoint_folder is not None or self._spec.sample_bytes > 0
        every = self._spec.checkpoint_every
        return self._spec.checkpoint_folder is not None and every > 0 and done % every == 0

    @contextmanager
    def new(self, done: int, losses: Sequence[float]) -> Iterator[Path]:
        """A folder for every stage's tensors; it is a checkpoint once they are there."""
        spec = self._spec
        folder = checkpoint_folders.folder_for(self._parent(), done)
        checkpoint_folders.prepare(folder)
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
                losses=(*self._before, *losses),
                versions={name: version(name) for name in ("dtfm_lab", "torch")},
            )
        )
        self._automatic = checkpoint_folders.prune([*(old for old in self._automatic if old != folder), folder])

    def close(self) -> None:
        """Nothing of the run's own use stays."""
        if self._own is not None:
            shutil.rmtree(self._own, ignore_errors=True)

    def _parent(self) -> str:
        if self._spec.checkpoint_folder is not None:
            return self._spec.checkpoint_folder
        self._own = self._own or tempfile.mkdtemp(prefix="dtfm_lab-")
        return self._own
