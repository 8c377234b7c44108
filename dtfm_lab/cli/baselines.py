"""The command that runs a plan beside what nobody planned."""

from __future__ import annotations

from typing import Any

import click
from pandas import isna

from dtfm_lab import files, lab
from dtfm_lab.cli.commands import cli
from dtfm_lab.cli.options import file_option, json_option, schedule_option
from dtfm_lab.cli.progress import numbered_progress
from dtfm_lab.cli.real import shape
from dtfm_lab.cli.tell import err, print_json, print_table
from dtfm_lab.domain.network import QUEUEING
from dtfm_lab.domain.units import format_s
from dtfm_lab.files.reading import write_text
from dtfm_lab.planning.explain.tables import plain_rows
from dtfm_lab.runtime.client.baselines import BaselineRun, baseline_table
from dtfm_lab.runtime.protocol.run_options import RUN_CLOCKS


@cli.command()
@click.argument("plan_file", metavar="PLAN")
@schedule_option
@click.option("--clock", default="virtual", show_default=True, help=f"One of {', '.join(RUN_CLOCKS)}.")
@click.option("--iterations", type=int, default=5, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the random placement, and of training.")
@click.option("--text", type=click.Path(), help="Train on the bytes of this file.")
@click.option("--time-scale", type=float, help="Paced clock: wall seconds per second; chosen by itself otherwise.")
@click.option("--workers", help="Run a part of PLAN on so many, or on 4x2: stages x pipelines.")
@click.option("--stand-in", help="Train this model in place of the job's: by name, or a config.json.")
@click.option("--queueing", help=f"Which messages wait for each other: one of {', '.join(QUEUEING)}.")
@click.option("--emulated", help="Another network of as many devices, whose links are emulated.")
@file_option("--csv", say="Write the table to this file.")
@json_option
def baselines(plan_file: str, schedule: str | None, csv: str | None, as_json: bool, **options: Any) -> None:
    """Run PLAN, a random placement, the order of the file, and data parallelism alone; measure each."""
    given = {name: value for name, value in options.items() if value is not None}
    if "workers" in given:
        given["workers"] = shape(given["workers"])
    rows: list[BaselineRun] = []
    try:
        with numbered_progress("baselines") as show:
            for row in lab.baseline_runs(files.load_plan(plan_file), schedule, **given):
                rows.append(row)
                said = row.reason if row.measured is None else format_s(row.measured.iteration_s)
                show(row, f"{row.name}: {said}")
    except KeyboardInterrupt:
        if not rows:
            raise
        err.print(f"stopped; {len(rows)} of {rows[0].total} placements are told")
    table = baseline_table(rows)
    if csv is not None:
        write_text(csv, table.to_csv(index=False))
    if as_json:
        return print_json({"placements": plain_rows(table)})
    error = table["error"].map(lambda share: "-" if isna(share) else f"{share:+.2%}")
    print_table(table.assign(error=error).replace("", None).dropna(axis="columns", how="all"))
