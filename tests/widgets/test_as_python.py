"""The code that is copied does what the screen shows: it is run, and the numbers are laid side by side."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dtfm_lab as lab
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan

pytest.importorskip("anywidget", reason="needs the lab extra")

from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.shell.as_python import cells
from dtfm_lab.widgets.shell.python_expressions import job_code, plan_code, topology_code
from dtfm_lab.widgets.what_if.answer import Answer
from dtfm_lab.widgets.what_if.pins import Pin
from dtfm_lab.widgets.what_if.setting import WhatIfSetting


def ran(code: list[str]) -> dict[str, Any]:
    """The namespace that the cells leave."""
    names: dict[str, Any] = {}
    for cell in code:
        exec(compile(cell, "cell", "exec"), names)
    return names


def made(imports: tuple[str, ...], text: str, **given: Any) -> Any:
    names = {"lab": lab, **given}
    exec("\n".join(imports), names)
    return eval(text, names)


def irregular(n: int) -> Topology:
    """No two links alike, and none a round number of milliseconds."""
    rng = np.random.default_rng(3)
    latency_s, bandwidth = rng.uniform(1e-3, 0.1, (n, n)), rng.uniform(1e6, 1e9, (n, n))
    devices = tuple(lab.Device(name=f"it's {i}", region=f"r{i % 2}", price_per_hour=i / 3) for i in range(n))
    sizes, pairs = np.array([1.0, 1e6]), np.full((n, n, 2), np.nan)
    pairs[0, 1] = 0.01, 1 / 3
    return Topology(devices, latency_s, bandwidth, name="odd", message_bytes=sizes, message_s=pairs)


@pytest.mark.parametrize(
    "topology",
    [
        lab.load_topology("worldwide"),
        lab.load_topology("lecture-hall").with_link("ada", "grace", latency_s=0.07, one_way=True),
        lab.load_topology("regional").scaled(latency=1 / 3, bandwidth=0.7),
        irregular(5),
        lab.Topology.from_matrices([[0, 5], [5, 0]], [[0, 1], [1, 0]]),
    ],
    ids=["by name", "one link edited", "scaled", "irregular and measured", "two"],
)
def test_a_network_comes_back_with_its_fingerprint(topology: Topology) -> None:
    code = topology_code(topology)
    assert made(code.imports, code.text).fingerprint == topology.fingerprint


def test_a_network_of_the_lab_is_loaded_by_name_until_it_is_edited() -> None:
    topology = lab.load_topology("lecture-hall")
    assert topology_code(topology).text == "lab.load_topology('lecture-hall')"
    assert "load_topology" not in topology_code(topology.scaled(latency=2)).text


@pytest.mark.parametrize(
    "job",
    [
        lab.load_job("tiny"),
        lab.load_job("gpt3-xl", n_stages=4, n_replicas=2, global_batch=64, microbatch=2, compression="int8"),
        lab.load_job("tiny", seq_len=32),
        lab.load_job("small", model="tiny", recompute=True),
        lab.load_job("dtfm-gpt3-xl", gradient_bytes=1e6, activation_bytes=2e6),
        replace(lab.load_job("tiny"), name="mine", dtype="fp32"),
        lab.load_job("tiny", name="mine", seq_len=16),
        Job.from_bytes(2, 2, 1e6, 1e5),
    ],
    ids=lambda job: job.name,
)
def test_a_job_comes_back_equal(job: Job) -> None:
    code = job_code(job)
    assert made(code.imports, code.text) == job


def test_a_model_that_has_no_name_is_written_out() -> None:
    job = lab.load_job("tiny")
    *others, last = job.model.layers
    wider = replace(last, parameters=last.parameters + 1, forward_flop=last.forward_flop / 3)
    odd = replace(job, model=replace(job.model, name="odd", layers=(*others, wider)))
    code = job_code(odd)
    assert made(code.imports, code.text) == odd


@pytest.mark.parametrize("objective", ["communication", "iteration"])
def test_a_search_that_finds_the_plan_again_is_written_as_a_search(objective: str) -> None:
    topology, job = lab.load_topology("lecture-hall"), lab.load_job("tiny")
    plan = lab.plan(topology, job, objective=objective, seed=7, steps=4)
    code = plan_code(plan, 30, job)
    assert code.startswith(f"lab.plan(topology, job, objective='{objective}', planner='evolutionary', seed=7, steps=")
    again = made((), code, topology=topology, job=job)
    assert again.placement.devices.tolist() == plan.placement.devices.tolist()
    assert (again.job, again.iteration_s) == (plan.job, plan.iteration_s)


def test_a_plan_that_no_search_finds_is_written_as_its_placement() -> None:
    topology, job = lab.load_topology("lecture-hall"), lab.load_job("tiny")
    plan = lab.plan(topology, job, planner="random", seed=0, steps=1)
    for kept in (
        replace(plan, seed=99),  # another seed is not how it was found
        lab.evaluate(topology, job, rank_map=list(reversed(range(8)))),
    ):
        code = plan_code(kept, search_s=0)
        assert code.startswith("lab.evaluate(")
        again: Plan = made((), code, topology=topology, job=job)
        assert again.placement.devices.tolist() == kept.placement.devices.tolist()
        assert again.cost.total_s == kept.cost.total_s


def a_lab_state() -> LabState:
    topology = lab.load_topology("lecture-hall").with_link("ada", "grace", latency_s=0.07, one_way=True)
    lab_state = LabState()
    lab_state.topology, lab_state.job = topology, lab.load_job("tiny", global_batch=32)
    lab_state.plan = lab.plan(topology, lab_state.job, seed=1, steps=3)
    lab_state.schedule, lab_state.queueing, lab_state.choices = (
        "1f1b",
        "cards",
        {"compression": "int8", "recompute": False},
    )
    lab_state.predicted = lab.simulate(lab_state.chosen_plan, "1f1b", queueing="cards")
    return lab_state


def test_the_cells_give_the_numbers_of_the_screen() -> None:
    lab_state = a_lab_state()
    base = WhatIfSetting.of(lab_state.chosen_plan, lab_state.schedule, lab_state.queueing)
    turned = base.with_values(bandwidth=0.5, latency=2.0, global_batch=64, schedule="zb-h1", compression="none")
    pins = [Pin("it's the plan", base), Pin("int8 no more", base.with_values(compression="none"))]
    names = ran(cells(lab_state, what_if=turned, pins=pins))
    assert names["plan"].cost.total_s == pytest.approx(lab_state.plan.cost.total_s, rel=1e-9)
    assert names["predicted"].iteration_s == pytest.approx(lab_state.predicted.iteration_s, rel=1e-9)
    answer = Answer.of(lab_state.plan, turned)
    assert names["answer"].iteration_s == pytest.approx(answer.iteration_s, rel=1e-9)
    assert names["what_if"].cost.total_s == pytest.approx(answer.communication_s, rel=1e-9)
    for pin in pins:
        wanted = Answer.of(lab_state.plan, pin.setting).iteration_s
        assert names["pinned"][pin.name].iteration_s == pytest.approx(wanted, rel=1e-9)


def test_there_are_as_many_cells_as_there_is_to_tell() -> None:
    lab_state = LabState()
    assert cells(lab_state) == ["import dtfm_lab as lab"]
    lab_state.topology = lab.load_topology("lecture-hall")
    assert len(cells(lab_state)) == 1
    lab_state = a_lab_state()
    base = WhatIfSetting.of(lab_state.chosen_plan, lab_state.schedule, lab_state.queueing)
    assert len(cells(lab_state, what_if=base)) == 3, "what is turned to is what the lab is turned to"
    lab_state.topology = lab_state.topology.scaled(latency=2.0)
    drawn = ran([*cells(lab_state)[:2], cells(lab_state)[-1]])["drawn"]
    assert drawn.fingerprint == lab_state.topology.fingerprint, "what was drawn since stands at the end"


def test_a_run_its_comparison_and_its_refit_are_cells_that_run() -> None:
    pytest.importorskip("torch")
    lab_state = LabState()
    lab_state.topology, lab_state.job = lab.load_topology("lecture-hall"), lab.load_job("tiny")
    lab_state.plan = lab.evaluate(
        lab_state.topology, lab_state.job, stages=[["ada", "grace"], ["edsger", "barbara"]][:1]
    )
    lab_state.job = lab_state.plan.job
    lab_state.measured = lab.run(lab_state.plan, "1f1b", iterations=2)
    lab_state.predicted = lab.simulate(lab_state.plan, like=lab_state.measured)
    lab_state.comparison = lab.compare(lab_state.predicted, lab_state.measured)
    code = cells(lab_state, run={"text": None, "sample_bytes": 0, "evaluate_every": 2})
    assert "evaluate_every=2" in code[3]
    assert "text" not in code[3], "what is as usual need not be said"
    names = ran(code)
    for what in ("clock", "schedule", "queueing", "n_microbatches", "devices", "topology_fingerprint"):
        assert getattr(names["measured"].context, what) == getattr(lab_state.measured.context, what)
    assert names["measured"].n_iterations == 2
    assert names["comparison"].predicted_iteration_s == names["predicted"].iteration_s
    assert names["refit"].sentence
