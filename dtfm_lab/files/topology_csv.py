"""Topologies as CSV, names and links only: a list with one row for each directed link, or two matrices.

A list of links has a first row with ``source``, ``target``, ``latency_ms`` and ``bandwidth_gbps``, in
any order among any others, as ``Topology.to_frame`` has them. Matrices are a pair of files,
``NAME.latency_ms.csv`` and ``NAME.bandwidth_gbps.csv``. ``latency_s`` and ``bandwidth_bytes_per_s`` are read in both
forms, too, and never written. Rows of matrices send to columns: square and bare, or with names in the first row and
column and no number in their corner. Diagonals are not read.
CSV holds no GPUs, regions, hosts, prices, times by message size or spread of the links: devices are read as V100s in no
region.
"""

import csv
import io
from pathlib import Path
from typing import Any

import pandas as pd

from dtfm_lab.domain.errors import FileError
from dtfm_lab.domain.network import MOST_DEVICES, Topology, check_count, shortened
from dtfm_lab.files.reading import located, read_text, title_of, write_text

MATRICES = ("latency_ms", "bandwidth_gbps")
IN_SI = ("latency_s", "bandwidth_bytes_per_s")
suffixes = (".csv",)


def read(path: Path) -> Topology:
    """The topology of a list of links, or of a matrix and its companion; raises FileError or TopologyError."""
    if _matrix_of(path) is not None:
        return _read_matrices(path)
    header, *rows = _rows(path)
    with located(path.name):
        frame = pd.DataFrame([cells for _, cells in rows], columns=[cell.lower() for cell in header[1]], dtype=object)
        return Topology.from_frame(frame, name=title_of(path))


def write(topology: Topology, path: Path) -> Path:
    """Write links and names. Matrices are written as both files, and the given path is returned."""
    for name in topology.names:
        if name != name.strip():
            raise FileError(f"{path}: cannot hold the device name {name!r}; wanted no blanks around it")
    if (named := _matrix_of(path)) in IN_SI:
        raise FileError(f"{path}: matrices are written as {MATRICES[IN_SI.index(named)]}; wanted that name")
    if named is None:
        if len(topology) == 1:
            raise FileError(f"{path}: a list of links cannot hold a single device; wanted another format")
        return write_text(path, topology.to_frame().to_csv(index=False, lineterminator="\n"))
    for what, matrix in zip(MATRICES, topology.to_matrices(), strict=True):
        write_text(_companion(path, what), matrix.to_csv(lineterminator="\n"))
    return path


def _matrix_of(path: Path) -> str | None:
    """Which matrix a path names, and in which unit, if any."""
    return next((what for what in MATRICES + IN_SI if path.stem.lower().endswith(f".{what}")), None)


def _companion(path: Path, what: str) -> Path:
    stem = path.stem[: -len(_matrix_of(path) or "")]
    return path.with_name(f"{stem}{what}{path.suffix}")


def _read_matrices(path: Path) -> Topology:
    matrices: dict[str, Any] = {}
    for names in zip(MATRICES, IN_SI, strict=True):
        there = [name for name in names if _companion(path, name).exists()]
        if len(there) > 1:
            both = " and ".join(_companion(path, name).name for name in there)
            raise FileError(f"{path.name}: {both} are both there; wanted one of them")
        name = there[0] if there else names[0]
        matrices[name] = _read_matrix(_companion(path, name))
    with located(path.name):
        title = title_of(path).removesuffix(f".{_matrix_of(path)}")
        return Topology.from_matrices(name=title, **matrices)


def _read_matrix(path: Path) -> pd.DataFrame:
    rows = _rows(path)
    n = len(rows)
    names = None
    if not _is_number(rows[0][1][0]):
        names, rows = rows[0][1][1:], rows[1:]
        n = len(names)
        if [cells[0] for _, cells in rows] != names:
            raise FileError(f"{path.name}: rows and columns are labelled otherwise; wanted the same names in one order")
    with located(path.name):
        check_count(n)
    values = []
    for i, (line, cells) in enumerate(rows):
        row = cells if names is None else cells[1:]
        if len(row) != n:
            raise FileError(f"{path.name}: {n} rows, but line {line} has {len(row)} columns; wanted {n}")
        values.append([0.0 if i == j else _number(path, line, cell) for j, cell in enumerate(row)])
    return pd.DataFrame(values, index=names, columns=names)


def _rows(path: Path) -> list[tuple[int, list[str]]]:
    """Line number and cells of each row that is not empty. Raises FileError unless all rows have equally many cells."""
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    rows: list[tuple[int, list[str]]] = []
    try:
        for cells in reader:
            if len(rows) > 2 * MOST_DEVICES and "source" not in map(str.lower, rows[0][1]):
                wide = len(rows[0][1])
                raise FileError(
                    f"{path.name}: more than {2 * MOST_DEVICES} rows of {wide} cells; wanted as many as cells"
                )
            if any(cell.strip() for cell in cells):
                rows.append((reader.line_num, [cell.strip() for cell in cells]))
                if len(cells) != (wanted := len(rows[0][1])):
                    raise FileError(f"{path.name}: line {reader.line_num} has {len(cells)} cells; wanted {wanted}")
    except csv.Error as error:
        raise FileError(f"{path.name}: line {reader.line_num}: broken CSV: {error}") from None
    if not rows:
        raise FileError(f"{path.name}: holds nothing; wanted rows of cells")
    if len(rows[0][1]) == 1 and (stray := next((c for c in ";\t|" if c in rows[0][1][0]), None)):
        raise FileError(f"{path.name}: cells stand apart by {stray!r}; wanted commas, and points in numbers")
    return rows


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _number(path: Path, line: int, cell: str) -> float:
    if not _is_number(cell):
        raise FileError(f"{path.name}: line {line} has {shortened(cell)}; wanted a number")
    return float(cell)
