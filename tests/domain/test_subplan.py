"""A part of a plan is a plan whose devices, links, layers and micro-batches are those of the whole."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dtfm_lab as lab
from dtfm_lab.domain.errors import JobError, PlanError, TraceError
from dtfm_lab.domain.job import Job, LayerKind, gpt
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan, cut_subplan, largest_shape, subplan_for
from dtfm_lab.domain.trace import Subplan

sizes = st.tuples(st.integers(1, 5), st.integers(1, 4))


def plan_of(n_stages: int, n_replicas: int, blocks: tuple[int, ...] | None = None, *, tied: bool = True) -> Plan:
    n_layers = sum(blocks) if blocks else 2 * n_stages + 1
    model = gpt(n_layers=n_layers, d_model=8, n_heads=2, seq_len=4, vocab_size=16, tied=tied)
    shape = {"n_stages": n_stages, "n_replicas": n_replicas, "global_batch": 6 * n_replicas, "microbatch": 2}
    n, rng = n_stages * n_replicas + 2, np.random.default_rng(0)
    topology = Topology.from_matrices(rng.random((n, n)), rng.uniform(0.1, 1, (n, n)))
    grid = rng.permutation(n)[: n_stages * n_replicas].reshape(n_stages, n_replicas)
    return lab.evaluate(topology, Job(model=model, blocks_per_stage=blocks, **shape), stages=grid.tolist())


@given(sizes, sizes, st.booleans())
@settings(max_examples=40)
def test_a_part_keeps_devices_network_layers_and_micro_batches(of, wanted, tied):
    whole = plan_of(*of, tied=tied)
    part, kept = subplan_for(whole, wanted)
    s, r = min(of[0], wanted[0]), min(of[1], wanted[1])
    assert part.placement.devices.tolist() == whole.placement.devices[:s, :r].tolist()
    assert part.topology is whole.topology
    assert part.job.n_microbatches == whole.job.n_microbatches
    blocks = [[a for a in stage if a.kind is LayerKind.BLOCK] for stage in whole.job.stage_layers[:s]]
    assert [[a for a in stage if a.kind is LayerKind.BLOCK] for stage in part.job.stage_layers] == blocks
    assert part.job.stage_layers[0][0].kind is LayerKind.EMBEDDING
    assert part.job.stage_layers[-1][-1].kind is LayerKind.HEAD
    assert (kept is None) == ((s, r) == of)
    assert cut_subplan(part, kept) is part, "a part of its own is that part"
    if kept is not None:
        assert cut_subplan(whole, kept).device_names == part.device_names


@given(st.integers(1, 4), st.lists(st.integers(1, 9), min_size=1, max_size=5), sizes)
@settings(max_examples=40)
def test_a_part_keeps_the_micro_batches_of_each_of_its_pipelines(n_stages, shares, wanted):
    whole = plan_of(n_stages, len(shares))
    fields = {"microbatches_per_replica": shares, "global_batch": 2 * sum(shares), "warmups": range(n_stages, 0, -1)}
    whole = lab.evaluate(whole.topology, whole.job.with_fields(**fields), rank_map=whole.rank_map)
    part, _ = subplan_for(whole, wanted)
    kept = tuple(shares[: wanted[1]])
    assert part.job.microbatch_counts == kept
    assert part.job.global_batch == 2 * sum(kept)
    assert part.job.warmups == whole.job.warmups[: wanted[0]]
    trace = lab.simulate(part, "1f1b")
    assert trace.context.plan.microbatch_counts == kept


def test_a_cut_of_ones_own_is_kept_for_the_stages_that_are():
    part, _ = subplan_for(plan_of(4, 2, (1, 3, 2, 2)), (2, 2))
    assert part.job.blocks_per_stage == (1, 3)
    assert part.layers == (2, 4)


@given(sizes, st.integers(1, 30))
@settings(max_examples=50)
def test_no_more_workers_than_asked_for_and_all_stages_where_they_fit(of, workers):
    stages, pipelines = largest_shape(of, workers)
    assert 1 <= stages * pipelines <= workers
    if of[0] <= workers:
        assert stages == of[0]
        assert pipelines == of[1] or stages * (pipelines + 1) > workers
    elif of[1] > 1 and workers >= 4:
        assert pipelines == 2, "replicas synchronise in a rehearsal, too"
        assert stages >= 2


@pytest.mark.parametrize(
    ("workers", "says"),
    [
        (0, "workers is 0; wanted a whole number from 1"),
        ("8", "workers is '8'; wanted a whole number"),
        ((2, 2, 2), r"workers is \(2, 2, 2\); wanted a count, or stages and pipelines"),
        ((2, 0), "pipelines is 0; wanted a whole number from 1"),
    ],
    ids=str,
)
def test_what_is_no_number_of_workers_is_refused(workers, says):
    with pytest.raises((JobError, PlanError), match=says):
        subplan_for(plan_of(3, 2), workers)


def test_a_part_of_another_plan_is_refused_in_one_line():
    kept = Subplan((0, 1), (0,), 5, 2)
    with pytest.raises(TraceError, match="of a plan of 5 stages x 2 replicas; this one has 3 x 2; wanted the same"):
        cut_subplan(plan_of(3, 2), kept)
