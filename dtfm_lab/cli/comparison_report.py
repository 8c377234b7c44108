"""What ``dtfm-lab compare`` prints: one JSON object, or lines and tables for a person."""

from __future__ import annotations

from typing import Any

from pandas import DataFrame
from rich.table import Table

from dtfm_lab.cli.terminal import out, print_json
from dtfm_lab.compare import Comparison, Refit
from dtfm_lab.compare.refit import in_units
from dtfm_lab.domain.units import format_s

SUSPECTS_SHOWN = 8
FITTED = ("drawn", "fitted", "low", "high")
LINKS_SHOWN = 12
"""Links shown in a terminal; --json has all of them."""


def report_comparison(comparison: Comparison, refitted: Refit | None, as_json: bool) -> None:
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
    rows: list[Any] = list(off.head(LINKS_SHOWN).itertuples(index=False))
    for row in rows:
        what = row.what.split("_")[0] if row.of == "link" else f"{row.kind} of stage {row.stage}"
        table.add_row(row.name, what, *(in_units(row.what, getattr(row, column)) for column in FITTED))
    out.print(table)


def _worst_links(comparison: Comparison) -> DataFrame:
    links = comparison.links
    order = links["arrival_error_s"].abs().sort_values(ascending=False, kind="stable").index
    return links.loc[order[:LINKS_SHOWN]]


def _cell(column: str, value: Any) -> str:
    if value != value:
        return "-"
    if column == "relative_error":
        return f"{value:+z.2%}"
    return format_s(float(value)) if column.endswith("_s") else f"{value:g}"
