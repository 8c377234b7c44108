"""The names that a user types."""

from __future__ import annotations

import pytest

import dtfm_lab as lab
from dtfm_lab.lab.plans import default_job


@pytest.mark.parametrize(
    ("name", "optimum_s"),
    [
        ("datacenter", 3.439799),
        ("universities", 16.086840),
        ("regional", 34.802041),
        ("worldwide", 49.218380),
        ("spot", 31.634160),
    ],
)
def test_the_published_cases_are_planned_to_their_proven_optimum(name: str, optimum_s: float) -> None:
    plan = lab.plan(lab.load_topology(name), lab.load_job("dtfm-gpt3-xl"), planner="evolutionary", seed=0, seconds=5)
    assert plan.cost.total_s == pytest.approx(optimum_s, abs=1e-6)
    assert plan.lower_bound_s <= plan.cost.total_s * (1 + 1e-12)


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
    for name in lab.topology_names():
        topology = lab.load_topology(name)
        n = len(topology)
        assert default_job(topology).name == ("small" if n <= 16 else "dtfm-gpt3-xl" if n == 64 else "gpt3-xl"), name


@pytest.mark.parametrize("name", ["lecture-hall", "raspberry-pi", "volunteers", "worldwide"])
def test_without_a_job_a_plan_fits(name: str) -> None:
    plan = lab.plan(name, steps=1)
    of_the_paper = plan.job.name == "dtfm-gpt3-xl"
    assert plan.objective == ("communication" if of_the_paper else "iteration")
    assert not (plan.idle_devices and name != "volunteers")
    assert of_the_paper or lab.memory(plan).fits


def test_a_loaded_job_takes_overrides_of_any_field() -> None:
    job = lab.load_job("gpt3-xl", n_stages=4, n_replicas=16, global_batch=512, microbatch=2, dtype="bf16")
    assert (job.n_microbatches, job.n_tasklets) == (16, 64)
    with pytest.raises(lab.LabError, match="no job field named 'n_stage'; did you mean 'n_stages'"):
        lab.load_job("gpt3-xl", n_stage=4)


def test_plans_and_traces_survive_their_files(tmp_path) -> None:
    plan = lab.plan("lecture-hall", "tiny", steps=3)
    trace = lab.simulate(plan)
    again = lab.load_plan(lab.save(plan, tmp_path / "plan.json"))
    assert again.summary() == plan.summary()
    assert lab.simulate(again).iteration_s == trace.iteration_s
    same = lab.load_trace(lab.save(trace, tmp_path / "trace.json"))
    assert same.to_frame().equals(trace.to_frame())
    assert lab.compare(trace, same).iteration_error == 0
