"""Which devices a user starts a system on: all of them, or without some kinds, some regions, or what lies far away."""

from itertools import combinations

import numpy as np

from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.units import FloatArray, IntArray

MOST_POOLS = 4
"""Most pools of which every selection is tried: fifteen."""
DEVICES = ("tried", "all")
"""Whether a user leaves out devices."""


def device_sets(topology: Topology) -> list[IntArray]:
    """Devices that a user might start a system on, in the network's order; all of them first.

    A pool is the devices of one kind in one region. Of up to four pools every selection is tried. Of more: each alone,
    those at least as fast as each speed, all but one, and clusters of pools, the best linked first.
    """
    pools = _pools(topology)
    n = len(pools)
    if n <= MOST_POOLS:
        chosen = [set(one) for size in range(n, 0, -1) for one in combinations(range(n), size)]
    else:
        speed = [topology.devices[int(pool[0])].peak_flop_per_s for pool in pools]
        chosen = [set(range(n))]
        chosen += [{i for i in range(n) if speed[i] >= least} for least in sorted(set(speed))]
        chosen += [set(range(n)) - {i} for i in range(n)]
        chosen += _clusters(_bandwidths(topology, pools))
        chosen += [{i} for i in range(n)]
    distinct = dict.fromkeys(frozenset(one) for one in chosen)
    return [np.sort(np.concatenate([pools[i] for i in one])) for one in distinct]


def _pools(topology: Topology) -> list[IntArray]:
    members: dict[tuple[str, str, float], list[int]] = {}
    for i, device in enumerate(topology.devices):
        members.setdefault((device.region, device.gpu, device.peak_flop_per_s), []).append(i)
    return [np.array(one) for one in members.values()]


def _bandwidths(topology: Topology, pools: list[IntArray]) -> FloatArray:
    """(pools, pools) bytes/s of the slowest link between two, either way."""
    bandwidth = topology.bandwidth_bytes_per_s
    one_way = np.array([[bandwidth[np.ix_(a, b)].min() for b in pools] for a in pools])
    found: FloatArray = np.minimum(one_way, one_way.T)
    return found


def _clusters(bandwidth: FloatArray) -> list[set[int]]:
    """What comes of joining the two best linked clusters again and again, by the slowest link between them."""
    clusters, found = [{i} for i in range(len(bandwidth))], []
    while len(clusters) > 1:
        pairs = list(combinations(range(len(clusters)), 2))
        a, b = max(pairs, key=lambda pair: bandwidth[np.ix_(*(list(clusters[one]) for one in pair))].min())
        joined = clusters[a] | clusters[b]
        clusters = [one for i, one in enumerate(clusters) if i not in (a, b)] + [joined]
        found.append(joined)
    return found
