"""The texts of a run folder: torchrun's command lines, the table of ranks, and the instructions."""

import csv
import io
from collections.abc import Sequence
from importlib.metadata import version
from shlex import quote

from dtfm_lab.runtime.client.run_report import describe_reductions
from dtfm_lab.runtime.multihost.hosts import Host
from dtfm_lab.runtime.protocol.run_spec import RunSpec


def torchrun_line(hosts: Sequence[Host], node_rank: int, master_port: int, folder: str = ".") -> str:
    """The command line that starts the workers of one host."""
    nodes = f"--nnodes {len(hosts)} --nproc-per-node {len(hosts[node_rank].workers)} --node-rank {node_rank}"
    rendezvous = f"--master-addr {quote(hosts[0].address)} --master-port {master_port}"
    return f"torchrun {nodes} {rendezvous} -m dtfm_lab.runtime.hosted {quote(folder)}"


def readme(spec: RunSpec, hosts: Sequence[Host], master_port: int) -> str:
    """The instructions, step by step."""
    plan, first = spec.plan, hosts[0]
    suffix = f"; {reductions}" if (reductions := describe_reductions(spec)) else ""
    shaped = spec.clock == "real"
    table = [f"| {host.name} | {host.address} | {_describe_workers(spec, host).replace('|', '/')} |" for host in hosts]
    links = (
        "shape.sh makes the real links as slow as the drawn ones. Delays are one way, of what a host sends: the way "
        "back is the other host's, ping shows the sum of both, and all of it comes on top of what the real network "
        "takes. Links between processes of one host stay as they are. unshape.sh undoes it."
        if shaped
        else f"On the {spec.clock} clock the drawn links are emulated by timestamps: leave the real ones as they are, "
        "shape.sh is for the real clock."
    )
    steps = [
        f"Install dtfm_lab {version('dtfm_lab')} with torch on every host (`pip install 'dtfm_lab[train]'`); "
        "`dtfm-lab doctor` says what is missing.",
        "Look over `hosts.yaml`: addresses at which the hosts reach each other, and who runs what. After a change, "
        "export again with `--hosts hosts.yaml`.",
        "Copy this folder to every host. Whoever has `spec.json` can take part in the run: keep it from strangers.",
        "Nothing that goes between the hosts is encrypted: let it be a network of your own, or a VPN. "
        f"Open ports {master_port} and {master_port + 1} of {first.name} to the other hosts, and all ports of all "
        "hosts to each other: workers connect directly, at ports of their own choosing.",
        *(["As root on every host, to have links as drawn: `hosts/NAME/shape.sh`."] if shaped else []),
        "On every host, in any order, within a few minutes: `hosts/NAME/run.sh`.",
        f"{first.name} prints events as JSON lines and leaves `measured.json`: `dtfm-lab simulate plan.json --like "
        "measured.json -o predicted.json`, then `dtfm-lab compare predicted.json measured.json`.",
        *(["As root on every host: `hosts/NAME/unshape.sh`."] if shaped else []),
    ]
    return "\n".join(
        [
            f"# {plan.job.name} on {plan.topology.name}: {len(spec.workers)} workers on {len(hosts)} hosts",
            "",
            f"{spec.iterations} iterations under {spec.schedule}, {spec.clock} clock{suffix}. Exported by dtfm_lab.",
            "",
            "| host | address | runs |",
            "| --- | --- | --- |",
            *table,
            "",
            *(f"{number}. {step}" for number, step in enumerate(steps, start=1)),
            "",
            links,
            "",
            "The lines behind `run.sh`, in this folder:",
            "",
            "```sh",
            *(f"{torchrun_line(hosts, i, master_port)}   # on {host.name}" for i, host in enumerate(hosts)),
            "```",
            "",
        ]
    )


def run_script(spec: RunSpec, hosts: Sequence[Host], node_rank: int, master_port: int) -> str:
    """A shell script that starts the workers of one host, wherever the run folder is."""
    return "\n".join(
        [
            "#!/bin/sh",
            f"# Host {hosts[node_rank].name}: {_describe_workers(spec, hosts[node_rank])}",
            "set -eu",
            'cd "$(dirname "$0")/../.."',
            "export OMP_NUM_THREADS=1",
            f"exec {torchrun_line(hosts, node_rank, master_port)}",
            "",
        ]
    )


def ranks_table(spec: RunSpec, hosts: Sequence[Host]) -> str:
    """A CSV table with a row for each process."""
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(["rank", "worker", "host", "node_rank", "local_rank", "device", "stages", "replica"])
    rank = 0
    for node_rank, host in enumerate(hosts):
        for local_rank, worker in enumerate(host.workers):
            position, replica = spec.workers[worker]
            stages = " ".join(map(str, spec.built.stages_of(position)))
            device = spec.device_name(position, replica)
            writer.writerow([rank, worker, host.name, node_rank, local_rank, device, stages, replica])
            rank += 1
    return lines.getvalue()


def _describe_workers(spec: RunSpec, host: Host) -> str:
    """``ada (stage 0, replica 0), barbara (stages 1 and 3, replica 0)``."""
    workers = []
    for worker in host.workers:
        position, replica = spec.workers[worker]
        stages = spec.built.stages_of(position)
        which = f"stage{'s' if len(stages) > 1 else ''} {' and '.join(map(str, stages))}"
        workers.append(f"{spec.device_name(position, replica)} ({which}, replica {replica})")
    return ", ".join(workers)
