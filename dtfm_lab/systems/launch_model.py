"""The model that Megatron-LM's flags describe: a GPT, a Llama, or one with experts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import ModelSpec, gpt, llama, moe
from dtfm_lab.domain.network import shortened
from dtfm_lab.domain.options import MOST_COUNT

Count = Annotated[int, Field(ge=1, le=MOST_COUNT)]
Switch = Annotated[bool, BeforeValidator(lambda given: True if given is None else given)]
"""A flag that needs no value to be on."""

SIZES = {"num_layers": "n_layers", "hidden_size": "d_model", "num_attention_heads": "n_heads", "seq_length": "seq_len"}
"""Flags that every model has, and what they are called here."""
COUNTS = (
    *("ffn_hidden_size", "num_query_groups", "kv_channels", "vocab_size", "max_position_embeddings", "num_experts"),
    *("moe_router_topk", "moe_ffn_hidden_size", "moe_shared_expert_intermediate_size"),
)
SWITCHES = (
    *("swiglu", "group_query_attention", "disable_bias_linear", "add_qkv_bias", "qk_layernorm"),
    *("untie_embeddings_and_output_weights", "use_rotary_position_embeddings"),
)
MODEL_FLAGS: dict[str, Any] = {
    **dict.fromkeys((*SIZES, *COUNTS), Count),
    **dict.fromkeys(SWITCHES, Switch),
    "normalization": Literal["LayerNorm", "RMSNorm"],
    "position_embedding_type": Literal["learned_absolute", "rope"],
    "moe_layer_freq": str,
}
"""Flags of a model, each with what its value may be. Source: megatron/training/arguments.py of NVIDIA/Megatron-LM."""
DENSE_FIRST = re.compile(r"\(\[0\]\*(\d+)\+\[1\]\*\d+\)")
"""Blocks without experts, and then those with."""
GPT_VOCABULARY = 50257


def flag(name: str) -> str:
    """As it is typed."""
    return f"--{name.replace('_', '-')}"


def model_of(given: Mapping[str, Any]) -> ModelSpec | None:
    """The model; None where no flag tells any of its sizes. Raises LabError where some lack, or none here has them."""
    if not any(name in given for name in MODEL_FLAGS if name != "max_position_embeddings"):
        return None
    if missing := [flag(name) for name in SIZES if name not in given]:
        raise LabError(f"flags of a model lack {', '.join(missing)}; wanted all of them, or none and --job")
    sizes = {field: given[name] for name, field in SIZES.items()} | {"name": "flags"}
    rotary = given.get("position_embedding_type") == "rope" or given.get("use_rotary_position_embeddings", False)
    signs = {
        "--swiglu": given.get("swiglu", False),
        "--normalization RMSNorm": given.get("normalization") == "RMSNorm",
        "--position-embedding-type rope": rotary,
    }
    if not any(signs.values()):
        return _gpt(given, sizes)
    if lacks := [sign for sign, is_given in signs.items() if not is_given]:
        raise LabError(f"flags of a Llama lack {' and '.join(lacks)}; wanted {', '.join(signs)} together, or none")
    if "vocab_size" not in given:
        raise LabError("flags of a model lack --vocab-size, which its tokenizer would tell; wanted it, too")
    sizes |= {"vocab_size": given["vocab_size"], "tied": not given.get("untie_embeddings_and_output_weights", False)}
    sizes |= {"head_dim": given.get("kv_channels")}
    if given.get("group_query_attention"):
        sizes["n_kv_heads"] = given.get("num_query_groups", 1)  # as Megatron-LM has it
    return _llama(given, sizes) if given.get("num_experts", 1) == 1 else _moe(given, sizes)


def _refuse(given: Mapping[str, Any], names: tuple[str, ...], model: str) -> None:
    if found := [flag(name) for name in names if given.get(name)]:
        raise LabError(f"{found[0]} has no model here with a {model}; wanted the text without it, or another model")


def _gpt(given: Mapping[str, Any], sizes: dict[str, Any]) -> ModelSpec:
    ours = ("ffn_hidden_size", "vocab_size", "max_position_embeddings", "untie_embeddings_and_output_weights")
    beyond = (*COUNTS, *SWITCHES, "moe_layer_freq")
    _refuse(given, tuple(name for name in beyond if name not in ours), "GPT")
    return gpt(
        **sizes,
        vocab_size=given.get("vocab_size", GPT_VOCABULARY),
        d_ff=given.get("ffn_hidden_size"),
        n_positions=max(given.get("max_position_embeddings", 0), sizes["seq_len"]),
        tied=not given.get("untie_embeddings_and_output_weights", False),
    )


def _llama(given: Mapping[str, Any], sizes: dict[str, Any]) -> ModelSpec:
    _refuse(given, ("moe_layer_freq", "moe_shared_expert_intermediate_size"), "Llama")
    biased = not given.get("disable_bias_linear", False)
    return llama(
        **sizes,
        d_ff=given.get("ffn_hidden_size", _gated(sizes["d_model"])),
        qkv_bias=biased or given.get("add_qkv_bias", False),
        attention_out_bias=biased,
        mlp_bias=biased,
        qk_norm=given.get("qk_layernorm", False),
    )


def _moe(given: Mapping[str, Any], sizes: dict[str, Any]) -> ModelSpec:
    _refuse(given, ("add_qkv_bias",), "mixture of experts")
    if not given.get("disable_bias_linear"):
        raise LabError("--num-experts without --disable-bias-linear has no model here; wanted both")
    ff = given.get("ffn_hidden_size", _gated(sizes["d_model"]))
    pattern = given.get("moe_layer_freq", "1")
    dense = DENSE_FIRST.fullmatch(pattern)
    if pattern != "1" and dense is None:
        raise LabError(f"--moe-layer-freq is {shortened(pattern)}; wanted 1, or ([0]*2+[1]*30), blocks without first")
    return moe(
        **sizes,
        d_expert=given.get("moe_ffn_hidden_size", ff),
        n_experts=given["num_experts"],
        experts_per_token=given.get("moe_router_topk", 2),  # as Megatron-LM has it
        n_dense=int(dense[1]) if dense else 0,
        d_ff=ff if dense else None,
        d_shared=given.get("moe_shared_expert_intermediate_size", 0),
        qk_norm=given.get("qk_layernorm", False),
    )


def _gated(d_model: int) -> int:
    """Width of a gated MLP that no flag tells, as Megatron-LM has it."""
    return int(4 * d_model * 2 / 3 / 64) * 64
