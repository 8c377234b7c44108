"""``dtfm-lab strategies --run``: the systems' plans on real workers, as a table, a file or a figure."""

import json
import sys
from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from dtfm_lab import lab
from dtfm_lab.cli.progress import row_progress
from dtfm_lab.cli.terminal import out, print_json
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.files.reading import write_text
from dtfm_lab.systems import Strategy
from dtfm_lab.systems.strategy_runs import StrategyRuns
from dtfm_lab.systems.strategy_runs_html import headings

TABLES = (".csv", ".json")
"""Endings of files that get the table; others get the figure."""


def run_systems(
    topology: Topology, job: Job, asked: Sequence[Strategy], output: str | None, as_json: bool, **options: Any
) -> None:
    """Run each system's plan for real, print the table, and write it to a file whose ending has been checked."""
    with row_progress("strategies", "runs", lambda runs: repr(runs.runs[-1]), total=len(asked)) as show:
        runs = lab.run_strategies(topology, job, systems=asked, progress=show, **options)
    if output is not None:
        _write(runs, output)
    if as_json:
        print_json(runs.to_dict())
    else:
        print_runs(runs)
    if len(runs) < runs.wanted or any(one.reason and one.measured for one in runs):
        sys.exit(130)


def _write(runs: StrategyRuns, output: str) -> None:
    if output.lower().endswith(".csv"):
        write_text(output, runs.to_frame().to_csv(index=False))
    elif output.lower().endswith(".json"):
        write_text(output, json.dumps(runs.to_dict(), indent=1) + "\n")
    else:
        from dtfm_lab import figures  # plotly takes a while to load

        figures.save(figures.strategy_runs(runs), output)


def print_runs(runs: StrategyRuns) -> None:
    """A row for each system that ran, the fastest first, the reasons of the others, and a sentence about all."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in headings(runs.common_loss):
        table.add_column(heading, justify="left" if heading == "system" else "right", overflow="fold")
    for row in runs.rows:
        table.add_row(*map(Text, row))
    if runs.rows:
        out.print(table)
    for one in runs:
        if one.reason:
            out.print(Text(f"{one.outcome.title}: {one.reason}", style="red"))
    out.print(f"{runs.sentence}.")
