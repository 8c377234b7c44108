"""The operators of the teaching search. An operator changes one placement, or mixes two, and says in words what it did.

A placement is a row: (N,) the device at each position. Stage s, replica r is at position s x D + r. The idle devices
follow.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy

from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.units import IntArray
from dtfm_lab.planning.cost import PairCosts
from dtfm_lab.planning.problem import Problem


@dataclass(frozen=True, eq=False, kw_only=True)
class Ground(Problem):
    """A problem with the place of each device: a region or a cluster of devices, see ``places_of``."""

    place_of: IntArray
    """(N,) index of each device's place in ``places``."""
    places: tuple[str, ...]
    """Names of the places."""
    names: tuple[str, ...]
    """Names of the devices."""


class Made(NamedTuple):
    """A new row, and words for how it was made."""

    row: IntArray
    words: str


Operator = Callable[[Ground, IntArray, np.random.Generator], Made | None]
"""Returns a changed copy of the row; None if there is nothing to change."""


def places_of(topology: Topology, pair: PairCosts) -> tuple[IntArray, tuple[str, ...]]:
    """Return (N,) the index of each device's place, and the names of the places. A place is a region. If four or more
    devices all share a region, or each has its own, it is a cluster of devices."""
    regions = [device.region for device in topology.devices]
    n = len(regions)
    if 2 <= len(set(regions)) < n or n < 4:
        names = tuple(dict.fromkeys(regions))
        return np.array([names.index(region) for region in regions]), names
    tree = scipy.cluster.hierarchy.linkage(scipy.spatial.distance.squareform(pair.hop_s, checks=False), "average")
    clusters = scipy.cluster.hierarchy.fcluster(tree, max(2, round(n**0.5)), "maxclust")
    # reversed, so that a cluster's first device names it
    firsts = {int(cluster): topology.names[at] for at, cluster in reversed(list(enumerate(clusters)))}
    numbers = sorted(firsts)
    return np.searchsorted(numbers, clusters), tuple(f"the place of {firsts[number]}" for number in numbers)


def crossover(
    ground: Ground, recipient: IntArray, donor: IntArray, rng: np.random.Generator
) -> tuple[IntArray, tuple[str, ...]]:
    """Return a row with the devices of some places as in the donor and all others as in the recipient. Also return the
    names of these places.

    A device whose position is taken goes to a free position of its stage, or to any free position if the stage is full.
    """
    n_places = len(ground.places)
    taken = rng.choice(n_places, int(rng.integers(1, max(2, n_places // 2 + 1))), replace=False)
    from_donor = np.isin(ground.place_of, taken)
    child = np.where(from_donor[donor], donor, -1)
    unplaced: list[int] = []
    for position, device in enumerate(recipient):
        if from_donor[device]:
            continue
        if child[position] < 0:
            child[position] = device
        else:
            unplaced.append(position)
    # in random order, because `fill` takes the first free position
    again = rng.permutation(np.array(unplaced, dtype=np.int64))
    ground.fill(child, recipient[again], np.minimum(again // ground.n_replicas, ground.n_stages))
    return child, tuple(ground.places[place] for place in sorted(taken))


def swap(ground: Ground, row: IntArray, rng: np.random.Generator) -> Made | None:
    """Exchange two devices."""
    if len(row) < 2:
        return None
    one, other = (int(at) for at in rng.choice(len(row), 2, replace=False))
    # both are idle, so nothing would change
    if min(one, other) >= ground.n_tasklets:
        return None
    words = f"{ground.names[row[one]]} and {ground.names[row[other]]} changed places"
    return Made(_exchanged(row, [one], [other]), words)


def bring_home(ground: Ground, row: IntArray, rng: np.random.Generator) -> Made | None:
    """Move some devices of a place to a stage or pipeline that already has a device of this place."""
    positions = np.arange(ground.n_tasklets).reshape(ground.n_stages, ground.n_replicas)
    to_stage = bool(rng.random() < 0.5)
    number = int(rng.integers(ground.n_stages if to_stage else ground.n_replicas))
    line = positions[number] if to_stage else positions[:, number]
    place = int(ground.place_of[row[rng.choice(line)]])
    at_home = ground.place_of[row] == place
    elsewhere = at_home.copy()
    elsewhere[line] = False
    guests, absent = line[~at_home[line]], rng.permutation(np.flatnonzero(elsewhere))
    if not len(guests) or not len(absent):
        return None
    if rng.random() < 0.5:  # whole runs of another stage or pipeline first, so that little is torn apart
        origin = absent // ground.n_replicas if to_stage else absent % ground.n_replicas
        absent = absent[np.argsort(rng.permutation(len(row))[origin], kind="stable")]
    n = int(rng.integers(1, min(len(guests), len(absent)) + 1))
    words = f"{n} of {ground.places[place]} moved to {'stage' if to_stage else 'pipeline'} {number}"
    return Made(_exchanged(row, rng.permutation(guests)[:n], absent[:n]), words)


def exchange_places(ground: Ground, row: IntArray, rng: np.random.Generator) -> Made | None:
    """Swap devices of two places, as many as the smaller place has."""
    if len(ground.places) < 2:
        return None
    one, other = (int(place) for place in rng.choice(len(ground.places), 2, replace=False))
    sides = [rng.permutation(np.flatnonzero(ground.place_of[row] == place)) for place in (one, other)]
    n = min(map(len, sides))
    words = f"{ground.places[one]} and {ground.places[other]} changed places"
    return Made(_exchanged(row, sides[0][:n], sides[1][:n]), words)


def pair_anew(ground: Ground, row: IntArray, rng: np.random.Generator) -> Made | None:
    """Pair one stage again with its neighbours at low cost, or swap the ends of two pipelines."""
    if ground.n_replicas < 2 or ground.n_stages < 2:
        return None
    row = row.copy()
    grid = ground.grid(row)
    if rng.random() < 1 / 3:
        one, other = (int(replica) for replica in rng.choice(ground.n_replicas, 2, replace=False))
        stage = int(rng.integers(1, ground.n_stages))
        grid[stage:, [one, other]] = grid[stage:, [other, one]]
        return Made(row, f"pipelines {one} and {other} exchanged their ends from stage {stage} on")
    stage = int(rng.integers(ground.n_stages))
    neighbours = [s for s in (stage - 1, stage + 1) if 0 <= s < ground.n_stages]
    hops_s = np.sum([ground.pair.hop_s[np.ix_(grid[s], grid[stage])] for s in neighbours], axis=0)
    noisy_s = hops_s + 0.02 * hops_s.max() * rng.random(hops_s.shape)  # else it always finds one pairing
    grid[stage] = grid[stage][scipy.optimize.linear_sum_assignment(noisy_s)[1]]
    return Made(row, f"stage {stage} was paired again with its neighbours")


def reorder_path(ground: Ground, row: IntArray, rng: np.random.Generator) -> Made | None:
    """Exchange two stages, or reverse a run of stages, which is the 2-opt move of a path."""
    if ground.n_stages < 2:
        return None
    row = row.copy()
    grid = ground.grid(row)
    if rng.random() < 0.5:
        one, other = sorted(int(stage) for stage in rng.choice(ground.n_stages, 2, replace=False))
        grid[[one, other]] = grid[[other, one]]
        return Made(row, f"stages {one} and {other} changed places")
    start, end = sorted(int(cut) for cut in rng.choice(ground.n_stages + 1, 2, replace=False))
    if end - start < 2:
        return None
    grid[start:end] = grid[start:end][::-1].copy()
    return Made(row, f"stages {start} to {end - 1} were reversed (2-opt)")


MUTATIONS: tuple[tuple[str, Operator, float], ...] = (
    ("swap", swap, 0.2),
    ("bringing home", bring_home, 0.25),
    ("exchange", exchange_places, 0.08),
    ("pairing", pair_anew, 0.23),
    ("path", reorder_path, 0.17),
)
"""Operators with one parent: name, function, and relative frequency among the offspring without crossover."""
CROSSOVER_SHARE = 0.15


def _exchanged(row: IntArray, ones: Sequence[int] | IntArray, others: Sequence[int] | IntArray) -> IntArray:
    row = row.copy()
    row[ones], row[others] = row[others], row[ones]
    return row
