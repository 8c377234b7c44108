"""Bytes of the tensors that autograd saves for backwards, counted on any device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Self

import torch
from torch.autograd.graph import saved_tensors_hooks


class SavedBytes(saved_tensors_hooks):
    """While entered, counts memory that autograd holds, each storage once, and keeps the peak."""

    def __init__(self) -> None:
        self.now, self.peak = 0, 0
        self._holders: Counter[int] = Counter()
        self._left_out: set[int] = set()
        super().__init__(lambda tensor: _Saved(tensor, self), lambda saved: saved.tensor)

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    def leave_out(self, tensors: Iterable[torch.Tensor]) -> None:
        """Not to count these tensors' memory, such as that of parameters."""
        self._left_out |= {tensor.untyped_storage().data_ptr() for tensor in tensors}

    def hold(self, storage: torch.UntypedStorage, change: int) -> None:
        """One holder more or less of a storage."""
        at = storage.data_ptr()
        if at in self._left_out:
            return
        before = self._holders[at]
        self._holders[at] += change
        if before == 0 or self._holders[at] == 0:
            self.now += change * storage.nbytes()
            self.peak = max(self.peak, self.now)


class _Saved:
    """A saved tensor; its memory counts until autograd forgets it."""

    def __init__(self, tensor: torch.Tensor, counts: SavedBytes) -> None:
        self.tensor, self._counts = tensor.detach(), counts
        counts.hold(self.tensor.untyped_storage(), 1)

    def __del__(self) -> None:
        self._counts.hold(self.tensor.untyped_storage(), -1)
