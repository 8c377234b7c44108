"""What makes a network compute-bound: closed forms of data parallelism, laws of the knobs, and refusals."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_systems import FORWARD_S, GRADIENT_BYTES, blocks, network

import dtfm_lab as lab
from dtfm_lab.domain.job import MODELS, Job
from dtfm_lab.domain.job.model.completion import family_sizes, rebuilt
from dtfm_lab.domain.plan import Plan
from dtfm_lab.planning import evaluate
from dtfm_lab.simulation.efficiency import EFFICIENCY
from dtfm_lab.systems import compute_share
from dtfm_lab.systems.compute_share import share_of
from dtfm_lab.systems.knobs import KNOBS, with_batch

HOW = {"efficiency": EFFICIENCY, "queueing": "pairs"}


def copies(n: int = 4, batch: int = 8, *, bandwidth: float = 1e8, latency_s: float = 0.0, **fields) -> Plan:
    """Data parallelism over devices that are all alike."""
    job = Job(model=blocks(), n_stages=1, n_replicas=n, global_batch=batch, microbatch=1, **fields)
    topology = network(n, latency_s=latency_s, bandwidth_bytes_per_s=bandwidth)
    return evaluate(topology, job, rank_map=list(range(n)))


def pipeline(n_stages: int, n_replicas: int, n_microbatches: int, **fields) -> Plan:
    """A pipeline of blocks that are all alike."""
    n = n_stages * n_replicas
    shape = {"n_stages": n_stages, "n_replicas": n_replicas, "microbatch": 1}
    job = Job(model=blocks(n_stages), global_batch=n_microbatches * n_replicas, schedule="1f1b", **shape, **fields)
    topology = network(n, latency_s=0.003, bandwidth_bytes_per_s=1e7)
    return evaluate(topology, job, rank_map=list(range(n)))


@given(st.integers(2, 6), st.integers(1, 20), st.floats(1e6, 1e10), st.floats(0, 0.1))
@settings(max_examples=25, deadline=None)
def test_of_copies_it_is_computing_over_computing_and_averaging(n, each, bandwidth, latency_s) -> None:
    computing_s = each * 2 * 3 * FORWARD_S
    # scattered and gathered: a share of 1 / n to each other replica and back, one peer's link beside the other's
    averaging_s = share_of(copies(n, n, bandwidth=bandwidth, latency_s=latency_s), **HOW).iteration_s - 6 * FORWARD_S
    share = share_of(copies(n, n * each, bandwidth=bandwidth, latency_s=latency_s), **HOW)
    assert share.free_s == pytest.approx(computing_s)
    assert share.computing == pytest.approx(computing_s / (computing_s + averaging_s))


def test_of_two_copies_averaging_is_a_gradient_over_the_link() -> None:
    share = share_of(copies(2, 2, bandwidth=1e8, latency_s=0.01), **HOW)
    averaging_s = GRADIENT_BYTES / 1e8 + 2 * 0.01
    assert share.computing == pytest.approx(6 * FORWARD_S / (6 * FORWARD_S + averaging_s))


def test_the_least_batch_of_copies_is_the_one_of_algebra() -> None:
    plan = copies(2, 2, bandwidth=1e8)
    averaging_s = GRADIENT_BYTES / 1e8
    each = int(np.ceil(averaging_s / (6 * FORWARD_S)))  # half of the iteration computes
    found = lab.codesign(plan.topology, plan.job, plan=plan, knobs=["batch", "bandwidth", "every"])
    assert found.reaching["batch"] == 2 * each
    enough = GRADIENT_BYTES / (6 * FORWARD_S) * 8 / 1e9
    assert found.reaching["bandwidth"] == pytest.approx(enough, rel=0.03)
    assert found.reaching["bandwidth"] >= enough
    assert found.reaching["every"] == np.ceil(averaging_s / (6 * FORWARD_S))
    assert f"a batch of {2 * each} instead of 2" in found.sentence


@given(st.integers(2, 6), st.integers(1, 8), st.floats(1e6, 1e10), st.floats(0, 0.1))
@settings(max_examples=15, deadline=None)
def test_a_larger_batch_of_copies_never_computes_less(n, each, bandwidth, latency_s) -> None:
    plan = copies(n, n * each, bandwidth=bandwidth, latency_s=latency_s)
    shares = [share_of(plan.changed(job=with_batch(plan.job, n * each * k)), **HOW).computing for k in (1, 2, 3, 5)]
    assert (np.diff(shares) >= -1e-9).all()


def test_a_larger_batch_of_one_pipeline_on_slow_links_computes_less() -> None:
    # its fill, which is computing, weighs less, and hops of every micro-batch remain: no law for pipelines
    plan = pipeline(2, 1, 2)
    shares = [share_of(plan.changed(job=with_batch(plan.job, 2 * k)), **HOW).computing for k in (1, 2, 4, 8)]
    assert (np.diff(shares) < 0).all()


@given(st.sampled_from(["every", "bandwidth"]), st.integers(1, 3), st.integers(2, 3))
@settings(max_examples=10, deadline=None)
def test_rarer_averages_and_faster_links_never_compute_less(name, n_stages, n_replicas) -> None:
    plan = pipeline(n_stages, n_replicas, 4)
    knob = KNOBS[name](plan)
    shares = [share_of(knob.on(plan, value), **HOW).computing for value in [knob.own, *knob.doubled[:5]]]
    assert (np.diff(shares) >= -1e-9).all()


@pytest.mark.parametrize("counts", [None, (7, 5)])
@pytest.mark.parametrize("times", [361, 400, 777])
def test_a_long_iteration_is_continued_to_the_second(monkeypatch, counts, times) -> None:
    plan = pipeline(3, 2, 1 if counts is None else 6, microbatches_per_replica=counts)
    plan = plan.changed(job=with_batch(plan.job, plan.job.global_batch * times))
    continued = share_of(plan, **HOW)
    monkeypatch.setattr(compute_share, "STEADY", 10**9)
    whole = share_of(plan, **HOW)
    assert continued.iteration_s == pytest.approx(whole.iteration_s, rel=1e-9)
    assert continued.free_s == pytest.approx(whole.free_s, rel=1e-9)


def test_free_messages_are_neither_compressed_nor_gathered() -> None:
    plan = copies(4, 8, compression="int8", codec_bytes_per_s=1e6)
    assert share_of(plan, **HOW).free_s == pytest.approx(2 * 6 * FORWARD_S)
    plan = copies(4, 8, sharding="zero-3")
    assert share_of(plan, **HOW).free_s == pytest.approx(2 * 6 * FORWARD_S, rel=1e-6)


def test_replicas_keep_their_proportions_in_a_larger_batch() -> None:
    job = Job(model=blocks(), n_stages=1, n_replicas=2, global_batch=12, microbatch=1, microbatches_per_replica=(7, 5))
    assert with_batch(job, 36).microbatch_counts == (21, 15)
    assert with_batch(job, 13).microbatch_counts == (7, 6)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_model_of_a_family_is_rebuilt_from_its_numbers(name) -> None:
    model = MODELS[name]
    assert rebuilt(model).layers == model.layers
    sizes = family_sizes(model)
    assert (sizes["n_layers"], sizes["d_model"]) == (model.n_blocks, model.d_model)


def test_a_wider_model_has_more_heads_of_the_same_size() -> None:
    plan = lab.plan("lecture-hall", "tiny", steps=1)
    knob = KNOBS["width"](plan)
    wide = knob.on(plan, knob.own * 2).job.modelled()
    narrow = plan.job.modelled()
    assert (wide.d_model, wide.n_heads, wide.head_dim) == (2 * narrow.d_model, 2 * narrow.n_heads, narrow.head_dim)
    assert wide.layers[1].parameters == pytest.approx(4 * narrow.layers[1].parameters, rel=0.01)
    assert knob.middle(knob.own, 2 * knob.own) == 1.5 * knob.own


def test_longer_sequences_extend_a_table_of_positions() -> None:
    plan = lab.plan("lecture-hall", "tiny", steps=1)
    model = KNOBS["sequence"](plan).on(plan, 256).job.modelled()
    assert (model.seq_len, model.n_positions) == (256, 256)


def test_a_model_of_no_family_keeps_its_width_and_says_why() -> None:
    plan = copies()
    found = lab.codesign(plan.topology, plan.job, plan=plan, knobs="width")
    assert "model blocks is of no family that the lab builds" in found.skipped["width"]
    assert found.reaching == {}


def test_what_does_not_fit_is_no_answer() -> None:
    job = Job(model=MODELS["gpt2-small"], n_stages=1, n_replicas=2, global_batch=2, microbatch=1)
    topology = lab.Topology.from_matrices(np.full((2, 2), 1.0), np.full((2, 2), 2.0), peak_tflops=50, memory_gib=6)
    plan = lab.evaluate(topology, job, rank_map=[0, 1])
    found = lab.codesign(topology, job, plan=plan, knobs=["sequence", "width"], target=0.9)
    design = found["sequence"].least(0.9)
    assert design is not None
    assert not design.fits
    assert "would, but not in the devices' memory" in found.sentence
    assert "sequence" not in found.reaching


def test_what_is_bound_to_computing_says_how_little_keeps_it_so() -> None:
    plan = copies(2, 64, bandwidth=1e9)
    found = lab.codesign(plan.topology, plan.job, plan=plan, knobs=["batch", "bandwidth"])
    assert found.bound
    averaging_s = GRADIENT_BYTES / 1e9
    each = int(np.ceil(averaging_s / (6 * FORWARD_S)))
    assert found["batch"].value(found["batch"].least(0.5)) == 2 * each
    assert f"and stays so down to a batch of {2 * each} or down to" in found.sentence


def test_every_design_keeps_its_devices_and_can_be_simulated() -> None:
    found = lab.codesign("lecture-hall", "tiny", steps=1, target=0.7)
    for one in found.turned:
        for design in one.designs:
            assert (design.plan.placement.devices == found.plan.placement.devices).all()
            iteration_s = lab.simulate(design.plan).iteration_s
            assert iteration_s == pytest.approx(design.share.iteration_s, rel=1e-6)
    frame = found.to_frame()
    assert len(frame) == 1 + sum(len(one.designs) - 1 for one in found.turned)
    assert (frame["compute_share"] <= 1).all()
    assert json.loads(json.dumps(found.to_dict()))["reaching"].keys() == found.reaching.keys()


def test_what_is_there_is_kept_when_it_is_stopped() -> None:
    def stop(found) -> None:
        if found.done == 3:
            raise KeyboardInterrupt

    plan = copies(2, 2)
    found = lab.codesign(plan.topology, plan.job, plan=plan, progress=stop)
    assert found.done == 3
    assert not found.finished
    assert found.sentence.startswith("so far: ")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"knobs": ["bath"]}, "no knob named 'bath'; did you mean 'batch'"),
        ({"knobs": []}, "knobs are []; wanted some of batch"),
        ({"target": 0}, "codesign: target is 0; wanted more than 0"),
        ({"target": 1.5}, "codesign: target is 1.5; wanted"),
        ({"plan": copies(3, 3)}, "plan is of alike, with other devices or links; wanted one of lecture-hall"),
        ({"replan": True}, "no option named 'replan'"),
        ({"traget": 0.5}, "no option named 'traget'; did you mean 'target'"),
    ],
)
def test_mistakes_are_told_in_a_line(options, says) -> None:
    with pytest.raises(lab.LabError) as refused:
        lab.codesign("lecture-hall", "tiny", steps=1, **options)
    assert str(refused.value).startswith(says)
    assert "\n" not in str(refused.value)
