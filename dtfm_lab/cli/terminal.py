"""Standard output and standard error of the commands: lines, tables, or one JSON object."""

import json
import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NoReturn

import click
from pandas import DataFrame, isna
from rich.console import Console, ConsoleDimensions
from rich.table import Column, Table
from rich.text import Text

from dtfm_lab.domain.report import Part, ReportSection
from dtfm_lab.domain.report import Table as ReportTable
from dtfm_lab.domain.units import format_bytes, format_s, format_share, signed_share

PIPE_WIDTH = 1000
"""Characters of a line where the reader is no terminal: every row is one line."""


class _Console(Console):
    """Prints text as given, for a device may be called [a]. A reader that closes the pipe (head) is no failure."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, soft_wrap=True, markup=False, **options)

    @property  # type: ignore[misc]  # rich also allows to set it, which is not needed here
    def size(self) -> ConsoleDimensions:
        found = super().size
        return found if self.is_terminal or "COLUMNS" in os.environ else found._replace(width=PIPE_WIDTH)

    def on_broken_pipe(self) -> None:
        reader_left()


out = _Console()
err = _Console(stderr=True)


def reader_left() -> NoReturn:
    """Exit with status 0; what is still buffered goes to /dev/null instead of into the closed pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise SystemExit(0)


def print_json(value: dict[str, Any]) -> None:
    """Print one line. What is no number, such as the loss of a training that diverged, is null: JSON has no NaN."""
    try:
        click.echo(json.dumps(_finite(value), allow_nan=False))
    except BrokenPipeError:
        reader_left()


def _finite(value: Any) -> Any:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {key: _finite(item) for key, item in value.items()}
        case list() | tuple():
            return [_finite(item) for item in value]
    return value


def print_rows(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table of these cells, as they are."""
    columns = [Column(each, overflow="fold", min_width=max(map(len, each.split()), default=0)) for each in head]
    table = Table(*columns, box=None)
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(str(cell)) for cell in row))
    out.print(table)


def print_table(frame: DataFrame, headings: Mapping[str, str] = MappingProxyType({})) -> None:
    """Print a table, numbers with their units and missing values as a dash. ``headings`` are of columns whose name says
    too little."""
    columns = [str(column) for column in frame.columns]
    head = [headings.get(column, _bare(column).replace("_", " ")) for column in columns]
    rows = frame.itertuples(index=False)
    print_rows(head, ([_in_units(*each) for each in zip(columns, row, strict=True)] for row in rows))


def _bare(column: str) -> str:
    """The name of a column without its unit, which its cells have."""
    return column if column.endswith("_per_s") else column.removesuffix("_s").removesuffix("_bytes")


def print_report(parts: Iterable[Part]) -> None:
    """Print a report: sections under their titles, and what is marked in bold and red."""
    for part in parts:
        match part:
            case str():
                out.print(_styled(part))
            case ReportTable():
                print_rows(part.head, [[_styled(cell) for cell in row] for row in part.rows])
            case ReportSection():
                out.print(Text(f"\n{part.title}", style="bold"))
                print_report(part.parts)


def _styled(text: str) -> Text:
    """The text without its marks; what was between them in bold."""
    pieces = text.split("**")
    return Text.assemble(*((piece, "bold" if i % 2 else "") for i, piece in enumerate(pieces)))


SHARES = ("mfu", "share")
ERRORS = ("error", "relative_error")


def _in_units(column: str, value: Any) -> str:
    if isna(value):
        return "-"
    if isinstance(value, str):
        return value
    if column in SHARES:
        return format_share(value)
    if column in ERRORS:
        return signed_share(value, 2)
    if column.endswith("_bytes"):
        return format_bytes(float(value))
    if column.endswith("_per_s"):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    if column.endswith("_s"):
        return format_s(float(value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)
