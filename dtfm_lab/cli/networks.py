"""The command that lists the networks that come with the lab."""

import re

from dtfm_lab import files, lab
from dtfm_lab.cli.options import cli, json_option
from dtfm_lab.cli.terminal import print_json, print_rows
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.network.device import gpus_of


@cli.command()
@json_option
def network(as_json: bool) -> None:
    """List the networks that come with the lab."""
    _list(as_json)


@cli.command(hidden=True)
@json_option
def topologies(as_json: bool) -> None:
    """List the networks that come with the lab, as ``network`` does."""
    _list(as_json)


def _list(as_json: bool) -> None:
    networks = [lab.load_topology(name) for name in files.topology_names()]
    if as_json:
        report = [
            {"name": each.name, "devices": len(each), "regions": list(each.regions), "gpus": gpus_of(each.devices)}
            for each in networks
        ]
        return print_json({"topologies": report})
    rows = [
        (each.name, len(each), len(each.regions), gpu_words(each), re.split(r"[.:] ", each.description)[0].rstrip("."))
        for each in networks
    ]
    print_rows(("name", "devices", "regions", "GPUs", "what it is"), rows)


def gpu_words(topology: Topology) -> str:
    """Return the network's GPUs in words: ``2 RTX 4090, 1 T4``."""
    return ", ".join(f"{n} {gpu}" for gpu, n in gpus_of(topology.devices).items())
