"""Why a system is slower: what is taken away is simulated, what must not slow it does not, and the steps add up."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dtfm_lab as lab
from dtfm_lab.extensions.systems import ablations
from dtfm_lab.extensions.systems.ablations import stream_ablations
from dtfm_lab.extensions.systems.api import Budget, Outcome, outcome_of, strategies, stream_why, variant
from dtfm_lab.extensions.systems.outcome import GATHERING, causes_of
from dtfm_lab.simulation.memory import memory

NETWORK = lab.load_topology("lecture-hall")
JOB = lab.load_job("tiny", global_batch=32)
BUDGET = Budget(steps=1, queueing="pairs")
NEVER_SLOWER = ("transport", "nics", "latency", "bandwidth", "messages", "compute", "averaging", "inner")
"""Where the order of messages is fixed, less to wait for never delays: every action starts at the latest of others."""


def of_job(plan: lab.Plan, **fields) -> Outcome:
    """The plan, with other fields of its job, as an outcome."""
    plan = lab.with_job(plan, **fields)
    return Outcome(strategy=strategies["dtfm-lab"](), budget=BUDGET, found=plan)


@pytest.fixture(scope="module")
def outcomes() -> lab.systems.Outcomes:
    return lab.strategies(NETWORK, JOB, systems=["megatron", "dtfm-lab"], steps=1)


@pytest.fixture(scope="module")
def found(outcomes):
    return lab.explain(outcomes["megatron"], outcomes)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from([(1, 4), (2, 2), (4, 1), (2, 4)]),
    st.sampled_from(["gpipe", "1f1b"]),
    st.sampled_from(["overlapped", "batched", "blocking"]),
    st.floats(0.01, 100),
    st.floats(0, 100),
    st.randoms(use_true_random=False),
)
def test_less_to_wait_for_is_never_slower(shape, schedule, transport, bandwidth, latency, random) -> None:
    network = NETWORK.scaled(latency=latency, bandwidth=bandwidth)
    devices = random.sample(network.names, shape[0] * shape[1])
    stages = [devices[i :: shape[0]] for i in range(shape[0])]
    job = JOB.with_fields(n_stages=shape[0], n_replicas=shape[1], schedule=schedule, transport=transport)
    plan = lab.evaluate(network, job, stages=stages)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ablations, "placements", lambda *_: ())  # two searches, which this law is not about
        for one in stream_ablations(of_job(plan)):
            if one.name in NEVER_SLOWER:
                assert one.iteration_s <= one.before_s * (1 + 1e-9), one.sentence


def test_every_gain_is_simulated(outcomes, found) -> None:
    for one in found.ablations:
        megatron = outcomes["megatron"]
        assert megatron.strategy.trace(one.plan, megatron.budget).iteration_s == pytest.approx(one.iteration_s)
        assert one.plan.iteration_s == one.iteration_s
        assert one.fits == memory(one.plan).fits
        assert one.before_s == outcomes["megatron"].iteration_s


def test_without_messages_remains_no_more_than_without_either_part(found) -> None:
    parts = {one.name: one.iteration_s for one in found.ablations}
    assert found.remains_s == parts["messages"]
    assert found.remains_s <= min(parts["latency"], parts["bandwidth"]) * (1 + 1e-9)
    assert found.computing_s <= found.remains_s * (1 + 1e-9)


def test_one_device_alone_is_all_computing() -> None:
    network = NETWORK.subset([0])
    plan = lab.evaluate(network, JOB.with_fields(n_stages=1, n_replicas=1), stages=[[0]])
    why = lab.explain(of_job(plan))
    assert why.computing_s == pytest.approx(plan.iteration_s)
    assert why.remains_s == pytest.approx(plan.iteration_s)
    assert {one.name: one.iteration_s for one in why.ablations}["compute"] == pytest.approx(0, abs=1e-9)
    assert "all of it computing" in why.text


def test_the_steps_lead_from_the_outcome_to_the_fastest(outcomes, found) -> None:
    assert found.against is outcomes.best
    assert found.towards.start == outcomes["megatron"].iteration_s
    assert found.towards.end == outcomes.best.iteration_s
    table = found.towards.to_frame()
    assert found.towards.start + table["change_s"].sum() == pytest.approx(found.towards.end)
    assert found.times == pytest.approx(found.towards.start / found.towards.end)
    for step in found.towards:
        assert step.outcome.trace.iteration_s == pytest.approx(step.iteration_s)


@pytest.mark.parametrize("name", ["fsdp", "megatron", "dt-fm", "diloco", "swarm"])
def test_every_system_is_explained_and_led_to_a_faster_one(name, outcomes) -> None:
    one = outcome_of(variant(name), NETWORK, JOB, BUDGET)
    best = min((each for each in [*outcomes, one] if each.found is not None), key=lambda each: each.iteration_s)
    why = lab.explain(one, best)
    if one.found is None or one is best:
        assert why.towards is None
        return
    assert why.text.startswith(f"{one.title} takes")
    assert (why.towards.start, why.towards.end) == (one.iteration_s, best.iteration_s)
    assert {"latency", "bandwidth", "messages", "compute"} <= {each.name for each in why.ablations}


def test_it_is_compared_with_the_fastest_that_trains_alike(outcomes) -> None:
    plan = outcomes.best.plan
    assert next(stream_why(outcomes["megatron"], plan)).against.plan is plan
    seconds = {"sparseloco": 1.0, "diloco": 2.0, "dtfm-lab": 3.0, "dt-fm": 4.0, "megatron": 5.0}
    made = [
        Outcome(strategy=variant(name), budget=BUDGET, found=plan.changed(iteration_s=iteration_s))
        for name, iteration_s in seconds.items()
    ]
    found = lab.systems.Outcomes(topology=NETWORK, job=JOB, outcomes=tuple(made))
    against = {one.name: next(stream_why(one, found)).against for one in found}
    names = {name: None if one is None else one.name for name, one in against.items()}
    assert names == {
        "sparseloco": None,
        "diloco": "sparseloco",
        "dtfm-lab": "sparseloco",
        "dt-fm": "dtfm-lab",
        "megatron": "dtfm-lab",
    }


def test_an_outcome_without_a_plan_is_one_clear_sentence() -> None:
    none = outcome_of(variant("megatron"), NETWORK, lab.load_job("llama-2-70b"), BUDGET)
    why = lab.explain(none)
    assert why.text.startswith("Megatron-LM has no plan here: ")
    assert len(why.text.splitlines()) == 1
    assert why.text.endswith(".")
    assert len(why.to_frame()) == 0
    assert why.summary()["iteration_s"] is None
    assert lab.explain(none, lab.strategies(NETWORK, JOB, systems="megatron")).text == why.text


def test_what_does_not_fit_is_a_limit_and_no_cause() -> None:
    network = NETWORK.subset(NETWORK.names[:4])
    job = lab.load_job("gpt2-small", n_stages=2, n_replicas=2, global_batch=64, microbatch=8, checkpointing="block")
    plan = lab.evaluate(network, job, stages=[list(network.names[:2]), list(network.names[2:])])
    need = memory(plan).peak_bytes.max()
    tight = replace(network, devices=tuple(replace(device, memory_bytes=1.01 * need) for device in network.devices))
    why = lab.explain(of_job(lab.evaluate(tight, job, rank_map=plan.rank_map)))
    assert "checkpointing" in [one.name for one in why.limits]
    assert "checkpointing" not in [one.name for one in why.causes]
    assert "does not fit" in why.text


def test_a_source_stands_beside_what_the_system_assumes_and_the_greatest_gain_comes_first(found) -> None:
    table = found.to_frame().set_index("name")
    assert table["gain_s"].is_monotonic_decreasing
    assert (table["gain_s"] == found.outcome.iteration_s - table["iteration_s"]).all()
    assert all(one.gain_s > 0 for one in found.causes)
    assert "p2p_communication" in table.loc["transport", "source"]
    assert table.loc["latency", "source"] == ""


def test_it_streams_and_stops(outcomes) -> None:
    seen = []
    lab.explain(outcomes["megatron"], outcomes, progress=seen.append)
    counts = [len(why.ablations) for why in seen]
    assert counts == sorted(counts)
    assert counts[0] == 0
    assert seen[-1].towards is not None

    def stop(why) -> None:
        if len(why.ablations) == 2:
            raise KeyboardInterrupt

    assert len(lab.explain(outcomes["megatron"], progress=stop).ablations) == 2


@pytest.mark.parametrize(
    ("against", "says"),
    [
        (lambda plan: 3, "against is 3; wanted an Outcome, Outcomes or a Plan"),
        (lambda plan: plan.changed(topology=replace(NETWORK, name="office")), "against is a plan without simulated"),
        (
            lambda plan: plan.changed(topology=replace(NETWORK, name="office"), iteration_s=1.0),
            "against is on office, and the outcome on lecture-hall; wanted the same network",
        ),
    ],
)
def test_a_mistake_is_one_line(outcomes, against, says) -> None:
    megatron = outcomes["megatron"]
    with pytest.raises(lab.LabError, match="^" + re.escape(says)):
        lab.explain(megatron, against(megatron.plan))


def alike(bandwidth_gbps: float, n: int = 4) -> lab.Topology:
    return lab.Topology.from_matrices(
        latency_ms=[[0.0 if i == j else 1.0 / bandwidth_gbps for j in range(n)] for i in range(n)],
        bandwidth_gbps=[[0.0 if i == j else bandwidth_gbps for j in range(n)] for i in range(n)],
        gpu="A100",
    )


def causes(topology: lab.Topology, n_stages: int = 1, n_replicas: int = 4, **fields: object) -> dict[str, float]:
    """What an iteration on four devices consists of: parts that add up to it."""
    shape = {"n_stages": n_stages, "n_replicas": n_replicas}
    job = lab.load_job("gpt3-xl", global_batch=64, microbatch=1, **shape, **fields)
    plan = lab.evaluate(topology, job, stages=np.arange(4).reshape(n_stages, n_replicas).tolist())
    trace = lab.simulate(plan)
    found = causes_of(plan, trace, trace.iteration_s, None)
    assert sum(found.values()) == pytest.approx(trace.iteration_s)
    return found


def test_what_zero_3_gathers_on_slow_links_is_not_computing():
    found = causes(alike(1.0), sharding="zero-3")
    assert next(iter(found)) == GATHERING
    assert causes(alike(1e6), sharding="zero-3")[GATHERING] < 0.2 * found["compute"]
    assert found["compute"] == pytest.approx(causes(alike(1.0))["compute"])


def test_sums_of_gpus_that_share_a_layer_are_not_computing():
    hosts = lab.load_topology("shared-nics").grouped(8)
    assert causes(hosts, n_stages=4, n_replicas=1, tensor_parallel=8)[GATHERING] > 0
