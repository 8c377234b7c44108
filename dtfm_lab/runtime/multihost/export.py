"""Writes and reads a run folder: all that real hosts need to run a plan. It imports no torch.

::

    run/
      README.md         instructions, step by step
      spec.json         the RunSpec, with the secret by which its processes authenticate: keep it private
      certificate.pem   by which its hosts know each other, with key.pem: keep that private
      plan.json         its plan
      text.txt          the training text, if the run has its own
      run.json          the workers of each host, the coordinator's address, and how long it waits
      ranks.csv         the same as a table: worker, host, its number there, device, stages, replica
      hosts.yaml        the devices of each host; edit it and export again with --hosts
      hosts/NAME/       run.sh, which starts the host
"""

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from pydantic import Field

from dtfm_lab.domain.errors import FileError, LabError
from dtfm_lab.domain.options import takes_options
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Schedule
from dtfm_lab.files import save_plan
from dtfm_lab.files.reading import Section, parse, read_mapping, read_text, require_version, write_text
from dtfm_lab.runtime.client.run_checks import (
    absolute_path,
    checked_spec,
    chosen_stand_in,
    emulated_network,
    why_not_built,
    with_checkpoint,
)
from dtfm_lab.runtime.multihost.hosts import Host, hosts_file
from dtfm_lab.runtime.multihost.instructions import ranks_table, readme, run_script
from dtfm_lab.runtime.multihost.rendezvous import AWAIT_S, SILENT_S
from dtfm_lab.runtime.protocol.certificates import (
    Certificates,
    certificates_in,
    require_private,
    write_certificates,
    write_private,
)
from dtfm_lab.runtime.protocol.corpus import Corpus
from dtfm_lab.runtime.protocol.run_options import RUN_DTYPES, RunSettings
from dtfm_lab.runtime.protocol.run_spec import RunSpec

PORT = 29400
"""The port on which the coordinator listens."""


class HostWorkers(Section):
    """One host of run.json."""

    name: str
    address: str
    workers: list[int]
    """Ranks in the run, in the order of the host's processes."""


class RunFile(Section):
    """The contents of run.json."""

    dtfm_run: int
    workers: list[int]
    """The ranks of all workers, host by host."""
    crew_address: str
    """The coordinator's address; the key dates from its earlier name."""
    crew_port: int
    hosts: list[HostWorkers]
    """The hosts, the coordinator's first."""
    await_s: float = Field(default=AWAIT_S, gt=0)
    """Seconds for a worker to come, or to come back."""
    silent_s: float = Field(default=SILENT_S, gt=0)
    """Seconds without an acknowledgement after which a connection to the coordinator is lost."""


@dataclass(frozen=True)
class RunFolder:
    """What ``export`` wrote, as a process needs it."""

    path: Path
    spec: RunSpec
    hosts: dict[str, tuple[int, ...]]
    """By name, the ranks of its workers in the order of its processes; the coordinator's host is the first."""
    address: str
    """Address of the coordinator's host."""
    port: int
    await_s: float
    silent_s: float

    @property
    def certificates(self) -> Certificates:
        """Of the run, by which its hosts know each other."""
        return certificates_in(self.path)


@takes_options(RunSettings, noun="option of an export")
def spec_for(plan: Plan, schedule: str | Schedule | None = None, **options: Any) -> RunSpec:
    """The run of a plan on hosts, on the real clock where none is given, for 5 iterations.

    As in a local run, a proxy replaces a model that workers cannot train. ``checkpoint_folder`` is a path on the hosts,
    a relative one in the run folder; the others are paths here.

    Raises a LabError of one line if hosts could not run it. What this machine has, such as memory and GPUs, is
    irrelevant.
    """
    defaults: dict[str, Any] = {"iterations": 5, "clock": "real"}
    settings = RunSettings(**(defaults | options))
    job, clock = plan.job, settings.clock
    cannot = why_not_built(job.modelled()) or job.dtype not in RUN_DTYPES
    resolved = {
        "text": absolute_path("text", settings.text),
        "emulated": emulated_network(settings.emulated, plan.topology, clock),
        "stand_in": chosen_stand_in(plan, settings.stand_in, cannot=bool(cannot)),
        "resume_from": absolute_path("resume_from", settings.resume_from),
        "checkpoint_folder": _path_text(settings.checkpoint_folder),
    }
    given: dict[str, Any] = {field.name: getattr(settings, field.name) for field in fields(RunSettings)}
    spec = checked_spec(plan, schedule, **(given | resolved))
    if spec.checkpoint_folder is None:
        for what, value in (("checkpoint_every", spec.checkpoint_every), ("sample_bytes", spec.sample_bytes)):
            if value:
                raise LabError(f"{what} is {value} without a checkpoint_folder that all hosts share; wanted both")
    Corpus.of(settings.text, spec.trained.modelled().seq_len)  # refuses a text that is too short
    return with_checkpoint(spec)


def export(
    spec: RunSpec,
    folder: str | os.PathLike[str],
    hosts: Sequence[Host],
    *,
    port: int = PORT,
    await_s: float = AWAIT_S,
    silent_s: float = SILENT_S,
    overwrite: bool = False,
) -> Path:
    """Write the run folder; an earlier one is overwritten only where that is asked for.

    ``await_s`` and ``silent_s`` are seconds for a lost worker to come back, and without an acknowledgement until a
    connection is lost. Raises LabError if the folder holds files, naming them, or cannot be written, or if a number is
    out of range.
    """
    if not 0 < port < 65536:
        raise LabError(f"port is {port}; wanted 1 to 65535")
    for what, seconds in (("await_s", await_s), ("silent_s", silent_s)):
        if not 1 <= seconds <= 86400:
            raise LabError(f"{what} is {seconds}; wanted 1 to 86400 seconds")
    folder = _prepare_folder(Path(folder), overwrite=overwrite)
    text = spec.text
    if text is not None:
        _copy_text(Path(text), folder / "text.txt")
        spec = replace(spec, text="text.txt")
    write_certificates(folder)
    write_private(folder / "spec.json", spec.to_line().encode())
    save_plan(spec.plan, folder / "plan.json")
    write_text(folder / "hosts.yaml", hosts_file(hosts, spec))
    write_text(folder / "ranks.csv", ranks_table(spec, hosts))
    run = {
        "dtfm_run": 1,
        "workers": [rank for host in hosts for rank in host.workers],
        "crew_address": hosts[0].address,
        "crew_port": port,
        "hosts": [{"name": host.name, "address": host.address, "workers": list(host.workers)} for host in hosts],
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


def load_run_folder(path: str | os.PathLike[str]) -> RunFolder:
    """Read a run folder, with paths of the spec resolved on this host. Raises LabError."""
    folder = Path(path).resolve()
    where = f"{folder.name}/run.json"
    data = read_mapping(folder / "run.json")
    require_version(data, "dtfm_run", where)
    file = parse(RunFile, data, where)
    require_private(folder / "spec.json")
    spec = RunSpec.from_line(read_text(folder / "spec.json"))
    paths = {name: getattr(spec, name) for name in ("text", "checkpoint_folder")}
    spec = replace(spec, **{name: os.fspath(folder / path) for name, path in paths.items() if path is not None})
    hosts = {host.name: tuple(host.workers) for host in file.hosts}
    held = [rank for ranks in hosts.values() for rank in ranks]
    if sorted(held) != list(range(len(spec.workers))):
        raise FileError(f"{where}: workers are {held}; wanted each of 0 to {len(spec.workers) - 1} once")
    return RunFolder(folder, spec, hosts, file.crew_address, file.crew_port, file.await_s, file.silent_s)


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


def _path_text(given: str | os.PathLike[str] | None) -> str | None:
    return None if given is None else os.fspath(given)


def _copy_text(source: Path, target: Path) -> None:
    try:
        shutil.copyfile(source, target)
    except OSError as error:
        raise FileError(f"text {source}: cannot be copied: {error.strerror or error}") from None
