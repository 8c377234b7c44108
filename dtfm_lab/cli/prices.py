"""The command about seconds and dollars: the frontier of a network."""

from typing import Any

import click

from dtfm_lab import files, lab
from dtfm_lab.cli.options import (
    FRONTIER,
    cli,
    file_option,
    gathered,
    job_options,
    json_option,
)
from dtfm_lab.cli.progress import frontier_progress
from dtfm_lab.cli.terminal import err, out, print_json, print_table
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology

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


def _whole_numbers(text: str) -> list[int]:
    """Numbers in a list with commas; raises UsageError for anything else."""
    try:
        return [int(number) for number in text.split(",") if number.strip()]
    except ValueError:
        raise click.UsageError(f"--batches is {text!r}; wanted whole numbers, such as 256,512") from None
