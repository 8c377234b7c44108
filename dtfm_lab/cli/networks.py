"""The command of networks: those that come with the lab, and one of one's own machines, as tools tell or as probed."""

import re
from collections import Counter
from collections.abc import Callable

import click

from dtfm_lab import files, lab
from dtfm_lab.cli.options import cli, json_option, output_option
from dtfm_lab.cli.terminal import err, out, print_json, print_rows
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.network import Topology, shortened
from dtfm_lab.domain.units import counted


def pairs_of(named: str) -> Callable[..., dict[str, str]]:
    """A callback that makes NAME=VALUE, given several times, a mapping."""

    def split(_context: click.Context, option: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
        for each in given:
            if not all(each.rpartition("=")[::2]):
                raise LabError(f"{option.opts[0]} is {shortened(each)}; wanted {named}")
        return {name: value for name, _, value in (each.rpartition("=") for each in given)}

    return split


@cli.command()
@click.argument("words", nargs=-1, metavar="[probe HOST...] [from FILE...]")
@click.option("--at", multiple=True, metavar="HOST=REGION", callback=pairs_of("HOST=REGION"), help="Where a host is.")
@click.option(
    "--gpu",
    "peaks",
    multiple=True,
    metavar="NAME=TFLOPS[,GIB]",
    callback=pairs_of("NAME=TFLOPS or NAME=TFLOPS,GIB"),
    help="TFLOP/s in half precision of a GPU that is not in the lab's table, and GiB of memory where no tool tells it; "
    "HOST=GPU is what a probed host without nvidia-smi has, such as ada=MI300X:8.",
)
@output_option
@json_option
def network(
    words: tuple[str, ...], at: dict[str, str], peaks: dict[str, str], output: str | None, as_json: bool
) -> None:
    """List the networks that come with the lab, or make one.

    FILES are what your tools say of your machines, in any mixture: nvidia-smi -q -x and nvidia-smi topo -m (each named
    after its host, gpubox.xml), iperf3 --json, a test of NCCL, kubectl get nodes -o json, ray list nodes --format json
    --detail, scontrol show node or sinfo -N -o "%N %G", an ssh config, a SkyPilot task with a catalogue's vms.csv.

    HOSTS are probed in about two minutes: ssh, with an ssh config among the files, must reach each without a question.
    nvidia-smi tells their GPUs, python3 times messages between every two of them. Nothing stays on them.
    """
    if not words and not (at or peaks or output):
        return _list(as_json)
    hosts, sources = _hosts_and_files(words)
    own = {host.rpartition("@")[2] for host in hosts}
    gpus = {name: value for name, value in peaks.items() if name in own}
    numbers = {name: _numbers(value) for name, value in peaks.items() if name not in own}
    others = {name: peak for name, (peak, _) in numbers.items()}
    memory = {name: gib for name, (_, gib) in numbers.items() if gib is not None}
    if hosts:
        from dtfm_lab.runtime.probe import probe_over_ssh

        made = probe_over_ssh(hosts, sources, at=at, peak_tflops=others, memory_gib=memory, gpus=gpus, report=err.print)
    else:
        made = lab.load_topology(sources, at=at, peak_tflops=others, memory_gib=memory)
    written = None if output is None else str(files.save(made, output))
    notes = made.description.split("; ")
    if as_json:
        told = {"name": made.name, "devices": len(made), "gpus": _kinds(made), "notes": notes, "written": written}
        return print_json(told)
    out.print(f"{counted(len(made), 'device')}: {_gpus(made)}")
    for note in notes:
        out.print(f"- {note}", soft_wrap=True, highlight=False)
    out.print(f"written to {written}" if written else "-o network.yaml writes it, to be looked over and planned on")


def _hosts_and_files(words: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What follows ``probe``, and what follows ``from``. Raises UsageError."""
    before = words.index("from") if "from" in words else len(words)
    hosts, sources = words[1:before], words[before + 1 :]
    if words[:1] not in (("probe",), ("from",)) or not (hosts or sources) or (words[0] == "probe" and not hosts):
        found = shortened(" ".join(words) or "options alone")
        raise click.UsageError(f"wanted dtfm-lab network from FILE..., or probe HOST..., not {found}")
    return hosts, sources


def _numbers(text: str) -> tuple[float, float | None]:
    """TFLOP/s, and GiB of memory where they are given: ``125`` or ``125,119``. Raises LabError."""
    peak, comma, memory = text.partition(",")
    try:
        return float(peak), float(memory.lower().removesuffix("gib")) if comma else None
    except ValueError:
        raise LabError(
            f"--gpu says {shortened(text)} TFLOP/s; wanted a number, also with GiB of memory (125,119), or the name "
            "of a probed host before it"
        ) from None


@cli.command(hidden=True)
@json_option
def topologies(as_json: bool) -> None:
    """List the networks that come with the lab, as ``network`` does."""
    _list(as_json)


def _list(as_json: bool) -> None:
    networks = [lab.load_topology(name) for name in files.topology_names()]
    if as_json:
        told = [
            {"name": each.name, "devices": len(each), "regions": list(each.regions), "gpus": _kinds(each)}
            for each in networks
        ]
        return print_json({"topologies": told})
    rows = [
        (each.name, len(each), len(each.regions), _gpus(each), re.split(r"[.:] ", each.description)[0].rstrip("."))
        for each in networks
    ]
    print_rows(("name", "devices", "regions", "GPUs", "what it is"), rows)


def _gpus(topology: Topology) -> str:
    return ", ".join(f"{n} {gpu}" for gpu, n in _kinds(topology).items())


def _kinds(topology: Topology) -> dict[str, int]:
    return Counter(device.gpu for device in topology.devices)
