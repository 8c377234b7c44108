"""What TCP streams reach: a window per round trip each, together at most the link; off unless it is asked for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtfm_lab.domain.errors import TopologyError
from dtfm_lab.domain.network import LINUX_WINDOW_BYTES, Topology, slow_start_s, streams_bandwidth
from dtfm_lab.domain.network.streams import INITIAL_WINDOW_BYTES

rates = st.floats(1e3, 1e12)
round_trips = st.floats(1e-5, 1.0)
streams = st.integers(1, 100)


@given(rates, round_trips, streams)
def test_streams_add_up_until_they_fill_the_link(link, round_trip_s, n):
    one, several = (streams_bandwidth(link, round_trip_s, count) for count in (1, n))
    assert several <= link
    assert several == pytest.approx(min(link, n * one))
    assert several == link or several * round_trip_s == pytest.approx(n * LINUX_WINDOW_BYTES)


def test_without_a_round_trip_the_link_is_the_only_limit():
    assert streams_bandwidth(1e9, 0.0) == 1e9


def test_a_stream_that_doubles_is_behind_by_the_round_trips_that_its_window_takes_to_open():
    sent = [INITIAL_WINDOW_BYTES * 2**k for k in range(6)]
    window = 2 * sent[-1]
    behind_s = 6 * 0.1 - sum(sent) / (window / 0.1)
    assert slow_start_s(0.1, window) == pytest.approx(behind_s, rel=0.01)
    assert slow_start_s(0.1, INITIAL_WINDOW_BYTES / 2) == 0.0


def far_and_near():
    latency_s = [[0, 0.05, 0.001], [0.05, 0, 0.05], [0.001, 0.05, 0]]
    return Topology.from_matrices(latency_s=latency_s, bandwidth_bytes_per_s=np.full((3, 3), 1e9))


def test_a_network_over_tcp_slows_far_pairs_alone_and_less_with_more_streams():
    links = far_and_near()
    one, eight = links.over_tcp(window_bytes=2e6), links.over_tcp(8, window_bytes=2e6)
    assert one.bandwidth_bytes_per_s[0].tolist() == [np.inf, 2e7, 1e9]
    assert eight.bandwidth_bytes_per_s[0].tolist() == [np.inf, 1.6e8, 1e9]
    assert np.array_equal(links.over_tcp(100).bandwidth_bytes_per_s, links.bandwidth_bytes_per_s)
    assert np.array_equal(one.latency_s, links.latency_s)


def test_both_directions_of_an_uneven_pair_share_one_round_trip():
    uneven = Topology.from_matrices(
        latency_s=[[0, 0.09], [0.01, 0]], bandwidth_bytes_per_s=np.full((2, 2), 1e9)
    ).over_tcp(window_bytes=1e6)
    assert uneven.bandwidth_bytes_per_s[0, 1] == uneven.bandwidth_bytes_per_s[1, 0] == pytest.approx(1e7)


@pytest.mark.parametrize("n", [0, -1, 1.5, True, "two"])
def test_what_is_no_number_of_streams_is_refused(n):
    with pytest.raises(TopologyError, match="wanted a whole number, 1 or more"):
        far_and_near().over_tcp(n)


@pytest.mark.parametrize("window", [0, -1.0, float("nan"), "large"])
def test_what_is_no_window_is_refused(window):
    with pytest.raises(TopologyError, match="wanted more than 0 bytes"):
        far_and_near().over_tcp(window_bytes=window)
