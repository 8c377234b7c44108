"""Advice holds together: what is left open is open, one search answers every question, words say of what."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pinned_jobs import pinned_job

import dtfm_lab as lab
from dtfm_lab import files
from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.units import format_s
from dtfm_lab.planning import plan
from dtfm_lab.planning.explain.worth import freed

HOME = Path(__file__).parents[1] / "data" / "home"
"""Networks of a reader: three unlike GPUs at home, one or two rented, and workers of one machine."""
MOST_S = {"home": 47.0, "shared": 13.5}


@pytest.fixture(scope="module")
def job():
    return lab.load_job("llama-3-8b", global_batch=32, seq_len=2048)


@pytest.fixture(scope="module", params=MOST_S)
def planned(request, job):
    return without_bound(lab.load_topology(HOME / f"{request.param}.yaml"), job, steps=4)


def without_bound(topology: Topology, job: Job, **options: Any) -> lab.Plan:
    """Return the plan of ``lab.plan`` without its lower bound, which takes longer than the search for the plan."""
    return plan(topology, job, objective="iteration", improve_bound=False, **options)


def alone(n: int = 4, gib: float = 80.0) -> Topology:
    links = np.ones((n, n))
    return Topology.from_matrices(1e-2 * links, 100 * links, gpu=["A100"] * n, memory_gib=[gib] * n)


def test_checkpointing_is_searched_where_the_job_leaves_it_open(planned, job):
    name = {"my-home": "home", "my-home-one-router": "shared"}[planned.topology.name]
    assert planned.iteration_s <= MOST_S[name]
    assert "checkpointing" in planned.left_open
    for how in ("none", "block", "stage"):
        named = without_bound(planned.topology, job.with_fields(checkpointing=how), steps=4)
        assert named.job.checkpoints == how
        assert named.iteration_s >= planned.iteration_s * (1 - 1e-9)


def test_a_job_that_fits_nowhere_is_refused_with_every_checkpointing(job):
    with pytest.raises(PlanError, match=r"fits no plan on loopback-3: wanted .*; however it checkpoints it needs some"):
        lab.plan(lab.load_topology(HOME / "p1.yaml"), job, steps=1)


def test_a_refusal_says_what_would_fit(job):
    home = lab.load_topology(HOME / "home.yaml")
    with pytest.raises(PlanError, match=r"checkpointing left open would fit, with checkpointing block"):
        lab.plan(home, job.with_fields(checkpointing="none", microbatch=4), steps=1)


def test_the_bound_names_the_plans_that_it_is_for():
    pinned = lab.plan(alone(), pinned_job("gpt3-xl", n_stages=2, n_replicas=2, global_batch=8), steps=1)
    assert pinned.pinned == ("2 x 2", "micro-batches of 1")
    assert "faster with any plan of 2 x 2, micro-batches of 1" in repr(pinned)
    assert "of 2 x 2, micro-batches of 1" in lab.explain(pinned).text
    anything = lab.plan(alone(), lab.load_job("gpt3-xl", global_batch=8), steps=1)
    assert (anything.pinned, anything.scope) == ((), "any plan")


@pytest.mark.parametrize("schedule", ["zb-h1", "gpipe"])
@pytest.mark.parametrize("steps", [1, 3])
def test_a_plan_for_a_schedule_is_no_slower_than_the_open_plan_under_it(schedule, steps):
    job = lab.load_job("gpt3-xl", n_stages=4, n_replicas=1, global_batch=4)
    free, named = (without_bound(alone(), one, steps=steps) for one in (job, job.with_fields(schedule=schedule)))
    assert named.iteration_s <= lab.simulate(free, schedule).iteration_s * (1 + 1e-9)


@pytest.mark.parametrize("transport", ["batched", "blocking"])
@pytest.mark.parametrize("queueing", ["pairs", "nics"])
def test_no_plan_is_slower_than_replicas_on_equal_devices(transport, queueing):
    campus = lab.load_topology("campus")
    some = [d for d, device in enumerate(campus.devices) if device.gpu in ("RTX A6000", "RTX 3090")]
    kept = [d for gpu in ("RTX A6000", "RTX 3090") for d in [d for d in some if campus.devices[d].gpu == gpu][:3]]
    network = campus.subset(kept)
    job = lab.load_job("gpt3-xl", transport=transport, global_batch=24)
    found = without_bound(network, job, steps=1, queueing=queueing)
    for gpu in ("RTX A6000", "RTX 3090"):
        names = [device.name for device in network.devices if device.gpu == gpu]
        each = job.with_fields(n_stages=1, n_replicas=3, schedule="1f1b")
        simple = lab.evaluate(network, each, stages=[names])
        if lab.memory(simple).fits:
            seconds = lab.simulate(simple, queueing=queueing).iteration_s
            assert found.iteration_s <= seconds * (1 + 1e-9)


def test_what_the_job_names_is_said_with_what_freeing_it_gives():
    hall = lab.load_topology("lecture-hall")
    slow = np.array([[1.0 if "ada" in (a, b) else 100.0 for a in hall.names] for b in hall.names])
    hall = Topology(hall.devices, hall.latency_s, hall.bandwidth_bytes_per_s * slow / 100, name="one left the hall")
    pinned = without_bound(hall, lab.load_job("tiny"), steps=2)
    assert pinned.scope == "any plan of 4 x 2, micro-batches of 2"
    other = freed(pinned, steps=2)
    assert other.iteration_s < pinned.iteration_s / 2
    everything = lab.load_job("tiny", n_stages=None, n_replicas=None, microbatch=None)
    assert freed(without_bound(hall, everything, steps=1)) is None


def test_a_plan_file_keeps_what_its_search_chose_and_older_ones_are_read(tmp_path, planned):
    files.save_plan(planned, tmp_path / "plan.json")
    assert files.load_plan(tmp_path / "plan.json").left_open == planned.left_open
    data = files.plan_to_mapping(planned)
    del data["left_open"]
    older = files.plan_from_mapping(data)
    assert older.left_open is None
    assert "any plan that its search allowed" in repr(older)


def test_a_difference_speaks_of_the_seconds_that_were_planned(job):
    before, after = (without_bound(lab.load_topology(HOME / f"{name}.yaml"), job, steps=2) for name in MOST_S)
    difference = lab.compare(before, after)
    assert (
        f"The iteration fell from {format_s(before.iteration_s)} to {format_s(after.iteration_s)}." in difference.text
    )
    assert "1 device changed stage (spot)" in difference.text
    assert "checkpointing block to none" in difference.text
    assert difference.parts.loc["iteration", "after_s"] == after.iteration_s
    turned = lab.compare(after, lab.evaluate(after.topology, after.job, stages=after.stages[::-1]))
    assert "2 devices changed stage (spot and spot2)" in turned.text


def test_names_of_jobs_and_models_are_known_in_any_case():
    assert lab.load_job("Llama-3-8B") == lab.load_job("llama-3-8b")
    assert lab.load_job("tiny", model="GPT2-Small").model == lab.load_job("tiny", model="gpt2-small").model


def test_advice_on_memory_knows_every_checkpointing_that_a_plan_may_have():
    job = lab.load_job("tiny", model="gpt2-small", global_batch=8, microbatch=4, n_stages=1, n_replicas=1, dtype="fp16")
    job = job.with_fields(schedule="1f1b")
    needs = {
        how: int(lab.memory(lab.evaluate(alone(1), job.with_fields(checkpointing=how), stages=[[0]])).peak_bytes.max())
        for how in ("block", "stage")
    }
    assert needs["block"] < needs["stage"]
    tight = alone(1, sum(needs.values()) / 2 / 2**30)
    assert "with checkpointing block" in lab.memory(lab.evaluate(tight, job, stages=[[0]])).advice
    assert without_bound(tight, job, steps=1).job.checkpoints in ("selective", "block")
