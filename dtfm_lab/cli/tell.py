"""What the commands print: one JSON object, or a few lines and tables for a person."""

from __future__ import annotations

import json
import math
import os
import sys
from typing import Any, NoReturn

import click
from pandas import DataFrame, isna
from rich.console import Console, ConsoleDimensions
from rich.table import Table

from dtfm_lab import files
from dtfm_lab.compare import Comparison, Refit
from dtfm_lab.compare.refit import in_units
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.units import format_bytes, format_s

SUSPECTS_SHOWN = 8
FITTED = ("drawn", "fitted", "low", "high")
LINKS_SHOWN = 12
"""in a terminal; --json has all of them"""
PIPE_WIDTH = 1000
"""characters; a reader that is no terminal gets every row in one line"""


class _Console(Console):
    """Plain text, as given: a device may be called [a]. A reader who has seen enough (head) is no failure."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, soft_wrap=True, markup=False, **options)

    @property
    def size(self) -> ConsoleDimensions:
        found = super().size
        return found if self.is_terminal or "COLUMNS" in os.environ else found._replace(width=PIPE_WIDTH)

    def on_broken_pipe(self) -> None:
        reader_left()


out = _Console()
err = _Console(stderr=True)


def reader_left() -> NoReturn:
    """Leave quietly; what is still buffered goes nowhere instead of into the closed pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise SystemExit(0)


def print_json(value: dict[str, Any]) -> None:
    """One line; null for what is no number, such as the loss of a training that diverged: JSON has no NaN."""
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


def print_table(frame: DataFrame) -> None:
    """Units as a person reads them, a dash for what is missing."""
    table = Table(box=None)
    for column in frame.columns:
        bare = column if column.endswith("_per_s") else column.removesuffix("_s").removesuffix("_bytes")
        heading = bare.replace("_", " ")
        table.add_column(heading, overflow="fold", min_width=max(map(len, heading.split())))
    for row in frame.itertuples(index=False):
        table.add_row(*(_in_units(str(column), value) for column, value in zip(frame.columns, row, strict=True)))
    out.print(table)


SHARES = ("mfu", "share")


def _in_units(column: str, value: Any) -> str:
    if isna(value):
        return "-"
    if column in SHARES:
        return f"{value:.1%}"
    if column.endswith("_bytes"):
        return format_bytes(float(value))
    if column.endswith("_per_s"):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    if column.endswith("_s"):
        return format_s(float(value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def deliver_comparison(comparison: Comparison, refitted: Refit | None, as_json: bool) -> None:
    """Who is to blame and since when, then errors by iteration, kind, stage and link, then what is fitted."""
    if as_json:
        fitted = {} if refitted is None else {"refit": refitted.summary()}
        return print_json(comparison.summary() | fitted)
    context = comparison.measured.context
    out.print(
        f"predicted {format_s(comparison.predicted_iteration_s)}, measured {format_s(comparison.measured.iteration_s)} "
        f"({context.clock} clock, {context.schedule}): error {comparison.iteration_error:+.2%}; "
        f"{context.late_messages} late messages, {context.overruns} overruns"
    )
    suspects = comparison.suspects["sentence"].tolist()
    more = [f"and {len(suspects) - SUSPECTS_SHOWN} more suspects"] if len(suspects) > SUSPECTS_SHOWN else []
    told = (comparison.verdict, *suspects[:SUSPECTS_SHOWN], *more, comparison.drift.sentence)
    for line in (f"measured with {context.provenance}", *told):
        out.print(line)
    for title, frame in (
        ("iteration", comparison.iterations),
        ("kind", comparison.kinds),
        ("stage", comparison.stages),
        (f"link (at most {LINKS_SHOWN}, the worst arrivals first)", _worst_links(comparison)),
    ):
        headings = (str(column).removesuffix("_s").replace("_", " ") for column in frame.columns)
        table = Table(title, *headings, box=None)
        for name, row in zip(frame.index, frame.itertuples(index=False), strict=True):
            cells = zip(frame.columns, row, strict=True)
            table.add_row(str(name), *(_cell(str(column), value) for column, value in cells))
        out.print(table)
    if refitted is not None:
        _tell_refit(refitted)


def _tell_refit(refitted: Refit) -> None:
    """The new error, and what was drawn out of its interval, the furthest first."""
    off = refitted.off
    out.print(f"{refitted.sentence}; {len(off)} of {len(refitted.table)} values out of their 95 % intervals")
    if not len(off):
        return
    table = Table(f"refitted (at most {LINKS_SHOWN}, the furthest first)", "what", *FITTED, box=None)
    for row in off.head(LINKS_SHOWN).itertuples(index=False):
        what = row.what.split("_")[0] if row.of == "link" else f"{row.kind} of stage {row.stage}"
        table.add_row(row.name, what, *(in_units(row.what, getattr(row, column)) for column in FITTED))
    out.print(table)


def _worst_links(comparison: Comparison) -> DataFrame:
    links = comparison.links
    order = links["arrival_error_s"].abs().sort_values(ascending=False, kind="stable").index
    return links.loc[order[:LINKS_SHOWN]]


def deliver_topology(topology: Topology, as_json: bool) -> None:
    if as_json:
        return print_json(files.topology_to_mapping(topology))
    out.print(f"{topology.name}: {len(topology)} devices. {topology.description}")
    links = topology.to_frame()
    region = {d.name: d.region or d.name for d in topology.devices}
    links["from"], links["to"] = links["source"].map(region), links["target"].map(region)
    table = Table("from", "to", "links", "latency ms", "bandwidth Gbit/s", box=None)
    for (a, b), group in links.groupby(["from", "to"], sort=False):
        spans = (_span(group["latency_ms"]), _span(group["bandwidth_gbps"]))
        table.add_row(str(a), str(b), str(len(group)), *spans)
    out.print(table)


def _span(values: Any) -> str:
    low, high = float(values.min()), float(values.max())
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def _cell(column: str, value: Any) -> str:
    if value != value:
        return "-"
    if column == "relative_error":
        return f"{value:+z.2%}"
    return format_s(float(value)) if column.endswith("_s") else f"{value:g}"
