"""Sets of devices on which a job may be started: all, one kind, one region, the fastest, the best connected."""

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.units import FloatArray, IntArray, by_key

MOST_POOLS = 4
"""Up to this many pools, every selection of them is tried: fifteen."""
MOST_CLUSTERED = 64
"""Most pools that are joined into clusters; the joins of more would take longer than the plans that they find."""
RATIO = 1.6
"""Two prefixes of the sorted devices differ in size by this factor at least, which keeps their number below 20."""


def device_sets(topology: Topology) -> list[IntArray]:
    """Return sets of devices that a user might start a job on, each in the network's order; all devices come first.

    A pool is the devices of one kind in one region. With up to four pools, every selection of them is tried. With more:
    each alone, those at least as fast as each speed, all but one, and clusters of pools, the best connected first.
    """
    pools = _pools(topology)
    n = len(pools)
    if n <= MOST_POOLS:
        chosen = [set(one) for size in range(n, 0, -1) for one in combinations(range(n), size)]
    else:
        speed = [topology.devices[int(pool[0])].peak_flop_per_s for pool in pools]
        chosen = [set(range(n))]
        chosen += [{i for i in range(n) if speed[i] >= least} for least in sorted(set(speed))]
        if n <= MOST_CLUSTERED:
            chosen += [set(range(n)) - {i} for i in range(n)]
            chosen += _clusters(_bandwidths(topology, pools))
            chosen += [{i} for i in range(n)]
    distinct = dict.fromkeys(frozenset(one) for one in chosen)
    return [np.sort(np.concatenate([pools[i] for i in one])) for one in distinct]


def starting_sets(topology: Topology) -> list[IntArray]:
    """Return ``device_sets``, each region and each kind alone, a host of each kind, and prefixes of the devices by
    speed and connection."""
    found = [*device_sets(topology), *_alone(topology), *_hosts(topology), *_prefixes(topology)]
    return [*{one.tobytes(): one for one in found}.values()]


def _alone(topology: Topology) -> Iterator[IntArray]:
    """Each kind of GPU alone, and each region alone."""
    for key in ("gpu", "region"):
        groups = by_key((getattr(device, key), i) for i, device in enumerate(topology.devices))
        if 1 < len(groups) <= MOST_CLUSTERED:
            yield from (np.array(one) for one in groups.values())


def _hosts(topology: Topology) -> Iterator[IntArray]:
    """The first host of each kind: small models train fastest inside one host, whose links are the fastest."""
    kinds = set()
    for host in by_key((device.host, i) for i, device in enumerate(topology.devices) if device.host).values():
        kind = tuple(topology.devices[i].gpu for i in host)
        if len(host) > 1 and kind not in kinds:
            kinds.add(kind)
            yield np.array(host)


def _prefixes(topology: Topology) -> Iterator[IntArray]:
    """The fastest devices, and the best connected ones, in sizes that fall by ``RATIO``."""
    n = len(topology)
    speed = np.array([device.peak_flop_per_s for device in topology.devices])
    connected = _connection(topology)
    for by in (speed, connected):
        if np.ptp(by) <= 1e-9 * abs(by).max():
            continue
        order = np.argsort(-by, kind="stable")
        size = n / RATIO
        while size >= 1:
            yield np.sort(order[: int(size)])
            size /= RATIO


def _connection(topology: Topology) -> FloatArray:
    """(N,) how well each device is connected: the mean of the logarithm of its slower direction to every other."""
    n = len(topology)
    if n == 1:
        return np.zeros(1)
    bandwidth = topology.bandwidth_bytes_per_s
    total = np.empty(n)
    for i in range(n):  # row by row: an (N, N) copy of the largest networks takes 134 MB
        slower = np.minimum(bandwidth[i], bandwidth[:, i])
        slower[i] = 1.0
        total[i] = np.log(slower).sum()
    return total / (n - 1)


def _pools(topology: Topology) -> list[IntArray]:
    members = by_key(((d.region, d.gpu, d.peak_flop_per_s), i) for i, d in enumerate(topology.devices))
    return [np.array(one) for one in members.values()]


def _bandwidths(topology: Topology, pools: list[IntArray]) -> FloatArray:
    """(pools, pools) bytes/s of the slowest link between two, either way."""
    bandwidth = topology.bandwidth_bytes_per_s
    one_way = np.array([[bandwidth[np.ix_(a, b)].min() for b in pools] for a in pools])
    found: FloatArray = np.minimum(one_way, one_way.T)
    return found


def _clusters(bandwidth: FloatArray) -> list[set[int]]:
    """Return what comes of joining the two best connected clusters again and again, by their slowest link."""
    clusters, found = [{i} for i in range(len(bandwidth))], []
    while len(clusters) > 1:
        pairs = list(combinations(range(len(clusters)), 2))
        a, b = max(pairs, key=lambda pair: bandwidth[np.ix_(*(list(clusters[one]) for one in pair))].min())
        joined = clusters[a] | clusters[b]
        clusters = [one for i, one in enumerate(clusters) if i not in (a, b)] + [joined]
        found.append(joined)
    return found
