"""Workers whose sends block: the losses of overlapped ones, and the times of the simulator to the last digit."""

from __future__ import annotations

import numpy as np
import pytest
from run_helpers import small_plan
from workers_as_threads import train

import dtfm_lab as lab
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Kind
from dtfm_lab.domain.trace import ComputeTime
from dtfm_lab.simulation.schedules import build, schedules

SHAPES = [
    ("gpipe", 4, 1, {}),
    ("gpipe", 3, 2, {"flush_every": 3, "synchronisation": "tree"}),
    ("1f1b", 3, 2, {}),
    ("1f1b", 2, 3, {"microbatches_per_replica": (6, 8, 2)}),
    ("adaptive-1f1b", 3, 2, {"synchronise_every": 2}),
    ("zb-h1", 4, 2, {"synchronisation": "hierarchical"}),
    ("interleaved-1f1b", 2, 2, {"synchronisation": "ring"}),
    ("1f1b", 1, 2, {}),
    ("1f1b", 2, 2, {"tied": True}),
]


def with_profile(plan: Plan, name: str, seed: int) -> list[ComputeTime]:
    """Every device as fast as it happens, so that messages of both directions meet on their way."""
    rng = np.random.default_rng(seed)
    known = lab.simulate(plan, name).context.profile
    scale_s = plan.topology.latency_s.max()
    return [row._replace(seconds=float(scale_s * rng.uniform(0.2, 3))) for row in known]


@pytest.mark.parametrize(
    ("name", "n_stages", "n_replicas", "fields", "seed", "transport"),
    [(*shape, seed, ("blocking", "batched")[seed % 2]) for seed, shape in enumerate(SHAPES)],
)
def test_workers_keep_the_simulated_times_and_the_losses_of_overlapped_ones(
    name, n_stages, n_replicas, fields, seed, transport
):
    plan = small_plan(n_stages, n_replicas, transport=transport, **fields)
    profile = with_profile(plan, name, seed)
    built = build(plan, name, profile)
    blocking = train(plan, built, 2, profile)
    overlapped = train(plan.changed(job=plan.job.with_fields(transport="overlapped")), built, 2, profile)
    assert blocking.losses == overlapped.losses
    predicted = lab.simulate(plan, built, profile=profile)
    synchronises = plan.job.synchronise_every - 1
    wanted = {
        (span.replica, span.action): (span.start_s, span.end_s)
        for span in predicted.spans()
        if span.iteration == synchronises
    }
    found = {
        (span.replica, span.action): (span.start_s, span.end_s)
        for span in blocking.spans
        if span.iteration == synchronises
    }
    assert found.keys() == wanted.keys()
    for node, times in found.items():
        assert times == pytest.approx(wanted[node], rel=1e-9), node


def test_every_schedule_of_the_registry_is_among_the_shapes():
    assert {name for name, *_ in SHAPES} >= set(schedules)


@pytest.mark.slow
@pytest.mark.parametrize("clock", ["paced", "real"])  # threads keep the virtual one to the last digit
def test_on_every_clock_a_device_goes_on_when_its_message_has_arrived(clock: str) -> None:
    plan = small_plan(3, 1, global_batch=6, transport="blocking")
    measured = lab.run(plan, "1f1b", iterations=2, clock=clock)
    assert measured.context.plan.transport == "blocking"
    rows = measured.to_frame()
    for _, device in rows[rows["iteration"] == 1].groupby("stage"):
        own = device.sort_values("start_s", kind="stable")
        computed = own[own["lane"] == "compute"]["start_s"].to_numpy()
        for send in own[own["lane"] == "send"].itertuples():
            there = send.stage + (1 if send.kind == Kind.SEND_F else -1)
            kind = "RECV_F" if send.kind == Kind.SEND_F else "RECV_B"
            arrived = rows[(rows["iteration"] == 1) & (rows["stage"] == there) & (rows["kind"] == kind)]
            arrived_s = float(arrived[arrived["microbatch"] == send.microbatch]["end_s"].iloc[0])
            later = computed[computed > send.start_s]
            assert not len(later) or later.min() >= arrived_s - 5e-3
    predicted = lab.simulate(plan, like=measured)
    print(f"{clock}: {lab.compare(predicted, measured).iteration_error:+.2%}")
    assert len(lab.compare(predicted, measured).rows) == len(measured)
