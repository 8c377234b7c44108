"""The texts of a run folder: the command line of every host, the table of ranks, and the instructions."""

import csv
import io
from collections.abc import Sequence
from importlib.metadata import version
from shlex import quote

from dtfm_lab.runtime.client.run_report import describe_reductions
from dtfm_lab.runtime.multihost.hosts import Host
from dtfm_lab.runtime.protocol.run_spec import RunSpec


def host_command(host: Host, folder: str = ".") -> str:
    """The command line that starts the workers of one host; on the first host the coordinator, too."""
    return f"python3 -m dtfm_lab.runtime.hosted {quote(folder)} --host {host.name}"


def readme(spec: RunSpec, hosts: Sequence[Host], port: int, await_s: float, silent_s: float) -> str:
    """The instructions, step by step."""
    plan, first = spec.plan, hosts[0]
    suffix = f"; {reductions}" if (reductions := describe_reductions(spec)) else ""
    table = [f"| {host.name} | {host.address} | {_describe_workers(spec, host).replace('|', '/')} |" for host in hosts]
    links = (
        "The links are those between the hosts, as they are: the drawn ones are not emulated."
        if spec.clock == "real"
        else f"On the {spec.clock} clock the drawn links are emulated by timestamps."
    )
    steps = [
        f"Install dtfm_lab {version('dtfm_lab')} with torch on every host (`pip install 'dtfm_lab[train]'`); "
        "`dtfm-lab doctor` says what is missing.",
        "Look over `hosts.yaml`: addresses at which the hosts reach each other, and who runs what. After a change, "
        "export again with `--hosts hosts.yaml`.",
        "Copy this folder to every host. Whoever has `spec.json` and `key.pem` can take part in the run: keep them "
        "from strangers. A run refuses them where others can read them (wanted: `chmod 600`).",
        f"{_what_is_encrypted(spec)} Open port {port} of {first.name} to the other hosts, and all ports of all hosts "
        "to each other: workers connect directly, at ports of their own choosing.",
        f"On every host, in any order, within {await_s:g} s: `hosts/NAME/run.sh`. It starts an agent, which starts the "
        "host's workers again where one is lost.",
        f"{first.name} prints events as JSON lines and leaves `measured.json`: `dtfm-lab simulate plan.json --like "
        "measured.json -o predicted.json`, then `dtfm-lab compare predicted.json measured.json`.",
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
            *_when_hosts_are_lost(spec, first, await_s, silent_s),
            "",
            "The lines behind `run.sh`, in this folder:",
            "",
            "```sh",
            *(f"{host_command(host)}   # on {host.name}" for host in hosts),
            "```",
            "",
        ]
    )


def _what_is_encrypted(spec: RunSpec) -> str:
    if not spec.uses_groups:
        return "All connections of the run are encrypted (TLS, by the certificate of this folder)."
    return (
        "Orders, events and headers are encrypted (TLS, by the certificate of this folder). Contents of messages are "
        "not, as they cross process groups: let it be a network of your own, or a VPN."
    )


def _when_hosts_are_lost(spec: RunSpec, first: Host, await_s: float, silent_s: float) -> list[str]:
    """What a person does, and where what the run survives is written."""
    folder = spec.checkpoint_folder
    kept = (
        "No checkpoint is written." if folder is None else f"Checkpoints go to `{folder}`, which all hosts must share."
    )
    return [
        f"When a host is lost, start its `run.sh` again within {await_s:g} s, there or on another machine with this "
        f"folder; a link may be down for {silent_s:g} s. {kept} Ctrl-C on {first.name} ends the run on all hosts. What "
        "a run survives is written in docs/hosts.md.",
    ]


def run_script(spec: RunSpec, host: Host) -> str:
    """A shell script that starts the workers of one host, wherever the run folder is."""
    return "\n".join(
        [
            "#!/bin/sh",
            f"# Host {host.name}: {_describe_workers(spec, host)}",
            "set -eu",
            'cd "$(dirname "$0")/../.."',
            "export OMP_NUM_THREADS=1",
            f"exec {host_command(host)}",
            "",
        ]
    )


def ranks_table(spec: RunSpec, hosts: Sequence[Host]) -> str:
    """A CSV table with a row for each process."""
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(["worker", "host", "local_rank", "device", "stages", "replica"])
    for host in hosts:
        for local_rank, worker in enumerate(host.workers):
            position, replica = spec.workers[worker]
            stages = " ".join(map(str, spec.built.stages_of(position)))
            device = spec.device_name(position, replica)
            writer.writerow([worker, host.name, local_rank, device, stages, replica])
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
