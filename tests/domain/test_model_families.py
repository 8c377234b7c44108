"""Models count as their papers and checkpoints do."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtfm_lab.domain.errors import JobError
from dtfm_lab.domain.job import BYTES_PER_ELEMENT, MODELS, Layer, LayerKind, estimated_held, gpt, llama

SMALL = {"n_layers": 3, "d_model": 24, "n_heads": 4, "seq_len": 5, "vocab_size": 11}
CHECKPOINTS = {
    "gpt2-small": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "mistral-7b": 7_241_732_096,
    "qwen2-0.5b": 494_032_768,
    "qwen2-7b": 7_615_616_512,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-0.6b": 596_049_920,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264,
    "llama-7b": 6_738_415_616,
    "llama-13b": 13_015_864_320,
    "llama-30b": 32_528_943_616,
    "llama-65b": 65_285_660_672,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.3-70b": 70_553_706_496,
    "mistral-7b-v0.3": 7_248_023_552,
    "mistral-nemo-12b": 12_247_782_400,
    "mistral-small-24b": 23_572_403_200,
    "smollm2-135m": 134_515_008,
    "smollm2-360m": 361_821_120,
    "smollm2-1.7b": 1_711_376_384,
    "tinyllama-1.1b": 1_100_048_384,
    "yi-6b": 6_061_035_520,
    "yi-34b": 34_388_917_248,
    "qwen2-1.5b": 1_543_714_304,
    "qwen2-72b": 72_706_203_648,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-7b": 7_615_616_512,
    "qwen3-1.7b": 1_720_574_976,
    "mixtral-8x7b": 46_702_792_704,
    "mixtral-8x22b": 140_620_634_112,
    "mixtral-8x22b-instruct": 140_630_071_296,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v2": 235_741_434_880,
    "deepseek-v3": 671_026_404_352,
    "kimi-k2": 1_026_408_209_408,
}
"""What the published checkpoints hold, tied matrices once. Of DeepSeek-V3 and Kimi K2 without the biases by which
routers balance experts, which no gradient trains, and without the block that predicts a second token."""

BROWN_2020 = {"gpt3-2.7b": 2.7e9, "gpt3-6.7b": 6.7e9, "gpt3-13b": 13e9, "gpt3-175b": 175e9}
"""Table 2.1, two digits."""


@st.composite
def builders(draw):
    """(a builder, its sizes without seq_len) of a random model of either family."""
    kv, per_kv, head_dim = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 8))
    heads = kv * per_kv
    sizes = {
        "n_layers": draw(st.integers(1, 4)),
        "n_heads": heads,
        "vocab_size": draw(st.integers(1, 300)),
        "tied": draw(st.booleans()),
        "d_ff": draw(st.integers(1, 200)),
    }
    if draw(st.booleans()):
        return gpt, sizes | {"d_model": heads * head_dim, "n_positions": 64}
    biases = {name: draw(st.booleans()) for name in ("qkv_bias", "attention_out_bias", "mlp_bias")}
    biases |= {"qk_norm": not any(biases.values()) and draw(st.booleans())}
    return llama, sizes | biases | {"d_model": draw(st.integers(1, 40)), "n_kv_heads": kv, "head_dim": head_dim}


lengths = st.integers(1, 64)


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_known_model_has_the_parameters_of_its_checkpoint(name):
    assert MODELS[name].parameters == CHECKPOINTS[name]


def test_the_parameters_of_every_known_model_are_checked():
    assert set(MODELS) - {"tiny", "small", "gpt3-xl"} == {*CHECKPOINTS, *BROWN_2020}


@pytest.mark.parametrize("name", BROWN_2020)
def test_a_gpt3_has_the_parameters_of_its_paper(name):
    assert MODELS[name].parameters == pytest.approx(BROWN_2020[name], rel=0.02)


@given(st.integers(1, 4), st.integers(1, 64), st.integers(1, 64))
def test_a_forward_takes_the_flop_of_narayanan_2021(n_layers, d, t):
    """Equation 3 of the paper, 96 B s l h^2 (1 + s/6h + V/16lh), is a forward, a backward and a recomputation."""
    model = gpt(n_layers=n_layers, d_model=d, n_heads=1, seq_len=t, vocab_size=100)
    whole = 96 * t * n_layers * d**2 * (1 + t / (6 * d))
    head = 6 * t * d * 100
    assert 4 * sum(x.forward_flop for x in model.layers if x.kind is LayerKind.BLOCK) == pytest.approx(whole)
    assert 3 * model.layers[-1].forward_flop == pytest.approx(head)


@given(builders(), lengths)
@settings(max_examples=25)
def test_every_token_meets_every_matrix_once(builder, seq_len):
    """Without biases and norms a forward is two FLOP per parameter and token, and the attention matrix."""
    build, sizes = builder
    model = build(seq_len=seq_len, **sizes)
    d, ff, heads = model.d_model, sizes["d_ff"], model.n_heads
    q, kv = heads * model.head_dim, sizes.get("n_kv_heads", heads) * model.head_dim
    if build is gpt:
        block_vectors, norm = 2 * 2 * d + 3 * d + d + ff + d, 2 * d
        held = 9 * d + 2 * ff
    else:
        block_vectors, norm = 2 * d, d
        held = 4 * d + 2 * q + 2 * kv + 4 * ff
        block_vectors += sizes["qkv_bias"] * (q + 2 * kv) + sizes["attention_out_bias"] * d
        block_vectors += 2 * model.head_dim * sizes["qk_norm"]
        held += sizes["qk_norm"] * (q + kv)
        block_vectors += sizes["mlp_bias"] * (2 * ff + d)
    own_matrix = 0 if model.tied else model.vocab_size * d
    embedding, *blocks, head = model.layers
    for block in blocks:
        matrices = block.parameters - block_vectors
        assert block.forward_flop == 2 * seq_len * matrices + 4 * seq_len**2 * q
        assert block.output_elements == seq_len * d == model.boundary_elements
        assert block.held_elements == seq_len * held
    assert embedding.parameters == (model.vocab_size + (64 if build is gpt else 0)) * d
    assert head.parameters == norm + own_matrix
    assert head.forward_flop == 2 * seq_len * d * model.vocab_size
    assert head.output_elements == seq_len * model.vocab_size
    assert head.held_elements == 2 * seq_len * (model.vocab_size + d)
    assert embedding.held_elements == seq_len


@given(builders(), lengths, lengths)
@settings(max_examples=25)
def test_another_sequence_length_is_as_if_built_so(builder, before, after):
    build, sizes = builder
    assert build(seq_len=before, **sizes).with_seq_len(after) == build(seq_len=after, **sizes)


@pytest.mark.parametrize("name", ["gpt2-xl", "gpt3-175b"])
def test_what_is_known_by_its_width_only_is_taken_for_a_gpt(name):
    for layer in MODELS[name].layers:
        estimate = estimated_held(layer.kind, layer.output_elements)
        assert estimate == pytest.approx(layer.held_elements, rel=0.2, abs=MODELS[name].seq_len)
    block = MODELS[name].layers[1]
    assert estimated_held(block.kind, block.output_elements) == block.held_elements


def test_learned_positions_end_and_rotary_ones_do_not():
    assert gpt(**SMALL).n_positions == 5
    assert gpt(**SMALL, n_positions=9).n_positions == 9
    assert llama(d_ff=7, **SMALL).n_positions == 0
    with pytest.raises(JobError, match="model gpt: seq_len is 6; wanted at most 5, its learned positions"):
        gpt(**SMALL).with_seq_len(6)
    with pytest.raises(JobError, match="model gpt: seq_len is 5; wanted at most 4, its learned positions"):
        gpt(**SMALL, n_positions=4)
    assert llama(d_ff=7, **SMALL).with_seq_len(6).seq_len == 6


@given(builders(), lengths, st.sampled_from(sorted(BYTES_PER_ELEMENT)))
def test_the_table_of_layers_holds_the_model(builder, seq_len, dtype):
    build, sizes = builder
    model, each = build(seq_len=seq_len, **sizes), BYTES_PER_ELEMENT[dtype]
    table = model.to_frame(dtype)
    assert list(table["kind"]) == ["embedding", *["block"] * model.n_blocks, "head"]
    assert table["parameters"].sum() == model.parameters
    assert table["forward_flop"].sum() == pytest.approx(model.forward_flop)
    assert (table["gradient_bytes"] == each * table["parameters"]).all()
    assert (table["output_bytes"][:-1] == each * model.boundary_elements).all()
    assert table["held_bytes"].tolist() == [each * layer.held_elements for layer in model.layers]


BLOCK = gpt(**SMALL).layers[1]
HEAD = gpt(**SMALL).layers[-1]
REFUSALS = {
    "a width that heads do not divide": (
        lambda: gpt(**SMALL | {"n_heads": 5}),
        "d_model 24 is not a multiple of 5 heads",
    ),
    "groups that do not divide": (
        lambda: llama(d_ff=7, n_kv_heads=3, **SMALL),
        "n_kv_heads is 3; wanted a divisor of its 4 heads",
    ),
    "no heads": (lambda: gpt(**SMALL | {"n_heads": 0}), "n_heads is 0; wanted a whole number"),
    "a name of two lines": (lambda: gpt(**SMALL, name="a\nb"), r"model is named 'a\\nb'; wanted text without"),
    "half a vocabulary": (lambda: gpt(**SMALL | {"vocab_size": 1.5}), "vocab_size is 1.5; wanted a whole number"),
    "a head in the middle": (
        lambda: replace(gpt(**SMALL), layers=(HEAD, BLOCK)),
        "layer 0 of 2 is the head; wanted the embedding first, then blocks, the head last",
    ),
    "a block of another width": (
        lambda: replace(gpt(**SMALL), layers=(replace(BLOCK, output_elements=7),)),
        "layer 0 has 7 output_elements; wanted seq_len x d_model = 120",
    ),
    "work below none": (
        lambda: Layer(kind=LayerKind.BLOCK, parameters=1, forward_flop=-1.0, output_elements=1),
        "layer of kind block: forward_flop is -1.0; wanted 0 or more",
    ),
    "parameters beyond counting": (
        lambda: gpt(**SMALL | {"d_model": 10**9, "n_heads": 1}),
        "layer of kind block: parameters is",
    ),
    "heads beyond counting": (lambda: gpt(**SMALL | {"n_heads": 10**400}), "n_heads is 1000"),
    "attention that is not there": (
        lambda: replace(gpt(**SMALL), layers=(replace(BLOCK, forward_flop=1.0),)).with_seq_len(2),
        "a block has fewer FLOP than its attention",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_an_impossible_model_is_refused_in_one_line(name):
    make, says = REFUSALS[name]
    with pytest.raises(JobError, match=says):
        make()
