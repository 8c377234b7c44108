"""Which devices are near to each other, by the seconds of one micro-batch's message there and back."""

from functools import cached_property

import numpy as np
import scipy

from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.iteration.problem import IterationProblem

MOST_NEIGHBOURS = 32
MOST_ORDERED = 256
"""Most devices for which the order of a tree's branches is made best; with more it takes too long."""


class Nearness:
    """The order, the clusters and the neighbours of a network's devices."""

    def __init__(self, problem: IterationProblem) -> None:
        one_way_s = problem.passes(problem.microbatches[0]).hop_s + problem.latency_s
        self.distance_s: FloatArray = one_way_s + one_way_s.T
        """(N, N) seconds of one micro-batch's message there and one back."""

    @cached_property
    def _tree(self) -> FloatArray:
        pairs = scipy.spatial.distance.squareform(self.distance_s, checks=False)
        return np.array(
            scipy.cluster.hierarchy.linkage(
                pairs, method="average", optimal_ordering=len(self.distance_s) <= MOST_ORDERED
            )
        )

    @cached_property
    def order(self) -> IntArray:
        """(N,) devices in the order of a tree that joins the nearest first."""
        n = len(self.distance_s)
        return np.arange(n) if n < 3 else np.array(scipy.cluster.hierarchy.leaves_list(self._tree), dtype=np.int64)

    @cached_property
    def clusters(self) -> IntArray:
        """(N,) number of the cluster of each device: the tree is cut where its joints grow most."""
        n = len(self.distance_s)
        if n < 3:
            return np.arange(n)
        heights = np.maximum(self._tree[:, 2], 1e-12)
        at = int(np.argmax(heights[1:] / heights[:-1]))
        return np.array(
            scipy.cluster.hierarchy.fcluster(self._tree, (heights[at] + heights[at + 1]) / 2, criterion="distance") - 1
        )

    @cached_property
    def neighbours(self) -> IntArray:
        """(N, K) the devices nearest to each, the nearest first."""
        n = len(self.distance_s)
        away_s = self.distance_s.copy()
        np.fill_diagonal(away_s, np.inf)
        return np.argsort(away_s, axis=1, kind="stable")[:, : min(n - 1, MOST_NEIGHBOURS)].astype(np.int64)
