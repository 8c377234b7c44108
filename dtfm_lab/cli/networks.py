"""The command of networks: those that come with the lab, and one of what other tools say of one's own machines."""

import re
from collections import Counter
from collections.abc import Callable

import click

from dtfm_lab import files, lab
from dtfm_lab.cli.options import cli, json_option, output_option
from dtfm_lab.cli.terminal import out, print_json, print_rows
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
@click.argument("words", nargs=-1, metavar="[from FILE...]")
@click.option("--at", multiple=True, metavar="HOST=REGION", callback=pairs_of("HOST=REGION"), help="Where a host is.")
@click.option(
    "--gpu",
    "peaks",
    multiple=True,
    metavar="NAME=TFLOPS",
    callback=pairs_of("NAME=TFLOPS"),
    help="TFLOP/s in half precision of a GPU that is not in the lab's table.",
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
    """
    if not words and not (at or peaks or output):
        return _list(as_json)
    if words[:1] != ("from",) or not words[1:]:
        raise click.UsageError(
            f"wanted dtfm-lab network from FILE..., not {shortened(' '.join(words) or 'options alone')}"
        )
    made = lab.load_topology(words[1:], at=at, peak_tflops={name: _number(value) for name, value in peaks.items()})
    written = None if output is None else str(files.save(made, output))
    notes = made.description.split("; ")
    if as_json:
        gpus = dict(Counter(device.gpu for device in made.devices))
        return print_json({"name": made.name, "devices": len(made), "gpus": gpus, "notes": notes, "written": written})
    out.print(f"{counted(len(made), 'device')}: {_gpus(made)}")
    for note in notes:
        out.print(f"- {note}", soft_wrap=True, highlight=False)
    out.print(f"written to {written}" if written else "-o network.yaml writes it, to be looked over and planned on")


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise LabError(f"--gpu says {shortened(text)} TFLOP/s; wanted a number") from None


@cli.command(hidden=True)
@json_option
def topologies(as_json: bool) -> None:
    """List the networks that come with the lab, as ``network`` does."""
    _list(as_json)


def _list(as_json: bool) -> None:
    networks = [lab.load_topology(name) for name in files.topology_names()]
    if as_json:
        told = [
            {
                "name": each.name,
                "devices": len(each),
                "regions": list(each.regions),
                "gpus": Counter(device.gpu for device in each.devices),
            }
            for each in networks
        ]
        return print_json({"topologies": told})
    rows = [
        (each.name, len(each), len(each.regions), _gpus(each), re.split(r"[.:] ", each.description)[0].rstrip("."))
        for each in networks
    ]
    print_rows(("name", "devices", "regions", "GPUs", "what it is"), rows)


def _gpus(topology: Topology) -> str:
    return ", ".join(f"{n} {gpu}" for gpu, n in Counter(device.gpu for device in topology.devices).items())
