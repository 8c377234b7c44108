"""Commands that simulate: one iteration, a sweep of settings, and the sensitivity to links and devices. Also prints
schedules."""

from typing import Any

import click

from dtfm_lab import files, lab
from dtfm_lab.cli.options import (
    assigned,
    cli,
    csv_option,
    executor_option,
    file_option,
    json_option,
    output_option,
    plain_value,
    simulation_options,
)
from dtfm_lab.cli.terminal import out, print_json, print_reasons, print_table, row_progress
from dtfm_lab.cli.traces import print_trace, trace_summary
from dtfm_lab.domain.plan import Plan, cut_subplan
from dtfm_lab.domain.units import counted, format_s, plain_rows
from dtfm_lab.files.reading import write_text
from dtfm_lab.files.schedules import ENDINGS, load_schedule, save_schedule
from dtfm_lab.files.traces import save_chrome_trace
from dtfm_lab.planning.sweeps import PLANNING, SweepPoint, sweep_summary
from dtfm_lab.simulation.memory import memory_summary, memory_words
from dtfm_lab.simulation.schedules import build_named, choices_of, peak_activations
from dtfm_lab.simulation.sensitivity import LEAST_REPORTED, WHAT
from dtfm_lab.simulation.variations import VARIED

SHOWN = (
    "iteration_s",
    "iteration_low_s",
    "iteration_high_s",
    "basis",
    "tokens_per_s",
    "mfu",
    "peak_memory_bytes",
    "fits",
)
"""Columns of a sweep that a terminal shows. --json has all of them."""
GAINS_SHOWN = 12
"""Maximum number of improvements that ``explain --sensitivity`` shows in a terminal. --json has all of them."""


@cli.command()
@simulation_options
@file_option("--chrome", help="Write a trace to this file that ui.perfetto.dev and chrome://tracing open.")
@output_option
@json_option
def simulate(
    plan: Plan, schedule: str | None, how: dict[str, Any], chrome: str | None, output: str | None, as_json: bool
) -> None:
    """Predict one iteration of PLAN, a plan file.

    Prints iteration time, throughput, idle time, critical path and memory.

    \b
        dtfm-lab simulate plan.json --schedule gpipe
        dtfm-lab simulate plan.json --set overlap=true --chrome trace.json
    """
    trace = lab.simulate(plan, schedule, **how)
    # With --like, only a part of the plan may have run. Memory is then computed for the same part.
    plan = cut_subplan(plan, trace.context.rehearsed)
    if output is not None:
        files.save_trace(trace, output)
    if chrome is not None:
        save_chrome_trace(trace, chrome)
    held = lab.memory(plan, trace=trace)
    if as_json:
        return print_json(trace_summary(trace) | {"memory": memory_summary(held) | {"advice": held.advice}})
    if not held.fits:
        out.print(f"out of memory: {held.advice}")
    print_trace(trace)
    if held.fits:
        out.print(memory_words(held))


@cli.command("simulate --sweep")
@click.argument("what", metavar="PLAN|TOPOLOGY")
@click.option("--job", "job_name", help="A job by name or file. Every combination is then planned for it.")
@click.option(
    "--vary",
    "varied",
    multiple=True,
    metavar="SETTING=VALUE,VALUE...",
    help=f"Values to try; repeat for more settings. Settings: {', '.join(VARIED)}. Bandwidth and latency are factors "
    f"on all links. With any of {', '.join(PLANNING)}, every combination gets its own plan.",
)
@click.option("--repeats", type=int, help="Plan every combination this many times, with different seeds.")
@click.option("--steps", type=int, help="Stop each search after this many generations.")
@click.option(
    "--seconds", type=float, help="Stop each search after this many seconds; 2 by default, if no steps are given."
)
@executor_option
@click.option(
    "--resume",
    metavar="FILE",
    help="Keep finished rows in this file, and reuse those already in it, so that an interrupted sweep continues.",
)
@csv_option
@json_option
def sweep(
    what: str,
    job_name: str | None,
    varied: tuple[str, ...],
    steps: int | None,
    csv: str | None,
    as_json: bool,
    **how: Any,
) -> None:
    """Predict an iteration under every combination of some settings.

    For a plan file, simulates the plan under each combination. For a TOPOLOGY, a network by name or file, plans each
    combination. With --repeats, also reports the mean and its 95 % confidence interval.

    \b
        dtfm-lab simulate --sweep plan.json --vary schedule=gpipe,1f1b --vary bandwidth=0.5,1,2
        dtfm-lab simulate --sweep worldwide --job gpt3-xl --vary shape=8x8,4x16 --repeats 5
    """
    settings: dict[str, Any] = {} if steps is None else {"steps": steps}
    for name, values in assigned("--vary", varied, "schedule=gpipe,1f1b").items():
        settings[name] = [plain_value(value) for value in values.split(",") if value.strip()]

    def described(point: SweepPoint) -> str:
        duration = format_s(point.outcome.iteration_s) if point.outcome is not None else "impossible"
        return f"{', '.join(f'{what} {value}' for what, value in point.settings.items())}: {duration}"

    with row_progress("sweep", described, "points") as show:
        table = lab.sweep(what, job_name, progress=show, **how, **settings)
    names = table.attrs["settings"]
    summary = sweep_summary(table)
    if csv is not None:
        write_text(csv, table.to_csv(index=False))
    if as_json:
        repeated = {"summary": plain_rows(summary)} if "seed" in names else {}
        return print_json({"settings": names, "points": plain_rows(table)} | repeated)
    possible = table[table["error"] == ""]
    planned = ["plan_stages", "plan_replicas", "plan_devices"] if "plan_stages" in table else []
    priced = ["price_per_million_tokens"] if possible["price_per_million_tokens"].notna().any() else []
    if len(possible):
        words = possible.assign(basis=[basis.partition(":")[0] for basis in possible["basis"]])
        print_table(words[[*names, *SHOWN, *planned, *priced]])
        print_reasons(possible["basis"])
    if "seed" in names and (summary["n"] > 1).any():
        out.print("iteration in seconds, mean of the seeds and its interval of 95 % confidence:")
        print_table(summary)
    # Many points usually fail for one reason, so it is printed once.
    for error, rows in table[table["error"] != ""].groupby("error", sort=False):
        first = ", ".join(f"{name} {rows[name].iloc[0]}" for name in names)
        such = ", such as" if len(rows) > 1 else ":"
        out.print(f"{counted(len(rows), 'point')} cannot be computed{such} {first}: {error}")


@cli.command("explain --sensitivity")
@simulation_options
@click.option("--factor", type=float, default=1.1, show_default=True, help="Factor by which each one improves.")
@click.option("--what", multiple=True, help=f"What to improve: any of {', '.join(WHAT)}. All by default.")
@json_option
def sensitivity(
    plan: Plan, schedule: str | None, how: dict[str, Any], factor: float, what: tuple[str, ...], as_json: bool
) -> None:
    """Show how much a better link or device would shorten PLAN's iteration.

    Improves one link or device at a time, then several at once: all links between two regions, all links between
    hosts, or all devices with the same GPU.

    \b
        dtfm-lab explain --sensitivity plan.json --what bandwidth --factor 2
    """

    with row_progress("sensitivity", noun="improvements") as show:
        table = lab.explain(plan).sensitivity(schedule, factor=factor, what=what or WHAT, progress=show, **how)
    if as_json:
        return print_json({"gains": plain_rows(table)})
    if not len(table):
        out.print("nothing to improve: no such link or device is in use")
    changes = table["change"].abs() >= LEAST_REPORTED
    for sentence in table["sentence"][changes].head(GAINS_SHOWN):
        out.print(sentence)
    # The table is sorted, so the rest need no separate lines.
    if (more := int(changes.sum()) - GAINS_SHOWN) > 0:
        out.print(f"and {more} more, each gaining at most as much as the last")
    if none := int((~changes).sum()):
        out.print(f"{none} of {counted(len(table), 'improvement')} would change nothing")


@cli.command("show --schedule")
@click.argument("name", metavar="NAME")
@click.option("--stages", "n_stages", type=int, help="Number of devices in the pipeline.")
@click.option("--microbatches", "n_microbatches", type=int, help="Micro-batches per replica and iteration.")
@click.option(
    "--stages-per-device",
    type=int,
    default=2,
    show_default=True,
    help="Stages per device, if the schedule interleaves.",
)
@click.option("--warmups", help="adaptive-1f1b: warm-up forward passes of each device, such as 9,6,3,0.")
@output_option
@json_option
def schedule(
    name: str,
    n_stages: int | None,
    n_microbatches: int | None,
    stages_per_device: int,
    warmups: str | None,
    output: str | None,
    as_json: bool,
) -> None:
    """Print what each device of a pipeline computes, in order, under schedule NAME.

    NAME is a known schedule or a file. F is a forward pass and B a backward pass. Schedules that split the backward
    pass have I for input gradients and W for weight gradients. Each line also says how many activations the device
    holds at most.

    \b
        dtfm-lab show --schedule zb-h1 --stages 4 --microbatches 8
    """
    sizes = (n_stages, n_microbatches, warmups)
    if name.lower().endswith(ENDINGS):
        if sizes != (None, None, None):
            raise click.UsageError(f"schedule {name} is a file, which has its sizes; wanted it without such options")
        built = load_schedule(name)
    else:
        choices = choices_of(name)
        if n_stages is None or n_microbatches is None:
            raise click.UsageError(f"schedule {name} is for any sizes; wanted --stages and --microbatches")
        if warmups is not None and "warmups" not in choices:
            raise click.UsageError(f"schedule {name} has no --warmups to choose; wanted adaptive-1f1b")
        depths: Any = None if warmups is None else [plain_value(depth) for depth in warmups.split(",")]
        # Functions instead of values, because `build_named` calls and checks only those that the schedule takes.
        given: dict[str, Any] = {"stages_per_device": lambda: stages_per_device, "warmups": lambda: depths}
        built = build_named(name, n_stages, n_microbatches, given)
    if output is not None:
        save_schedule(built, output)
    held = peak_activations(built)
    if as_json:
        report = {what: getattr(built, what) for what in ("name", "n_devices", "n_stages", "n_microbatches", "orders")}
        return print_json(report | {"peak_activations": held})
    for position, (order, most) in enumerate(zip(built.orders, held, strict=True)):
        out.print(f"device {position} holds at most {counted(most, 'activation')}: {order}")
