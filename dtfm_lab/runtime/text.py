"""Bytes of real text as training batches, the same for every worker and for one process."""

from __future__ import annotations

from pathlib import Path

import torch

SHIPPED = Path(__file__).parent / "text.txt"
"""Jane Austen, Pride and Prejudice (1813), chapters 1 to 12; in the public domain"""


class TextBatches:
    """``batch(step)`` is (inputs, targets), each (global_batch, seq_len) bytes, drawn by seed and step."""

    def __init__(self, path: str | None, seq_len: int, global_batch: int, seed: int) -> None:
        raw = (SHIPPED if path is None else Path(path)).read_bytes()
        self._text = torch.frombuffer(bytearray(raw), dtype=torch.uint8).long()
        self._seq_len, self._global_batch, self._seed = seq_len, global_batch, seed

    def batch(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(self._seed * 1_000_003 + step)
        starts = torch.randint(0, len(self._text) - self._seq_len, (self._global_batch,), generator=generator)
        windows = self._text[starts[:, None] + torch.arange(self._seq_len + 1)]
        return windows[:, :-1], windows[:, 1:]

    def share(
        self, step: int, replica: int, n_replicas: int, n_microbatches: int
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """One replica's micro-batches."""
        inputs, targets = self.batch(step)
        mine = slice(replica * (self._global_batch // n_replicas), (replica + 1) * (self._global_batch // n_replicas))
        pairs = zip(inputs[mine].chunk(n_microbatches), targets[mine].chunk(n_microbatches), strict=True)
        return list(pairs)
