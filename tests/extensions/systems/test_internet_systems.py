"""Systems that train over the internet: what they send by their published figures, laws of their closed forms, and old
names of systems."""

from __future__ import annotations

import numpy as np
import pytest

import dtfm_lab as lab
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.network import Device, Topology
from dtfm_lab.extensions.systems.api import Budget, strategies, variant, work_of
from dtfm_lab.extensions.systems.modelled.local_workers import alone, exchange_s, lines_bytes_per_s
from dtfm_lab.extensions.systems.strategy import FORMER
from dtfm_lab.planning import evaluate

MBIT = 1e6 / 8
TINY = work_of(lab.load_job("tiny")).with_fields(dtype="fp32", microbatch=1)
HALVES = TINY.with_fields(n_stages=2, n_replicas=2, global_batch=16)


def cities(*, slow: float = 1.0, n: int = 4, gbps: float = 1.0, same: bool = False) -> Topology:
    """n laptops, each in a city of its own, of which the last has so much of the others' speed."""
    peaks = [5e10] * (n - 1) + [5e10 * slow]
    where = ["one" if same else f"city {i}" for i in range(n)]
    links = np.full((n, n), gbps * 1e9 / 8)
    np.fill_diagonal(links, np.inf)
    devices = tuple(
        Device(name=f"d{i}", peak_flop_per_s=p, region=where[i], memory_bytes=1e12) for i, p in enumerate(peaks)
    )
    return Topology(devices, np.zeros((n, n)), links, name="cities")


def whole(topology: Topology, system: str, **assumptions: object) -> tuple[lab.Plan, object]:
    """A plan of whole models, one on each device, and its system."""
    strategy, n = variant(system, **assumptions), len(topology)
    job = strategy.trained(TINY.with_fields(n_stages=1, n_replicas=n, global_batch=2 * n))
    return evaluate(topology, job, stages=[list(range(n))]), strategy


def test_there_are_at_most_ten_systems() -> None:
    assert len(strategies) <= 10


def test_sparseloco_sends_146_times_less_than_fp32() -> None:
    assert 4 / variant("sparseloco").bytes_per_parameter == pytest.approx(146, rel=0.003)  # Covenant-72B


def test_covenants_seconds_are_within_a_half_more_where_each_gpu_has_the_published_line() -> None:
    """70 s a round, 94.5 % of it computing for 20 minutes (arXiv 2603.08163). At 110 Mbit/s for a whole peer the upload
    alone takes twice as long as was published; at that rate for each of its eight GPUs, 18 s."""
    n_bytes = 72e9 * variant("sparseloco").bytes_per_parameter
    of_a_peer, of_a_gpu = (exchange_s(n_bytes, 20, n * 110 * MBIT, n * 500 * MBIT) for n in (1, 8))
    assert n_bytes / (110 * MBIT) > 2 * 70
    assert 70 < of_a_gpu < 1.5 * 70 < of_a_peer
    assert pytest.approx(0.945, abs=5e-4) == 1200 / (1200 + 70)


@pytest.mark.parametrize(("system", "n_exchanges"), [("sparseloco", 1 / 30), ("distro", 1)])
def test_an_exchange_adds_an_upload_and_all_others_downloads(system: str, n_exchanges: float) -> None:
    assumptions = {"overlap": False, "copies": "storage"} if system == "distro" else {}
    plan, strategy = whole(cities(gbps=0.001), system, **assumptions)
    n_bytes = strategy.bytes_per_parameter * sum(plan.job.stage_parameters)
    expected_s = n_bytes * (1 + 3) / (1 * MBIT) * n_exchanges
    assert strategy.averaging_s(plan, Budget()) == pytest.approx(expected_s)
    assert strategy.seconds(plan, Budget()) == pytest.approx(lab.simulate(alone(plan)).iteration_s + expected_s)
    assert strategy.least_s(plan, Budget()) <= strategy.seconds(plan, Budget()) * (1 + 1e-9)


def test_an_exchange_beside_the_passes_counts_where_it_takes_longer() -> None:
    for gbps in (100.0, 1e-6):
        plan, strategy = whole(cities(gbps=gbps), "distro")
        passes_s = lab.simulate(alone(plan)).iteration_s
        assert strategy.seconds(plan, Budget()) == max(passes_s, strategy.exchanged_s(plan))


def test_causes_of_an_exchange_add_up_to_the_iteration() -> None:
    for system in ("sparseloco", "distro", "pluralis"):
        (found,) = lab.strategies("lecture-hall", "tiny", systems=[system])
        assert sum(found.causes.values()) == pytest.approx(found.iteration_s)


def test_workers_of_one_host_share_its_line() -> None:
    apart = cities(n=4)
    hosts = ("a", "a", "b", "b")
    devices = tuple(
        Device(name=one.name, peak_flop_per_s=5e10, region=one.region, host=host, memory_bytes=1e12)
        for one, host in zip(apart.devices, hosts, strict=True)
    )
    shared = Topology(devices, apart.latency_s, apart.bandwidth_bytes_per_s, name="hosts")
    for topology, share in ((apart, 1), (shared, 2)):
        plan, _ = whole(topology, "sparseloco")
        assert lines_bytes_per_s(plan)[0] == pytest.approx(np.full((1, 4), 1e9 / 8 / share))


def test_decoupled_learners_do_not_wait_for_the_slowest_unless_the_quorum_is_all() -> None:
    plan, some = whole(cities(slow=0.5), "diloco", kind="decoupled")
    everyone = variant("diloco", kind="decoupled", quorum=4)
    slowest_s = lab.simulate(alone(plan)).iteration_s
    assert everyone.seconds(plan, Budget()) == pytest.approx(slowest_s)
    ratio = some.seconds(plan, Budget()) / slowest_s
    assert ratio == pytest.approx(4 / (3 * 2 + 1), rel=0.02)  # three learners are twice as fast
    alike, strategy = whole(cities(), "diloco", kind="decoupled")
    assert strategy.seconds(alike, Budget()) == pytest.approx(lab.simulate(alone(alike)).iteration_s)


@pytest.mark.parametrize("asynchronous", [True, False])
def test_smaller_messages_are_never_slower(asynchronous: bool) -> None:
    plan = evaluate(cities(gbps=1e-4), variant("pluralis").trained(HALVES), stages=[[0, 1], [2, 3]])
    seconds = [
        variant("pluralis", message_ratio=ratio, asynchronous=asynchronous).seconds(plan, Budget())
        for ratio in (1.0, 10.0, 100.0)
    ]
    assert seconds == sorted(seconds, reverse=True)
    assert seconds[0] > seconds[-1]


def test_asynchronous_pipelines_are_no_slower() -> None:
    plan = evaluate(cities(), variant("pluralis").trained(HALVES), stages=[[0, 1], [2, 3]])
    both = [variant("pluralis", asynchronous=one).seconds(plan, Budget()) for one in (True, False)]
    assert both[0] <= both[1]


@pytest.mark.parametrize("name", FORMER)
def test_a_former_name_says_what_to_ask_for(name: str) -> None:
    now = FORMER[name]["system"]
    assert now in strategies
    with pytest.raises(LabError, match=now):
        strategies[name]
    if "because" in FORMER[name]:
        with pytest.raises(LabError, match=f"ask for {now}"):
            lab.strategies("lecture-hall", "tiny", systems=[name])
        return
    with pytest.warns(FutureWarning, match="leaves with the next release"):
        assert variant(name) == variant(now, **FORMER[name]["assumptions"])


def test_rounded_gradients_change_the_training_and_whole_ones_do_not() -> None:
    assert variant("ddp").mathematics == ""
    assert "int8" in variant("ddp", compression="int8").mathematics
