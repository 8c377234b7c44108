"""Who is there when: laws of the noun, its laying on a network, and what it refuses."""

from __future__ import annotations

from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtfm_lab.domain.errors import TraceError
from dtfm_lab.domain.network import Topology
from dtfm_lab.extensions.elasticity.availability import Availability

END = 40


@st.composite
def availabilities(draw: st.DrawFn) -> Availability:
    """On whole seconds, so that many things happen at once, restarts among them."""
    present = {}
    for index in range(draw(st.integers(1, 6))):
        marks = sorted(draw(st.sets(st.integers(0, END), max_size=8)))
        touching = draw(st.booleans())
        pairs = pairwise(marks) if touching else zip(marks[::2], marks[1::2], strict=False)
        present[f"n{index}"] = list(pairs)
    return Availability.from_intervals(present, END)


def network(n: int, prefix: str = "seat") -> Topology:
    return Topology.from_matrices(np.ones((n, n)), np.ones((n, n)), names=[f"{prefix}{i}" for i in range(n)])


def events(availability: Availability) -> list[tuple[float, str, str]]:
    return list(availability.to_frame().itertuples(index=False, name=None))


@given(availabilities())
@settings(max_examples=25)
def test_seconds_present_are_the_counts_integrated(trace: Availability) -> None:
    times = [change.time_s for change in trace.changes]
    counted = float(np.diff([*times, trace.end_s]) @ trace.counts()) if times else 0.0
    assert trace.present_s().sum() == pytest.approx(counted)
    assert len(trace.counts()) == max(1, len(trace.changes))


@given(availabilities(), st.floats(0, END))
@settings(max_examples=25)
def test_who_is_there_is_what_the_changes_so_far_leave(trace: Availability, at_s: float) -> None:
    there: set[int] = set()
    for change in trace.changes:
        if change.time_s <= at_s:
            there = there - set(change.left) | set(change.came)
    assert trace.present_at(at_s) == tuple(trace.devices[i] for i in sorted(there))


@given(availabilities())
@settings(max_examples=25)
def test_changes_hold_every_event_once(trace: Availability) -> None:
    told = [
        (change.time_s, kind, trace.devices[device])
        for change in trace.changes
        for kind, devices in (("remove", change.left), ("add", change.came))
        for device in devices
    ]
    assert sorted(told) == sorted(events(trace))
    assert [at_s for at_s, _, _ in told] == trace.time_s.tolist()


@given(availabilities(), st.randoms(use_true_random=False))
@settings(max_examples=25)
def test_the_order_in_which_events_are_given_counts_for_nothing(trace: Availability, random) -> None:
    order = list(range(len(trace.time_s)))
    random.shuffle(order)
    given_so = Availability(
        devices=trace.devices, time_s=trace.time_s[order], device=trace.device[order], comes=trace.comes[order],
        end_s=END,
    )  # fmt: skip
    assert events(given_so) == events(trace)


@given(availabilities(), st.integers(1, 5))
@settings(max_examples=25)
def test_a_network_never_seats_two_on_a_device_and_counts_who_finds_none(trace: Availability, n_seats: int) -> None:
    seated = trace.on(network(n_seats))
    assert seated.devices == network(n_seats).names
    assert seated.counts().max() <= n_seats  # it is an Availability: nobody comes where somebody is
    assert len(seated.time_s) + seated.left_out == len(trace.time_s)
    if n_seats >= trace.counts().max():
        assert seated.left_out == 0
        assert (seated.counts() == trace.counts()).all()


@given(availabilities())
@settings(max_examples=25)
def test_on_a_network_of_the_same_names_everybody_stays_who_they_are(trace: Availability) -> None:
    other = trace.on(network(7, "n"))
    assert other.devices == tuple(f"n{i}" for i in range(7))
    assert sorted(events(other)) == sorted(events(trace))
    assert other.left_out == 0


@given(availabilities(), st.integers(1, END))
@settings(max_examples=25)
def test_until_then_the_same_is_there(trace: Availability, end_s: int) -> None:
    first = trace.until(end_s)
    assert first.end_s == end_s
    assert all(first.present_at(at) == trace.present_at(at) for at in range(end_s + 1))
    assert events(trace.until(END)) == events(trace)


@given(availabilities(), st.sampled_from([0.3, 7.0, 60.0]))
@settings(max_examples=25)
def test_faster_is_the_same_in_less_time(trace: Availability, factor: float) -> None:
    faster = trace.faster(factor)
    assert (faster.counts() == trace.counts()).all()
    assert faster.present_s() * factor == pytest.approx(trace.present_s())


def test_who_comes_and_leaves_in_one_instant_is_in_no_change_and_a_restart_is_a_loss() -> None:
    at_5 = [("add", "a"), ("add", "b"), ("add", "c"), ("remove", "a"), ("remove", "b"), ("remove", "d")]
    for order in permutations(at_5):
        given_so = [("add", "b"), ("add", "d"), *order]
        trace = Availability(
            devices=("a", "b", "c", "d"),
            time_s=[0, 0, *[5] * 6],
            device=["abcd".index(name) for _, name in given_so],
            comes=[kind == "add" for kind, _ in given_so],
            end_s=9,
        )
        assert trace.changes == ((0, (), (1, 3)), (5, (1, 3), (1, 2)))
        assert trace.present_at(5) == ("b", "c")
        in_order = [(kind, name) for time_s, kind, name in events(trace) if time_s == 5]
        assert in_order[:2] == [("remove", "b"), ("remove", "d")]
        assert in_order.index(("add", "a")) < in_order.index(("remove", "a"))
    assert trace.mean_between_losses_s == 9


def test_a_steady_network_is_all_there_and_an_empty_one_never() -> None:
    steady = Availability.steady(network(3), 60)
    assert (steady.present_s() == 60).all()
    assert steady.mean_between_losses_s == np.inf
    empty = Availability.from_intervals({"a": []}, 60)
    assert (len(empty.changes), empty.present_at(30), empty.counts().tolist()) == (0, (), [0])
    assert "0 to 0 present" in repr(empty)
    assert empty.on(network(1)).left_out == 0


GOOD = {"devices": ("a", "b"), "time_s": [0.0, 5.0], "device": [0, 0], "comes": [True, False], "end_s": 9.0}


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"comes": [True, True]}, "a comes at 5 s while it is there; wanted it to leave before"),
        ({"comes": [False, False]}, "a leaves at 0 s while it is not there; wanted it to come before"),
        ({"time_s": [0.0]}, "1 time, 2 devices and 2 kinds of events; wanted as many of each"),
        ({"time_s": 0.0, "device": 0, "comes": True}, "1 time, 1 device and 1 kind of events; wanted as many"),
        ({"time_s": [0.0, 9.5]}, "an event at 9.5 s; wanted 0 to the end at 9 s"),
        ({"time_s": [0.0, np.nan]}, "an event at nan s; wanted 0 to the end at 9 s"),
        ({"device": [0, -1]}, "an event names device -1; wanted 0 to 1, an index of the devices"),
        ({"device": [0, 2]}, "an event names device 2; wanted 0 to 1"),
        ({"devices": ("a", 5)}, "a device is named 5; wanted text"),
        ({"devices": ("a", "a")}, "device a stands twice in the list; wanted each once"),
        ({"end_s": np.inf}, "ends after inf s; wanted more than 0"),
        ({"end_s": "9"}, "ends after '9' s; wanted more than 0"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(changed: dict, says: str) -> None:
    with pytest.raises(TraceError, match=f"^availability: {says}"):
        Availability(**GOOD | changed)


@pytest.mark.parametrize("interval", [(3, 3), (5, 2), (1,), (1, 2, 3), (0, np.nan), ("a", 2), 4])
def test_an_interval_that_is_none_is_refused(interval: object) -> None:
    with pytest.raises(TraceError, match=r"drawn by hand: a has the interval .*; wanted seconds of its arrival"):
        Availability.from_intervals({"a": [interval]}, 60)


def test_intervals_may_be_an_array_and_have_to_be_several() -> None:
    assert Availability.from_intervals({"a": np.array([[0, 5], [7, 9]])}, 60).present_s().tolist() == [7]
    for forgotten in ((0, 3600), 5):
        with pytest.raises(TraceError, match="wanted seconds of its arrival and of a later departure"):
            Availability.from_intervals({"a": forgotten}, 60)
    with pytest.raises(TraceError, match="ends after 'late' s; wanted more than 0"):
        Availability.from_intervals({"a": [(0, 5)]}, "late")


def test_the_name_of_a_network_is_no_network() -> None:
    with pytest.raises(
        TraceError, match=r"network is 'worldwide'; wanted a Topology, such as lab\.load_topology loads"
    ):
        Availability.steady(network(1), 60).on("worldwide")


@pytest.mark.parametrize("factor", [0, -2, np.inf, np.nan, "twice"])
def test_a_factor_that_is_none_is_refused(factor: object) -> None:
    with pytest.raises(TraceError, match="times faster; wanted a factor above 0"):
        Availability.steady(network(1), 60).faster(factor)


@pytest.mark.parametrize("end_s", [0, -1, 61, np.nan, "soon"])
def test_it_is_not_known_for_longer_than_it_is(end_s: float) -> None:
    with pytest.raises(TraceError, match="wanted more than 0, at most its 60 s"):
        Availability.steady(network(1), 60).until(end_s)
