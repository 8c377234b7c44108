"""Writes and reads a run folder: all that real hosts need to run a plan. It imports no torch.

::

    run/
      README.md         instructions, step by step
      spec.json         the RunSpec, with the secret by which its processes authenticate: keep it private
      plan.json         its plan
      text.txt          the training text, if the run has its own
      run.json          the worker of each process, and the coordinator's address
      ranks.csv         the same as a table: torchrun's rank, worker, host, device, stages, replica
      hosts.yaml        the devices of each host; edit it and export again with --hosts
      hosts/NAME/       run.sh (torchrun's command line), shape.sh and unshape.sh (tc)
"""

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dtfm_lab.domain.errors import FileError, LabError
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Schedule
from dtfm_lab.files import save_plan
from dtfm_lab.files.reading import Section, parse, read_mapping, read_text, require_version, write_text
from dtfm_lab.runtime.client.proxy_model import RUN_DTYPES, stand_in_for, why_not_built
from dtfm_lab.runtime.client.run_checks import absolute_path, checked_spec
from dtfm_lab.runtime.multihost.hosts import Host, hosts_file
from dtfm_lab.runtime.multihost.instructions import ranks_table, readme, run_script
from dtfm_lab.runtime.multihost.traffic_shaping import card_bytes_per_s, shape_script, shaped_directions, unshape_script
from dtfm_lab.runtime.protocol.corpus import Corpus
from dtfm_lab.runtime.protocol.run_spec import RunSpec

MASTER_PORT = 29400
"""The port of torchrun's rendezvous. The coordinator listens on the next one."""


class RunFile(Section):
    """The contents of run.json."""

    dtfm_run: int
    workers: list[int]
    """The worker's rank in the run, by torchrun's rank."""
    crew_address: str
    """The coordinator's address; the key dates from its earlier name."""
    crew_port: int
    hosts: list[dict[str, Any]]
    """Name, address and workers of each host, for readers of the file."""


@dataclass(frozen=True)
class RunFolder:
    """What ``export`` wrote, as a process needs it."""

    path: Path
    spec: RunSpec
    workers: tuple[int, ...]
    """The worker's rank in the run, by torchrun's rank."""
    crew_address: str
    crew_port: int


def spec_for(
    plan: Plan,
    schedule: str | Schedule | None = None,
    *,
    iterations: int = 5,
    clock: str = "real",
    seed: int = 0,
    text: str | os.PathLike[str] | None = None,
) -> RunSpec:
    """The run of a plan on hosts. As in a local run, a proxy replaces a model that workers cannot train.

    Raises a LabError of one line if hosts could not run it. Memory is not checked, since this machine's is irrelevant.
    """
    job = plan.job
    cannot = why_not_built(job.modelled()) or job.dtype not in RUN_DTYPES
    spec = checked_spec(
        plan,
        schedule,
        iterations=iterations,
        clock=clock,
        carrier="groups",
        seed=seed,
        text=absolute_path("text", text),
        stand_in=stand_in_for(job) if cannot else None,
    )
    Corpus.of(text, spec.trained.modelled().seq_len)  # refuses a text that is too short
    return spec


def export(
    spec: RunSpec,
    folder: str | os.PathLike[str],
    hosts: Sequence[Host],
    *,
    master_port: int = MASTER_PORT,
    overwrite: bool = False,
) -> Path:
    """Write the run folder; an earlier one is overwritten only where that is asked for.

    Raises LabError if the folder holds files, naming them, or cannot be written, or if the port is out of range.
    """
    if not 0 < master_port < 65535:
        raise LabError(f"master port is {master_port}; wanted 1 to 65534")
    folder = _prepare_folder(Path(folder), overwrite=overwrite)
    text = spec.text
    if text is not None:
        _copy_text(Path(text), folder / "text.txt")
        spec = replace(spec, text="text.txt")
    (folder / "spec.json").touch(mode=0o600)
    write_text(folder / "spec.json", spec.to_line()).chmod(0o600)
    save_plan(spec.plan, folder / "plan.json")
    write_text(folder / "hosts.yaml", hosts_file(hosts, spec))
    write_text(folder / "ranks.csv", ranks_table(spec, hosts))
    run = {
        "dtfm_run": 1,
        "workers": [rank for host in hosts for rank in host.workers],
        "crew_address": hosts[0].address,
        "crew_port": master_port + 1,
        "hosts": [{"name": host.name, "address": host.address, "workers": list(host.workers)} for host in hosts],
    }
    write_text(folder / "run.json", json.dumps(run, indent=1) + "\n")
    for node_rank, host in enumerate(hosts):
        directions = shaped_directions(spec, hosts, host)
        own = folder / "hosts" / host.name
        own.mkdir(parents=True, exist_ok=True)
        scripts = {
            "run.sh": run_script(spec, hosts, node_rank, master_port),
            "shape.sh": shape_script(host, directions, card_bytes_per_s(spec, host)),
            "unshape.sh": unshape_script(host, directions),
        }
        for name, script in scripts.items():
            write_text(own / name, script).chmod(0o755)
    write_text(folder / "README.md", readme(spec, hosts, master_port))
    return folder


def load_run_folder(path: str | os.PathLike[str]) -> RunFolder:
    """Read a run folder, with paths of the spec resolved on this host. Raises LabError."""
    folder = Path(path).resolve()
    where = f"{folder.name}/run.json"
    data = read_mapping(folder / "run.json")
    require_version(data, "dtfm_run", where)
    file = parse(RunFile, data, where)
    spec = RunSpec.from_line(read_text(folder / "spec.json"))
    if spec.text is not None:
        spec = replace(spec, text=os.fspath(folder / spec.text))
    if sorted(file.workers) != list(range(len(spec.workers))):
        raise FileError(f"{where}: workers are {file.workers}; wanted each of 0 to {len(spec.workers) - 1} once")
    return RunFolder(folder, spec, tuple(file.workers), file.crew_address, file.crew_port)


def _prepare_folder(folder: Path, *, overwrite: bool) -> Path:
    try:
        held = sorted(one.name for one in folder.iterdir()) if folder.is_dir() else []
        if held and "run.json" not in held:
            raise FileError(f"{folder}: is a folder of something else; wanted a new one, or an earlier run folder")
        if held and not overwrite:
            raise FileError(
                f"{folder}: an earlier run folder is there, with {', '.join(held)}; "
                "wanted a new folder, or overwrite=True"
            )
        if (folder / "hosts").is_dir():
            shutil.rmtree(folder / "hosts")
        (folder / "text.txt").unlink(missing_ok=True)
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{folder}: cannot be written: {error.strerror or error}") from None
    return folder


def _copy_text(source: Path, target: Path) -> None:
    try:
        shutil.copyfile(source, target)
    except OSError as error:
        raise FileError(f"text {source}: cannot be copied: {error.strerror or error}") from None
