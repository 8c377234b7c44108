"""GPUs of one host as one device, for tensor parallelism: each holds a part of every layer of a stage.

Megatron-LM keeps tensor parallelism within a host, whose links between GPUs are many times faster than its network
card (Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters", section 5.4, takeaway 1).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from dtfm_lab.domain.errors import TopologyError
from dtfm_lab.domain.network.device import Device, shortened
from dtfm_lab.domain.units import FloatArray, by_key, counted

MOST_GPUS = 8
"""Most GPUs of a group among ``group_sizes``."""


def groups_of(name: str, devices: Sequence[Device], gpus: object) -> list[list[int]]:
    """Indices of the devices of each group: every ``gpus`` of a host that are alike. Those left over are left out.

    Raises TopologyError, with the network's name, where no host has so many or devices are groups of another size.
    """
    if isinstance(gpus, bool) or not isinstance(gpus, int | np.integer) or gpus < 1:
        raise TopologyError(f"groups of {shortened(gpus)} GPUs; wanted a whole number, 1 or more")
    sizes = {device.gpus for device in devices}
    if sizes == {int(gpus)}:
        return [[i] for i in range(len(devices))]
    if sizes != {1}:
        found = " and ".join(map(str, sorted(sizes)))
        raise TopologyError(f"{name} has devices of {found} GPUs each; wanted groups of {gpus}, or single GPUs")
    groups = list(_groups(devices, int(gpus)))
    if not groups:
        most = max(map(len, _by_host(devices)))
        raise TopologyError(
            f"{name} has no host of {counted(int(gpus), 'GPU')} that are alike, at most {most}; wanted {most} or less, "
            "of tensor_parallel x context_parallel x expert_parallel, or devices that name their host"
        )
    return groups


def group_sizes(devices: Sequence[Device]) -> list[int]:
    """Powers of two up to 8 of which some host has a group, 1 among them; of groups, their own size."""
    sizes = {device.gpus for device in devices}
    if sizes != {1}:
        return sorted(sizes)
    powers = [2**i for i in range(MOST_GPUS.bit_length())]
    return [size for size in powers if size == 1 or next(_groups(devices, size), None) is not None]


def group_device(devices: Sequence[Device], members: list[int], latency_s: FloatArray, bandwidth: FloatArray) -> Device:
    """The devices of a group as one, named after its first; inner links are the slowest of theirs."""
    first, n = devices[members[0]], len(members)
    if n == 1:
        return first
    inside, between = ~np.eye(n, dtype=bool), np.ix_(members, members)
    return replace(
        first,
        name=f"{first.name}+{n - 1}",
        peak_flop_per_s=n * first.peak_flop_per_s,
        memory_bytes=n * first.memory_bytes,
        price_per_hour=n * first.price_per_hour,
        gpus=n,
        inner_latency_s=float(latency_s[between][inside].max()),
        inner_bandwidth_bytes_per_s=float(bandwidth[between][inside].min()),
    )


def between_groups(best: np.ufunc, matrix: FloatArray, groups: list[list[int]]) -> FloatArray:
    """(G, G) the best of a matrix over the devices of each two groups, all of one size."""
    order, size = np.concatenate(groups), len(groups[0])
    if not np.array_equal(order, np.arange(len(matrix))):
        matrix = matrix[np.ix_(order, order)]
    blocks = matrix.reshape(len(groups), size, len(groups), size)
    found: FloatArray = best.reduce(best.reduce(blocks, axis=3), axis=1)
    return found


def _by_host(devices: Sequence[Device]) -> list[list[int]]:
    """Devices that may form groups: of one host, alike. One without a host is alone."""
    alike = by_key(
        ((d.host or i, d.region, d.gpu, d.peak_flop_per_s, d.memory_bytes, d.price_per_hour), i)
        for i, d in enumerate(devices)
    )
    return list(alike.values())


def _groups(devices: Sequence[Device], gpus: int) -> Iterator[list[int]]:
    for members in _by_host(devices):
        for first in range(0, len(members) - gpus + 1, gpus):
            yield members[first : first + gpus]
