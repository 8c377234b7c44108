"""What follows from timed messages: one-way seconds and the bandwidth of a link."""

import numpy as np
import pytest

from dtfm_lab.extensions.machines.probe.timing import bandwidth_of, one_way_s


def test_one_way_is_a_round_trip_less_half_of_a_small_one_and_never_less_for_more():
    sizes, times = one_way_s(0.02, [(1000, 0.021), (4000, 0.024), (16000, 0.023), (64000, 0.084)])
    assert sizes.tolist() == [1000, 4000, 16000, 64000]
    assert times == pytest.approx([0.011, 0.014, 0.014, 0.074])
    assert bandwidth_of(np.array([1e6, 4e6, 16e6]), np.array([0.11, 0.41, 1.61])) == pytest.approx(1e7)
    assert bandwidth_of(np.array([1e6, 4e6]), np.array([0.5, 0.5])) == 8e6  # times that do not grow: size over time
    late_s = np.array([0, 0.02, 0, 0])  # at one size a computer had other things to do
    four = 2.0 ** np.array([14, 16, 18, 20])
    assert bandwidth_of(four, 0.01 + four / 4e6 + late_s) == pytest.approx(4e6)
