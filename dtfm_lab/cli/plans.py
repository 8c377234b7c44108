"""Commands about plans: find, evaluate, show and explain them, trade time against price, and print file schemas."""

import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from dtfm_lab import files, lab, planning
from dtfm_lab.cli.options import (
    AUTO,
    FRONTIER,
    PLANNING,
    SEARCH,
    cli,
    gathered,
    job_options,
    json_option,
    output_option,
    placed_options,
    plan_argument,
    with_help,
)
from dtfm_lab.cli.plan_report import MOST_PLACED, report_plan, report_topology, seconds_by_stage
from dtfm_lab.cli.terminal import (
    err,
    out,
    print_json,
    print_notes,
    print_reasons,
    print_rows,
    print_table,
    row_progress,
    search_progress,
    waiting,
)
from dtfm_lab.cli.traces import report_trace
from dtfm_lab.domain.errors import FileError, PlanError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import (
    counted,
    format_s,
    format_share,
    plain_rows,
)
from dtfm_lab.files.reading import write_text
from dtfm_lab.lab.arguments import PlanOptions
from dtfm_lab.lab.schemas import formats, schema
from dtfm_lab.planning.explain.worth import freed
from dtfm_lab.planning.search import DEFAULT_SECONDS
from dtfm_lab.simulation.memory import MOST_USED, held_memory

SPEED_AND_PRICE = (
    "global_batch",
    "iteration_s",
    "basis",
    "price_per_hour",
    "price_per_billion_tokens",
    "lower_bound_s",
)
FRONTIER_SHOWN = (*SPEED_AND_PRICE, "n_stages", "n_replicas", "idle", "gpus")
"""Columns of a frontier that a terminal shows. --json has all of them, and the plans."""
FREED_SHARE = 0.25
"""Budget of the second search of the command ``plan``, as a share of the first search's. In the second one, all pinned
fields of the job are open."""


def _loaded_plan(_context: click.Context, _option: click.Parameter, path: str | None) -> Plan | None:
    return None if path is None else files.load_plan(path)


@cli.command()
@job_options
@gathered(PLANNING, into="budget")
@click.option(
    "--start",
    type=click.Path(),
    callback=_loaded_plan,
    help="A plan file to improve on. Its devices are matched by name. Without --job, its job is planned.",
)
@output_option
@json_option
def plan(
    topology: Topology, job: Job, budget: dict[str, Any], start: Plan | None, output: str | None, as_json: bool
) -> None:
    """Find a plan for a job on TOPOLOGY, a network by name or file.

    Searches for 2 s by default, then for another 0.5 s to report what you would gain by unpinning the job's fields. If
    the plan uses more than 90 % of a device's memory, it also searches for plans that leave a tenth free.
    Ctrl-C ends the search and keeps the best plan so far.

    \b
        dtfm-lab plan lecture-hall --job tiny -o plan.json
        dtfm-lab plan worldwide --job gpt3-xl --seconds 10 --set recompute=true
        dtfm-lab plan campus --job gpt3-xl --typical-prices --max-price-per-hour 5
    """
    best: planning.PlanStep | None = None
    stopped = False
    try:
        with search_progress(PlanOptions(**budget)) as show_step:
            for best in lab.search(topology, job, start=start, **budget):
                show_step(best)
    except KeyboardInterrupt:
        # Nothing was found yet, so there is nothing to keep.
        if best is None:
            raise
        stopped = True
        err.print("stopped; the best so far is kept")
    assert best is not None, "a search yields at least one step"
    found = best.plan
    try:
        with waiting("plan", "simulating the plan"):
            found = planning.simulated(found)
    except KeyboardInterrupt:  # keep the plan, without its iteration time
        stopped = True
    report_plan(found, output, as_json)
    # A person who stopped the search does not want a second one.
    if not (as_json or stopped) and _report_roomier(found, topology, job, budget):
        _report_freed(found, PlanOptions(**budget))


@cli.command()
@placed_options
@click.option(
    "--placement",
    required=True,
    type=click.Path(),
    help='JSON file: {"stages": [[names or indices], ...]}, {"rank_map": [...]} or {"groups": ...}. The list of stages '
    "or the rank map alone also works, and so does a plan file.",
)
@output_option
@json_option
def evaluate(topology: Topology, job: Job, placement: str, output: str | None, as_json: bool) -> None:
    """Evaluate your own placement on TOPOLOGY.

    TOPOLOGY is a network by name or file. Prints the placement's communication cost and its simulated iteration time.

    \b
        dtfm-lab evaluate lecture-hall --job tiny --placement stages.json
    """
    data = files.read_mapping(Path(placement), list_as="list")
    if isinstance(listed := data.get("list"), list):
        ranks = all(rank is None or isinstance(rank, int) for rank in listed)
        data = {"rank_map" if ranks else "stages": listed}
    data = data["summary"] if isinstance(data.get("summary"), dict) else data  # a plan file has it in its summary
    keys = [key for key in ("stages", "rank_map", "groups") if key in data]
    if not keys:
        raise FileError(f"{placement}: no placement; wanted one of the keys stages, rank_map, groups")
    placed = planning.evaluate(topology, job, **{keys[0]: data[keys[0]]})
    report_plan(planning.simulated(placed), output, as_json)


@cli.command()
@click.argument("what")
@json_option
def show(what: str, as_json: bool) -> None:
    """Show WHAT: a plan, a trace or a network.

    Plans and traces are files. A network is a name or a file.

    \b
        dtfm-lab show plan.json
        dtfm-lab show worldwide
    """
    path = Path(what)
    endings = files.topology_suffixes()
    is_file = os.path.isfile(what) and what not in files.topology_names()
    if is_file and not what.lower().endswith((*endings, ".graphml")):
        raise FileError(f"{path.name}: wanted a plan, a trace or a topology, which end in {', '.join(endings)}")
    data = files.read_mapping(path) if is_file and path.suffix.lower() in (".json", ".yaml", ".yml") else {}
    if "dtfm_plan" in data:
        shown = files.plan_from_mapping(data, where=path.name)
        report_plan(shown, None, as_json, explained=True)
        if not as_json:
            out.print(lab.explain(shown).text)
    elif "dtfm_trace" in data:
        report_trace(files.trace_from_mapping(data, where=path.name), None, as_json)
    else:
        report_topology(lab.load_topology(what), as_json)
    return None


@cli.command()
@plan_argument
@click.option("--device", help="Explain why this device holds its stage, and what any other place would cost.")
@json_option
def explain(plan_file: str, device: str | None, as_json: bool) -> None:
    """Explain what limits PLAN, a plan file.

    For a plan made for time or price, shows what its iteration waits for. For one made for communication cost, shows
    what sets that cost, and what exchanging any two devices would cost.

    \b
        dtfm-lab explain plan.json
        dtfm-lab explain plan.json --device ada
    """
    explanation = lab.explain(plan_file)
    if as_json:
        return print_json(explanation.summary(device))
    out.print(explanation.text if device is None else explanation.why(device))
    if explanation.by_seconds and device is None:
        seconds = ["device", "stage", "replica", "busy_s", "critical_s", "peak_bytes", "limit_bytes"]
        table = explanation.to_frame("iteration")[seconds]
        many = len(table) > MOST_PLACED
        return print_table(seconds_by_stage(explanation.plan, table) if many else table)
    if device is not None:
        return print_table(explanation.places(device))
    exchanges = ["device", "stage", "replica", "partner", "partner_stage", "cost_after_s", "change_s"]
    table = explanation.to_frame()[exchanges]
    if len(table) > MOST_PLACED:
        out.print(f"the {MOST_PLACED} of {len(table):,} devices whose best exchange saves most or costs least:")
        table = table.nsmallest(MOST_PLACED, "change_s")
    return print_table(table)


def report_difference(before: str | Plan, after: str | Plan, as_json: bool) -> None:
    """Print what changed from one plan to another. Each is a plan or a plan file."""
    difference = lab.compare(before, after)
    if as_json:
        return print_json(difference.summary())
    out.print(difference.text)
    print_table(difference.parts.reset_index())
    devices = difference.to_frame()
    if len(changed := devices[~devices["change"].isin(["stays", "idle"])]):
        print_table(changed)


@cli.command()
@job_options
@gathered(FRONTIER, into="budget")
@click.option("--batches", help="Global batches, each with its own frontier, such as 256,512,1024.")
@json_option
def frontier(topology: Topology, job: Job, budget: dict[str, Any], batches: str | None, as_json: bool) -> None:
    """List the best trade-offs of time and price on TOPOLOGY.

    Searches for plans that no other plan beats in both iteration time and price. To get only the fastest plan under a
    price limit, use `dtfm-lab plan --objective iteration --max-price-per-hour`.

    \b
        dtfm-lab frontier mixed-gpus --job gpt3-xl --seconds 20
    """
    wanted = None if batches is None else _whole_numbers(batches)

    def described(found: planning.Frontier) -> str:
        return f"searches  {found.latest}  {counted(len(found), 'plan')}"

    print_notes(job)
    with row_progress("frontier", described, "searches", says_total="n_searches") as show:
        found = lab.frontier(topology, job, batches=wanted, progress=show, **budget)
    if as_json:
        return print_json(found.summary())
    out.print(found.sentence)
    if found.note:
        err.print(found.note)
    out.print("prices are in US dollars")
    table = found.to_frame()[list(FRONTIER_SHOWN)]
    # Each reason is printed once, below the table, instead of in every row.
    words = table.assign(basis=[basis.partition(":")[0] for basis in table["basis"]])
    print_table(words.rename(columns=lambda column: column.replace("tokens", job.counted)))
    print_reasons(table["basis"])


def _whole_numbers(text: str) -> list[int]:
    """Return the whole numbers in a comma-separated list. Raises UsageError for anything else."""
    try:
        return [int(number) for number in text.split(",") if number.strip()]
    except ValueError:
        raise click.UsageError(f"--batches is {text!r}; wanted whole numbers, such as 256,512") from None


@cli.command("explain --worth")
@plan_argument
@gathered(
    with_help(SEARCH, seconds="Search this many seconds without each device, instead of counting --steps."),
    into="budget",
)
@json_option
def worth(plan_file: str, budget: dict[str, Any], as_json: bool) -> None:
    """Show what each device is worth to PLAN, in seconds.

    Plans again without each device, for 4 steps of search by default, and reports how much the iteration time (or the
    communication cost) grows.

    \b
        dtfm-lab explain --worth plan.json
    """
    explanation = lab.explain(plan_file)
    with row_progress("worth", noun="devices", total=len(explanation.plan.topology)) as show_row:
        table = explanation.worth(progress=show_row, **budget)
    seconds = table.attrs["seconds"]
    if as_json:
        return print_json({"devices": plain_rows(table), "seconds": seconds})
    out.print(f"worth is the seconds {seconds} without a device, planned again, less those with it in use")
    print_table(table.drop(columns=["n_stages", "n_replicas", "sentence"]).dropna(axis="columns", how="all"))


def _report_freed(plan: Plan, budget: PlanOptions) -> None:
    """Search again, for a shorter time, with all pinned fields of the job open. Print whether that finds a faster
    plan."""
    seconds = DEFAULT_SECONDS if budget.steps is None and budget.seconds is None else budget.seconds
    shorter = replace(
        # A share of the budget, since this search is only a hint.
        budget,
        steps=None if budget.steps is None else math.ceil(budget.steps * FREED_SHARE),
        seconds=None if seconds is None else seconds * FREED_SHARE,
    )
    same = ("seed", "steps", "seconds", "max_price_per_hour", "max_iteration_s")
    limits = {what: getattr(shorter, what) for what in same}
    try:
        with search_progress(shorter, "all open") as show_step:
            other = freed(plan, budget.planner, progress=show_step, **limits)
    except KeyboardInterrupt:
        return err.print("stopped; no report of what unpinning the job's fields would gain")
    if other is None or other.iteration_s is None or plan.iteration_s is None:
        return
    opened = f"with {', '.join(plan.pinned)} left open ({AUTO})"
    # A shorter search can find a worse plan, which would say nothing about the fields.
    if other.iteration_s >= plan.iteration_s:
        return out.print(f"{opened}, a search with {format_share(FREED_SHARE, 0)} of the budget found nothing faster")
    out.print(f"{opened}, {_takes(other)}")


def _report_roomier(plan: Plan, topology: Topology, job: Job, budget: dict[str, Any]) -> bool:
    """If the plan nearly fills a device, search again, as long as before, with a tenth of all memory left free.

    Print the iteration time of the best plan found. Return False if the user stopped this search.
    """
    # A search for the communication cost does not look at memory.
    held = None if plan.objective == "communication" else held_memory(plan)
    if held is None or not held.caution:
        return True
    share = 1 - MOST_USED
    leaving = f"leaving {format_share(share, 0)} of the memory free (--set fragmentation={share:.1g})"
    try:
        with search_progress(PlanOptions(**budget), "with memory left free") as show_step:
            for step in lab.search(topology, job.with_fields(fragmentation=share), **budget):
                show_step(step)
        found = planning.simulated(step.plan)
    except KeyboardInterrupt:
        err.print("stopped; no report of a plan that leaves memory free")
        return False
    except PlanError as error:
        out.print(f"{leaving}: {error}")
        return True
    out.print(f"{leaving}, {_takes(found)}")
    return True


def _takes(plan: Plan) -> str:
    """Return a phrase with the iteration time of a plan, its shape and its main choices."""
    job = plan.job
    shape = f"{job.n_stages} x {job.n_replicas}, micro-batches of {job.microbatch}, checkpointing {job.checkpoints}"
    return f"an iteration takes {format_s(plan.iteration_s or math.nan)}: {shape}"


@cli.command("show --schema")
@click.argument("format_name", metavar="[FORMAT]", required=False)
@output_option
@json_option
def print_schema(format_name: str | None, output: str | None, as_json: bool) -> None:
    """Print the JSON Schema of a file FORMAT, such as topology or job, or list all formats.

    Editors with a YAML language server then complete and check your files. Write the schema next to your file, and
    begin your file with the line "# yaml-language-server: $schema=topology.schema.json".

    \b
        dtfm-lab show --schema topology -o topology.schema.json
    """
    if format_name is not None:
        text = json.dumps(schema(format_name), indent=1) + "\n"
        if output is None:
            return click.echo(text, nl=False)
        write_text(output, text)
        return err.print(f"wrote {output}")
    if output is not None:
        raise click.UsageError("-o needs a FORMAT")
    if as_json:
        listed = [
            {"format": name, "title": each.title, "endings": list(each.endings)} for name, each in formats().items()
        ]
        return print_json({"formats": listed})
    rows = [(name, ", ".join(each.endings), each.title) for name, each in formats().items()]
    print_rows(("format", "endings", "what it holds"), rows)
