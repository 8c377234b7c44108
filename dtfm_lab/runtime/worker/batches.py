"""Batches of byte tokens from a corpus. Every worker draws the same batches and takes its share."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch

from dtfm_lab.runtime.protocol.corpus import Corpus
from dtfm_lab.runtime.worker.autograd_stage import Batch


class TextBatches:
    """Training batches, drawn from the training text by seed and step, and one fixed batch of the held-out text."""

    def __init__(self, text: Corpus | str | None, seq_len: int, global_batch: int, seed: int) -> None:
        """``text``: an open corpus, or the path of a file; None for the text that comes with the lab."""
        self.corpus = text if isinstance(text, Corpus) else Corpus.of(text, seq_len)
        self._global_batch, self._seed = global_batch, seed

    def batch(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """(inputs, targets) of all replicas, each (global_batch, seq_len)."""
        generator = torch.Generator().manual_seed(self._seed * 1_000_003 + step)
        n_starts = len(self.corpus.training) - self.corpus.seq_len
        starts = torch.randint(0, n_starts, (self._global_batch,), generator=generator)
        return _pair(self.corpus.windows(self.corpus.training, starts.numpy()))

    def share(self, step: int, replica: int, counts: Sequence[int]) -> Batch:
        """One replica's micro-batches of ``batch``, which is cut into ``counts`` micro-batches for each replica."""
        return _cut(self.batch(step), replica, counts)

    def held_out_batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(inputs, targets) of sequences spread over the held-out text, each (global_batch, seq_len)."""
        return _pair(self.corpus.windows(self.corpus.held_out, self.corpus.held_out_starts(self._global_batch)))

    def held_out(self, replica: int, counts: Sequence[int]) -> Batch:
        """One replica's micro-batches of ``held_out_batch``, cut as ``share`` cuts."""
        return _cut(self.held_out_batch(), replica, counts)

    @cached_property
    def unigram_entropy(self) -> float:
        """Entropy of the held-out batch's targets in nats a byte; see ``Corpus.unigram_entropy``."""
        return self.corpus.unigram_entropy(self._global_batch)


def _pair(windows: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    tokens = torch.from_numpy(windows).long()
    return tokens[:, :-1], tokens[:, 1:]


def _cut(batch: tuple[torch.Tensor, torch.Tensor], replica: int, counts: Sequence[int]) -> Batch:
    """Replica after replica takes its number of micro-batches, in the order of the batch."""
    before, own = sum(counts[:replica]), counts[replica]
    inputs, targets = (part.chunk(sum(counts))[before : before + own] for part in batch)
    return list(zip(inputs, targets, strict=True))
