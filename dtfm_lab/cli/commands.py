"""The commands of dtfm-lab: each reads files, calls ``lab``, and delivers what comes back."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import webbrowser
from collections import Counter
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from dtfm_lab import files, lab, planning
from dtfm_lab.cli.doctor import doctor_facts, told
from dtfm_lab.cli.options import (
    file_option,
    job_options,
    json_option,
    output_option,
    search_options,
    start_option,
)
from dtfm_lab.cli.progress import device_progress, search_progress
from dtfm_lab.cli.real import run_and_tell, run_options
from dtfm_lab.cli.tell import deliver_comparison, deliver_topology, err, out, print_json
from dtfm_lab.cli.tell_plan import deliver_difference, deliver_explanation, deliver_plan, deliver_worth
from dtfm_lab.cli.tell_trace import deliver_trace
from dtfm_lab.domain.errors import FileError, MissingExtra
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="dtfm_lab", prog_name="dtfm-lab")
def cli() -> None:
    """Plan, predict, run and compare decentralised training of foundation models."""


@cli.command()
@json_option
def topologies(as_json: bool) -> None:
    """List the networks that come with the lab."""
    networks = [lab.load_topology(name) for name in files.topology_names()]
    if as_json:
        rows = [
            {"name": t.name, "devices": len(t), "regions": list(t.regions), "gpus": Counter(d.gpu for d in t.devices)}
            for t in networks
        ]
        return print_json({"topologies": rows})
    table = Table("name", "devices", "regions", "GPUs", "what it is", box=None)
    for t in networks:
        gpus = ", ".join(f"{n} {gpu}" for gpu, n in Counter(d.gpu for d in t.devices).items())
        table.add_row(t.name, str(len(t)), str(len(t.regions)), gpus, re.split(r"[.:] ", t.description)[0].rstrip("."))
    out.print(table)


@cli.command()
@click.argument("topology")
@job_options
@search_options
@start_option
@output_option
@json_option
def plan(topology: Topology, job: Job, output: str | None, as_json: bool, **limits: Any) -> None:
    """Place a job on TOPOLOGY (a name or a file); 2 seconds of search unless told."""
    best: planning.PlanStep | None = None
    try:
        with search_progress(limits["planner"], limits["steps"], limits["seconds"]) as show_step:
            for best in lab.search(topology, job, **limits):
                show_step(best)
    except KeyboardInterrupt:
        if best is None:
            raise
        err.print("stopped; the best so far is kept")
    assert best is not None, "a search yields at least one step"
    deliver_plan(best.plan, output, as_json)


@cli.command()
@click.argument("topology")
@job_options
@click.option(
    "--placement",
    required=True,
    type=click.Path(),
    help='JSON: {"stages": [[names or indices], ...]}, {"rank_map": [...]} or {"groups": ...}; a plan file serves too.',
)
@output_option
@json_option
def evaluate(topology: Topology, job: Job, placement: str, output: str | None, as_json: bool) -> None:
    """Price a placement of your own on TOPOLOGY."""
    data = files.read_mapping(Path(placement))
    data = data["summary"] if isinstance(data.get("summary"), dict) else data
    keys = [key for key in ("stages", "rank_map", "groups") if key in data]
    if not keys:
        raise FileError(f"{placement}: no placement; wanted one of the keys stages, rank_map, groups")
    deliver_plan(lab.evaluate(topology, job, **{keys[0]: data[keys[0]]}), output, as_json)


@cli.command()
@click.argument("what")
@json_option
def show(what: str, as_json: bool) -> None:
    """Show WHAT: a plan file, a trace file, or a topology by name or file."""
    path = Path(what)
    may_be_plan = path.suffix.lower() in (".json", ".yaml", ".yml") and path.is_file()
    data = files.read_mapping(path) if may_be_plan and what not in files.topology_names() else {}
    if "dtfm_plan" in data:
        shown = files.load_plan(path)
        deliver_plan(shown, None, as_json)
        if not as_json:
            out.print(lab.explain(shown).text)
    elif "dtfm_trace" in data:
        deliver_trace(files.load_trace(path), None, as_json)
    else:
        deliver_topology(lab.load_topology(what), as_json)


@cli.command()
@click.argument("plan_file", metavar="PLAN")
@click.option("--device", help="Why this one serves where it does, and what its other places would cost.")
@json_option
def explain(plan_file: str, device: str | None, as_json: bool) -> None:
    """Say what binds the cost of PLAN, and what any exchange of two devices would cost."""
    deliver_explanation(lab.explain(files.load_plan(plan_file)), device, as_json)


@cli.command()
@click.argument("before", type=click.Path())
@click.argument("after", type=click.Path())
@json_option
def diff(before: str, after: str, as_json: bool) -> None:
    """Say what moved from the plan BEFORE to the plan AFTER, and what it cost."""
    deliver_difference(lab.diff(files.load_plan(before), files.load_plan(after)), as_json)


@cli.command()
@click.argument("plan_file", metavar="PLAN")
@search_options
@json_option
def worth(plan_file: str, as_json: bool, **limits: Any) -> None:
    """Say what each device is worth to PLAN: 4 steps of search without each unless told."""
    whole = files.load_plan(plan_file)
    rows: list[planning.DeviceWorth] = []
    try:
        with device_progress(len(whole.topology)) as show_row:
            for row in lab.worths(whole, **limits):
                rows.append(row)
                show_row(row)
    except KeyboardInterrupt:
        if not rows:
            raise
        err.print(f"stopped; {len(rows)} of {len(whole.topology)} devices are told")
    deliver_worth(planning.worth_table(rows), as_json)


@cli.command()
@click.argument("plan_file", metavar="PLAN")
@run_options
@output_option
@json_option
def run(**how: Any) -> None:
    """Train under PLAN for real: one torch worker per stage and replica, links as slow as drawn."""
    run_and_tell(**how)


@cli.command()
@click.argument("predicted", type=click.Path())
@click.argument("measured", type=click.Path())
@click.option(
    "--refit",
    "plan_file",
    metavar="PLAN",
    type=click.Path(),
    help="Fit the links and computations of this plan.",
)
@file_option("-o", "--output", say="Write the refitted network to this file.")
@json_option
def compare(predicted: str, measured: str, plan_file: str | None, output: str | None, as_json: bool) -> None:
    """Lay a PREDICTED trace beside a MEASURED one: who is to blame for the error, and since when."""
    if output is not None and plan_file is None:
        raise click.UsageError("-o writes the refitted network; wanted --refit PLAN with it")
    comparison = lab.compare(files.load_trace(predicted), files.load_trace(measured))
    refitted = None if plan_file is None else comparison.refit(files.load_plan(plan_file), lab.simulate)
    if refitted is not None and output is not None:
        files.save_topology(refitted.topology, output)
    deliver_comparison(comparison, refitted, as_json)


@cli.command()
@click.argument("checkpoint", metavar="FOLDER", type=click.Path())
@click.option("--prompt", default="", help="What the model goes on from.")
@click.option("--bytes", "n_bytes", type=int, default=200, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--temperature", type=float, default=0.8, show_default=True, help="0: always the likeliest byte.")
@json_option
def write(checkpoint: str, prompt: str, n_bytes: int, seed: int, temperature: float, as_json: bool) -> None:
    """Let the model of the checkpoint in FOLDER write."""
    text = lab.write(checkpoint, prompt, n_bytes, seed=seed, temperature=temperature)
    if as_json:
        return print_json({"checkpoint": checkpoint, "prompt": prompt, "text": text})
    sys.stdout.write(prompt + text + "\n")


@cli.command()
@json_option
def doctor(as_json: bool) -> None:
    """Say what this machine can do, and what is missing for the rest."""
    facts = doctor_facts()
    if as_json:
        return print_json(facts)
    for key, value in told(facts).items():
        out.print(f"{key:>12}  {value}")


@cli.command("lab")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def open_lab(arguments: tuple[str, ...]) -> None:
    """Open JupyterLab on the start notebook; ARGUMENTS go to JupyterLab (after a --)."""
    if importlib.util.find_spec("jupyterlab") is None:
        raise MissingExtra("the lab needs jupyterlab, which is not installed: pip install 'dtfm_lab[lab]'")
    checkout = Path(__file__).parents[2]
    start = Path("notebooks") / "00_start.ipynb"
    where = []
    if (checkout / start).exists():
        where = [f"--ServerApp.root_dir={checkout}", f"--LabApp.default_url=/lab/tree/{start.as_posix()}"]
    # JupyterLab refuses to run as root unless told; in a container there is nobody else
    as_root = ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    os.execv(sys.executable, [sys.executable, "-m", "jupyterlab", *where, *as_root, *arguments])


@cli.command("app")
@click.argument("network", required=False)
@click.option("--ip", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0 lets others visit.")
@click.option("--port", type=click.IntRange(1, 65535), default=8866, show_default=True, help="Or one near it.")
@click.option("--browser/--no-browser", default=True, show_default=True, help="Open it in a browser.")
def serve_app(network: str | None, ip: str, port: int, browser: bool) -> None:
    """Serve the lab alone as a page, on NETWORK or a blank canvas, until Ctrl-C. Each visitor gets a kernel."""
    if importlib.util.find_spec("voila") is None:
        raise MissingExtra("the page needs voila, which is not installed: pip install 'dtfm_lab[app]'")
    if network is not None:
        lab.load_topology(network)  # a mistake is said here, not to every visitor
    from dtfm_lab.cli import app

    def listening(address: str) -> None:
        err.print(f"the lab is at {address} (Ctrl-C ends it)", soft_wrap=True, highlight=False)
        if browser:
            webbrowser.open(address)

    app.serve(network, ip=ip, port=port, listening=listening)
