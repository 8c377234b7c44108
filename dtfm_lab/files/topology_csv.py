"""Topologies as CSV, with names and links only: a list with one row per directed link, or two matrices.

The first row of a list holds ``source``, ``target``, ``latency_ms`` and ``bandwidth_gbps``, in any order and among
other columns, as in ``Topology.to_frame``. Matrices are two files, ``NAME.latency_ms.csv`` and
``NAME.bandwidth_gbps.csv``. Rows are senders, columns receivers. The matrices are bare, or have names in the first row
and column. Both forms also accept ``latency_s`` and ``bandwidth_bytes_per_s``, which are never written. Diagonals are
ignored. CSV holds no GPUs, regions, hosts, prices, times by message size or spread of the links. Devices are read as
V100s without a region.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtfm_lab.domain.errors import FileError
from dtfm_lab.domain.network import Topology, shortened
from dtfm_lab.domain.network.conversions import LINKS, SPEEDS
from dtfm_lab.files.reading import cells_of, located, read_text, title_of, write_text

if TYPE_CHECKING:
    import pandas as pd

suffixes = (".csv",)
MATRICES = SPEEDS[: len(LINKS)]


def read(path: Path) -> Topology:
    """Read the topology in a list of links, or in two matrices: ``path`` names one, and the other lies next to it.
    Raises FileError or TopologyError."""
    import pandas as pd  # takes a while to load

    if named := _matrix_of(path):
        files = {what: _beside(path, named, what) for what in SPEEDS}
        matrices: dict[str, Any] = {what: _matrix(file) for what, file in files.items() if file.exists()}
        with located(path.name):
            return Topology.from_matrices(name=title_of(path).removesuffix(f".{named}"), **matrices)
    rows = _rows(path)
    header = [cell.lower() for cell in next(rows)]
    if "source" not in header:  # refuses another kind of file before reading all of it
        found = shortened(", ".join(header))
        raise FileError(f"{path.name}: no column 'source' among {found}; wanted one row per link, source to target")
    links = pd.DataFrame(list(rows), columns=header, dtype=object)
    with located(path.name):
        return Topology.from_frame(links, name=title_of(path))


def write(topology: Topology, path: Path) -> Path:
    """Write links and names. If ``path`` names a matrix, write both matrices. Return ``path``.

    Raises FileError for a device name with blanks around it, and for a list of links of a single device.
    """
    for name in topology.names:
        # The reader cuts blanks off.
        if name != name.strip():
            raise FileError(f"{path}: cannot hold the device name {name!r}; wanted no blanks around it")
    if named := _matrix_of(path):
        if named not in MATRICES:
            raise FileError(f"{path}: the matrix is in {named}; wanted one of {', '.join(MATRICES)}")
        for what, matrix in zip(MATRICES, topology.to_matrices(), strict=True):
            write_text(_beside(path, named, what), matrix.to_csv(lineterminator="\n"))
        return path
    # A single device has no link to be listed.
    if len(topology) == 1:
        raise FileError(f"{path}: a list of links cannot hold a single device; wanted another format")
    return write_text(path, topology.to_frame().to_csv(index=False, lineterminator="\n"))


def _matrix_of(path: Path) -> str | None:
    """Return what the matrix in a file holds, by the file's name: ``latency_ms`` and so on. None for a list of
    links."""
    return next((what for what in SPEEDS if path.stem.lower().endswith(f".{what}")), None)


def _beside(path: Path, named: str, what: str) -> Path:
    return path.with_name(f"{path.stem[: -len(named)]}{what}{path.suffix}")


def _matrix(path: Path) -> pd.DataFrame:
    """Return a matrix with zeros on the diagonal, labelled if its first row names the devices."""
    import pandas as pd  # takes a while to load

    rows = list(_rows(path))
    labels = None
    if not _is_number(rows[0][0]):
        labels, rows = rows[0][1:], rows[1:]
        if [row.pop(0) for row in rows] != labels:
            raise FileError(f"{path.name}: rows and columns are labelled otherwise; wanted the same names in one order")
    for i, row in enumerate(rows):
        row[i : i + 1] = ["0"] if i < len(row) else []
        stray = [cell for cell in row if not _is_number(cell)]
        if stray:
            raise FileError(f"{path.name}: row {i + 1} has {shortened(stray[0])}; wanted a number")
    return pd.DataFrame(rows, index=labels, columns=labels)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _rows(path: Path) -> Iterator[list[str]]:
    """Yield the cells of each non-empty row. Raises FileError if there are no rows or their lengths differ."""
    wanted = 0
    for line, cells in cells_of(read_text(path), path):
        if not wanted and len(cells) == 1 and (stray := next((c for c in ";\t|" if c in cells[0]), None)):
            raise FileError(f"{path.name}: cells stand apart by {stray!r}; wanted commas, and points in numbers")
        wanted = wanted or len(cells)
        if len(cells) != wanted:
            raise FileError(f"{path.name}: line {line} has {len(cells)} cells; wanted {wanted}")
        yield cells
    if not wanted:
        raise FileError(f"{path.name}: holds nothing; wanted rows of cells")
