"""The names that a user types: plans, simulations, and what is said of a plan that lacks memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dtfm_lab as lab
from dtfm_lab import files
from dtfm_lab.lab.plans import default_job

PLAN = lab.plan("lecture-hall", "tiny", steps=2)


def test_planning_on_real_networks_with_the_attached_model_simulates() -> None:
    plan = lab.plan("worldwide", "dtfm-gpt3-xl", steps=1)
    assert plan.job.given_gradient_bytes == 0.65e9
    assert lab.simulate(plan, schedule="1f1b").n_iterations == 1


def test_the_papers_preset_is_planned_for_communication_in_every_shape() -> None:
    job = lab.load_job("dtfm-gpt3-xl", n_stages=2, n_replicas=4)
    plan = lab.plan("lecture-hall", job, steps=1)
    assert (plan.objective, plan.job.given_gradient_bytes) == ("communication", None)
    assert lab.plan("lecture-hall", "tiny", steps=1).objective == "iteration"


def test_every_step_of_a_search_has_a_plan() -> None:
    steps = list(lab.search("lecture-hall", "tiny", planner="random", objective="communication", seed=3, steps=4))
    assert steps[-1].plan.cost.total_s == pytest.approx(steps[-1].best_s)
    assert steps[-1].plan.planner == "random"
    last = list(lab.search("lecture-hall", "tiny", planner="random", seed=3, steps=4))[-1]
    assert last.plan.objective == "iteration"
    assert last.plan.iteration_s == pytest.approx(last.best_s) == lab.simulate(last.plan).iteration_s


def test_without_a_job_a_network_gets_one_of_its_size() -> None:
    for name in files.topology_names():
        topology = lab.load_topology(name)
        n = len(topology)
        assert default_job(topology).name == ("small" if n <= 16 else "dtfm-gpt3-xl" if n == 64 else "gpt3-xl"), name


@pytest.mark.parametrize(
    ("n", "name"), [(16, "small"), (17, "gpt3-xl"), (63, "gpt3-xl"), (64, "dtfm-gpt3-xl"), (65, "gpt3-xl")]
)
def test_the_papers_job_is_for_networks_of_its_size_alone(n: int, name: str) -> None:
    assert default_job(lab.Topology.from_matrices(np.ones((n, n)), np.ones((n, n)))).name == name


def test_a_cluster_of_as_many_devices_as_the_papers_network_gets_an_open_job() -> None:
    links = np.ones((64, 64))
    hosts = [f"host-{i // 8}" for i in range(64)]
    for cluster in (
        lab.Topology.from_matrices(links, links, gpu="H100"),
        lab.Topology.from_matrices(links, links, gpu="V100", hosts=hosts),
    ):
        assert (default_job(cluster).name, default_job(cluster).shaped) == ("gpt3-xl", False)


@pytest.mark.parametrize("name", ["lecture-hall", "raspberry-pi", "volunteers", "worldwide"])
def test_without_a_job_a_plan_fits(name: str) -> None:
    plan = lab.plan(name, seconds=0.3)
    of_the_paper = plan.job.name == "dtfm-gpt3-xl"
    assert plan.objective == ("communication" if of_the_paper else "iteration")
    assert not (plan.idle_devices and name != "volunteers")
    assert of_the_paper or lab.memory(plan).fits


def test_a_schedule_is_a_name_a_noun_or_a_file(tmp_path: Path) -> None:
    job = PLAN.job
    named = lab.simulate(PLAN, "zb-h1")
    built = lab.schedules["zb-h1"](job.n_stages, job.n_microbatches)
    assert lab.simulate(PLAN, built).to_frame().equals(named.to_frame())
    for ending in ("txt", "csv"):
        path = lab.save(built, tmp_path / f"mine.{ending}")
        assert files.load_schedule(path).orders == built.orders
        for given in (path, str(path)):
            assert lab.simulate(PLAN, given).iteration_s == named.iteration_s
            assert lab.memory(PLAN, given).peak_bytes.tolist() == lab.memory(PLAN, "zb-h1").peak_bytes.tolist()
        assert lab.sweep(PLAN, schedule=[path, "zb-h1"])["iteration_s"].nunique() == 1
        assert lab.sweep(PLAN, schedule=path)["iteration_s"].tolist() == [named.iteration_s]


def test_another_job_keeps_the_placement_and_is_priced_anew() -> None:
    coded = lab.with_job(PLAN, compression="int8", synchronisation="ring")
    assert coded.placement.devices.tolist() == PLAN.placement.devices.tolist()
    assert (coded.job.compression, coded.job.synchronisation) == ("int8", "ring")
    assert coded.cost.total_s < PLAN.cost.total_s
    assert lab.with_job(PLAN).cost.total_s == pytest.approx(PLAN.cost.total_s, rel=1e-12)
    with pytest.raises(lab.LabError, match="2 stages x 4 replicas, the plan places 4 x 2"):
        lab.with_job(PLAN, n_stages=2, n_replicas=4)


def test_gains_come_one_by_one() -> None:
    gains = []
    table = lab.explain(PLAN).sensitivity("1f1b", what="compute", progress=gains.append)
    assert [gain.number for gain in gains] == list(range(1, len(table) + 1))
    assert sum(gain.of == "device" for gain in gains) == 8


def big() -> lab.Job:
    return lab.load_job("llama-3-8b", n_stages=4, n_replicas=2, global_batch=16, schedule="1f1b")


def test_a_plan_and_a_placement_that_do_not_fit_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING"):
        plan = lab.evaluate("lecture-hall", big(), stages=[[0, 1], [2, 3], [4, 5], [6, 7]])
    assert f"out of memory: {lab.memory(plan).sentence}; lab.memory(plan).advice says what would fit" in caplog.text


def test_what_fits_and_what_cannot_be_simulated_is_not_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING"):
        lab.plan("lecture-hall", "tiny", steps=1)
        lab.plan("lecture-hall", lab.Job.from_bytes(4, 2, 1e9, 1e9), steps=1)
    assert caplog.text == ""
