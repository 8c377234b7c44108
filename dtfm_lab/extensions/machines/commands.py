"""Commands that make a network of your own machines, from the output of tools or from a probe."""

from collections.abc import Callable, Mapping
from typing import Any

import click

from dtfm_lab import files, lab
from dtfm_lab.cli.networks import gpu_words
from dtfm_lab.cli.options import file_option, json_option, output_option
from dtfm_lab.cli.terminal import err, out, print_json, print_rows
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.network import Topology, shortened
from dtfm_lab.domain.network.device import gpus_of
from dtfm_lab.domain.units import counted
from dtfm_lab.extensions.machines.calibrate import DTYPES, STREAMS, calibrate
from dtfm_lab.extensions.machines.network import network_from
from dtfm_lab.extensions.machines.probe import probe_over_ssh
from dtfm_lab.files.reading import ending_of
from dtfm_lab.files.topology_yaml import suffixes

CALIBRATED = "calibrated.yaml"
"""Default output file of a calibration, so that two minutes of measuring are not lost."""


def pairs_of(named: str) -> Callable[..., dict[str, str]]:
    """Return a callback that turns repeated NAME=VALUE options into a mapping."""

    def split(_context: click.Context, option: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
        for each in given:
            if not all(each.rpartition("=")[::2]):
                raise LabError(f"{option.opts[0]} is {shortened(each)}; wanted {named}")
        return {name: value for name, _, value in (each.rpartition("=") for each in given)}

    return split


at_option = click.option(
    "--at", multiple=True, metavar="HOST=REGION", callback=pairs_of("HOST=REGION"), help="Region or city of a host."
)


def gpu_option(more: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option ``--gpu``, which may be repeated. Its values become the mapping ``peaks``. ``more`` is appended
    to its help."""
    return click.option(
        "--gpu",
        "peaks",
        multiple=True,
        metavar="NAME=TFLOPS[,GIB]",
        callback=pairs_of("NAME=TFLOPS or NAME=TFLOPS,GIB"),
        help="Half-precision TFLOP/s of a GPU that is not in the lab's table, and GiB of memory if no tool reports "
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
    """Make a network from the output of tools about your machines.

    FILES are outputs of any mix of: nvidia-smi -q -x and nvidia-smi topo -m (each file named after its host,
    gpubox.xml), iperf3 --json, NCCL tests, kubectl get nodes -o json, ray list nodes --format json --detail, scontrol
    show node or sinfo -N -o "%N %G", an ssh config, a SkyPilot task with a catalogue's vms.csv.
    """
    peak_tflops, memory_gib = _hardware(peaks)
    _report(network_from(sources, at=at, peak_tflops=peak_tflops, memory_gib=memory_gib), output, as_json)


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="HOST... [from FILE...]")
@at_option
@gpu_option("; HOST=GPU states the GPUs of a probed host without nvidia-smi, such as ada=MI300X:8")
@output_option
@json_option
def network_of_hosts(
    words: tuple[str, ...], at: dict[str, str], peaks: dict[str, str], output: str | None, as_json: bool
) -> None:
    """Measure the network between HOSTS that you can reach with ssh, in about two minutes.

    ssh must reach each host without a prompt. It uses the ssh config among the FILES, if there is one. nvidia-smi
    reports the GPUs of each host, and python3 times messages between every two hosts. Nothing stays on the hosts. FILES
    are as for dtfm-lab network from.
    """
    hosts, sources = _hosts_and_files(words)
    if not hosts:
        raise click.UsageError(f"wanted dtfm-lab network probe HOST..., not {shortened(' '.join(words))}")
    made = probe_over_ssh(hosts, sources, **_probing(hosts, sources, at, peaks), report=err.print)
    _report(made, output, as_json)


@click.command()
@click.argument("words", nargs=-1, metavar="[HOST]... [from FILE...]")
@click.option("--network", metavar="NETWORK", help="Your network, by name or file. It must have this machine's GPU.")
@click.option("--dtype", help=f"Precision: {', '.join(DTYPES)}. Default: bf16 on a GPU, fp32 on a CPU.")
@at_option
@gpu_option("; HOST=GPU states the GPUs of a probed host without nvidia-smi")
@file_option("-o", "--output", help=f"Write the network to this file, {CALIBRATED} by default.")
@json_option
def calibrate_command(
    words: tuple[str, ...],
    network: str | None,
    dtype: str | None,
    at: dict[str, str],
    peaks: dict[str, str],
    output: str | None,
    as_json: bool,
) -> None:
    """Measure this machine in at most two minutes, so that predictions are calibrated and not guessed.

    It times transformer blocks of three widths, kernel launches and the memory of a training step, on the GPU, or on
    the CPU without one. Its output file is a network that plan and the Lab read. With HOSTS that you can reach with
    ssh, it also measures the links between them, with 1 and with 8 streams, as dtfm-lab network probe does. Without
    HOSTS it measures TCP over the loopback.
    """
    output = output or CALIBRATED
    ending_of(output, suffixes)
    hosts, sources = _hosts_and_files(words)
    if network is not None and words:
        raise click.UsageError("--network and hosts are given; wanted one of them")
    if not hosts and (sources or at or peaks):
        raise click.UsageError("--at, --gpu and files need hosts; wanted dtfm-lab calibrate HOST...")
    given = None if network is None else lab.load_topology(network)
    how = _probing(hosts, sources, at, peaks)

    def probed(together: dict[tuple[str, str], float]) -> Topology:
        return probe_over_ssh(hosts, sources, **how, report=err.print, streams=STREAMS, together=together)

    found = calibrate(given, probe=probed if hosts else None, dtype=dtype, report=err.print)
    written = str(files.save(found.topology, output))
    if as_json:
        rows = [row._asdict() for row in found.rows]
        return print_json({"gpu": found.gpu, "rows": rows, "notes": list(found.notes), "written": written})
    print_rows(("measured", found.gpu, "the lab assumed"), [row.words for row in found.rows])
    for note in found.notes:
        out.print(note)
    out.print(f"written to {written}: dtfm-lab plan {written} plans on it")


def _hosts_and_files(words: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    before = words.index("from") if "from" in words else len(words)
    return words[:before], words[before + 1 :]


def _probing(
    hosts: tuple[str, ...], sources: tuple[str, ...], at: dict[str, str], peaks: dict[str, str]
) -> dict[str, Any]:
    """Return the arguments of a probe from the options of a command. Raises LabError."""
    own = {host.rpartition("@")[2] for host in hosts}
    peak_tflops, memory_gib = _hardware({name: value for name, value in peaks.items() if name not in own})
    gpus = {name: value for name, value in peaks.items() if name in own}
    return {"at": at, "peak_tflops": peak_tflops, "memory_gib": memory_gib, "gpus": gpus}


def _hardware(peaks: Mapping[str, str]) -> tuple[dict[str, float], dict[str, float]]:
    """Return two mappings by GPU name: TFLOP/s, and GiB of memory where the option states it. Raises LabError."""
    numbers = {name: _numbers(value) for name, value in peaks.items()}
    memory = {name: gib for name, (_, gib) in numbers.items() if gib is not None}
    return {name: peak for name, (peak, _) in numbers.items()}, memory


def _numbers(text: str) -> tuple[float, float | None]:
    """Parse ``125`` (TFLOP/s) or ``125,119`` (also GiB of memory). A missing memory gives None. Raises LabError."""
    peak, comma, memory = text.partition(",")
    try:
        return float(peak), float(memory.lower().removesuffix("gib")) if comma else None
    except ValueError:
        raise LabError(
            f"--gpu says {shortened(text)} TFLOP/s; wanted a number, optionally with GiB of memory (125,119), or the "
            "name of a probed host before it"
        ) from None


def _report(made: Topology, output: str | None, as_json: bool) -> None:
    """Write a network to ``output`` if given. Print its devices, and what was measured, estimated and left out."""
    written = None if output is None else str(files.save(made, output))
    notes = made.description.split("; ")
    if as_json:
        answer = {
            "name": made.name,
            "devices": len(made),
            "gpus": gpus_of(made.devices),
            "notes": notes,
            "written": written,
        }
        return print_json(answer)
    out.print(f"{counted(len(made), 'device')}: {gpu_words(made)}")
    for note in notes:
        out.print(f"- {note}", soft_wrap=True, highlight=False)
    out.print(
        f"written to {written}" if written else "-o network.yaml saves it, so that you can check it and plan on it"
    )
