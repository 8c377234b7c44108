"""A text file as bytes: its beginning is for training, its end is held out for evaluation. It is mapped, never read
whole."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dtfm_lab.domain.errors import FileError
from dtfm_lab.domain.units import IntArray
from dtfm_lab.files.reading import UNREADABLE, explained

SHIPPED = Path(__file__).parents[1] / "text.txt"
"""Jane Austen, Pride and Prejudice (1813), chapters 1 to 12; in the public domain."""
HELD_OUT_PART = 10
"""The text is divided into this many equal parts. The last one is held out and never trained on."""


@dataclass(frozen=True)
class Corpus:
    """A text whose last tenth, and at least one sequence, is held out.

    A sequence is ``seq_len`` bytes and the byte after them. Raises FileError if the file cannot be read, or is too
    short for one training sequence and one held-out sequence.
    """

    path: Path
    seq_len: int

    def __post_init__(self) -> None:
        path = self.path
        with explained(f"text {path}", UNREADABLE):
            if path.is_dir():
                raise FileError(f"text {path}: is a directory; wanted a file")
            if path.exists() and not path.is_file():
                raise FileError(f"text {path}: is not an ordinary file; wanted one, of any bytes")
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
        if size < (least := 2 * (self.seq_len + 1)):
            raise FileError(
                f"text {path}: has {size} bytes; wanted at least {least}: {self.seq_len} and the next one to train "
                f"on, and as many that are held out"
            )

    @classmethod
    def of(cls, path: str | os.PathLike[str] | None, seq_len: int) -> Corpus:
        """Return the text at this path, or the one that comes with the lab if None."""
        return cls(SHIPPED if path is None else Path(path), seq_len)

    @property
    def name(self) -> str:
        return self.path.name

    def opened(self) -> Corpus:
        """Memory-map the file now, so that a later file of the same name changes nothing. Return the corpus."""
        assert len(self._bytes)
        return self

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all bytes, in hexadecimal. It takes about a second per gigabyte."""
        return hashlib.sha256(self._bytes.data).hexdigest()

    @cached_property
    def training(self) -> NDArray[np.uint8]:
        return self._bytes[: self._cut]

    @cached_property
    def held_out(self) -> NDArray[np.uint8]:
        return self._bytes[self._cut :]

    def held_out_starts(self, n_sequences: int) -> IntArray:
        """Return (n,) byte positions in the held-out text at which sequences start, evenly spread."""
        last = len(self.held_out) - self.seq_len - 1
        return np.linspace(0, last, n_sequences).astype(np.int64)

    def unigram_entropy(self, n_sequences: int) -> float:
        """Return the entropy, in nats per byte, of the held-out bytes that a model must predict, if bytes are
        independent.

        No fixed distribution over bytes does better on them, not even one chosen in hindsight. A model whose loss
        on the same sequences is lower uses the context.
        """
        targets = self.windows(self.held_out, self.held_out_starts(n_sequences))[:, 1:]
        counts = np.bincount(targets.reshape(-1))
        shares = counts[counts > 0] / counts.sum()
        return float(-(shares * np.log(shares)).sum())

    def windows(self, part: NDArray[np.uint8], starts: IntArray) -> NDArray[np.uint8]:
        """Return (n, seq_len + 1) bytes: for each of the ``starts`` in ``part``, a copy of one sequence and the byte
        after it."""
        return np.asarray(part[starts[:, None] + np.arange(self.seq_len + 1)])

    @cached_property
    def _bytes(self) -> NDArray[np.uint8]:
        return np.memmap(self.path, dtype=np.uint8, mode="r")

    @property
    def _cut(self) -> int:
        return len(self._bytes) - max(len(self._bytes) // HELD_OUT_PART, self.seq_len + 1)
