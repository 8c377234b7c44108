"""Interchangeable devices, and an order of devices that does not depend on how a network numbers them."""

import numpy as np

from dtfm_lab.domain.units import IntArray
from dtfm_lab.planning.cost import PairCosts


def interchangeable(pair: PairCosts) -> IntArray:
    """(N,) class of each device, the index of its first: swapping two devices of a class changes no cost.

    Two devices are of one class when every third device is as far from the one as from the other.
    """
    return _classes(pair, _profiles(pair))


def canonical_order(pair: PairCosts) -> IntArray:
    """(N,) devices sorted by their costs to all others, those of a class together, whatever their numbers.

    Classes with equal costs stay in the order of their first devices.
    """
    profiles = _profiles(pair)
    return np.lexsort((_classes(pair, profiles), profiles))


def _profiles(pair: PairCosts) -> IntArray:
    """(N,) rank of each device by its sorted costs to all others; equal for devices with the same costs."""
    costs_s = np.hstack([np.sort(pair.hop_s, axis=1), np.sort(pair.group_s, axis=1)])
    return np.unique(costs_s, axis=0, return_inverse=True)[1].ravel()


def _classes(pair: PairCosts, profiles: IntArray) -> IntArray:
    classes = np.arange(len(profiles))
    for value in np.flatnonzero(np.bincount(profiles) > 1):
        left = np.flatnonzero(profiles == value)
        while len(left):
            alike = np.ones(len(left), dtype=bool)
            for matrix in (pair.hop_s, pair.group_s):
                same = matrix[left] == matrix[left[0]]
                same[:, left[0]] = True
                same[np.arange(len(left)), left] = True
                alike &= same.all(axis=1)
            classes[left[alike]] = left[0]
            left = left[~alike]
    return classes
