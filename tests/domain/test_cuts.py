"""A job may say which stage holds how many blocks; all that asks for layers follows."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dtfm_lab as lab
from dtfm_lab.domain.errors import JobError, UnknownName
from dtfm_lab.domain.job import Job, LayerKind, even_shares, gpt
from dtfm_lab.domain.job.model.spec import balanced
from dtfm_lab.domain.job.options import CUTS_BY
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.schedule import Kind
from dtfm_lab.files import load_job, override

cuts = st.lists(st.integers(1, 5), min_size=1, max_size=5).map(tuple)


def job(blocks: tuple[int, ...] | None, *, n_layers: int | None = None, tied: bool = True, **fields: object) -> Job:
    assert blocks is not None
    model = gpt(n_layers=n_layers or sum(blocks), d_model=8, n_heads=2, seq_len=4, vocab_size=16, tied=tied)
    shape = {"n_stages": len(blocks), "n_replicas": 2, "global_batch": 8, "microbatch": 1}
    return Job(model=model, blocks_per_stage=blocks, **(shape | fields))


@given(cuts, st.booleans())
@settings(max_examples=40)
def test_stages_hold_the_blocks_that_they_are_given_and_the_whole_model_in_order(blocks, tied):
    cut = job(blocks, tied=tied)
    model = cut.modelled()
    held = [sum(layer.kind is LayerKind.BLOCK for layer in layers) for layers in cut.stage_layers]
    assert tuple(held) == blocks
    assert tuple(layer for layers in cut.stage_layers for layer in layers) == model.layers
    copy = model.vocab_size * model.d_model if cut.ties_stages else 0
    assert sum(cut.stage_parameters) == model.parameters + copy
    assert cut.gradient_bytes == max(cut.stage_gradient_bytes)


@given(cuts)
def test_the_even_cut_spelled_out_is_the_even_cut(blocks):
    n_layers, n_stages = sum(blocks), len(blocks)
    each, spare = divmod(n_layers, n_stages)
    spelled = job(tuple(each + (stage < spare) for stage in range(n_stages)))
    evenly = spelled.with_fields(blocks_per_stage=None)
    assert spelled.stage_layers == evenly.stage_layers
    assert spelled.stage_gradient_bytes == evenly.stage_gradient_bytes
    if 2 * n_stages <= n_layers:
        assert spelled.cut(2 * n_stages) == evenly.cut(2 * n_stages), "and may be interleaved"


def test_a_stage_of_three_times_the_blocks_computes_and_holds_three_times_as_much():
    plan = placed(job((1, 3, 1, 3)))
    forward_s = {row.stage: row.seconds for row in lab.simulate(plan).context.profile if row.kind is Kind.FORWARD}
    assert forward_s[1] == pytest.approx(3 * forward_s[2])
    held = lab.memory(plan, "1f1b").to_frame().groupby("stage")["parameters_bytes"].first()
    assert held[1] == 3 * held[2]
    assert plan.layers == (2, 3, 1, 4)


WRONG = [
    ((1, 2), 4, "blocks, a cut of .1, 2. has 3; wanted one or more on each of 2 stages, 4 in all"),
    ((4, 0, 1), 5, "wanted one or more on each of 3 stages, 5 in all .none only beside the embedding or the head"),
    ((5, -1), 4, "blocks_per_stage is -1; wanted a whole number from 0"),
    ((1.5, 2.5), 4, "blocks_per_stage is 1.5; wanted a whole number from 0"),
]


@pytest.mark.parametrize(
    ("blocks", "n_layers", "says"), WRONG, ids=["too few", "none in the middle", "less than none", "a half"]
)
def test_what_is_no_cut_of_the_model_is_refused(blocks, n_layers, says):
    with pytest.raises(JobError, match=says):
        job(blocks, n_layers=n_layers)


@pytest.mark.parametrize("blocks", [3, "22", {"a": 1}], ids=str)
def test_a_cut_is_a_list(blocks):
    with pytest.raises(JobError, match="wanted a count for each stage"):
        load_job("tiny", blocks_per_stage=blocks)


def test_a_cut_of_another_number_of_stages_is_refused():
    with pytest.raises(JobError, match=r"blocks_per_stage is \[4, 4\], for 2 stages; wanted a count for each of 4"):
        load_job("tiny", blocks_per_stage=[4, 4])


def test_schedules_that_interleave_cut_evenly_and_refuse_a_cut_of_ones_own():
    plan = placed(job((2, 4)))
    with pytest.raises(JobError, match="cuts the model into 2 stages, a schedule that interleaves into 4; wanted"):
        lab.simulate(plan, "interleaved-1f1b")


def test_a_cut_outlives_another_batch_and_no_other_shape_or_model():
    uneven = load_job("tiny", blocks_per_stage=[1, 3, 3, 1])
    assert override(uneven, global_batch=32).blocks_per_stage == (1, 3, 3, 1)
    assert override(uneven, model="gpt2-small").blocks_per_stage is None
    assert override(uneven, n_stages=2).blocks_per_stage is None
    assert override(uneven, n_stages=2, blocks_per_stage=[3, 5]).blocks_per_stage == (3, 5)
    grid = np.arange(8).reshape(2, 4).tolist()
    assert lab.evaluate(lab.load_topology("lecture-hall"), uneven, stages=grid).job.blocks_per_stage is None


def placed(of: Job):
    n = of.n_tasklets
    topology = Topology.from_matrices(np.full((n, n), 1.0), np.full((n, n), 1.0))
    return lab.evaluate(topology, of, stages=np.arange(n).reshape(of.n_stages, of.n_replicas).tolist())


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=9), st.integers(1, 9))
@settings(max_examples=60)
def test_balanced_parts_are_the_best_of_all(costs: list[float], n_parts: int):
    n_parts = min(n_parts, len(costs))
    counts = balanced(costs, n_parts)
    assert (len(counts), sum(counts), min(counts) > 0) == (n_parts, len(costs), True)
    ways = combinations(range(1, len(costs)), n_parts - 1)
    best = min(dearest(costs, np.diff([0, *ends, len(costs)])) for ends in ways)
    assert dearest(costs, counts) <= best * (1 + 1e-9)


def dearest(costs: Iterable[float], counts: Iterable[int]) -> float:
    ends = np.cumsum([0, *counts])
    return max(float(sum(list(costs)[a:b])) for a, b in pairwise(ends))


@given(st.integers(1, 30), st.integers(1, 30))
def test_equal_costs_are_shared_as_blocks_are(n: int, n_parts: int):
    n_parts = min(n, n_parts)
    assert balanced([1.0] * n, n_parts) == even_shares(n, n_parts)


def heavy(**fields: object) -> Job:
    """Twelve blocks whose head has the FLOP of about four."""
    model = gpt(n_layers=12, d_model=64, n_heads=2, seq_len=4, vocab_size=12 * 64 * 4)
    return Job(model=model, n_replicas=1, global_batch=8, microbatch=1, **{"n_stages": 4} | fields)


def test_a_cut_by_flop_counts_the_head_and_one_by_layers_counts_both_ends_as_a_block():
    assert [blocks_of(heavy(cut_by=by)) for by in ("blocks", "layers", "flop")] == [
        (3, 3, 3, 3),
        (3, 4, 3, 2),
        (4, 4, 4, 0),
    ]
    model = heavy().modelled()
    assert all(model.even_cut(1, by) == (12,) for by in CUTS_BY)
    assert sum(model.even_cut(12, "flop")) == 12


def test_a_given_cut_comes_before_what_is_cut_by():
    assert blocks_of(heavy(cut_by="flop", blocks_per_stage=(6, 2, 2, 2))) == (6, 2, 2, 2)


def test_schedules_that_interleave_are_cut_by_the_same():
    spelled = heavy(cut_by="flop", n_stages=2)
    assert spelled.cut(4) == heavy(cut_by="flop").cut(4)
    with pytest.raises(JobError, match="cuts the model into 2 stages, a schedule that interleaves into 4; wanted"):
        heavy(cut_by="flop", n_stages=2, blocks_per_stage=(6, 6)).cut(4)


def test_an_unknown_thing_to_cut_by_is_refused():
    with pytest.raises(UnknownName, match=r"no cut_by named .parameters."):
        heavy(cut_by="parameters")


def blocks_of(of: Job) -> tuple[int, ...]:
    return tuple(sum(layer.kind is LayerKind.BLOCK for layer in layers) for layers in of.stage_layers)
