"""Commands about seconds and dollars: the frontier of a network, and what one more device would bring."""

from typing import Any

import click

from dtfm_lab import files, lab
from dtfm_lab.cli.options import (
    FRONTIER,
    SEARCH,
    cli,
    file_option,
    gathered,
    job_options,
    json_option,
    plan_argument,
)
from dtfm_lab.cli.progress import frontier_progress, row_progress
from dtfm_lab.cli.terminal import err, out, print_json, print_table
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.units import plain_rows
from dtfm_lab.planning import Addition

COLUMNS = [
    "global_batch",
    "iteration_s",
    "price_per_hour",
    "price_per_billion_tokens",
    "lower_bound_s",
    "n_stages",
    "n_replicas",
    "idle",
    "gpus",
]
"""Columns of a frontier that a terminal shows; --json has all of them, and the plans."""


@cli.command()
@job_options
@gathered(FRONTIER, into="budget")
@click.option("--batches", help="Global batches that have a frontier each, such as 256,512,1024.")
@file_option("--plan-at", help="With --price: write the plan to this file.")
@click.option("--price", type=float, help="The fastest plan of at most so many US dollars an hour, alone.")
@json_option
def frontier(
    topology: Topology,
    job: Job,
    budget: dict[str, Any],
    batches: str | None,
    plan_at: str | None,
    price: float | None,
    as_json: bool,
) -> None:
    """Lay seconds against dollars on TOPOLOGY. No other plan is both as fast and as cheap as one of these."""
    if plan_at is not None and price is None:
        raise click.UsageError("--plan-at writes the plan for a price; wanted --price with it")
    wanted = None if batches is None else _whole_numbers(batches)
    with frontier_progress() as show:
        found = lab.frontier(topology, job, batches=wanted, progress=show, **budget)
    if price is not None:
        chosen = found.at(price, found.batches[0] if len(found.batches) == 1 else None)
        if plan_at is not None:
            files.save_plan(chosen, plan_at)
        if as_json:
            return print_json(chosen.summary())
        out.print(repr(chosen))
        return None
    if as_json:
        return print_json(found.summary())
    out.print(found.sentence)
    if found.note:
        err.print(found.note)
    out.print("prices are in US dollars")
    print_table(found.to_frame()[COLUMNS])
    return None


@cli.command()
@plan_argument
@click.option("--gpu", "gpus", multiple=True, help="A GPU of the table of hardware, again for each; all by default.")
@gathered(SEARCH, into="budget")
@json_option
def additions(plan_file: str, gpus: tuple[str, ...], budget: dict[str, Any], as_json: bool) -> None:
    """Say what one more device of each kind with a price would bring to PLAN: 4 steps of search each unless told."""
    plan = files.load_plan(plan_file)

    def described(row: Addition) -> str:
        return row.sentence

    with row_progress("additions", "kinds", described) as show:
        table = lab.additions(plan, gpus=list(gpus) or None, progress=show, **budget)
    if as_json:
        return print_json({"additions": plain_rows(table), "units": table.attrs["units"]})
    out.print("prices are in US dollars")
    print_table(table.drop(columns=["sentence"]))


def _whole_numbers(text: str) -> list[int]:
    """Numbers in a list with commas; raises UsageError for anything else."""
    try:
        return [int(number) for number in text.split(",") if number.strip()]
    except ValueError:
        raise click.UsageError(f"--batches is {text!r}; wanted whole numbers, such as 256,512") from None
