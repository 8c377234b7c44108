"""Models count as the papers do; jobs divide, or say what is left over."""

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dtfm_lab.domain.errors import JobError, UnknownName
from dtfm_lab.domain.job import BYTES_PER_ELEMENT, Job
from dtfm_lab.domain.messages import message_bytes
from dtfm_lab.domain.model import LayerKind, gpt
from dtfm_lab.domain.presets import JOBS
from dtfm_lab.domain.schedule import Action, Kind

GPT2 = {"seq_len": 1024, "vocab_size": 50257}
SMALL = gpt(n_layers=6, d_model=8, n_heads=2, seq_len=4, vocab_size=10)
counts = st.integers(1, 6)


def job(**fields) -> Job:
    return Job(**{"model": SMALL, "n_stages": 2, "n_replicas": 2, "global_batch": 8, "microbatch": 1} | fields)


@pytest.mark.parametrize(
    ("n_layers", "d_model", "n_heads", "parameters"),
    [(12, 768, 12, 124_439_808), (24, 1024, 16, 354_823_168), (48, 1600, 25, 1_557_611_200)],
    ids=["small", "medium", "xl"],
)
def test_gpt2_has_the_parameters_that_its_checkpoints_have(n_layers, d_model, n_heads, parameters):
    assert gpt(n_layers=n_layers, d_model=d_model, n_heads=n_heads, **GPT2).parameters == parameters


def test_an_untied_head_brings_its_own_matrix():
    tied = gpt(n_layers=2, d_model=8, n_heads=2, **GPT2)
    untied = gpt(n_layers=2, d_model=8, n_heads=2, tied=False, **GPT2)
    assert untied.parameters - tied.parameters == 50257 * 8


@given(st.integers(1, 4), st.integers(1, 64), st.integers(1, 64))
@settings(max_examples=20, deadline=None)
def test_a_forward_takes_the_flop_of_narayanan_2021(n_layers, d, t):
    """Equation 3 of the paper, 96 B s l h^2 (1 + s/6h + V/16lh), is a forward, a backward and a recomputation."""
    model = gpt(n_layers=n_layers, d_model=d, n_heads=1, seq_len=t, vocab_size=100)
    whole = 96 * t * n_layers * d**2 * (1 + t / (6 * d))
    head = 6 * t * d * 100
    assert 4 * sum(x.forward_flop for x in model.layers if x.kind is LayerKind.BLOCK) == pytest.approx(whole)
    assert 3 * model.layers[-1].forward_flop == pytest.approx(head)


@given(st.integers(1, 40), st.integers(1, 40))
@settings(max_examples=50, deadline=None)
def test_a_cut_uses_every_layer_once_and_blocks_differ_by_one_at_most(n_layers, n_stages):
    assume(n_stages <= n_layers)
    cut = gpt(n_layers=n_layers, d_model=8, n_heads=2, seq_len=4, vocab_size=10).cut(n_stages)
    assert len(cut) == n_stages
    assert sum(cut) == n_layers + 2
    blocks = list(cut)
    blocks[0] -= 1
    blocks[-1] -= 1
    assert min(blocks) >= 1
    assert max(blocks) - min(blocks) <= 1
    assert blocks == sorted(blocks, reverse=True)


@given(st.integers(1, 6))
@settings(max_examples=6, deadline=None)
def test_the_stages_of_a_job_hold_the_whole_model_in_order(n_stages):
    cut = job(n_stages=n_stages)
    assert tuple(layer for stage in cut.stage_layers for layer in stage) == SMALL.layers
    assert sum(cut.stage_gradient_bytes) == 2 * SMALL.parameters
    assert cut.gradient_bytes == max(cut.stage_gradient_bytes)


def test_the_largest_stage_sets_the_price_wherever_it_is():
    first = job(n_stages=3, model=gpt(n_layers=4, d_model=8, n_heads=2, seq_len=40, vocab_size=10))
    last = job(n_stages=3, model=gpt(n_layers=6, d_model=8, n_heads=2, seq_len=1, vocab_size=10, tied=False))
    for made, stage in ((first, 0), (last, 2)):
        assert made.gradient_bytes == made.stage_gradient_bytes[stage] > made.stage_gradient_bytes[1]


def test_more_stages_than_blocks_are_refused():
    with pytest.raises(JobError, match="6 blocks, too few for 7 stages; wanted at most 6"):
        job(n_stages=7)


def test_heads_that_do_not_divide_the_width_are_refused():
    with pytest.raises(JobError, match="d_model 8 is not a multiple of 3 heads"):
        gpt(n_layers=1, d_model=8, n_heads=3, seq_len=4, vocab_size=10)


@given(counts, counts, st.integers(1, 60))
@settings(max_examples=60, deadline=None)
def test_a_batch_divides_or_the_job_says_what_is_left(n_replicas, microbatch, global_batch):
    fields = {"n_replicas": n_replicas, "microbatch": microbatch, "global_batch": global_batch}
    if over := global_batch % (n_replicas * microbatch):
        with pytest.raises(JobError, match=f"{n_replicas} replicas x {microbatch} sequences leave {over} over"):
            job(**fields)
    else:
        assert job(**fields).n_microbatches * n_replicas * microbatch == global_batch


@pytest.mark.parametrize("dtype", BYTES_PER_ELEMENT)
def test_messages_are_one_microbatch_of_activations_and_one_shard_of_the_gradient(dtype):
    made, each = job(dtype=dtype, microbatch=2), BYTES_PER_ELEMENT[dtype]
    assert message_bytes(made, Action(0, Kind.SEND_F, 0)) == 2 * 4 * 8 * each
    assert message_bytes(made, Action(1, Kind.SEND_B, 0)) == message_bytes(made, Action(0, Kind.SEND_F, 0))
    for kind in (Kind.SEND_G, Kind.SEND_P):
        assert message_bytes(made, Action(1, kind, peer=1)) == made.stage_gradient_bytes[1] / 2


def test_a_hop_of_the_cost_model_is_the_whole_minibatch():
    made = job(microbatch=2)
    assert made.n_microbatches == 2
    assert made.hop_bytes == 2 * made.activation_bytes


@given(st.integers(1, 24))
@settings(max_examples=24, deadline=None)
def test_shapes_use_every_device_and_every_one_can_be_made(n_devices):
    shapes = job(global_batch=24).shapes(n_devices)
    for n_stages, n_replicas in shapes:
        assert n_stages * n_replicas == n_devices
        assert job(n_stages=n_stages, n_replicas=n_replicas, global_batch=24).n_tasklets == n_devices
    assert shapes == sorted(set(shapes))
    refused = {(s, n_devices // s) for s in range(1, n_devices + 1) if n_devices % s == 0} - set(shapes)
    for n_stages, n_replicas in refused:
        with pytest.raises(JobError):
            job(n_stages=n_stages, n_replicas=n_replicas, global_batch=24)


def test_a_job_of_message_sizes_fits_every_divisor_of_the_devices():
    assert Job.from_bytes(2, 2, 1, 1).shapes(12) == [(1, 12), (2, 6), (3, 4), (4, 3), (6, 2), (12, 1)]


def test_a_job_of_message_sizes_is_priced_only():
    made = Job.from_bytes(2, 3, gradient_bytes=5e8, activation_bytes=7e8)
    assert (made.n_tasklets, made.gradient_bytes, made.hop_bytes) == (6, 5e8, 7e8)
    with pytest.raises(JobError, match="holds message sizes only; simulating or running it needs a model"):
        made.modelled()


REFUSALS = [
    ({"n_stages": 0}, "n_stages is 0; wanted a whole number from 1 to"),
    ({"n_replicas": -2}, "n_replicas is -2; wanted"),
    ({"microbatch": 1.5}, "microbatch is 1.5; wanted a whole number"),
    ({"global_batch": 0}, "global_batch is 0; wanted"),
    ({"model": None}, "has no model; wanted one, or gradient_bytes and activation_bytes"),
    ({"given_hop_bytes": -1.0}, "hop_bytes is -1.0; wanted 0 or more bytes"),
    ({"given_gradient_bytes": float("nan")}, "gradient_bytes is nan; wanted"),
]


@pytest.mark.parametrize(("fields", "says"), REFUSALS, ids=lambda x: next(iter(x)) if isinstance(x, dict) else "")
def test_an_impossible_job_is_refused_in_one_line(fields, says):
    with pytest.raises(JobError, match=says) as refused:
        job(**fields)
    assert "\n" not in str(refused.value)


def test_an_unknown_dtype_is_refused_with_the_nearest_one():
    with pytest.raises(
        UnknownName, match=r"no dtype named 'bf61'; did you mean 'bf16'\? known: bf16, fp16, fp32, fp64"
    ):
        job(dtype="bf61")
    with pytest.raises(UnknownName, match="no compression named 'zip'; known: none"):
        job(compression="zip")


def test_the_presets_carry_the_constants_of_the_public_code():
    public, own = JOBS["dtfm-gpt3-xl"], JOBS["gpt3-xl"]
    assert public.gradient_bytes == pytest.approx(0.65e9)
    assert public.hop_bytes == pytest.approx(0.47125e9, rel=1e-5)
    assert public.model == own.model
    assert public.n_microbatches == 64
    assert own.model.parameters == pytest.approx(1.3e9, rel=0.02)
    assert own.gradient_bytes == max(own.stage_gradient_bytes)
