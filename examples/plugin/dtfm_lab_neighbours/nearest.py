"""The device that is nearest to another one."""

import click
import numpy as np

import dtfm_lab as lab
from dtfm_lab.domain.errors import TopologyError


def nearest(topology: lab.Topology, device: str) -> str:
    """Return the name of the device with the lowest latency to ``device``. Raises TopologyError."""
    names = list(topology.names)
    if device not in names or len(names) < 2:
        raise TopologyError(f"no device {device!r} with a neighbour; wanted one of {', '.join(names)}")
    latency_s = topology.latency_s[names.index(device)].copy()
    latency_s[names.index(device)] = np.inf
    return names[int(latency_s.argmin())]


@click.command()
@click.argument("topology")
@click.argument("device")
def nearest_command(topology: str, device: str) -> None:
    """Say which device of TOPOLOGY is nearest to DEVICE."""
    click.echo(nearest(lab.load_topology(topology), device))
