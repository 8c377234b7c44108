"""Bytes of a corpus as batches of tokens, the same for every worker and for one process."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch

from dtfm_lab.runtime.protocol.corpus import Corpus

Pairs = list[tuple[torch.Tensor, torch.Tensor]]
"""(inputs, targets) of each micro-batch, each (microbatch, seq_len) bytes"""


class TextBatches:
    """``batch(step)`` is (inputs, targets), each (global_batch, seq_len) bytes, drawn by seed and step from the
    training text; ``held_out_batch()`` is as large and always the same, whatever the seed."""

    def __init__(self, text: Corpus | str | None, seq_len: int, global_batch: int, seed: int) -> None:
        """``text``: one that is open already, or the path of a file; None: the one that comes with the lab."""
        self.corpus = text if isinstance(text, Corpus) else Corpus.of(text, seq_len)
        self._global_batch, self._seed = global_batch, seed

    def batch(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(self._seed * 1_000_003 + step)
        n_starts = len(self.corpus.training) - self.corpus.seq_len
        starts = torch.randint(0, n_starts, (self._global_batch,), generator=generator)
        return _pair(self.corpus.windows(self.corpus.training, starts.numpy()))

    def share(self, step: int, replica: int, n_replicas: int, n_microbatches: int) -> Pairs:
        """One replica's micro-batches."""
        return _cut(self.batch(step), replica, n_replicas, n_microbatches)

    def held_out_batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Sequences from all over the held-out text, as many as in a batch."""
        return _pair(self.corpus.windows(self.corpus.held_out, self.corpus.held_out_starts(self._global_batch)))

    def held_out(self, replica: int, n_replicas: int, n_microbatches: int) -> Pairs:
        """One replica's micro-batches of them; the mean of the replicas' mean losses is that of all."""
        return _cut(self.held_out_batch(), replica, n_replicas, n_microbatches)

    @cached_property
    def unigram_entropy(self) -> float:
        """Of the bytes that the held-out batch asks for; see ``Corpus``."""
        return self.corpus.unigram_entropy(self._global_batch)


def _pair(windows: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    tokens = torch.from_numpy(windows).long()
    return tokens[:, :-1], tokens[:, 1:]


def _cut(batch: tuple[torch.Tensor, torch.Tensor], replica: int, n_replicas: int, n_microbatches: int) -> Pairs:
    mine = (part.chunk(n_replicas)[replica].chunk(n_microbatches) for part in batch)
    return list(zip(*mine, strict=True))
