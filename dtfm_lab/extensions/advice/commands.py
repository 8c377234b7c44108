"""The command that advises where to train."""

import sys
from typing import Any

import click

from dtfm_lab.cli.options import command_line_options, file_option, gathered, json_option, shapeless_options
from dtfm_lab.cli.terminal import print_json, print_report, row_progress
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.extensions.advice import advising
from dtfm_lab.extensions.advice.advice import ENDINGS, Advice, AdviceOptions, report_of
from dtfm_lab.files.reading import ending_of


@click.command()
@shapeless_options
@gathered(command_line_options(AdviceOptions), into="options")
@file_option("-o", "--output", help=f"Write it to this file: {', '.join(ENDINGS)}.")
@json_option
def advise(topology: Topology, job: Job, options: dict[str, Any], output: str | None, as_json: bool) -> None:
    """Say where to train: at home, in the cloud, both or not at all.

    Devices of TOPOLOGY with a price are rented, the others are your own. Each option is planned for --tokens and
    reported with its days, dollars and electricity. The report also says what fits, which changes would fit, and where
    each number comes from.
    """
    if output is not None:
        ending_of(output, ENDINGS)

    def described(found: Advice) -> str:
        return "options" if found.best is None else f"options  best so far: {found.best.name}"

    with row_progress("advise", described, "options", says_total="wanted") as show:
        found = advising.advise(topology, job, progress=show, **options)
    if output is not None:
        found.save(output)
    if as_json:
        print_json(found.to_dict())
    else:
        print_report(report_of(found))
    if found.stopped:
        sys.exit(130)
