"""Grids along chains of clusters."""

from itertools import pairwise, permutations

import numpy as np
import pytest

from dtfm_lab.planning.iteration.starts import cluster_chains


def islands(seed: int, n_clusters: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Clusters, and distances of 1 within and of random seconds between them."""
    rng = np.random.default_rng(seed)
    clusters = np.repeat(np.arange(n_clusters), size)
    between = rng.uniform(5, 50, (n_clusters, n_clusters))
    between = (between + between.T) / 2
    np.fill_diagonal(between, 1.0)
    distance = between[np.ix_(clusters, clusters)]
    np.fill_diagonal(distance, 0.0)
    return clusters, distance


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_the_least_slowest_hop_and_the_least_sum_are_among_them(seed: int, closed: bool) -> None:
    clusters, distance = islands(seed, 5, 3)
    grids = cluster_chains(clusters, distance, np.ones(15), (4, 3), closed=closed)
    chains = [[int(clusters[row[0]]) for row in grid] for grid in grids]
    for grid in grids:
        assert grid.shape == (4, 3)
        assert len(np.unique(grid)) == 12
        assert all(len(set(clusters[row])) == 1 for row in grid)

    def hops(chain: tuple[int, ...]) -> list[float]:
        ends = [*pairwise(chain), *([(chain[-1], chain[0])] if closed else [])]
        return [float(distance[3 * a, 3 * b]) for a, b in ends]

    every = [hops(chain) for chain in permutations(range(5), 4)]
    found = [hops(tuple(chain)) for chain in chains]
    assert min(map(max, found)) == pytest.approx(min(map(max, every)))
    assert min(map(sum, found)) == pytest.approx(min(map(sum, every)))


def test_clusters_that_are_too_small_give_none() -> None:
    clusters, distance = islands(0, 5, 3)
    assert cluster_chains(clusters, distance, np.ones(15), (2, 4), closed=False) == []
    assert cluster_chains(clusters, distance, np.ones(15), (6, 3), closed=False) == []


def test_the_fastest_of_a_cluster_serve() -> None:
    clusters, distance = islands(0, 2, 4)
    speed = np.array([1.0, 9, 9, 5, 9, 1, 5, 9])
    (grid,) = cluster_chains(clusters, distance, speed, (2, 3), closed=False)[:1]
    assert set(grid.ravel().tolist()) == {1, 2, 3, 4, 6, 7}
