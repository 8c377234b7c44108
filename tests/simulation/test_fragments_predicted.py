"""Laws of fragments that replicas average in turn, at once or beside the passes of the next iterations."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dtfm_lab as lab
from dtfm_lab.domain.errors import JobError, TraceError
from dtfm_lab.domain.plan import Plan

WAYS = ["sharded", "sharded-at-once", "central", "ring", "tree", "hierarchical"]


def plan_of(gbps: float, **fields: Any) -> Plan:
    network = lab.Topology.from_matrices(np.zeros((6, 6)), np.full((6, 6), gbps))
    job = lab.load_job("tiny", n_stages=2, n_replicas=3, global_batch=12, microbatch=1, **fields)
    return lab.evaluate(network, job, stages=[[0, 1, 2], [3, 4, 5]])


def seconds(gbps: float, **fields: Any) -> float:
    return lab.simulate(plan_of(gbps, **fields)).iteration_s


@given(gbps=st.floats(1e-3, 10), way=st.sampled_from(WAYS), fragments=st.sampled_from([1, 2, 4, 8]))
def test_fragments_that_are_due_at_once_take_as_long_as_all_at_once(gbps: float, way: str, fragments: int) -> None:
    """On links without latency: the same bytes in more iterations."""
    whole_s = seconds(gbps, synchronisation=way, synchronise_every=8)
    assert seconds(gbps, synchronisation=way, synchronise_every=8, fragments=fragments) == pytest.approx(whole_s)


@given(gbps=st.floats(1e-3, 10), way=st.sampled_from(WAYS), fragments=st.sampled_from([1, 2]), delay=st.integers(1, 4))
def test_a_delay_lies_between_free_and_at_once(gbps: float, way: str, fragments: int, delay: int) -> None:
    fields: dict[str, Any] = {"synchronisation": way, "synchronise_every": 24, "fragments": fragments}
    alone_s = min(lab.simulate(plan_of(gbps, **fields)).iteration_ends_s)
    delayed_s = seconds(gbps, fragment_delay=delay, **fields)
    assert alone_s * (1 - 1e-9) <= delayed_s <= seconds(gbps, **fields) * (1 + 1e-9)


@given(gbps=st.floats(1e-3, 1))
def test_a_longer_delay_is_never_slower(gbps: float) -> None:
    found = [seconds(gbps, synchronise_every=24, fragments=2, fragment_delay=delay) for delay in (1, 2, 3, 4, 6)]
    assert all(later <= earlier * (1 + 1e-9) for earlier, later in itertools.pairwise(found))


def test_a_fragment_that_travels_takes_what_is_longer_passes_or_messages() -> None:
    """In a ring of 3 replicas, 2 (R - 1) / R of a fragment's bytes over every link."""
    plan = plan_of(0.02, synchronisation="ring", synchronise_every=4, fragments=2, fragment_delay=1)
    alone_s, travelling_s = lab.simulate(plan).iteration_ends_s
    moving_s = max(plan.job.stage_gradient_bytes) / 2 * 4 / 3 / (0.02e9 / 8)
    assert moving_s > alone_s
    assert travelling_s == pytest.approx(moving_s)


def test_one_fragment_without_delay_is_local_updates_to_the_last_digit() -> None:
    plain = lab.simulate(plan_of(0.1, synchronise_every=4))
    named = lab.simulate(plan_of(0.1, synchronise_every=4, fragments=1, fragment_delay=0))
    assert (plain.start_s == named.start_s).all()
    assert plain.context == named.context


@pytest.mark.parametrize(
    "fields",
    [{"fragments": 2}, {"fragment_delay": 1}, {"fragments": 3, "synchronise_every": 4}],
)
def test_fragments_that_do_not_divide_the_iterations_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(JobError, match="wanted local updates, with a multiple of") as refused:
        plan_of(1.0, **fields)
    assert "\n" not in str(refused.value)


def test_a_trace_of_other_fragments_is_refused() -> None:
    plan = plan_of(0.1, synchronise_every=4, fragments=2)
    with pytest.raises(TraceError, match="fragments 4"):
        lab.simulate(plan, like=lab.simulate(plan_of(0.1, synchronise_every=8, fragments=4)))
