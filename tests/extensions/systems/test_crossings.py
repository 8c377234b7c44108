"""At which bandwidth, latency, batch or size which system is fastest: algebra, laws and refusals."""

import re

import numpy as np
import pytest
from small_systems import ACTIVATION_BYTES, FORWARD_S, GRADIENT_BYTES, Chain, Copies, Rarely, job, network

import dtfm_lab as lab
from dtfm_lab.domain.units import from_gbps, to_gbps
from dtfm_lab.extensions.systems.modelled.dt_fm import DTFMRandom

BOTH = [Copies(), Chain()]


def test_copies_overtake_a_chain_where_algebra_says() -> None:
    # copies: 6 f + g / b; gpipe over two devices with two sequences: 9 f + 2 a / b
    meet = (GRADIENT_BYTES - 2 * ACTIVATION_BYTES) / (3 * FORWARD_S)
    found = lab.strategies(network(bandwidth_bytes_per_s=meet * 1.7), job(), over="bandwidth", systems=BOTH)
    [crossing] = found.crossings
    [closer] = lab.strategies(
        network(), job(), over="bandwidth", systems=BOTH, values=[0.1, 1000.0], precision=0.001
    ).crossings
    assert closer.low < to_gbps(meet) <= closer.high <= 1.001 * closer.low
    assert (crossing.before, crossing.after) == (("chain",), ("copies",))
    assert crossing.low < to_gbps(meet) <= crossing.high <= 1.05 * crossing.low
    assert crossing.value == pytest.approx(to_gbps(meet), rel=1e-3)
    assert found.sentence.startswith(f"Below {to_gbps(meet):.3g} Gbit/s Chain is fastest, above it Copies")
    for point in found.points:
        bandwidth = from_gbps(point.value)
        hop_s = ACTIVATION_BYTES / bandwidth
        assert point.seconds["copies"] == pytest.approx(6 * FORWARD_S + GRADIENT_BYTES / bandwidth)
        if hop_s <= FORWARD_S:
            assert point.seconds["chain"] == pytest.approx(9 * FORWARD_S + 2 * hop_s)


def test_the_fastest_of_both_sides_choose_anew_between_them() -> None:
    systems = [lab.systems.variant("ddp", devices="all"), DTFMRandom()]
    found = lab.strategies("lecture-hall", "tiny", over="bandwidth", systems=systems, values=[0.01, 10.0], precision=1)
    between = [point for point in found.points if point.refined]
    assert between
    for point in between:
        now = lab.load_topology("lecture-hall").scaled(bandwidth=point.value / 0.1)
        for one in lab.strategies(now, "tiny", systems=systems):
            assert point.seconds[one.name] == pytest.approx(one.iteration_s)


@pytest.mark.parametrize(("over", "sign"), [("bandwidth", -1), ("latency", 1), ("compute", -1)])
def test_a_system_that_tries_all_its_plans_never_loses_by_better_links_or_devices(over, sign) -> None:
    some = lab.load_topology("lecture-hall").subset([0, 1, 4, 5])  # two of each room
    found = lab.strategies(some, "tiny", over=over, systems="megatron")
    seconds = [point.seconds["megatron"] for point in found.points]
    assert len(seconds) == 7
    assert (sign * np.diff(seconds) >= -1e-9 * seconds[0]).all()


def test_a_system_that_searches_may_choose_a_plan_that_it_found_elsewhere() -> None:
    found = lab.strategies("lecture-hall", "tiny", over="bandwidth", systems="dtfm-lab", steps=1, values=(0.01, 1.0, 3))
    seconds = [point.seconds["dtfm-lab"] for point in found.points]
    assert seconds == sorted(seconds, reverse=True)
    for point in found.points:
        plan = point.plans["dtfm-lab"]
        if not point.refined:
            assert found.plan("dtfm-lab", point.value) is plan
        assert lab.simulate(plan).iteration_s == pytest.approx(point.seconds["dtfm-lab"])
        assert np.median(to_gbps(plan.topology.bandwidth_bytes_per_s[~np.eye(8, dtype=bool)])) == pytest.approx(
            point.value
        )


@pytest.mark.parametrize(("name", "between"), [("shared-nics", "hosts"), ("universities", "regions")])
def test_links_within_a_host_or_a_region_keep_their_bandwidth(name, between) -> None:
    before = lab.load_topology(name)
    found = lab.strategies(before, job(64), over="bandwidth", between=between, systems=[Copies()], values=[1.0])
    now = found.points[0].plans["copies"].topology
    place = np.array([one.host if between == "hosts" else one.region for one in before.devices])
    inside = place[:, None] == place[None, :]
    assert (now.bandwidth_bytes_per_s[inside] == before.bandwidth_bytes_per_s[inside]).all()
    assert np.median(to_gbps(now.bandwidth_bytes_per_s[~inside])) == pytest.approx(1.0)
    with pytest.raises(lab.LabError, match=r"no plans were made for 0.3; wanted one of: 1 Gbit/s"):
        found.plan("copies", 0.3)


def test_a_network_without_latency_has_the_given_one_everywhere() -> None:
    found = lab.strategies(network(), job(), over="latency", systems=BOTH, values=[1.0, 10.0])
    copies = [point.seconds["copies"] for point in found.points]
    assert copies[1] - copies[0] == pytest.approx(2 * 9e-3)


def test_systems_that_change_the_mathematics_are_seen_and_never_the_fastest() -> None:
    asked = {"systems": [*BOTH, Rarely()], "values": [0.5, 2.0]}
    found = lab.strategies(network(), job(), over="bandwidth", **asked)
    assert found.compared == ("copies", "chain")
    assert all(point.seconds["rarely"] < point.seconds["copies"] for point in found.points)
    assert found.sentence.endswith("not compared, as they change the mathematics: Rarely")
    assert all("rarely" not in found.fastest(point) for point in found.points)
    found = lab.strategies(network(), job(), over="bandwidth", mathematics=True, **asked)
    assert found.fastest(found.points[-1]) == ("rarely",)


def test_systems_whose_seconds_are_the_same_are_named_together() -> None:
    class Again(Copies):
        name = "again"
        title = "Again"

    found = lab.strategies(network(), job(), over="bandwidth", systems=[Copies(), Again()], values=[1.0, 10.0])
    assert found.crossings == ()
    assert found.sentence.startswith("Copies and Again are fastest, alike at every bandwidth")


def test_what_is_there_is_kept_when_it_is_stopped() -> None:
    def stop(found) -> None:
        if len(found.points) == 2:
            raise KeyboardInterrupt

    found = lab.strategies(network(), job(), over="bandwidth", systems=BOTH, progress=stop)
    assert [point.value for point in found.points] == [found.axis.usual(7)[0], found.axis.usual(7)[-1]]
    assert not found.finished
    assert found.sentence.startswith("so far: ")


@pytest.mark.parametrize("over", [None, "bandwidth"])
def test_a_job_of_message_sizes_is_refused(over) -> None:
    with pytest.raises(lab.LabError, match="holds message sizes only"):
        lab.strategies(network(), lab.Job.from_bytes(2, 2, 1e6, 1e6), over=over)


def test_larger_batches_are_doubled_and_a_system_without_a_plan_says_why() -> None:
    found = lab.strategies(network(), job(), over="batch", systems=[Copies(), Chain()], values=(1, 64, 7))
    assert [point.value for point in found.points if not point.refined] == [1, 2, 4, 8, 16, 32, 64]
    first, *others = (point for point in found.points if not point.refined)
    assert "copies" in first.reasons
    assert found.fastest(first) == ("chain",)
    seconds = [point.seconds["copies"] for point in others]
    assert np.diff(seconds) == pytest.approx([3 * FORWARD_S * extra for extra in (2, 4, 8, 16, 32)])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"over": "bandwith"}, "no over named 'bandwith'; did you mean 'bandwidth'"),
        ({"values": [0.0]}, "a value of bandwidth is 0.0; wanted a number above 0 (Gbit/s)"),
        ({"values": 3}, "values of bandwidth are 3; wanted several"),
        ({"values": (2, 1, 5)}, "values of bandwidth are (2, 1, 5); wanted (lowest, highest, how many)"),
        ({"over": "batch", "values": [2.5]}, "a value of batch is 2.5; wanted a whole number"),
        ({"between": "regions"}, "alike has no links between regions; wanted a network that has some"),
        ({"between": "rooms"}, "no between named 'rooms'; known: hosts, regions"),
        ({"over": None, "values": [1.0]}, "values is given without over; wanted both, such as over='bandwidth'"),
        ({"precision": 0}, "crossings: precision is 0; wanted more than 0"),
        ({"system": "megatron"}, "no option named 'system'; did you mean 'systems'"),
    ],
)
def test_mistakes_are_told_in_a_line(options, says) -> None:
    with pytest.raises(lab.LabError, match="^" + re.escape(says)):
        lab.strategies(network(), job(), **{"over": "bandwidth", "systems": BOTH} | options)
