"""Models with experts have the parameters and FLOP of their checkpoints, and files that give them back."""

from dataclasses import replace

import pytest

from dtfm_lab.domain.errors import FileError, JobError
from dtfm_lab.domain.job import MODELS, Job, Layer, LayerKind, kept_elements, moe
from dtfm_lab.files.models import model_from_config, model_from_section, model_to_section

PUBLISHED = {  # billions, of all and for a token, without and with the embedding's lookup as reports count it
    "mixtral-8x7b": (46.7, 12.9),
    "qwen3-30b-a3b": (30.5, 3.35),
    "deepseek-v2": (235.7, 21.4),
    "deepseek-v3": (671.0, 37.6),
}
SMALL = {
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "vocab_size": 128,
    "max_position_embeddings": 32,
    "num_experts_per_tok": 2,
    "tie_word_embeddings": False,
}
MIXTRAL = SMALL | {"model_type": "mixtral", "intermediate_size": 96, "num_local_experts": 4, "num_key_value_heads": 2}
QWEN3 = SMALL | {"model_type": "qwen3_moe", "intermediate_size": 96, "moe_intermediate_size": 32, "head_dim": 24}
QWEN3 |= {"num_experts": 8, "num_key_value_heads": 2}
DEEPSEEK = SMALL | {
    "model_type": "deepseek_v3",
    "intermediate_size": 160,
    "n_routed_experts": 8,
    "moe_intermediate_size": 48,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
    "kv_lora_rank": 16,
    "q_lora_rank": 24,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
}
COUNTED = {
    "mixtral": (MIXTRAL, 275_648, 10_797_056),
    "qwen3": (QWEN3, 221_264, 7_700_480),
    "deepseek": (DEEPSEEK, 267_576, 10_469_376),
    "deepseek-v2": (DEEPSEEK | {"model_type": "deepseek_v2", "q_lora_rank": None}, 274_416, 10_911_744),
}
"""Parameters of these configurations in transformers 5.24, and FLOP of one sequence by torch's counter."""


def a_moe(**changes: object):
    given = {"n_layers": 4, "d_model": 64, "n_heads": 4, "seq_len": 32, "vocab_size": 100, "n_dense": 1, "d_ff": 96}
    return moe(**given | {"d_expert": 48, "n_experts": 8, "experts_per_token": 2, "d_shared": 24} | changes)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_preset_has_the_parameters_of_its_report(name):
    model, (whole, active) = MODELS[name], PUBLISHED[name]
    experts = sum(layer.expert_elements for layer in model.layers)
    unused = experts * (1 - model.experts_per_token / model.n_experts)
    assert model.parameters / 1e9 == pytest.approx(whole, abs=0.06)
    assert (model.parameters - unused) / 1e9 == pytest.approx(active, abs=0.06)


@pytest.mark.parametrize("name", COUNTED)
def test_a_config_is_the_model_that_transformers_builds(name):
    data, parameters, flop = COUNTED[name]
    model = model_from_config(data)
    assert (model.parameters, model.forward_flop) == (parameters, flop)


def test_other_spellings_of_a_key_are_read():
    data = {key: value for key, value in QWEN3.items() if key != "num_experts"}
    assert model_from_config(data | {"num_local_experts": 8}) == model_from_config(QWEN3)


@pytest.mark.parametrize("change", [{"mlp_only_layers": [1]}, {"decoder_sparse_step": 2}])
def test_blocks_without_experts_in_between_are_refused(change):
    with pytest.raises(FileError, match=next(iter(change))):
        model_from_config(QWEN3 | change)


def test_a_file_gives_the_model_back_and_its_sizes_make_it():
    model = a_moe(kv_rank=8, q_rank=16, nope_dim=8, rope_dim=4, value_dim=8)
    assert model_from_section(model_to_section(model), "a file") == model
    data = {"family": "moe", "n_layers": 2, "d_model": 64, "n_heads": 4, "seq_len": 32, "vocab_size": 100}
    data |= {"d_expert": 48, "n_experts": 8, "experts_per_token": 2}
    built = model_from_section(data, "a file")
    assert {layer.expert_elements for layer in built.layers[1:-1]} == {8 * 3 * 64 * 48}


def test_an_expert_that_no_token_is_sent_to_costs_memory_and_no_flop():
    few, many = a_moe(n_experts=8), a_moe(n_experts=16)
    router = 2 * 32 * 64 * 8  # its products with eight experts more
    assert many.forward_flop - few.forward_flop == 3 * router
    assert many.parameters - few.parameters == 3 * 8 * (3 * 64 * 48 + 64)


def test_all_experts_for_every_token_are_one_wide_mlp_and_a_router():
    dense = a_moe(n_dense=4, d_ff=8 * 48 + 24).layers[1]
    sparse = a_moe(n_dense=0, experts_per_token=8).layers[1]
    assert sparse.parameters - dense.parameters == 64 * 8
    assert sparse.forward_flop - dense.forward_flop == 2 * 32 * 64 * 8
    assert sparse.gated_elements == dense.gated_elements
    assert sparse.held_elements - dense.held_elements == 32 * (8 + 2 * 8 * 64)  # the router's and each expert's ends


def test_fused_operators_hold_a_width_less_of_each_gate():
    usual = Job(model=a_moe(), n_stages=1, n_replicas=1, global_batch=1, microbatch=1)
    fused = usual.with_fields(operators="fused")
    for layer in usual.model.layers[1:-1]:
        assert kept_elements(usual, layer) - kept_elements(fused, layer) == layer.gated_elements > 0


def test_another_length_of_sequences_is_that_of_the_builder():
    assert a_moe().with_seq_len(64) == a_moe(seq_len=64)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"experts_per_token": 9}, "experts_per_token is 9"),
        ({"n_dense": 5}, "n_dense is 5"),
        ({"d_ff": None}, "d_ff is None"),
        ({"n_kv_heads": 3}, "n_kv_heads is 3; wanted a divisor of 4"),
        ({"n_heads": 5}, "n_heads is 5; wanted a divisor of 64"),
        ({"kv_rank": 8}, "nope_dim is None"),
        ({"kv_rank": 8, "nope_dim": 8, "rope_dim": 4, "value_dim": 7}, "wanted an even sum"),
    ],
)
def test_sizes_that_do_not_go_together_are_refused(changes, words):
    with pytest.raises(JobError, match=words):
        a_moe(**changes)


def test_more_experts_parameters_than_parameters_are_refused():
    with pytest.raises(JobError, match="expert_elements is 3; wanted at most its 2 parameters"):
        Layer(kind=LayerKind.BLOCK, parameters=2, forward_flop=1.0, output_elements=4, expert_elements=3)


def test_a_file_of_a_version_before_has_the_numbers_that_came_since():
    for name in ("gpt3-xl", "llama-3-8b"):
        model = MODELS[name]
        before = replace(model, layers=tuple(replace(layer, kv_elements=0) for layer in model.layers))
        assert Job(model=before, global_batch=8).model == model
