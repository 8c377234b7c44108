"""Write a run folder with everything that hosts need to run a plan. Does not import torch.

::

    run/
      README.md         instructions, step by step
      spec.json         the RunSpec, with the secret by which its processes authenticate: keep it private
      certificate.pem   by which its hosts recognise each other, with key.pem: keep that private
      plan.json         the plan
      text.txt          the training text, if the run has its own
      run.json          the workers of each host, the coordinator's address, and how long it waits
      hosts.yaml        the devices of each host; edit it and export again with --hosts
      hosts/NAME/       run.sh, which starts the host's workers (on the first host also the coordinator)
"""

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from shlex import quote
from typing import Any

from dtfm_lab.domain.errors import FileError, LabError
from dtfm_lab.domain.options import takes_options
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Schedule
from dtfm_lab.domain.units import counted
from dtfm_lab.extensions.hosts.hosts import AWAIT_S, SILENT_S, RunHost, filled, hosts_file, workers_by_device
from dtfm_lab.files import save_plan
from dtfm_lab.files.reading import dump, explained, write_text
from dtfm_lab.runtime.client.run_checks import (
    checked_spec,
    why_not_built,
    with_checkpoint,
)
from dtfm_lab.runtime.client.run_report import describe_reductions
from dtfm_lab.runtime.protocol.certificates import (
    write_certificates,
    write_private,
)
from dtfm_lab.runtime.protocol.run_options import RUN_DTYPES, RunSettings, RunSpec

PORT = 29400
"""Default port on which the coordinator listens."""


@takes_options(RunSettings, noun="option of an export")
def spec_for(plan: Plan, schedule: str | Schedule | None = None, **options: Any) -> RunSpec:
    """Return the RunSpec of a plan's run on hosts. By default it has the real clock and 5 iterations.

    As in a local run, a small proxy is trained instead of a model that workers cannot train. ``checkpoint_folder`` is a
    path on the hosts. A relative path starts at the run folder. Paths in other options are paths on this machine.

    Raises LabError, in one line, if hosts could not run it. The memory and the GPUs of this machine are not checked.
    """
    defaults: dict[str, Any] = {"iterations": 5, "clock": "real"}
    settings = RunSettings(**(defaults | options))
    cannot = bool(why_not_built(plan.job.modelled())) or plan.job.dtype not in RUN_DTYPES
    folder = None if settings.checkpoint_folder is None else os.fspath(settings.checkpoint_folder)
    spec = checked_spec(plan, schedule, settings, cannot=cannot, checkpoint_folder=folder)
    # Without a shared folder, a worker that starts again on another host would not find its state.
    if spec.checkpoint_folder is None:
        for what, value in (("checkpoint_every", spec.checkpoint_every), ("sample_bytes", spec.sample_bytes)):
            if value:
                raise LabError(f"{what} is {value} without a checkpoint_folder that all hosts share; wanted both")
    _ = spec.corpus  # refuses a text that is too short
    return with_checkpoint(spec)


def export(
    spec: RunSpec,
    folder: str | os.PathLike[str],
    hosts: Sequence[RunHost],
    *,
    port: int = PORT,
    await_s: float = AWAIT_S,
    silent_s: float = SILENT_S,
    overwrite: bool = False,
) -> Path:
    """Write the run folder. With ``overwrite``, it may replace an earlier one.

    ``await_s`` is how many seconds the run waits for a worker to join, or for a lost one to return. ``silent_s`` is how
    many seconds a connection may go without an acknowledgement before it counts as lost. Raises LabError if the folder
    holds other files, or an earlier run without ``overwrite``. It also does so if the folder cannot be written, or if a
    number is out of range.
    """
    if not 0 < port < 65536:
        raise LabError(f"port is {port}; wanted 1 to 65535")
    for what, seconds in (("await_s", await_s), ("silent_s", silent_s)):
        if not 1 <= seconds <= 86400:
            raise LabError(f"{what} is {seconds}; wanted 1 to 86400 seconds")
    # Refused before anything is written, so that no other files are lost.
    folder = _prepare_folder(Path(folder), overwrite=overwrite)
    text = spec.text
    if text is not None:
        with explained(f"text {text}", "cannot be copied"):
            # Copied, since another host does not have this machine's path.
            shutil.copyfile(text, folder / "text.txt")
        spec = replace(spec, text="text.txt")
    write_certificates(folder)
    # Private, because it holds the secret by which the processes know each other.
    write_private(folder / "spec.json", spec.to_line().encode())
    save_plan(spec.plan, folder / "plan.json")
    write_text(folder / "hosts.yaml", hosts_file(hosts, workers_by_device(spec)))
    run = {
        "dtfm_run": 1,
        "workers": [rank for host in hosts for rank in host.workers],
        "crew_address": hosts[0].address,
        "crew_port": port,
        "hosts": [dump(host) for host in hosts],
        "await_s": await_s,
        "silent_s": silent_s,
    }
    write_text(folder / "run.json", json.dumps(run, indent=1) + "\n")
    for host in hosts:
        own = folder / "hosts" / host.name
        own.mkdir(parents=True, exist_ok=True)
        write_text(own / "run.sh", run_script(spec, host)).chmod(0o755)
    write_text(folder / "README.md", readme(spec, hosts, port, await_s, silent_s))
    return folder


def _prepare_folder(folder: Path, *, overwrite: bool) -> Path:
    with explained(str(folder)):
        held = sorted(one.name for one in folder.iterdir()) if folder.is_dir() else []
        if held and "run.json" not in held:
            raise FileError(f"{folder}: holds other files; wanted a new folder, or an earlier run folder")
        if held and not overwrite:
            raise FileError(
                f"{folder}: an earlier run folder is there, with {', '.join(held)}; "
                "wanted a new folder, or overwrite=True"
            )
        # Left from a run on other hosts; their scripts would start workers that are not in this one.
        if (folder / "hosts").is_dir():
            shutil.rmtree(folder / "hosts")
        (folder / "text.txt").unlink(missing_ok=True)
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def host_command(host: RunHost, folder: str = ".") -> str:
    """Return the command line that starts the workers of one host. On the first host it also starts the coordinator."""
    return f"python3 -m dtfm_lab.extensions.hosts.hosted {quote(folder)} --host {host.name}"


def readme(spec: RunSpec, hosts: Sequence[RunHost], port: int, await_s: float, silent_s: float) -> str:
    """Return the instructions, step by step."""
    plan, folder = spec.plan, spec.checkpoint_folder
    table = [f"| {host.name} | {host.address} | {_describe_workers(spec, host).replace('|', '/')} |" for host in hosts]
    links = (
        "Messages use the real links between the hosts. The links of the network file are not emulated."
        if spec.clock == "real"
        else f"On the {spec.clock} clock the specified links are emulated by timestamps."
    )
    kept = f"Checkpoints go to `{folder}`, which all hosts must share."
    return filled(
        "readme.txt",
        **{"plan": plan, "job": plan.job, "spec": spec, "port": port, "await_s": await_s, "silent_s": silent_s},
        workers=counted(len(spec.workers), "worker"),
        n_hosts=counted(len(hosts), "host"),
        iterations=counted(spec.iterations, "iteration"),
        suffix=f"; {reductions}" if (reductions := describe_reductions(spec)) else "",
        table="\n".join(table),
        version=version("dtfm_lab"),
        encrypted=_what_is_encrypted(spec),
        first=hosts[0].name,
        links=links,
        kept="No checkpoint is written." if folder is None else kept,
        commands="\n".join(f"{host_command(host)}   # on {host.name}" for host in hosts),
    )


def _what_is_encrypted(spec: RunSpec) -> str:
    if not spec.uses_groups:
        return "All connections of the run are encrypted (TLS, by the certificate of this folder)."
    return (
        "Orders, events and headers are encrypted (TLS, by the certificate of this folder). Contents of messages are "
        "not, because they use torch process groups: use a private network or a VPN."
    )


def run_script(spec: RunSpec, host: RunHost) -> str:
    """Return a shell script that starts the workers of one host. It works wherever the run folder lies."""
    return f"""#!/bin/sh
# Host {host.name}: {_describe_workers(spec, host)}
set -eu
cd "$(dirname "$0")/../.."
export OMP_NUM_THREADS=1
exec {host_command(host)}
"""


def _describe_workers(spec: RunSpec, host: RunHost) -> str:
    """Return a host's workers in words: ``ada (stage 0, replica 0), barbara (stages 1 and 3, replica 0)``."""
    workers = []
    for worker in host.workers:
        position, replica = spec.workers[worker]
        stages = spec.built.stages_of(position)
        which = f"stage{'s' if len(stages) > 1 else ''} {' and '.join(map(str, stages))}"
        workers.append(f"{spec.device_name(position, replica)} ({which}, replica {replica})")
    return ", ".join(workers)
