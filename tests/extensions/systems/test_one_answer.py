"""A plan and its row among the systems have the same seconds by default; the next column is of one network card."""

from __future__ import annotations

from pathlib import Path

import pytest

import dtfm_lab as lab
from dtfm_lab.domain.job import LEFT_TO_PLANNERS
from dtfm_lab.extensions.systems.api import Budget
from dtfm_lab.extensions.systems.outcomes import report_of
from dtfm_lab.planning import plan

HOME = Path(__file__).parents[2] / "data" / "home" / "home.yaml"


@pytest.mark.parametrize(("network", "job", "batch"), [("lecture-hall", "tiny", 32), (HOME, "gpt2-small", 32)])
def test_the_plan_and_its_row_have_the_same_seconds(network: str | Path, job: str, batch: int) -> None:
    topology = lab.load_topology(network)
    work = lab.load_job(job, global_batch=batch).freed(*LEFT_TO_PLANNERS)  # the row is of the open job
    if job == "tiny":
        planned = lab.plan(topology, work, steps=2, seed=3)
    else:  # without its lower bound, which takes most of the time
        planned = plan(topology, work, objective="iteration", steps=2, seed=3, improve_bound=False)
    (ours,) = lab.strategies(topology, work, systems=["dtfm-lab"], steps=2, seed=3)
    assert ours.iteration_s == planned.iteration_s


def test_a_row_says_what_the_job_fixes_for_the_plan_and_not_for_it() -> None:
    found = lab.strategies("lecture-hall", lab.load_job("tiny"), systems=["dtfm-lab"], steps=1)
    said = " ".join(str(part) for part in report_of(found, assumptions=False))
    assert "the job fixes 4 x 2 in micro-batches of 2, and lab.plan keeps that" in said


def test_seconds_with_one_network_card_are_those_of_the_same_plan() -> None:
    found = lab.strategies("lecture-hall", "tiny", systems=["megatron", "swarm"], steps=1)
    megatron, swarm = found["megatron"], found["swarm"]
    assert megatron.nics_s == lab.simulate(megatron.plan, queueing="nics").iteration_s
    assert swarm.nics_s == swarm.strategy.seconds(swarm.plan, Budget(steps=1, queueing="nics"))
    assert lab.strategies("lecture-hall", "tiny", systems=["swarm"], queueing="nics")["swarm"].caveat == ""


def test_a_system_that_sends_to_many_at_once_comes_with_a_warning() -> None:
    found = lab.strategies("worldwide", "gpt3-xl", systems=["swarm"])
    swarm = found["swarm"]
    assert swarm.nics_s > 1.1 * swarm.iteration_s
    assert "if each device had one network card" in swarm.caveat
    assert swarm.caveat in found.sentence
    assert any(swarm.caveat in str(part) for part in report_of(found, assumptions=False))
