"""A buffer that grows as long as a run lasts. Its last bytes are in memory, earlier ones in a temporary file.

The file has no name, so nothing is left of it however the process ends.
"""

import mmap
import os
import tempfile
import weakref

MOST_IN_MEMORY = 1 << 20
"""Maximum number of bytes at the end that stay in memory, unless the disk is full. Shorter contents create no file."""


class SpillBuffer:
    """Append, cut and read bytes, without locking. If the disk is full, bytes stay in memory, and are written later."""

    def __init__(self) -> None:
        self._descriptor: int | None = None
        self._n_on_disk = 0
        self._tail = bytearray()
        self._spill_at = MOST_IN_MEMORY
        """Number of bytes in memory above which they are written to the file. It grows after the disk refused a write.
        """

    def __len__(self) -> int:
        return self._n_on_disk + len(self._tail)

    def append(self, data: bytes) -> None:
        self._tail += data
        if len(self._tail) >= self._spill_at:
            try:
                self._spill()
                self._spill_at = MOST_IN_MEMORY
            except OSError:
                self._spill_at = 2 * len(self._tail)

    def cut(self, length: int) -> None:
        """Drop everything after the first ``length`` bytes."""
        del self._tail[max(0, length - self._n_on_disk) :]
        self._n_on_disk = min(self._n_on_disk, length)

    def read(self, start: int, length: int) -> bytes:
        """Return up to ``length`` bytes from ``start`` on, fewer at the end."""
        on_disk = b""
        if self._descriptor is not None and start < self._n_on_disk:
            on_disk = os.pread(self._descriptor, min(length, self._n_on_disk - start), start)
        at = max(0, start + len(on_disk) - self._n_on_disk)
        return on_disk + bytes(self._tail[at : at + length - len(on_disk)]) if len(on_disk) < length else on_disk

    def view(self) -> memoryview:
        """Return all bytes, read-only. They are read from disk when used, and outlive this buffer.

        Call it only after the last append or cut, because later ones would change the view.
        """
        if self._descriptor is not None:
            try:
                self._spill()
                return memoryview(mmap.mmap(self._descriptor, self._n_on_disk, access=mmap.ACCESS_READ))
            except (OSError, ValueError):  # the disk is full, or all was cut
                pass
        return memoryview(self.read(0, len(self)))

    def _spill(self) -> None:
        """Write the bytes in memory to the file. A later attempt overwrites what a failed one has written."""
        if self._descriptor is None:
            file = tempfile.TemporaryFile(prefix="dtfm_lab-")  # noqa: SIM115
            # Closed with the buffer, so that no caller can forget it.
            weakref.finalize(self, file.close)
            self._descriptor = file.fileno()
        written = 0
        while written < len(self._tail):
            # A write may stop short, as on a full disk.
            written += os.pwrite(self._descriptor, self._tail[written:], self._n_on_disk + written)
        self._n_on_disk += written
        self._tail.clear()
