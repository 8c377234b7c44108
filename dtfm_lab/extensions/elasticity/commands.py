"""The command that replays hours of training on devices that come and go."""

from typing import Any

import click
from pandas import DataFrame, concat

from dtfm_lab.cli.options import assigned, csv_option, json_option, plain_value
from dtfm_lab.cli.terminal import print_json, print_table, row_progress
from dtfm_lab.extensions.elasticity.api import policies
from dtfm_lab.extensions.elasticity.replaying import replay
from dtfm_lab.files.reading import write_text

OURS = "goodput"
"""The default policy."""
SECONDS = ("start_s", "restart_s", "regroup_s", "checkpoint_s", "notice_s")
"""Arguments of a replay that are durations. ``--set`` takes them, because no plan can predict them."""
HOURS_SHOWN = ("policy", "samples_per_s", "share_of_bound", "training", "redone", "reconfiguring", "dollars")
"""Columns of the table in the terminal. --json has all."""


@click.command()
@click.argument("network", metavar="TOPOLOGY")
@click.option("--job", "job_name", help="Job name or file. Default: the network's job.")
@click.option(
    "--availability",
    required=True,
    help="When devices are online: a name that ships with the lab, or a file of events or counts.",
)
@click.option(
    "--policy",
    "chosen",
    multiple=True,
    type=click.Choice(list(policies)),
    help="Policy to replay. May be repeated. Default: goodput.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=SECONDS",
    help=f"Set {', '.join(SECONDS)} or an option of the policy. May be repeated.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the plan searches.")
@csv_option
@json_option
def hours(
    network: str,
    job_name: str | None,
    availability: str,
    chosen: tuple[str, ...],
    settings: tuple[str, ...],
    seed: int,
    csv: str | None,
    as_json: bool,
) -> None:
    """Predict hours of training on a TOPOLOGY whose devices come and go, under each policy, and compare them with
    perfect foresight. The lab searches a plan for every fleet that occurs, which takes a while."""
    given: dict[str, Any] = {
        name: plain_value(text) for name, text in assigned("--set", settings, "restart_s=60").items()
    }
    reports, segments = [], []
    with row_progress("simulate --hours", noun="policies", total=len(chosen or (OURS,))) as show:
        for policy in chosen or (OURS,):
            history = replay(network, job_name, availability, policy, seed=seed, **given)
            reports.append(history.to_dict())
            segments.append(history.to_frame().assign(policy=policy))
            # Each policy is shown when it is done, since a replay may take minutes.
            show(history)
    if csv is not None:
        write_text(csv, concat(segments).to_csv(index=False))
    if as_json:
        return print_json({"histories": reports})
    print_table(DataFrame([{name: one[name] for name in HOURS_SHOWN} for one in reports]))
