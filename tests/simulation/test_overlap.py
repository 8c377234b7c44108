"""Laws of synchronisation under the last backward: buckets, their parts of a pass, and when they are averaged."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dtfm_lab as lab
from dtfm_lab.domain.errors import JobError, TraceError
from dtfm_lab.domain.job import buckets_of
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Kind
from dtfm_lab.domain.trace import ComputeTime
from dtfm_lab.domain.units import from_gbps
from dtfm_lab.files.traces import load_trace, save_trace

WAYS = ["sharded", "sharded-at-once", "central", "ring", "tree", "hierarchical"]
SCHEDULES = ["gpipe", "1f1b", "zb-h1", "interleaved-1f1b"]


def plan_of(gbps: float, latency_ms: float = 0.0, n_stages: int = 2, n_replicas: int = 3, **fields: Any) -> Plan:
    n = n_stages * n_replicas
    network = lab.Topology.from_matrices(np.full((n, n), latency_ms), np.full((n, n), gbps))
    fields = {"global_batch": 4 * n_replicas, "microbatch": 1, "overlap": True, "bucket_bytes": 1e6} | fields
    job = lab.load_job("tiny", n_stages=n_stages, n_replicas=n_replicas, **fields)
    return lab.evaluate(network, job, stages=[[s * n_replicas + r for r in range(n_replicas)] for s in range(n_stages)])


def with_job(plan: Plan, **fields: Any) -> Plan:
    return plan.changed(job=plan.job.with_fields(**fields))


@given(
    way=st.sampled_from(WAYS),
    schedule=st.sampled_from(SCHEDULES),
    gbps=st.floats(1e-3, 1e3),
    bucket_bytes=st.sampled_from([1.0, 1e5, 1e6]),
    recompute=st.booleans(),
)
def test_overlapped_synchronisation_lies_between_free_and_serial(
    way: str, schedule: str, gbps: float, bucket_bytes: float, recompute: bool
) -> None:
    """On links without latency, of which every message pays its own."""
    plan = plan_of(gbps, synchronisation=way, schedule=schedule, bucket_bytes=bucket_bytes, recompute=recompute)
    alone = plan.job.with_fields(n_replicas=1, global_batch=4)
    free_s = lab.simulate(lab.evaluate(plan.topology, alone, stages=[[0], [3]])).iteration_s
    serial_s = lab.simulate(with_job(plan, overlap=False)).iteration_s
    assert free_s * (1 - 1e-9) <= lab.simulate(plan).iteration_s <= serial_s * (1 + 1e-9)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_one_bucket_is_no_overlap_to_the_last_digit(way: str, schedule: str) -> None:
    plan = plan_of(0.5, 3.0, synchronisation=way, schedule=schedule, bucket_bytes=1e12, compression="int8")
    before = lab.simulate(with_job(plan, overlap=False))
    after = lab.simulate(plan)
    assert after.actions == before.actions
    assert (after.start_s == before.start_s).all()
    assert (after.end_s == before.end_s).all()


@given(
    n_replicas=st.integers(2, 5),
    gbps=st.floats(0.01, 100),
    forward_s=st.floats(0.001, 1),
    backward_s=st.floats(0.001, 1),
    bucket_bytes=st.sampled_from([1.0, 3e5, 1e6]),
)
def test_a_ring_follows_the_closed_form(
    n_replicas: int, gbps: float, forward_s: float, backward_s: float, bucket_bytes: float
) -> None:
    """Of one stage: bucket k leaves when its layers are done, 2 (R - 1) / R of its bytes behind k - 1."""
    plan = plan_of(gbps, n_stages=1, n_replicas=n_replicas, synchronisation="ring", bucket_bytes=bucket_bytes)
    kinds = {Kind.FORWARD: forward_s, Kind.BACKWARD: backward_s, Kind.REDUCE: 0.0, Kind.STEP: 0.0}
    profile = [ComputeTime(0, r, kind, seconds) for r in range(n_replicas) for kind, seconds in kinds.items()]
    trace = lab.simulate(plan, profile=profile)
    (buckets,) = buckets_of(plan.job, trace.context.recorded_schedule)
    m = plan.job.n_microbatches
    done_s = m * forward_s + (m - 1) * backward_s + backward_s * np.cumsum([b.parts[0][1] for b in buckets])
    whole_s = 2 * (n_replicas - 1) / n_replicas * plan.job.stage_gradient_bytes[0] / from_gbps(gbps)
    left_s = whole_s * np.cumsum([b.share for b in buckets][::-1])[::-1]
    assert trace.iteration_s == pytest.approx((done_s + left_s).max())


@given(schedule=st.sampled_from(SCHEDULES), bucket_bytes=st.floats(1, 1e8), recompute=st.booleans())
def test_buckets_hold_every_layer_once(schedule: str, bucket_bytes: float, recompute: bool) -> None:
    plan = plan_of(1.0, schedule=schedule, bucket_bytes=bucket_bytes, recompute=recompute)
    built = lab.simulate(with_job(plan, overlap=False)).context.recorded_schedule
    for position, buckets in enumerate(buckets_of(plan.job, built)):
        assert sum(bucket.share for bucket in buckets) == pytest.approx(1)
        for stage in built.stages_of(position):
            parts = [fraction for bucket in buckets for of, fraction in bucket.parts if of == stage]
            assert sum(parts) == pytest.approx(1)


@given(n_blocks=st.floats(1e-3, 7))
def test_a_bucket_is_closed_with_the_block_that_fills_it(n_blocks: float) -> None:
    """Of a stage of six equal blocks, ceil(6 / ceil(b)) buckets, each of the size of b blocks."""
    plan = plan_of(1.0, n_stages=3, blocks_per_stage=(1, 6, 1))
    block = plan.job.stage_layers[1][0]
    plan = with_job(plan, bucket_bytes=n_blocks * 4 * block.parameters)  # fp32
    built = lab.simulate(with_job(plan, overlap=False)).context.recorded_schedule
    buckets = buckets_of(plan.job, built)[1]
    assert len(buckets) == math.ceil(6 / math.ceil(n_blocks))
    assert buckets[0].share == pytest.approx(min(1.0, math.ceil(n_blocks) / 6))


def test_a_trace_in_buckets_survives_its_file_and_can_be_followed(tmp_path: Path) -> None:
    plan = plan_of(0.1, schedule="interleaved-1f1b", synchronisation="ring", compression="int8", dtype="fp32")
    trace = lab.simulate(plan)
    back = load_trace(save_trace(trace, tmp_path / "trace.json"))
    assert back.context == trace.context
    assert back.actions == trace.actions
    assert len(lab.compare(back, trace).rows) == len(trace)
    assert lab.memory(plan, trace=trace).peak_bytes.min() > 0


# laws of fragments that replicas average in turn, at once or beside the passes of the next iterations


def fragmented(gbps: float, **fields: Any) -> Plan:
    network = lab.Topology.from_matrices(np.zeros((6, 6)), np.full((6, 6), gbps))
    job = lab.load_job("tiny", n_stages=2, n_replicas=3, global_batch=12, microbatch=1, **fields)
    return lab.evaluate(network, job, stages=[[0, 1, 2], [3, 4, 5]])


def seconds(gbps: float, **fields: Any) -> float:
    return lab.simulate(fragmented(gbps, **fields)).iteration_s


@given(gbps=st.floats(1e-3, 10), way=st.sampled_from(WAYS), fragments=st.sampled_from([1, 2, 4, 8]))
def test_fragments_that_are_due_at_once_take_as_long_as_all_at_once(gbps: float, way: str, fragments: int) -> None:
    """On links without latency: the same bytes in more iterations."""
    whole_s = seconds(gbps, synchronisation=way, synchronise_every=8)
    assert seconds(gbps, synchronisation=way, synchronise_every=8, fragments=fragments) == pytest.approx(whole_s)


@given(gbps=st.floats(1e-3, 10), way=st.sampled_from(WAYS), fragments=st.sampled_from([1, 2]), delay=st.integers(1, 4))
def test_a_delay_lies_between_free_and_at_once(gbps: float, way: str, fragments: int, delay: int) -> None:
    fields: dict[str, Any] = {"synchronisation": way, "synchronise_every": 24, "fragments": fragments}
    alone_s = min(lab.simulate(fragmented(gbps, **fields)).iteration_ends_s)
    delayed_s = seconds(gbps, fragment_delay=delay, **fields)
    assert alone_s * (1 - 1e-9) <= delayed_s <= seconds(gbps, **fields) * (1 + 1e-9)


def test_a_fragment_that_travels_takes_what_is_longer_passes_or_messages() -> None:
    """In a ring of 3 replicas, 2 (R - 1) / R of a fragment's bytes over every link."""
    plan = fragmented(0.02, synchronisation="ring", synchronise_every=4, fragments=2, fragment_delay=1)
    alone_s, travelling_s = lab.simulate(plan).iteration_ends_s
    moving_s = max(plan.job.stage_gradient_bytes) / 2 * 4 / 3 / (0.02e9 / 8)
    assert moving_s > alone_s
    assert travelling_s == pytest.approx(moving_s)


def test_one_fragment_without_delay_is_local_updates_to_the_last_digit() -> None:
    plain = lab.simulate(fragmented(0.1, synchronise_every=4))
    named = lab.simulate(fragmented(0.1, synchronise_every=4, fragments=1, fragment_delay=0))
    assert (plain.start_s == named.start_s).all()
    assert plain.context == named.context


@pytest.mark.parametrize("fields", [{"fragments": 2}, {"fragment_delay": 1}, {"fragments": 3, "synchronise_every": 4}])
def test_fragments_that_do_not_divide_the_iterations_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(JobError, match="wanted local updates, with a multiple of"):
        fragmented(1.0, **fields)


def test_a_trace_of_other_fragments_is_refused() -> None:
    plan = fragmented(0.1, synchronise_every=4, fragments=2)
    with pytest.raises(TraceError, match="fragments 4"):
        lab.simulate(plan, like=lab.simulate(fragmented(0.1, synchronise_every=8, fragments=4)))
