"""Seconds against dollars: what is on a frontier is not beaten, fits, and is no worse than either objective alone."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

import dtfm_lab as lab
from dtfm_lab.costs.efficiency import speeds_of
from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.network import Topology
from dtfm_lab.planning import plan, stream_frontier
from dtfm_lab.planning.iteration.bounds.iteration_bound import PriceBound
from dtfm_lab.planning.iteration.frontier import gpus, non_dominated

STEPS = 3


def priced(n=5, prices=(1.0, 2.5, 0.4)):
    """Return N devices of three kinds in two regions, each with the price of its kind.

    With so few devices, the bound tries every grid. One more device takes several times as long.
    """
    rng = np.random.default_rng(1)
    gpus = [("A100", "H100", "T4")[i % 3] for i in range(n)]
    return Topology.from_matrices(
        rng.uniform(0.05, 0.5, (n, n)),
        10 ** rng.uniform(1, 2.3, (n, n)),
        regions=["here" if i < n // 2 else "there" for i in range(n)],
        gpu=gpus,
        price_per_hour=[prices[i % 3] for i in range(n)],
    )


@pytest.fixture(scope="module")
def job():
    return lab.load_job("gpt2-small", global_batch=32)


@pytest.fixture(scope="module")
def found(job):
    return list(stream_frontier(priced(), job, steps=STEPS, searches=6, seed=3))


def test_no_plan_of_a_frontier_is_beaten_and_they_are_in_order(found):
    table = found[-1].to_frame()
    assert len(table) > 1
    assert table["devices"].max() > 1
    assert table["iteration_s"].is_monotonic_increasing
    assert (np.diff(table["price_per_hour"]) < 0).all()
    by_token = found[-1].by_token().to_frame()
    assert (np.diff(by_token["price_per_billion_tokens"]) < 0).all()
    assert by_token["cheaper_by_token"].all()


def test_every_plan_of_a_frontier_fits_and_takes_what_the_simulator_says(found):
    for each in found[-1]:
        assert lab.memory(each).fits
        assert lab.simulate(each).iteration_s == each.iteration_s
        assert each.objective in ("iteration", "price")


def test_a_frontier_is_no_slower_than_the_fastest_plan_and_no_dearer_than_the_cheapest(found, job):
    how = {"steps": STEPS, "seed": 3, "improve_bound": False}
    alone = {what: plan(priced(), job, objective=what, **how) for what in ("iteration", "price")}
    assert found[-1].fastest.iteration_s <= alone["iteration"].iteration_s
    assert found[-1].cheapest.price_per_billion_tokens <= alone["price"].price_per_billion_tokens


def test_every_gpu_of_a_group_is_counted(job):
    four = Topology.from_matrices([[0.01] * 4] * 4, [[300.0] * 4] * 4, hosts=["one"] * 4, gpu="A100")
    grouped = lab.evaluate(
        four.grouped(2), job.with_fields(n_stages=1, n_replicas=2, tensor_parallel=2), stages=[[0, 1]]
    )
    assert gpus(grouped) == "4 A100"
    assert gpus(lab.evaluate(priced(), job.with_fields(n_stages=1, n_replicas=3), stages=[[0, 2, 3]])) == "2 A100, 1 T4"


def test_a_frontier_only_gets_better(found):
    for before, after in itertools.pairwise(found):
        for each in before:
            assert after.at(each.price_per_hour).iteration_s <= each.iteration_s
    assert [each.searches for each in found][-1] == found[-1].n_searches


def test_equal_seeds_and_steps_give_equal_frontiers(found, job):
    again = itertools.islice(stream_frontier(priced(), job, steps=STEPS, searches=6, seed=3), 3)
    for one, other in zip(again, found, strict=False):
        assert one.to_frame().equals(other.to_frame())


def test_the_plan_at_a_price_is_the_fastest_that_is_no_dearer(found):
    frontier = found[-1]
    for each in frontier:
        assert frontier.at(each.price_per_hour) is each
    assert frontier.at(math.inf) is frontier.fastest
    with pytest.raises(PlanError, match=r"no plan for \$0.001 an hour; wanted at least"):
        frontier.at(0.001)


def test_no_plan_of_a_frontier_is_below_its_bound(found):
    table = found[-1].to_frame()
    assert (table["lower_bound_s"] <= table["iteration_s"] * (1 + 1e-9)).all()
    prices = np.geomspace(0.4, 20, 40)
    bounds = [found[-1].lower_bound_s(float(price)) for price in prices]
    assert (np.diff(bounds) <= 0).all()


def test_a_budget_buys_no_more_flop_than_any_choice_of_devices_has(job):
    topology, job = priced(), job.with_fields(microbatch=1)
    bound = PriceBound.of(topology, job)
    speeds = np.array(speeds_of(job, topology.devices))
    prices = np.array([device.price_per_hour for device in topology.devices])
    for some in itertools.product([False, True], repeat=len(topology)):
        chosen = np.array(some)
        if chosen.any():
            assert bound.iteration_s(job.flop, prices[chosen].sum()) <= job.flop / speeds[chosen].sum() * (1 + 1e-9)


def test_batches_have_a_frontier_each(job):
    frontier = list(stream_frontier(priced(4), job, steps=1, searches=2, batches=[64, 32]))[-1]
    assert frontier.batches == (32, 64)
    table = frontier.to_frame()
    assert table["global_batch"].is_monotonic_increasing
    for batch, rows in table.groupby("global_batch"):
        assert (np.diff(rows["price_per_hour"]) < 0).all()
        assert len(frontier.of_batch(batch)) == len(rows)
    with pytest.raises(PlanError, match="wanted one, global_batch="):
        frontier.at(100)


def test_devices_without_a_price_count_as_free_and_are_named(job):
    topology = priced(prices=(0.0, 2.5, 1.0))
    frontier = list(stream_frontier(topology, job, steps=1, searches=3))[-1]
    assert frontier.note == "2 of 5 devices have no price and count as free: device-0, device-3"
    assert frontier.to_frame().attrs["note"] == frontier.note
    assert frontier.lower_bound_s(0.0) < math.inf


def test_a_network_without_prices_is_refused_with_what_would_help(job):
    with pytest.raises(PlanError, match=r"no device of .* has a price; wanted price_per_hour, or .*typical_prices"):
        stream_frontier(priced(prices=(0, 0, 0)), job)


@pytest.mark.parametrize("wrong", [{"searches": 1}, {"seed": -1}, {"steps": 0}, {"batches": []}])
def test_numbers_out_of_range_are_refused_before_the_first_search(job, wrong):
    with pytest.raises(PlanError):
        stream_frontier(priced(), job, **wrong)


def test_the_same_plans_twice_are_the_same_frontier(found):
    plans = found[-1].plans
    assert non_dominated([*plans[::-1], *plans[::-1]]) == plans


def test_ctrl_c_keeps_the_frontier_so_far(job):
    def interrupt(frontier):
        raise KeyboardInterrupt

    frontier = lab.frontier(priced(4), job, steps=1, searches=4, progress=interrupt)
    assert frontier.searches == 1
    assert len(frontier) == 1


def test_a_module_of_ones_own_is_priced_by_samples():
    tiny = lab.load_job("tiny", n_stages=2, n_replicas=2)
    own = tiny.with_fields(model=replace(tiny.model, source="own.py:module"), n_stages=None, n_replicas=None)
    for job, word in ((tiny, "tokens"), (own, "samples")):
        found = lab.frontier(priced(4), job, searches=2, steps=1)
        assert f"a billion {word})" in found.sentence
        assert f"a billion {word}" in lab.explain(found.fastest).text


def test_batches_are_a_list():
    for wrong in ("512", 512):
        with pytest.raises(PlanError, match=r"batches is .*512.*; wanted a list of global batches"):
            lab.frontier("volunteers", "tiny", batches=wrong, steps=1)
