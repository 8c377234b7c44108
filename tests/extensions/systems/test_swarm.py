"""Stochastic pipelines: where a stage has one device they are a schedule's; elsewhere, closed forms and bounds."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dtfm_lab as lab
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Layer, LayerKind, ModelSpec
from dtfm_lab.domain.network import Device, Topology
from dtfm_lab.domain.schedule import PASSES, SENDS, Kind, Schedule
from dtfm_lab.extensions.systems.api import Budget, outcome_of, work_of
from dtfm_lab.extensions.systems.modelled.swarm import Swarm
from dtfm_lab.extensions.systems.stochastic import simulate_stochastic
from dtfm_lab.planning import evaluate
from dtfm_lab.simulation import simulate

NETWORKS = ("worldwide", "shared-cards")
JOB = lab.load_job("gpt3-xl", global_batch=24, microbatch=1)


def drawn(plan, *, in_flight=1000, seed=0, queueing="pairs", **how):
    rng = np.random.default_rng(seed)
    return simulate_stochastic(plan, rng=rng, in_flight=in_flight, efficiency=None, queueing=queueing, **how)


def on_free_links(speeds, n_stages, n_microbatches):
    """A plan of equal stages whose forward takes a second on a device of speed 1, links without cost."""
    n = len(speeds)
    peak = [1e12 * speed / 0.4 for speed in speeds]
    devices = [Device(name=f"d{i}", peak_flop_per_s=one, memory_bytes=1e12) for i, one in enumerate(peak)]
    bandwidth = np.full((n, n), 1e30)
    np.fill_diagonal(bandwidth, np.inf)
    topology = Topology(tuple(devices), np.zeros((n, n)), bandwidth)
    layer = Layer(kind=LayerKind.BLOCK, parameters=8, forward_flop=1e12, output_elements=1)
    sizes = {"d_model": 1, "n_heads": 1, "seq_len": 1, "vocab_size": 1, "tied": False}
    model = ModelSpec(name="equal", layers=(layer,) * n_stages, **sizes)
    shape = {"n_stages": n_stages, "n_replicas": n // n_stages, "global_batch": n_microbatches, "microbatch": 1}
    job = lab.Job(model=model, synchronisation="sharded-at-once", **shape)
    return evaluate(topology, job, stages=np.arange(n).reshape(n_stages, -1).tolist())


def on_worldwide(n_stages, n_replicas, **choice):
    """A plan on the first devices of the network."""
    job = JOB.with_fields(n_stages=n_stages, n_replicas=n_replicas, **choice)
    stages = np.arange(n_stages * n_replicas).reshape(n_stages, n_replicas).tolist()
    return evaluate(lab.load_topology("worldwide"), job, stages=stages)


@pytest.mark.parametrize("queueing", ["pairs", "cards"])
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize(("n_stages", "in_flight"), [(1, 3), (3, 1), (5, 4), (8, 24)])
def test_with_one_device_a_stage_it_is_the_schedule_that_comes_out(network, queueing, n_stages, in_flight):
    job = JOB.with_fields(n_stages=n_stages, n_replicas=1)
    plan = evaluate(lab.load_topology(network), job, stages=[[3 * i] for i in range(n_stages)])
    trace = drawn(plan, in_flight=in_flight, queueing=queueing)
    passes = sorted((row for row in trace.spans() if row.action.kind in PASSES), key=lambda row: row.start_s)
    orders = [tuple(row.action for row in passes if row.action.stage == stage) for stage in range(n_stages)]
    as_scheduled = simulate(plan, Schedule("drawn", job.n_microbatches, tuple(orders)), queueing=queueing)
    assert trace.iteration_s == pytest.approx(as_scheduled.iteration_s)
    assert len(trace) == len(as_scheduled)


@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 6))
def test_equal_devices_on_free_links_take_the_textbooks_time(n_stages, n_replicas, each):
    plan = on_free_links([1.0] * n_stages * n_replicas, n_stages, each * n_replicas)
    assert drawn(plan).iteration_s == pytest.approx((each + n_stages - 1) * 3)


@given(st.lists(st.sampled_from([1.0, 2.0, 5.0]), min_size=6, max_size=6), st.integers(6, 40), st.booleans())
def test_no_stage_serves_faster_than_its_devices_together(speeds, n_microbatches, by_throughput):
    plan = on_free_links(speeds, 2, n_microbatches)
    work_s = 3 * n_microbatches / np.reshape(speeds, (2, 3)).sum(axis=1).min()
    assert drawn(plan, by_throughput=by_throughput).iteration_s >= work_s * (1 - 1e-9)


def test_devices_get_micro_batches_in_proportion_to_their_throughput():
    trace = drawn(on_free_links([1.0, 4.0], 1, 100))
    forwards = trace.to_frame().query("kind == 'F'")["replica"].value_counts()
    assert forwards.to_dict() == {0: 20, 1: 80}
    unlike = on_free_links([1.0, 4.0, 1.0, 4.0], 2, 60)
    assert drawn(unlike).iteration_s < drawn(unlike, by_throughput=False).iteration_s


def test_every_micro_batch_passes_each_stage_once_and_messages_arrive_where_they_were_sent():
    plan = on_worldwide(4, 3)
    trace = drawn(plan)
    rows = [(row.action, row.replica) for row in trace.spans()]
    passes = sorted((a.stage, a.kind, a.microbatch) for a, _ in rows if a.kind in PASSES)
    assert passes == sorted((s, kind, m) for s in range(4) for kind in (Kind.FORWARD, Kind.BACKWARD) for m in range(24))
    for action, replica in rows:
        if action.kind in SENDS:
            assert (action.counterpart(), action.other_end(replica, 3)[1]) in rows
    links = [link.split(" -> ") for link in set(trace.to_frame().query("kind == 'SEND_F' and stage == 0")["link"])]
    assert any(plan.device_names[0].index(a) != plan.device_names[1].index(b) for a, b in links)
    path = trace.critical_path()
    assert (path["end_s"] - path["start_s"]).sum() == pytest.approx(trace.iteration_s)
    assert {"bandwidth", "latency"} & set(path["what"])


def test_the_same_seed_draws_the_same_routes():
    topology, budget = lab.load_topology("volunteers"), Budget(seed=3)
    first, second = (outcome_of(Swarm(), topology, JOB, budget) for _ in range(2))
    assert first.iteration_s == second.iteration_s == first.trace.iteration_s
    assert first.plan.placement.devices.tolist() == second.plan.placement.devices.tolist()


def test_stages_are_as_fast_as_dealing_devices_out_makes_them():
    topology = lab.load_topology("mixed-gpus")
    plan = next(Swarm().plans(topology, work_of(JOB.with_fields(global_batch=256)), Budget()))
    speed = np.array([device.peak_flop_per_s for device in topology.devices])[plan.placement.devices].sum(axis=1)
    fastest = max(device.peak_flop_per_s for device in topology.devices)
    assert np.ptp(speed) <= fastest


def test_messages_back_are_twice_as_long_where_inputs_travel_again():
    plan = evaluate(lab.load_topology("worldwide"), JOB.with_fields(n_stages=3, n_replicas=1), stages=[[0], [9], [18]])
    once, twice = (
        drawn(plan, resends_inputs=resends)
        .to_frame()
        .query("kind == 'SEND_B'")
        .groupby("stage")[["start_s", "end_s"]]
        .sum()
        .diff(axis=1)["end_s"]
        for resends in (False, True)
    )
    assert twice[2] == pytest.approx(2 * once[2])
    assert twice[1] == pytest.approx(once[1])  # to the first stage, whose inputs are tokens


@pytest.mark.parametrize(
    "choice", [{"transport": "blocking"}, {"overlap": True}, {"synchronise_every": 2}, {"sharding": "zero-3"}], ids=str
)
def test_what_drawn_pipelines_do_not_know_is_refused(choice):
    with pytest.raises(LabError, match=f"{next(iter(choice))} is"):
        drawn(on_worldwide(2, 2, **choice))


def test_the_closed_form_takes_measured_messages_where_there_are_any():
    """Measured on the line of latency and bandwidth, and drawn with another bandwidth, they change nothing."""
    network = lab.load_topology("thin-link")
    sizes, apart = np.array([1.0, 1e15]), ~np.eye(len(network), dtype=bool)
    message_s = np.where(apart[:, :, None], np.stack([network.transfer_s(n) for n in sizes], axis=2), np.nan)
    measured = replace(network.scaled(bandwidth=1000), message_bytes=sizes, message_s=message_s)
    there, here = (
        [one.iteration_s(None) for one in Swarm().routed(topology, work_of(JOB), Budget())]
        for topology in (measured, network)
    )
    assert there == pytest.approx(here)
