"""The commands that make a network of your own machines: from what tools say of them, or probed."""

from collections.abc import Callable, Mapping
from typing import Any

import click

from dtfm_lab import files
from dtfm_lab.cli.networks import count_gpus, gpu_words
from dtfm_lab.cli.options import json_option, output_option
from dtfm_lab.cli.terminal import err, out, print_json
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.network import Topology, shortened
from dtfm_lab.domain.units import counted
from dtfm_lab.extensions.machines.network import network_from
from dtfm_lab.extensions.machines.probe import probe_over_ssh


def pairs_of(named: str) -> Callable[..., dict[str, str]]:
    """A callback that makes NAME=VALUE, given several times, a mapping."""

    def split(_context: click.Context, option: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
        for each in given:
            if not all(each.rpartition("=")[::2]):
                raise LabError(f"{option.opts[0]} is {shortened(each)}; wanted {named}")
        return {name: value for name, _, value in (each.rpartition("=") for each in given)}

    return split


at_option = click.option(
    "--at", multiple=True, metavar="HOST=REGION", callback=pairs_of("HOST=REGION"), help="Where a host is."
)


def gpu_option(more: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """``--gpu``, several times, as the mapping ``peaks``; ``more`` ends its help."""
    return click.option(
        "--gpu",
        "peaks",
        multiple=True,
        metavar="NAME=TFLOPS[,GIB]",
        callback=pairs_of("NAME=TFLOPS or NAME=TFLOPS,GIB"),
        help="TFLOP/s in half precision of a GPU that is not in the lab's table, and GiB of memory where no tool tells "
        f"it{more}.",
    )


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="FILE...")
@at_option
@gpu_option()
@output_option
@json_option
def network_from_files(
    sources: tuple[str, ...], at: dict[str, str], peaks: dict[str, str], output: str | None, as_json: bool
) -> None:
    """Make a network of what your tools say of your machines.

    FILES are their outputs, in any mixture: nvidia-smi -q -x and nvidia-smi topo -m (each named after its host,
    gpubox.xml), iperf3 --json, a test of NCCL, kubectl get nodes -o json, ray list nodes --format json --detail,
    scontrol show node or sinfo -N -o "%N %G", an ssh config, a SkyPilot task with a catalogue's vms.csv.
    """
    peak_tflops, memory_gib = _hardware(peaks)
    _report(network_from(sources, at=at, peak_tflops=peak_tflops, memory_gib=memory_gib), output, as_json)


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="HOST... [from FILE...]")
@at_option
@gpu_option("; HOST=GPU is what a probed host without nvidia-smi has, such as ada=MI300X:8")
@output_option
@json_option
def network_of_hosts(
    words: tuple[str, ...], at: dict[str, str], peaks: dict[str, str], output: str | None, as_json: bool
) -> None:
    """Measure the network between HOSTS that answer to ssh, in about two minutes.

    ssh, with an ssh config among the FILES, must reach each host without a question. nvidia-smi tells their GPUs,
    python3 times messages between every two of them. Nothing stays on them. FILES are as for dtfm-lab network from.
    """
    before = words.index("from") if "from" in words else len(words)
    hosts, sources = words[:before], words[before + 1 :]
    if not hosts:
        raise click.UsageError(f"wanted dtfm-lab network probe HOST..., not {shortened(' '.join(words))}")
    own = {host.rpartition("@")[2] for host in hosts}
    gpus = {name: value for name, value in peaks.items() if name in own}
    peak_tflops, memory_gib = _hardware({name: value for name, value in peaks.items() if name not in own})
    made = probe_over_ssh(
        hosts, sources, at=at, peak_tflops=peak_tflops, memory_gib=memory_gib, gpus=gpus, report=err.print
    )
    _report(made, output, as_json)


def _hardware(peaks: Mapping[str, str]) -> tuple[dict[str, float], dict[str, float]]:
    """TFLOP/s, and GiB of memory where they are given, of GPUs by name. Raises LabError."""
    numbers = {name: _numbers(value) for name, value in peaks.items()}
    memory = {name: gib for name, (_, gib) in numbers.items() if gib is not None}
    return {name: peak for name, (peak, _) in numbers.items()}, memory


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


def _report(made: Topology, output: str | None, as_json: bool) -> None:
    """Write a network, and say what it has and what was measured, estimated and left out."""
    written = None if output is None else str(files.save(made, output))
    notes = made.description.split("; ")
    if as_json:
        answer = {"name": made.name, "devices": len(made), "gpus": count_gpus(made), "notes": notes, "written": written}
        return print_json(answer)
    out.print(f"{counted(len(made), 'device')}: {gpu_words(made)}")
    for note in notes:
        out.print(f"- {note}", soft_wrap=True, highlight=False)
    out.print(f"written to {written}" if written else "-o network.yaml writes it, to be looked over and planned on")
