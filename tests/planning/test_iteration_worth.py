"""Worths for the seconds of an iteration: against planning without a device, and by law."""

import json
import math

import numpy as np
import pytest

import dtfm_lab as lab
from dtfm_lab.domain.errors import PlanError, UnknownName
from dtfm_lab.domain.network import HARDWARE, Device, Topology
from dtfm_lab.domain.units import plain_rows
from dtfm_lab.planning import additions_table, plan, search, stream_additions, stream_worth, worth_table
from dtfm_lab.planning.explain.additions import NAME, with_one_more
from dtfm_lab.planning.explain.nearby_plans import shares_with


def network(gpus, gbps=20.0, seed=0):
    """Devices with links of their own, so that no two are alike, and the prices of the table."""
    rng = np.random.default_rng(seed)
    n = len(gpus)
    devices = tuple(Device(name=f"{gpu}-{i}", gpu=gpu, region="here") for i, gpu in enumerate(gpus))
    latency, bandwidth = rng.uniform(1e-4, 2e-4, (n, n)), gbps * 1e9 / 8 * rng.uniform(0.9, 1.1, (n, n))
    return Topology(devices, latency, bandwidth).with_typical_prices()


@pytest.fixture(scope="module")
def job():
    return lab.load_job("gpt3-xl", global_batch=32)


@pytest.fixture(scope="module")
def planned(job):
    return plan(network(["A100", "A100", "H100", "Raspberry Pi"]), job, objective="iteration", steps=4)


@pytest.fixture(scope="module")
def rows(planned):
    return list(stream_worth(planned, steps=2))


def test_every_device_has_a_worth_in_seconds_of_the_iteration(planned, rows):
    assert [row.device for row in rows] == list(planned.topology.names)
    table = worth_table(rows)
    assert table.attrs["seconds"] == "of an iteration"
    assert table["worth_s"].to_numpy() == pytest.approx((table["without_s"] - table["serving_s"]).to_numpy())
    for row in rows:
        for each in (row.serving, row.without):
            assert lab.simulate(each).iteration_s == each.iteration_s
            assert lab.memory(each).fits


def test_a_device_serves_in_one_plan_of_its_row_and_not_in_the_other(rows):
    for row in rows:
        assert any(row.device in group for group in row.serving.stages)
        assert not any(row.device in group for group in row.without.stages)


def test_the_fastest_device_is_worth_most_and_a_very_slow_one_harms(rows):
    table = worth_table(rows)
    assert table["device"].iloc[0] == "H100-2"
    assert table["verdict"].iloc[0] == "helps"
    last = table.iloc[-1]
    assert (last["device"], last["verdict"]) == ("Raspberry Pi-3", "harms")
    assert last["serving_s"] > 10 * last["without_s"]
    assert last["sentence"].startswith("without Raspberry Pi-3 ")


def test_a_worth_is_that_of_planning_without_the_device(planned, rows, job):
    rest = planned.topology.subset(["A100-0", "A100-1", "Raspberry Pi-3"])
    *_, last = search(rest, job, objective="iteration", steps=6, seed=1)
    assert rows[2].without.iteration_s == pytest.approx(last.plan.iteration_s, rel=0.05)


def test_equal_devices_are_worth_the_same_and_idle_ones_of_their_kind_nothing(job):
    links = np.full((5, 5), 1.0)
    devices = tuple(Device(name=f"a{i}", gpu="A100") for i in range(5))
    equal = Topology(devices, links * 1e-3, links * 1e8)
    best = plan(equal, job.with_fields(n_stages=2, n_replicas=2), objective="iteration", steps=2)
    for row in stream_worth(best, steps=1):
        assert row.worth_s >= -1e-9 * row.serving.iteration_s
        if row.without.idle_devices or len(row.without.topology) == 5:
            assert not any(row.device in group for group in row.without.stages)
    assert len({round(row.worth_s, 9) for row in stream_worth(best, steps=1)}) == 1


def test_a_device_without_which_nothing_fits_is_needed(job):
    topology = network(["A100", "Raspberry Pi"])
    alone = plan(topology, job, objective="iteration", steps=1)
    row = next(iter(stream_worth(alone, steps=1)))
    assert (row.verdict, row.without) == ("needed", None)
    assert row.sentence == "without A100-0 no plan fits"
    assert math.isnan(row.worth_s)
    json.dumps(plain_rows(worth_table([row])), allow_nan=False)


def test_the_same_seed_and_steps_give_the_same_worths(planned, rows):
    assert worth_table(stream_worth(planned, steps=2)).equals(worth_table(rows))


def test_ctrl_c_keeps_the_rows_so_far(planned):
    def interrupt(row):
        raise KeyboardInterrupt

    assert len(lab.worth(planned, steps=1, progress=interrupt)) == 1
    assert len(lab.additions(planned, steps=1, gpus=["T4", "H100"], progress=interrupt)) == 1


@pytest.mark.parametrize(("counts", "replica", "count"), [((8, 8), 0, 3), ((5, 1, 1), 2, 2), ((4, 4, 4), 1, 100)])
def test_shares_keep_the_batch_and_leave_every_pipeline_one(counts, replica, count):
    shares = shares_with(counts, replica, count)
    assert sum(shares) == sum(counts)
    assert min(shares) >= 1
    assert shares[replica] == min(count, sum(counts) - len(counts) + 1)


# one more device


@pytest.fixture(scope="module")
def added(planned):
    return list(stream_additions(planned, gpus=["T4", "A100", "H100"], steps=2))


def test_one_more_device_never_makes_a_plan_slower(planned, added):
    table = additions_table(added)
    assert set(table["gpu"]) == {"T4", "A100", "H100"}
    assert (table["change_s"] <= 0).all()
    assert table["change_s"].is_monotonic_increasing
    assert (table.loc[~table["serves"], "change_s"] == 0).all()
    assert set(table.attrs["units"]) == set(table.columns)


def test_what_is_saved_is_for_each_dollar_of_the_device(added):
    table = additions_table(added)
    prices = [HARDWARE[gpu].price_per_hour for gpu in table["gpu"]]
    assert table["price_per_hour"].tolist() == prices
    assert (table["saved_s_per_dollar_hour"] * table["price_per_hour"]).to_numpy() == pytest.approx(
        -table["change_s"].to_numpy()
    )


def test_another_fast_device_is_used(added):
    row = next(row for row in added if row.gpu == "H100")
    assert row.serves
    assert row.plan.iteration_s < row.before.iteration_s
    assert row.sentence.startswith("one more H100 ($2.69 an hour) in here: ")


def test_an_added_device_has_the_links_of_its_neighbour():
    topology = network(["A100", "T4", "H100"])
    longer = with_one_more(topology, "T4", 1)
    assert longer.names[-1] == NAME
    assert longer.latency_s[3, 0] == topology.latency_s[1, 0]
    assert longer.bandwidth_bytes_per_s[2, 3] == topology.bandwidth_bytes_per_s[2, 1]
    assert longer.latency_s[3, 1] in topology.latency_s
    assert (longer.latency_s[:3, :3] == topology.latency_s).all()
    assert longer.devices[-1].price_per_hour == HARDWARE["T4"].price_per_hour


def test_an_unknown_gpu_or_one_without_a_price_is_refused(planned):
    with pytest.raises(UnknownName, match="no GPU with a price named 'laptop'"):
        stream_additions(planned, gpus="laptop")
    with pytest.raises(PlanError):
        stream_additions(planned, steps=0)
