"""Which devices are alike: those of a class can change places without changing any plan's cost, or change it little."""

from typing import Any

import numpy as np
import numpy.typing as npt

from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.units import FloatArray, IntArray


def interchangeable(kinds: npt.NDArray[Any], matrices: tuple[FloatArray, ...]) -> IntArray:
    """(N,) number of the class of each device, classes in the order of their first devices.

    Two devices are of one class where their (N, K) kinds are equal, they are equally far from and to every third
    device by every (N, N) matrix, and each is as far from the other as the other from it.
    """
    both = [np.sort(one, axis=1) for matrix in matrices for one in (matrix, matrix.T)]
    # devices with other distances, whatever these lead to, need not be compared one by one
    profile = np.unique(np.hstack([kinds, *both]), axis=0, return_inverse=True)[1].reshape(-1, 1)
    classes = grouped(profile, matrices, 0.0, len(kinds), mutual=True)
    assert classes is not None, "there are at most as many classes as devices"
    return classes


def link_matrices(topology: Topology) -> tuple[FloatArray, ...]:
    """The (N, N) matrices that say what a link is: latency, bandwidth, the seconds of each measured message size."""
    links = (topology.latency_s, topology.bandwidth_bytes_per_s)
    if topology.message_s is None:
        return links
    return (*links, *np.moveaxis(np.nan_to_num(topology.message_s, nan=-1.0), 2, 0))


def grouped(
    kinds: npt.NDArray[Any],
    matrices: tuple[FloatArray, ...],
    tolerance: float,
    most: int,
    *,
    mutual: bool = False,
) -> IntArray | None:
    """(N,) classes, each of devices like its first one, links alike within a relative tolerance; None where they are
    more than ``most``. Where ``mutual``, each is also as far from the first one as that one from it."""
    n = len(kinds)
    of_device = np.full(n, -1, dtype=np.int64)
    n_classes = 0
    for first in range(n):
        if of_device[first] >= 0:
            continue
        if n_classes == most:
            return None
        alike = (of_device < 0) & (kinds == kinds[first]).all(axis=1)
        others = np.flatnonzero(alike & (np.arange(n) != first))
        for matrix in matrices:
            others = others[_alike(matrix, first, others, tolerance) & _alike(matrix.T, first, others, tolerance)]
            if mutual:
                others = others[matrix[first, others] == matrix[others, first]]
        of_device[first] = n_classes
        of_device[others] = n_classes
        n_classes += 1
    return of_device


def _alike(matrix: FloatArray, first: int, others: IntArray, tolerance: float) -> npt.NDArray[np.bool_]:
    """Which of ``others`` have links to all third devices like those of ``first``."""
    if not len(others) or tolerance == np.inf:
        return np.ones(len(others), dtype=bool)
    rows, row = matrix[others], matrix[first][None, :]
    third = np.ones((len(others), len(matrix)), dtype=bool)
    third[:, first] = False
    third[np.arange(len(others)), others] = False
    alike = np.maximum(rows, row) <= np.minimum(rows, row) * (1 + tolerance) if tolerance else rows == row
    return np.asarray((alike | ~third).all(axis=1))
