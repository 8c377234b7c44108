"""The planner over degrees of tensor parallelism and shardings, and plans of each."""

from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from dtfm_lab.domain.errors import JobError, PlanError
from dtfm_lab.domain.job import Job, gpt
from dtfm_lab.domain.network import Topology
from dtfm_lab.planning.evaluate import evaluate
from dtfm_lab.planning.iteration.bounds import iteration_bound_steps
from dtfm_lab.planning.iteration.problem import IterationProblem
from dtfm_lab.planning.iteration.structured.layouts import choices_of
from dtfm_lab.planning.search import plan, search
from dtfm_lab.simulation.memory import memory
from dtfm_lab.simulation.simulate import simulate

MODEL = gpt(name="a small one", n_layers=4, d_model=1024, n_heads=4, seq_len=512, vocab_size=1000)


def hosts(n_hosts: int = 2, per_host: int = 4, memory_gib: float = 4.0, price: float = 1.0) -> Topology:
    host = np.arange(n_hosts * per_host) // per_host
    same = host[:, None] == host[None, :]
    return Topology.from_matrices(
        latency_s=np.where(same, 1e-6, 1e-5),
        bandwidth_bytes_per_s=np.where(same, 300e9, 2e9),
        hosts=[f"host-{i}" for i in host],
        gpu="A100",
        memory_gib=memory_gib,
        price_per_hour=price,
    )


def job_of(**fields: object) -> Job:
    given = {"global_batch": 32, "microbatch": 1, "dtype": "bf16", "tensor_parallel": None, "sharding": None}
    return Job(model=MODEL, **given | fields)


def test_a_job_that_leaves_both_open_has_every_degree_and_sharding_that_its_hosts_and_heads_allow():
    found = {(job.tensor_parallel, job.sharding) for _, job in choices_of(hosts(per_host=8), job_of())}
    assert found == {(t, how) for t in (1, 2, 4) for how in ("none", "zero-1", "zero-2", "zero-3")}
    assert {job.sharding for _, job in choices_of(hosts(), job_of(n_replicas=1))} == {"none"}
    assert {job.tensor_parallel for _, job in choices_of(hosts(), job_of(tensor_parallel=2))} == {2}


@cache
def seconds_of_every_choice() -> list[float]:
    options = {"objective": "iteration", "steps": 1, "improve_bound": False}
    return [plan(network, job, **options).iteration_s for network, job in choices_of(hosts(), job_of())]


@pytest.mark.parametrize("objective", ["iteration", "price"])
def test_the_planner_chooses_both_and_its_bound_holds_for_every_choice(objective):
    network = hosts()
    found = plan(network, job_of(), objective=objective, steps=2)
    job = found.job
    assert job.tensor_parallel in (1, 2, 4)
    assert job.sharding in ("none", "zero-1", "zero-2", "zero-3")
    assert found.iteration_s == simulate(found).iteration_s
    assert memory(found).fits
    fixed_s = seconds_of_every_choice()
    assert found.iteration_lower_bound_s <= min(fixed_s) * (1 + 1e-9)
    if objective == "iteration":
        assert found.iteration_s <= min(fixed_s) * 1.05


def test_steps_show_the_best_plan_of_any_choice():
    steps = list(search(hosts(), job_of(), objective="iteration", steps=1))
    assert all(later.best_s <= earlier.best_s for earlier, later in pairwise(steps))
    assert all(step.bound_s <= step.best_s for step in steps)
    assert [step.generation for step in steps] == sorted(step.generation for step in steps)


def test_memory_that_only_shards_fit_leaves_a_sharding():
    # 16 bytes for each of 53 million parameters are 0.8 GiB
    tight = hosts(n_hosts=1, memory_gib=0.55)
    found = plan(tight, job_of(tensor_parallel=1, n_stages=1, recompute=True), objective="iteration", steps=1)
    assert found.job.sharding != "none"
    assert memory(found).fits


def test_without_a_planner_nothing_is_sharded_and_the_degree_is_that_of_the_network():
    placed = evaluate(hosts().grouped(2), job_of(n_stages=2), stages=[[0, 1], [2, 3]])
    assert (placed.job.tensor_parallel, placed.job.sharding) == (2, "none")


@pytest.mark.parametrize("sharding", ["zero-1", "zero-2", "zero-3"])
@pytest.mark.parametrize("degree", [1, 2])
def test_a_bound_is_below_every_plan_of_a_choice(sharding, degree):
    network = hosts().grouped(degree)
    job = job_of(tensor_parallel=degree, sharding=sharding, schedule="1f1b")
    bound_s = max(iteration_bound_steps(IterationProblem.of(network, job), 1e9))
    n = len(network)
    for n_stages in (1, 2, 4):
        grid = np.arange(n).reshape(n_stages, -1) if n % n_stages == 0 else np.empty((0, 0))
        if grid.size:
            assert bound_s <= simulate(evaluate(network, job, stages=grid.tolist())).iteration_s


def test_what_fits_with_no_choice_is_refused_in_one_line():
    with pytest.raises(PlanError, match="fits no plan on"):
        plan(hosts(memory_gib=0.01), job_of(), objective="iteration", steps=1)


def test_a_batch_too_small_for_the_replicas_is_refused_in_one_line():
    with pytest.raises(JobError, match="4 micro-batches of 1, too few for 8 replicas; wanted 8 or more"):
        plan(
            hosts(per_host=8), job_of(n_stages=1, n_replicas=8, global_batch=4, microbatch=None), objective="iteration"
        )
