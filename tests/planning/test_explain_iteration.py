"""An explanation of seconds: its parts add up to the iteration, and it names what binds."""

import json

import numpy as np
import pytest

import dtfm_lab as lab
from dtfm_lab.domain.errors import PlanError, UnknownName
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Device, Topology
from dtfm_lab.planning import Difference, evaluate, explain, plan, simulated


def network(gpus, gbps=10.0, ms=1.0, name="few", **fields):
    n = len(gpus)
    devices = tuple(Device(name=f"{gpu}-{i}".lower(), gpu=gpu, **fields) for i, gpu in enumerate(gpus))
    links = np.full((n, n), 1.0)
    return Topology(devices, links * ms / 1e3, links * gbps * 1e9 / 8, name=name)


@pytest.fixture(scope="module")
def job():
    return lab.load_job("gpt3-xl", global_batch=16)


def placed(topology, job, stages, **chosen):
    fields = {"n_stages": len(stages), "n_replicas": len(stages[0]), "microbatch": 1, "schedule": "1f1b"} | chosen
    given = evaluate(topology, job.with_fields(**fields), stages=stages)
    return simulated(given.changed(objective="iteration"))


@pytest.mark.parametrize("stages", [[[0], [1], [2]], [[0, 1], [2, 3]], [[0, 1, 2, 3]]])
def test_the_parts_of_an_explanation_add_up_to_the_iteration(job, stages):
    explained = explain(placed(network(["A100", "H100", "A10", "A100"]), job, stages)).iteration
    assert sum(explained.by_class.values()) == pytest.approx(explained.iteration_s)
    assert explained.iteration_s == explained.plan.iteration_s
    table = explained.devices.dropna(subset="stage")
    idle = table[[c for c in table.columns if c.endswith("_s") and c not in ("busy_s", "critical_s")]].sum(axis=1)
    assert (table["busy_s"] + idle).to_numpy() == pytest.approx(explained.iteration_s)
    assert (table["critical_s"] <= table["busy_s"] + 1e-9).all()


def test_a_slow_device_binds_and_is_named(job):
    explained = explain(placed(network(["A100", "T4", "A100"]), job, [[0], [1], [2]]))
    assert explained.iteration.binds == "device"
    assert "of the critical path. t4-1 (T4, stage 1;" in explained.text
    assert "It computes for" in explained.why("t4-1")


def test_the_least_busy_device_is_named_only_where_it_stands_out(job):
    assert "computes least" in explain(placed(network(["A100", "T4"]), job, [[0], [1]])).text
    alike = explain(placed(network(["A100", "A100"], gbps=0.05), job, [[0, 1]]))
    assert "The devices compute" in alike.text
    assert "computes least" not in alike.text


def test_slow_links_bind_and_one_of_them_is_named(job):
    many = job.with_fields(global_batch=128)  # so that the messages outweigh the averaging of the tied embedding
    explained = explain(placed(network(["A100", "A100"], gbps=0.01), many, [[0], [1]]))
    assert explained.iteration.binds == "link"
    assert "Messages are the bottleneck" in explained.text
    assert "a100-0 → a100-1" in explained.text or "a100-1 → a100-0" in explained.text


def test_averaging_over_slow_links_binds(job):
    explained = explain(placed(network(["A100", "A100"], gbps=0.05), job, [[0, 1]]))
    assert explained.iteration.binds == "synchronisation"
    assert "Averaging the gradients of replicas is the bottleneck" in explained.text


ALONE = "alone twice as fast would save next to nothing."


def test_what_is_named_is_said_to_save_nothing_alone_where_it_does(job):
    """Four equal replicas: each is on some critical path. With one slow replica, that one is worth improving."""
    alike = explain(placed(network(["A100"] * 4, gbps=1000), job, [[0, 1, 2, 3]]))
    assert alike.iteration.binds == "device"
    assert alike.iteration.alone_saves < 0.01
    assert ALONE in alike.text
    slow = explain(placed(network(["A100", "A100", "T4", "A100"], gbps=1000), job, [[0, 1, 2, 3]]))
    assert slow.iteration.alone_saves > 0.2
    assert ALONE not in slow.text


def test_a_links_worth_alone_is_what_the_sensitivity_says(job):
    many = job.with_fields(global_batch=128)
    for stages in ([[0], [1]], [[0, 1], [2, 3]], [[0, 1, 2, 3]]):
        explained = explain(placed(network(["A100"] * 4, gbps=0.01), many, stages))
        assert explained.iteration.binds != "device"
        ends = {*explained.iteration.bottleneck.name.split(" -> ")}
        table = explained.sensitivity(factor=2.0, what=["bandwidth", "latency"])
        links = table[table["of"] == "link"]
        own = links[[{*name.split(" - ")} == ends for name in links["name"]]]
        assert explained.iteration.alone_saves == pytest.approx(-own["change"].sum())
        assert (ALONE in explained.text) == (own["change"].sum() > -0.01)


def test_memory_that_is_nearly_full_is_said(job):
    roomy = placed(network(["A100"] * 2), job, [[0], [1]])
    assert "Memory is tight" not in explain(roomy).text
    needs = float(lab.memory(roomy).peak_bytes.max())
    text = explain(placed(network(["A100"] * 2, memory_bytes=needs / 0.95), job, [[0], [1]])).text
    assert "(95.0 %). Above 90 %, the allocator may thrash" in text
    assert "Memory does not limit the plan" not in text


def test_memory_that_forbids_a_faster_plan_is_said_with_what_it_forbids(job):
    topology = network(["A100", "A100", "A100"], gbps=2.0, ms=20.0, memory_bytes=40e9, peak_flop_per_s=3e14)
    free = placed(topology, job, [[0], [1], [2]], schedule="adaptive-1f1b", warmups=(2, 1, 0))
    explained = explain(free)
    assert explained.iteration.forbidden is None
    assert "Memory does not limit the plan" in explained.text
    held = lab.memory(free).peak_bytes.max()
    tight = network(["A100"] * 3, gbps=2.0, ms=20.0, memory_bytes=float(held + 1), peak_flop_per_s=3e14)
    explained = explain(placed(tight, job, [[0], [1], [2]], schedule="adaptive-1f1b", warmups=(2, 1, 0)))
    assert explained.iteration.forbidden is not None
    assert explained.iteration.forbidden.iteration_s < explained.iteration.iteration_s
    assert "with one more warm-up forward on every device it would take" in explained.text


def test_what_does_not_fit_is_said(job):
    explained = explain(placed(network(["T4", "T4"]), job, [[0], [1]], schedule="gpipe"))
    assert "It does not fit:" in explained.text


def test_an_idle_device_is_idle(job):
    explained = explain(placed(network(["A100", "T4"]), job, [[0]]))
    assert explained.why("t4-1").startswith("t4-1 is idle.")
    assert "1 of 2 devices in use; idle: t4-1." in explained.text


def test_a_plan_for_the_communication_cost_is_explained_as_before(job):
    by_cost = plan(network(["A100"] * 4), Job.from_bytes(2, 2, 1e8, 1e7), steps=1)
    explained = explain(by_cost)
    assert "costs" in explained.text.splitlines()[0]
    assert "critical path" not in explained.text
    assert explained.summary()["iteration"] is None
    with pytest.raises(PlanError, match="no model to simulate"):
        _ = explained.iteration


def test_an_explanation_is_plain_json_and_has_tables(job):
    explained = explain(placed(network(["A100", "T4", "A100"]), job, [[0], [1]]))
    data = json.loads(json.dumps(explained.summary()))
    assert data["iteration"]["binds"] == "device"
    assert set(explained.to_frame("critical")["by"]) == {"what", "device", "link"}
    assert len(explained.to_frame("iteration")) == 3
    with pytest.raises(UnknownName, match="iteration"):
        explained.to_frame("seconds")


def test_the_difference_of_two_plans_names_what_of_the_critical_path_changed_most(job):
    topology = network(["A100", "A100", "laptop", "A100"])
    slow, fast = placed(topology, job, [[0, 1], [2, 3]]), placed(topology, job, [[0], [1]])
    assert "On the critical path, computations took" in Difference(slow, fast).text
    assert ", most on laptop-2; now they take" in Difference(slow, fast).text
    topology = network(["H100"] * 4, gbps=0.2)
    many = job.with_fields(global_batch=128)
    spread, alone = placed(topology, many, [[0], [1], [2], [3]]), placed(topology, many, [[0]])
    assert "On the critical path, messages took" in Difference(spread, alone).text
    assert "now they take 0 s" in Difference(spread, alone).text
    assert "On the critical path" not in Difference(alone, alone).text


def test_an_explanation_names_the_choices_of_a_job():
    job = Job(model=lab.load_job("tiny").model, n_stages=2, n_replicas=1, global_batch=8, microbatch=1)
    chosen = job.with_fields(attention="unfused", checkpointing="block", gradient_dtype="fp32")
    devices = network(["A100", "A100"])
    assert "It uses checkpointing block, attention unfused and gradient_dtype fp32." in (
        explain(placed(devices, chosen, [[0], [1]])).text
    )
    jobs = (job, job.with_fields(transport="blocking"))
    plain, blocking = (explain(placed(devices, one, [[0], [1]])).text for one in jobs)
    assert "It uses" not in plain
    assert "Sends block" not in plain
    assert "Sends block (transport blocking)" in blocking
