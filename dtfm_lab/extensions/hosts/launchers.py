"""Write a folder that starts a plan in another framework: one script that starts any host's processes, and files for
schedulers.

::

    run/
      launch.sh         ``launch.sh HOST`` starts one host's processes; its comments list what is lost
      hosts.yaml        the devices of each host; edit it and export again with --hosts
      hostfile          hosts and slots in the order of ranks, for launchers that read one
      plan.py, ...      what the framework reads
      job.sbatch, ...   what the scheduler reads
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import yaml

from dtfm_lab.domain.errors import FileError, LabError
from dtfm_lab.domain.network import known_gpu
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import by_key, counted
from dtfm_lab.extensions.hosts.expressed import BY_STAGE, Expressed, FrameworkLaunch
from dtfm_lab.extensions.hosts.frameworks import FRAMEWORKS, script
from dtfm_lab.extensions.hosts.hosts import RunHost, by_count, filled, hosts_file, named_hosts, read_hosts
from dtfm_lab.files.reading import explained, write_text
from dtfm_lab.simulation.memory import memory


class Agent(NamedTuple):
    """One call of the framework's launcher, such as torchrun, on a host."""

    host: RunHost
    rank: int
    """Rank of the agent among all agents."""
    first_gpu: int
    """Index of the agent's first GPU on its host. The GPUs of a host are numbered in the order of their ranks."""
    processes: int


@dataclass(frozen=True, kw_only=True)
class Launched:
    """A plan that is translated for a framework, and the hosts that run it."""

    plan: Plan
    framework_launch: FrameworkLaunch
    hosts: tuple[RunHost, ...]
    """Hosts in the order of their first ranks. ``workers`` of a host are ranks of placed devices. A device may be a
    group of GPUs."""
    port: int
    framework: str

    @property
    def gpus(self) -> int:
        """Number of processes per placed device: one for each GPU in the group that the device stands for."""
        return self.plan.job.group_gpus

    @property
    def whole(self) -> bool:
        """True if one agent per host is enough. The ranks of each host are then consecutive, as torchrun numbers them.
        If the framework's launcher requires it, all hosts also have the same number of ranks."""
        sizes = {len(host.workers) for host in self.hosts}
        follow = all(host.workers[-1] - host.workers[0] + 1 == len(host.workers) for host in self.hosts)
        return follow and (len(sizes) == 1 or not self.framework_launch.equal)

    @cached_property
    def agents(self) -> list[Agent]:
        """Agents in the order of ranks: one per host if that is enough (``whole``), otherwise one per device."""
        # torchrun's agents take ranks in their own order, so a whole host is only one agent if its ranks are in a row.
        if self.whole:
            return [Agent(host, n, 0, len(host.workers) * self.gpus) for n, host in enumerate(self.hosts)]
        each = [
            Agent(host, rank, n * self.gpus, self.gpus) for host in self.hosts for n, rank in enumerate(host.workers)
        ]
        return sorted(each, key=lambda agent: agent.rank)

    @property
    def named(self) -> str:
        return "-".join(filter(None, "".join(c.lower() if c.isalnum() else "-" for c in self.plan.job.name).split("-")))

    @cached_property
    def lacks(self) -> str:
        """How much memory is missing on the device that lacks most, with the translated job. "" if all have enough, or
        if that cannot be computed."""
        try:
            held = memory(self.plan.changed(job=self.framework_launch.job))
        except LabError:
            return ""
        return "" if held.fits else held.sentence

    @property
    def header(self) -> list[str]:
        """The lines of comments with which every file begins: the plan, the order of ranks, what is not as planned, and
        whether memory is missing."""
        job, framework_launch = self.plan.job, self.framework_launch
        lost = [f"Not as planned: {line}" for line in framework_launch.lost]
        return [
            f"{job.name} on {self.plan.topology.name}: {counted(job.n_stages, 'stage')} x "
            f"{counted(job.n_replicas, 'pipeline')} x {counted(self.gpus, 'GPU')}, for {self.framework}. Exported by "
            "dtfm_lab.",
            f"{framework_launch.order}; a placed device has {self.gpus} of these ranks, one after the other.",
            *(lost or ["The whole plan is expressed."]),
            *([f"Out of memory: {self.lacks}."] if self.lacks else []),
        ]

    def commented(self, text: str) -> str:
        return "".join(f"# {line}\n" for line in self.header) + text

    @property
    def files(self) -> dict[str, str]:
        """The files that the framework reads, by name. They begin with the header, except .json files, which cannot
        hold comments."""
        files = self.framework_launch.files.items()
        return {name: text if name.endswith(".json") else self.commented(text) for name, text in files}

    def per_host(self) -> int:
        """Return the number of GPUs per host. Raises LabError if hosts differ."""
        sizes = sorted({len(host.workers) * self.gpus for host in self.hosts})
        if len(sizes) > 1:
            raise LabError(
                f"hosts use {' and '.join(map(str, sizes))} GPUs; wanted the same number on each, such as --per-host 1"
            )
        return sizes[0]

    def launch(self) -> str:
        """Return the script launch.sh, which starts the processes of the host that its argument names."""
        cases = []
        grid = _places(self.plan, self.framework_launch.order)
        for host in self.hosts:
            held = ", ".join(f"stage {grid[rank][0]} of pipeline {grid[rank][1]}" for rank in host.workers)
            cases.append(f"  {host.name})  # {held}")
            for agent in (each for each in self.agents if each.host is host):
                gpus = ",".join(map(str, range(agent.first_gpu, agent.first_gpu + agent.processes)))
                cases.append(f"    start {agent.rank} {agent.processes} {gpus}")
            cases.append("    ;;")
        text = filled(
            "launch.txt",
            framework_launch=self.framework_launch,
            port=self.port,
            n_agents=len(self.agents),
            address=self.hosts[0].address,
            names=" ".join(host.name for host in self.hosts),
            world=sum(agent.processes for agent in self.agents),
            environment=". ./plan.env\n" if "plan.env" in self.framework_launch.files else "",
            cases="\n".join(cases),
        )
        return "#!/usr/bin/env bash\n" + self.commented(text)


def _places(plan: Plan, order: str) -> list[tuple[int, int]]:
    """Return (stage, pipeline) of each placed device, in the order of ranks."""
    stages, replicas = plan.placement.devices.shape
    by_stage = [(s, r) for s in range(stages) for r in range(replicas)]
    return by_stage if order == BY_STAGE else sorted(by_stage, key=lambda place: place[::-1])


def _ranks(plan: Plan, order: str) -> dict[str, int]:
    """Return the rank of each placed device, by name."""
    names, grid = plan.topology.names, plan.placement.devices
    return {names[grid[place]]: rank for rank, place in enumerate(_places(plan, order))}


def slurm(of: Launched) -> dict[str, str]:
    """Return a batch script. Slurm starts launch.sh once on each node. A node must have the name of its host."""
    sizes = {len(host.workers) for host in of.hosts}
    lines = [
        f"--job-name={of.named}",
        f"--nodes={len(of.hosts)}",
        f"--nodelist={','.join(host.name for host in of.hosts)}",
        "--ntasks-per-node=1",
        *([f"--gpus-per-node={of.per_host()}"] if len(sizes) == 1 else []),
        "--exclusive",
    ]
    # Another job on a node would share its links, which the plan does not include.
    text = "".join(f"#SBATCH {line}\n" for line in lines)
    # Slurm runs a copy of the script, in the folder where sbatch was called.
    run = """set -euo pipefail
cd "$(dirname "$(scontrol show job "$SLURM_JOB_ID" | sed -n 's/^ *Command=//p')")"
srun --kill-on-bad-exit=1 bash -c 'bash launch.sh "$SLURMD_NODENAME"'
"""
    return {"job.sbatch": "#!/usr/bin/env bash\n" + text + of.commented(run)}


def skypilot(of: Launched) -> dict[str, str]:
    """Return a SkyPilot task. SkyPilot chooses the nodes, and node n takes the part of host n. Raises LabError if
    devices are of different kinds, or if hosts have different numbers of GPUs."""
    kinds = sorted({of.plan.topology.devices[device].gpu for device in of.plan.placement.devices.flat})
    if len(kinds) > 1:
        raise LabError(f"devices are {' and '.join(kinds)}; wanted one kind, as nodes of a SkyPilot task are equal")
    # SkyPilot starts equal nodes, so all must have as many GPUs.
    names = " ".join(host.name for host in of.hosts)
    task = {
        "name": of.named,
        "num_nodes": len(of.hosts),
        "resources": {"accelerators": f"{accelerator_of(kinds[0])}:{of.per_host()}"},
        "workdir": ".",
        "run": f"hosts=({names})\n"
        'export MASTER_ADDR="$(echo "$SKYPILOT_NODE_IPS" | head -n1)"\n'
        'bash launch.sh "${hosts[$SKYPILOT_NODE_RANK]}"\n',
    }
    note = "# SkyPilot starts equal nodes in one region: links between hosts will differ from the plan's.\n"
    return {"task.yaml": of.commented(note + yaml.dump(task, Dumper=_Readable, sort_keys=False))}


def accelerator_of(gpu: str) -> str:
    """Return SkyPilot's name for a GPU in the lab's table of hardware."""
    name = known_gpu(gpu) or gpu
    if name.startswith("A100"):  # SkyPilot's A100 is the one with 40 GB, the lab's the one with 80
        return "A100" if name == "A100 40GB" else "A100-80GB"
    return name.replace("RTX ", "RTX").replace(" ", "-")


def compose(of: Launched) -> dict[str, str]:
    """Return Docker Compose services for one machine: one service per host, each with its own GPUs."""
    services, first = {}, 0
    for host in of.hosts:
        # All services share one machine, so each gets the next GPUs.
        gpus = [str(gpu) for gpu in range(first, first + len(host.workers) * of.gpus)]
        service = filled("compose.txt", host=host.name, first=of.hosts[0].name, gpus=gpus)
        services[host.name], first = yaml.safe_load(service), first + len(gpus)
    note = f"# All on one machine, with {counted(first, 'GPU')}: links between hosts will differ from the plan's.\n"
    text = yaml.dump({"services": services}, Dumper=_Readable, sort_keys=False)
    return {"compose.yaml": of.commented(note + text)}


def kubernetes(of: Launched) -> dict[str, str]:
    """Return an Indexed Job with one pod per host. Hosts are nodes of the cluster, and a pod finds its part by its
    node's name. Raises LabError for a host's name with capitals, or if hosts have different numbers of GPUs."""
    for host in of.hosts:
        # Kubernetes refuses names with capitals.
        if host.name != host.name.lower():
            raise LabError(f"--to kubernetes: host {host.name}; wanted lower-case names of nodes, set with --hosts")
    text = filled("kubernetes.txt", name=of.named, n_hosts=len(of.hosts), gpus=of.per_host())
    held, job = yaml.safe_load_all(text)
    held["data"] = {"launch.sh": of.launch(), **of.files}
    nodes = job["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    nodes["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] = [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [host.name]}]} for host in of.hosts
    ]
    return {"job.yaml": of.commented(yaml.dump_all([held, job], Dumper=_Readable, sort_keys=False))}


SCHEDULERS: dict[str, Callable[[Launched], dict[str, str]]] = {
    "skypilot": skypilot,
    "slurm": slurm,
    "compose": compose,
    "kubernetes": kubernetes,
}
TARGETS = (*FRAMEWORKS, *SCHEDULERS)


class _Readable(yaml.SafeDumper):
    """Writes YAML in which scripts keep their line breaks."""


_Readable.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)


def launched(
    plan: Plan, targets: Sequence[str], *, hosts_path: str | None = None, per_host: int | None = None, port: int
) -> Launched:
    """Translate the plan for these targets: at most one framework, and any schedulers that start it. Without a
    framework, torchrun starts your own script. Raises LabError for a job without a model, a plan with absent devices,
    two frameworks, or a plan that the framework cannot run.

    Hosts come from the hosts file, or are groups of ``per_host`` devices. Without either, each device's ``host`` field
    names its host.
    """
    if plan.job.model is None:
        raise LabError(f"job {plan.job.name} holds message sizes only; wanted one with a model")
    if plan.absent:
        raise LabError(f"the plan lacks {plan.absent_words}; wanted one in which no device is absent")
    chosen = [target for target in targets if target in FRAMEWORKS]
    if len(chosen) > 1:
        raise LabError(f"--to {' and --to '.join(chosen)} are two frameworks; wanted one, and any scheduler")
    name = chosen[0] if chosen else "torchrun"
    framework_launch = FRAMEWORKS.get(name, script)(Expressed(plan, name))
    names = plan.topology.names
    ranks = _ranks(plan, framework_launch.order)
    if hosts_path is not None:
        hosts = read_hosts(hosts_path, ranks, names)
    elif per_host is not None:
        hosts = named_hosts(by_count([device for device in names if device in ranks], per_host), ranks)
    else:
        placed = [device for device in plan.topology.devices if device.name in ranks]
        hosts = named_hosts(by_key((device.host or device.name, device.name) for device in placed).items(), ranks)
    # The host of rank 0 comes first, since the others connect to its address.
    ordered = tuple(sorted(hosts, key=lambda host: host.workers[0]))
    return Launched(plan=plan, framework_launch=framework_launch, hosts=ordered, port=port, framework=name)


def write_launch(of: Launched, targets: Sequence[str], folder: str, *, overwrite: bool) -> Path:
    """Write the folder and return its path. Raises FileError if it holds other files, or an earlier export without
    ``overwrite``. LabErrors of the schedulers pass through."""
    path = Path(folder)
    texts = {"launch.sh": of.launch(), "hosts.yaml": hosts_file(of.hosts, _ranks(of.plan, of.framework_launch.order))}
    if of.whole:
        slots = "".join(f"{host.address} slots={len(host.workers) * of.gpus}\n" for host in of.hosts)
        texts["hostfile"] = of.commented(slots)
    texts |= of.files
    for target in targets:
        texts |= SCHEDULERS[target](of) if target in SCHEDULERS else {}
    with explained(str(path)):
        held = sorted(one.name for one in path.iterdir()) if path.is_dir() else []
        if held and not (overwrite and "launch.sh" in held):
            raise FileError(
                f"{path}: holds {', '.join(held[:3])}; wanted a new folder, or --force on an earlier export"
            )
        path.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write_text(path / name, text)
    (path / "launch.sh").chmod(0o755)
    return path
