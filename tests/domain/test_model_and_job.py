"""Models count as the papers do; jobs divide, or say what is left over."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dtfm_lab.domain.errors import JobError, UnknownName
from dtfm_lab.domain.job import (
    BYTES_PER_ELEMENT,
    COMPRESSIONS,
    INT8_BLOCK,
    JOBS,
    MODELS,
    Job,
    compressed_bytes,
    device_gradient_bytes,
    device_gradient_elements,
    gpt,
    message_bytes,
)
from dtfm_lab.domain.network import Device, Topology
from dtfm_lab.domain.schedule import Action, Kind, Schedule, Step, lower
from dtfm_lab.domain.units import counted

SMALL = gpt(n_layers=6, d_model=8, n_heads=2, seq_len=4, vocab_size=10)
COPY = SMALL.vocab_size * SMALL.d_model
"""of the embedding, that a tied head on another device holds"""
counts = st.integers(1, 6)


def job(**fields) -> Job:
    return Job(**{"model": SMALL, "n_stages": 2, "n_replicas": 2, "global_batch": 8, "microbatch": 1} | fields)


@given(st.integers(1, 40), st.integers(1, 40))
@settings(max_examples=25)
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


def test_the_largest_stage_sets_the_price_wherever_it_is():
    first = job(n_stages=3, model=gpt(n_layers=4, d_model=8, n_heads=2, seq_len=40, vocab_size=10))
    last = job(n_stages=3, model=gpt(n_layers=6, d_model=8, n_heads=2, seq_len=1, vocab_size=10, tied=False))
    for made, stage in ((first, 0), (last, 2)):
        assert made.gradient_bytes == made.stage_gradient_bytes[stage] > made.stage_gradient_bytes[1]


def test_more_stages_than_blocks_are_refused():
    with pytest.raises(JobError, match="6 blocks, too few for 7 stages; wanted at most 6"):
        job(n_stages=7)


@given(counts, counts, st.integers(1, 60))
@settings(max_examples=25)
def test_a_batch_divides_or_the_job_says_what_is_left(n_replicas, microbatch, global_batch):
    fields = {"n_replicas": n_replicas, "microbatch": microbatch, "global_batch": global_batch}
    n_microbatches, over = divmod(global_batch, microbatch)
    if over:
        with pytest.raises(JobError, match=f"those of {microbatch} sequences leave {over} over"):
            job(**fields)
    elif n_microbatches < n_replicas:
        with pytest.raises(
            JobError, match=f"has {counted(n_microbatches, 'micro-batch')} .* too few for {n_replicas} replicas"
        ):
            job(**fields)
    else:
        counts = job(**fields).microbatch_counts
        assert (len(counts), sum(counts) * microbatch) == (n_replicas, global_batch)
        assert counts == tuple(sorted(counts, reverse=True))
        assert counts[0] - counts[-1] <= 1
        assert job(**fields).n_microbatches == counts[0]


def test_a_job_may_leave_its_shape_to_the_planner():
    free = JOBS["gpt3-xl"]
    assert (free.n_stages, free.n_replicas, free.shaped) == (None, None, False)
    assert free.tokens == 1024 * 2048  # what needs no shape is there
    for needs in (lambda: free.n_tasklets, lambda: free.n_microbatches, lambda: free.gradient_bytes, free.to_frame):
        with pytest.raises(JobError, match="job gpt3-xl: n_stages is not given; wanted a number, or a plan"):
            needs()
    assert (free.fitted(64).n_stages, free.fitted(64).n_replicas) == (8, 8)
    assert (free.fitted(8).n_stages, free.fitted(8).n_replicas) == (4, 2), "of two that are as square, the deeper one"
    half = free.with_fields(n_stages=4)
    assert not half.shaped
    assert (half.fitted(64).n_stages, half.fitted(64).n_replicas) == (4, 16)


def test_micro_batches_of_each_replica_are_those_of_the_batch():
    shape = {"n_replicas": 2, "microbatch": 2, "global_batch": 20}
    uneven = job(**shape, microbatches_per_replica=[7, 3])
    assert (uneven.microbatch_counts, uneven.n_microbatches, uneven.mean_microbatches) == ((7, 3), 7, 5.0)
    assert uneven.with_fields(global_batch=24).microbatches_per_replica is None
    assert uneven.with_fields(dtype="fp32").microbatches_per_replica == (7, 3)
    for counts, says in (((5, 6), "11 in all; wanted"), ((10,), "for 1 replicas; wanted"), ((10, 0), "from 1 to")):
        with pytest.raises(JobError, match=says):
            job(**shape, microbatches_per_replica=counts)


def two_stages(per_device: int = 1) -> Schedule:
    """On two devices, one micro-batch."""
    stages = range(2 * per_device)
    orders = [[*(f"{s}F0" for s in stages[p::2]), *(f"{s}B0" for s in stages[p::2][::-1])] for p in range(2)]
    return Schedule.from_orders("mine", [" ".join(order) for order in orders])


@pytest.mark.parametrize("dtype", BYTES_PER_ELEMENT)
def test_messages_are_one_microbatch_of_activations_and_one_shard_of_the_gradient(dtype):
    made, each, schedule = job(dtype=dtype, microbatch=2), BYTES_PER_ELEMENT[dtype], two_stages()
    for action in (Action(0, Kind.SEND_F, 0), Action(1, Kind.SEND_B, 0)):
        assert message_bytes(made, schedule, Step(action)) == 2 * 4 * 8 * each
    for kind in (Kind.SEND_G, Kind.SEND_P):
        step = Step(Action(1, kind, peer=1), share=0.5)
        assert message_bytes(made, schedule, step) == made.stage_gradient_bytes[1] / 2
    assert message_bytes(made, schedule, Step(Action(0, Kind.SEND_E, peer=1))) == 10 * 8 * each


@pytest.mark.parametrize("per_device", [1, 2, 3])
def test_a_device_of_several_stages_averages_the_gradients_of_all(per_device):
    made, schedule = job(), two_stages(per_device)
    held = device_gradient_elements(made, schedule.n_stages)
    assert sum(held) == SMALL.parameters + COPY
    parameters = made.parameters_of(schedule.n_stages)
    assert held == tuple(sum(parameters[stage] for stage in schedule.stages_of(p)) for p in range(2))
    for position in range(2):
        sent = [
            message_bytes(made, schedule, step)
            for step in lower(schedule, 2).of(position, 0)
            if step.action.kind in (Kind.SEND_G, Kind.SEND_P)
        ]
        assert sent == [device_gradient_bytes(made, schedule.n_stages)[position] / 2] * 2


@pytest.mark.parametrize("n_stages", [1, 2, 5])
@pytest.mark.parametrize("tied", [True, False])
def test_a_tied_head_on_another_device_holds_a_copy_of_the_embedding(n_stages, tied):
    model = gpt(n_layers=6, d_model=8, n_heads=2, seq_len=4, vocab_size=10, tied=tied)
    made = job(model=model, n_stages=n_stages)
    assert made.ties_stages == (tied and n_stages > 1)
    assert sum(made.stage_parameters) == model.parameters + (COPY if made.ties_stages else 0)
    for n in range(n_stages, 7):
        assert sum(made.parameters_of(n)) == sum(made.stage_parameters)
        assert tuple(layer for layers in made.layers_of(n) for layer in layers) == model.layers


# compression


@given(st.integers(0, 10_000), st.sampled_from(sorted(BYTES_PER_ELEMENT)), st.sampled_from(COMPRESSIONS))
@settings(max_examples=25)
def test_compression_never_makes_a_message_larger(n, dtype, how):
    found, plain = compressed_bytes(n, dtype, how), n * BYTES_PER_ELEMENT[dtype]
    assert found <= plain == compressed_bytes(n, dtype, "none")
    if how == "fp16":
        assert found == 2 * n
    if how == "int8" and n > INT8_BLOCK:
        assert n < found <= n * (1 + 4 / INT8_BLOCK) + 4


def test_int8_takes_a_byte_a_number_and_a_scale_for_each_block():
    blocks = {1: 2, 256: 260, 257: 265, 512: 520}
    assert {n: compressed_bytes(n, "fp16", "int8") for n in blocks} == blocks  # one number is smaller as it is


def test_gradients_are_compressed_as_messages_are_unless_told_otherwise():
    both, gradients, activations = (
        job(dtype="fp32", **fields)
        for fields in (
            {"compression": "int8"},
            {"gradient_compression": "int8"},
            {"compression": "int8", "gradient_compression": "none"},
        )
    )
    plain = job(dtype="fp32")
    found = [(one.codes_activations, one.codes_gradients) for one in (plain, both, gradients, activations)]
    assert found == [(False, False), (True, True), (False, True), (True, False)]
    assert both.activation_bytes == activations.activation_bytes < gradients.activation_bytes == plain.activation_bytes
    assert both.gradient_bytes == gradients.gradient_bytes < activations.gradient_bytes == plain.gradient_bytes
    assert both.embedding_bytes == plain.embedding_bytes
    for one in (both, gradients, activations):
        assert one.hop_bytes == one.n_microbatches * one.activation_bytes


@given(st.integers(1, 6), st.integers(1, 2), st.integers(1, 3))
def test_the_table_of_stages_adds_up_to_the_iteration(n_stages, n_replicas, microbatch):
    made = job(n_stages=n_stages, n_replicas=n_replicas, microbatch=microbatch, global_batch=12)
    table = made.to_frame()
    assert len(table) == n_stages
    assert made.tokens == 12 * SMALL.seq_len
    assert made.flop == pytest.approx(3 * 12 * SMALL.forward_flop)
    assert n_replicas * table["flop"].sum() == pytest.approx(made.flop)
    assert table["parameters"].sum() == SMALL.parameters + (COPY if n_stages > 1 else 0)
    assert table["layers"].sum() == len(SMALL.layers)
    assert tuple(table["gradient_bytes"]) == made.stage_gradient_bytes
    assert table["activation_bytes"].sum() == (n_stages - 1) * made.activation_bytes


@given(st.integers(1, 24))
@settings(max_examples=24)
def test_shapes_use_every_device_and_every_one_can_be_made(n_devices):
    shapes = job(global_batch=24).shapes(n_devices)
    for n_stages, n_replicas in shapes:
        assert n_stages * n_replicas == n_devices
        assert job(n_stages=n_stages, n_replicas=n_replicas, global_batch=24).n_tasklets == n_devices
    assert shapes == sorted(set(shapes))
    refused = {(s, n_devices // s) for s in range(1, n_devices + 1) if n_devices % s == 0} - set(shapes)
    for n_stages, n_replicas in refused:  # too deep, or of unequal shares
        if n_stages <= 6 and n_replicas <= 24:
            assert len(set(job(n_stages=n_stages, n_replicas=n_replicas, global_batch=24).microbatch_counts)) == 2


def test_a_job_of_message_sizes_is_priced_only():
    made = Job.from_bytes(np.int64(2), 3, gradient_bytes=5e8, activation_bytes=7e8)
    assert (made.n_tasklets, made.gradient_bytes, made.hop_bytes) == (6, 5e8, 7e8)
    for ask in (made.modelled, made.to_frame, lambda: made.tokens, lambda: made.flop):
        with pytest.raises(JobError, match="holds message sizes only; simulating or running it needs a model"):
            ask()


REFUSALS = [
    ({"n_stages": 0}, "n_stages is 0; wanted a whole number from 1 to"),
    ({"n_replicas": -2}, "n_replicas is -2; wanted"),
    ({"microbatch": 1.5}, "microbatch is 1.5; wanted a whole number"),
    ({"global_batch": 0}, "global_batch is 0; wanted"),
    ({"model": None}, "has no model; wanted one, or gradient_bytes and activation_bytes"),
    ({"given_hop_bytes": -1.0}, "activation_bytes is -1.0; wanted 0 or more bytes"),
    ({"given_gradient_bytes": float("nan")}, "gradient_bytes is nan; wanted"),
    ({"synchronise_every": 0}, "synchronise_every is 0; wanted a whole number from 1 to"),
    ({"stages_per_device": 0}, "stages_per_device is 0; wanted"),
    ({"recompute": "yes"}, "recompute is 'yes'; wanted true or false"),
    ({"codec_bytes_per_s": 0}, "codec_bytes_per_s is 0; wanted more than 0"),
    ({"codec_bytes_per_s": float("nan")}, "codec_bytes_per_s is nan; wanted more than 0"),
    ({"name": "a\nb"}, r"job is named 'a\\nb'; wanted text without control characters"),
]


@pytest.mark.parametrize(("fields", "says"), REFUSALS, ids=lambda x: next(iter(x)) if isinstance(x, dict) else "")
def test_an_impossible_job_is_refused_in_one_line(fields, says):
    with pytest.raises(JobError, match=says):
        job(**fields)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"dtype": "bf61"}, r"no dtype named 'bf61'; did you mean 'bf16'\? known: bf16, fp16, fp32, fp64"),
        ({"compression": "zip"}, "no compression named 'zip'; known: fp16, int8, none"),
        ({"compression": ["int8"]}, "no compression named"),
        ({"gradient_compression": "int9"}, "no gradient_compression named 'int9'; did you mean 'int8'"),
        ({"synchronisation": "shard"}, "no synchronisation named 'shard'; did you mean 'sharded'"),
    ],
)
def test_an_unknown_name_is_refused_with_the_known_ones(fields, says):
    with pytest.raises(UnknownName, match=says):
        job(**fields)


def test_the_presets_carry_the_constants_of_the_public_code():
    public, own = JOBS["dtfm-gpt3-xl"], JOBS["gpt3-xl"]
    assert public.gradient_bytes == pytest.approx(0.65e9)
    assert public.hop_bytes == pytest.approx(0.47125e9, rel=1e-5)
    assert public.model == own.model
    assert public.n_microbatches == 64
    assert own.model.parameters == pytest.approx(1.3e9, rel=0.02)
    shaped = own.fitted(64)
    assert shaped.gradient_bytes == max(shaped.stage_gradient_bytes)


@pytest.mark.parametrize("name", JOBS)
def test_every_preset_fits_its_model(name):
    preset = JOBS[name]
    assert preset.name == name
    assert preset.modelled() is preset.model
    assert MODELS[preset.model.name] is preset.model


def test_one_of_a_thing_is_told_in_the_singular():
    assert [counted(n, "micro-batch") for n in (0, 1, 2, 1024)] == [
        "0 micro-batches",
        "1 micro-batch",
        "2 micro-batches",
        "1,024 micro-batches",
    ]
    assert counted(2, "loss") == "2 losses"
    with pytest.raises(JobError, match="global batch of 1 sequence has 1 micro-batch of 1, too few for 2 replicas"):
        job(global_batch=1, microbatch=1, n_stages=1, n_replicas=2)
    one = Topology((Device(name="ada"),), np.zeros((1, 1)), np.ones((1, 1)), name="alone")
    assert repr(one) == "<Topology alone: 1 device in 1 region>"
