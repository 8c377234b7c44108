"""The file of a sweep's rows, one line of JSON per finished row. An interrupted sweep continues from it."""

import json
import os
import stat
from collections.abc import Mapping
from io import FileIO
from typing import Any, Self

from dtfm_lab.domain.errors import FileError
from dtfm_lab.domain.network import shortened
from dtfm_lab.files.reading import MOST_BYTES, explained, require_version

FORMAT = {"dtfm_sweep_rows": 1}


class SweepRows:
    """Rows by key. When ``keep`` returns, the row is on its way to disk, so a killed process loses none.

    A partially written line is dropped when the file is opened. Only one sweep at a time may use a file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open or create the file. Raises FileError if it is in use, too large, damaged or another kind of file."""
        if not isinstance(path, str | os.PathLike):
            raise FileError(f"resume is {shortened(path)}; wanted the path of a file of rows, there or not")
        self._name = os.fspath(path)
        with explained(self._name, "cannot be opened"):
            self._file: FileIO = open(path, "a+b", buffering=0)  # noqa: SIM115  closed by ``close``
        self._lines: dict[str, int] = {}
        """Key of each row that was read -> its line number in the file."""
        try:
            if not stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):
                raise FileError(f"{self._name} is not an ordinary file; wanted one, or a new path")
            self._lock()
            self._rows = self._read()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __contains__(self, key: str) -> bool:
        return key in self._rows

    def __getitem__(self, key: str) -> Mapping[str, Any]:
        return self._rows[key]

    def __len__(self) -> int:
        return len(self._rows)

    def where(self, key: str) -> str:
        """Return the file and line of a row that was read, for errors."""
        return f"{self._name}, line {self._lines[key]}"

    def keep(self, key: str, row: Mapping[str, Any]) -> None:
        """Write a row of plain values, unless its key is there already."""
        if key not in self._rows:
            self._write({"key": key, **row})
            self._rows[key] = dict(row)

    def close(self) -> None:
        """Wait until everything is on disk, and close the file."""
        if not self._file.closed:
            os.fsync(self._file.fileno())
            self._file.close()

    def _lock(self) -> None:
        try:
            import fcntl
        except ImportError:  # Windows has none; there nothing keeps two sweeps apart
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FileError(f"{self._name} is in use by another sweep; wanted a file for each") from None
        except OSError:  # a file system without locks
            return

    def _read(self) -> dict[str, dict[str, Any]]:
        if (size := os.fstat(self._file.fileno()).st_size) > MOST_BYTES:
            raise FileError(f"{self._name} has {size} bytes; wanted at most {MOST_BYTES}")
        self._file.seek(0)
        content = self._file.readall()
        # A sweep that was killed may have left half a line, which is written again.
        whole = content[: content.rfind(b"\n") + 1]
        lines = whole.splitlines()
        # A new file, or one in which not even the first line was finished.
        if not lines:
            if content and not json.dumps(FORMAT).encode().startswith(content):
                raise FileError(f"{self._name} is not a file of a sweep's rows; wanted one, or a new path")
            self._file.truncate(0)
            self._write(FORMAT)
            return {}
        if (head := self._parsed(lines[0], 1)) != FORMAT or type(head["dtfm_sweep_rows"]) is not int:
            if isinstance(head, dict) and "dtfm_sweep_rows" in head:
                require_version(head, "dtfm_sweep_rows", self._name)
            raise FileError(f"{self._name} is not a file of a sweep's rows; wanted one, or a new path")
        self._file.truncate(len(whole))
        rows = {}
        for number, line in enumerate(lines[1:], start=2):
            row = self._parsed(line, number)
            if not isinstance(row, dict) or not isinstance(row.get("key"), str):
                raise FileError(f"{self._name}, line {number} is not a row of a sweep; wanted a mapping with a key")
            key = row.pop("key")
            rows[key], self._lines[key] = row, number
        return rows

    def _parsed(self, line: bytes, number: int) -> Any:
        try:
            return json.loads(line)
        except (ValueError, RecursionError):
            if number == 1:
                return None
            raise FileError(f"{self._name}, line {number} is not JSON; wanted a row of a sweep") from None

    def _write(self, value: Mapping[str, Any]) -> None:
        with explained(self._name):
            left = json.dumps(value).encode() + b"\n"
            while left:  # a disk that is about to be full takes a part, and refuses the next one
                left = left[self._file.write(left) :]
