"""The model that Megatron-LM's flags describe: a GPT, a Llama, a mixture of experts, or something between."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import LayerKind, ModelSpec, gpt, llama, moe
from dtfm_lab.domain.job.model.families import block_of
from dtfm_lab.domain.job.model.families import model_of as model_of_blocks
from dtfm_lab.domain.network import shortened
from dtfm_lab.extensions.systems.launches.settings import known_settings

SIZES = {"num_layers": "n_layers", "hidden_size": "d_model", "num_attention_heads": "n_heads", "seq_length": "seq_len"}
"""Flags that every model needs, and the lab's names of the same sizes."""
LATENT = {"kv_lora_rank": "kv_rank", "q_lora_rank": "q_rank"}
LATENT |= {"qk_head_dim": "nope_dim", "qk_pos_emb_head_dim": "rope_dim", "v_head_dim": "value_dim"}
"""Sizes of DeepSeek's attention, and what they are called here."""
TOKENIZERS = ("tokenizer_type", "tokenizer_model", "tokenizer_name_or_path")


def flag(name: str) -> str:
    """Return the flag of this name as a user types it."""
    return f"--{name.replace('_', '-')}"


def model_of(given: Mapping[str, Any]) -> ModelSpec | None:
    """Return the model; None if no flag gives a size.

    Raises LabError if sizes are missing, or if the lab has no model with them.
    """
    if not any(name.replace("-", "_") in given for name in known_settings()["megatron"]["model"]):
        return None
    if missing := [flag(name) for name in SIZES if name not in given]:
        raise LabError(f"flags of a model lack {', '.join(missing)}; wanted all of them, or none and --job")
    sizes = {field: given[name] for name, field in SIZES.items()} | {"name": "flags"}
    # Megatron-LM ties embedding and head by default.
    sizes |= {"tied": not given.get("untie_embeddings_and_output_weights", False)}
    sizes["vocab_size"] = _vocabulary(given)
    gated = given.get("swiglu") or given.get("quick_geglu") or "glu_activation" in given
    if given.get("num_experts", 1) > 1 or given.get("multi_latent_attention"):
        return _with_norms(_moe(given, sizes, gated=bool(gated)), given)
    _refuse(given, ("moe_shared_expert_intermediate_size",), "model without experts")
    kv = given.get("num_query_groups", 1) if given.get("group_query_attention") else sizes["n_heads"]
    head = given.get("kv_channels") or sizes["d_model"] // sizes["n_heads"]
    if sizes["n_heads"] % kv:
        raise LabError(f"--num-query-groups is {kv}; wanted a divisor of the {sizes['n_heads']} heads")
    if gated:
        return _with_norms(_llama(given, sizes, kv), given)
    return _gpt(given, sizes, head, kv)


def _vocabulary(given: Mapping[str, Any]) -> int:
    for name in ("padded_vocab_size", "pad_vocab_size_to", "vocab_size"):
        if name in given:
            return int(given[name])
    named = " ".join(str(given.get(name, "")) for name in TOKENIZERS).strip()
    if not named and not given.get("swiglu"):
        named = "GPT2BPETokenizer"  # Megatron-LM's default
    for pattern, size in known_settings()["megatron"]["vocabularies"].items():
        if re.search(pattern, named, re.IGNORECASE):
            return int(size)
    raise LabError("flags of a model lack --vocab-size, which its tokenizer would tell; wanted it, too")


def _learned(given: Mapping[str, Any]) -> bool:
    """True if the model has a table of learned positions."""
    kind = given.get("position_embedding_type", "learned_absolute")
    rotary = given.get("use_rotary_position_embeddings", False) or given.get("no_position_embedding", False)
    return kind in ("learned_absolute", "absolute") and not rotary


def _positions(given: Mapping[str, Any]) -> int:
    return max(given.get("max_position_embeddings", 0), given["seq_length"]) if _learned(given) else 0


def _rms(given: Mapping[str, Any]) -> bool:
    return str(given.get("normalization", "LayerNorm")).lower() == "rmsnorm"


def _refuse(given: Mapping[str, Any], names: tuple[str, ...], model: str) -> None:
    if found := [flag(name) for name in names if given.get(name)]:
        raise LabError(f"{found[0]} has no model here with a {model}; wanted the text without it, or another model")


def _gpt(given: Mapping[str, Any], sizes: dict[str, Any], head: int, n_kv: int) -> ModelSpec:
    """Return a model whose MLP has two matrices. If all other choices are a GPT's as well, it equals the lab's
    ``gpt``."""
    d, t, n_heads = sizes["d_model"], sizes["seq_len"], sizes["n_heads"]
    ff, positions = given.get("ffn_hidden_size") or 4 * d, _positions(given)
    biased, normed, norms = not given.get("disable_bias_linear"), given.get("qk_layernorm", False), 2 - _rms(given)
    # With a GPT's choices, the lab's own builder is exact.
    if (head * n_heads, n_kv, biased, normed, norms) == (d, n_heads, True, False, 2) and positions:
        return gpt(**sizes, d_ff=ff, n_positions=positions)
    q, kv = head * n_heads, head * n_kv
    biases = (q + 2 * kv + d + ff + d) * biased + (q + 2 * kv) * (not biased and given.get("add_qkv_bias", False))
    block = block_of(
        (d, n_heads, head, t),
        weights=2 * d * q + 2 * d * kv + 2 * d * ff,
        vectors=biases + 2 * norms * d + 2 * norms * head * normed,
        held=5 * d + (2 + normed) * (q + kv) + 2 * ff,
        half_scores=5,
        selective=d + 2 * q + 2 * kv + ff,
        selective_weights=d * q,
        moved=11 * d + 2 * ff + (2 * (q + kv) if not positions else 0) + 2 * normed * (q + kv),
        kv=2 * kv,
    )
    rest = {name: sizes[name] for name in ("d_model", "n_heads", "seq_len", "vocab_size", "tied")}
    rows = sizes["vocab_size"] + positions
    return model_of_blocks("flags", "gpt", sizes["n_layers"], block, rows, norm_vectors=norms, head_dim=head, **rest)


def _llama(given: Mapping[str, Any], sizes: dict[str, Any], n_kv: int) -> ModelSpec:
    biased = not given.get("disable_bias_linear", False)
    return llama(
        **sizes,
        d_ff=given.get("ffn_hidden_size", _gated(sizes["d_model"])),
        n_kv_heads=n_kv,
        head_dim=given.get("kv_channels"),
        qkv_bias=biased or given.get("add_qkv_bias", False),
        attention_out_bias=biased,
        mlp_bias=biased,
        qk_norm=given.get("qk_layernorm", False),
    )


def _with_norms(model: ModelSpec, given: Mapping[str, Any]) -> ModelSpec:
    """Return the model with biases in its norms, or a table of positions, if its flags ask for them."""
    biases, rows = 0 if _rms(given) else 1, _positions(given)
    if not biases and not rows:
        return model
    more = {LayerKind.EMBEDDING: rows, LayerKind.BLOCK: 2 * biases, LayerKind.HEAD: biases}
    layers = [replace(one, parameters=one.parameters + more[one.kind] * model.d_model) for one in model.layers]
    return replace(model, layers=tuple(layers))


def _moe(given: Mapping[str, Any], sizes: dict[str, Any], *, gated: bool) -> ModelSpec:
    if not gated:
        raise LabError("--num-experts without --swiglu has no model here; wanted both")
    _refuse(given, ("add_qkv_bias",), "mixture of experts")
    if not given.get("disable_bias_linear"):
        raise LabError("--num-experts without --disable-bias-linear has no model here; wanted both")
    ff, n = given.get("ffn_hidden_size", _gated(sizes["d_model"])), given.get("num_experts", 1)
    dense = _dense(given.get("moe_layer_freq", "1"), sizes["n_layers"]) if n > 1 else sizes["n_layers"]
    attention: dict[str, Any] = {"qk_norm": given.get("qk_layernorm", False)}
    if given.get("multi_latent_attention"):
        if missing := [flag(name) for name in LATENT if name != "q_lora_rank" and name not in given]:
            raise LabError(f"--multi-latent-attention lacks {', '.join(missing)}; wanted its sizes, too")
        attention = {field: given.get(name) for name, field in LATENT.items()}
    else:
        attention["head_dim"] = given.get("kv_channels")
        if given.get("group_query_attention"):
            attention["n_kv_heads"] = given.get("num_query_groups", 1)  # Megatron-LM's default
    return moe(
        **sizes,
        **attention,
        d_expert=given.get("moe_ffn_hidden_size", ff),
        n_experts=n,
        experts_per_token=given.get("moe_router_topk", min(2, n)),  # Megatron-LM's default
        n_dense=dense,
        d_ff=ff if dense else None,
        d_shared=given.get("moe_shared_expert_intermediate_size", 0),
    )


def _dense(pattern: str, n_layers: int) -> int:
    """Return how many of the first blocks have no experts, from a pattern such as 1 or ([0]*3+[1]*58). Raises LabError
    for any other pattern."""
    found = _listed(pattern)
    if found == 1:
        return 0
    if isinstance(found, list) and len(found) == n_layers and found == sorted(found) and set(found) <= {0, 1}:
        return found.count(0)
    raise LabError(
        f"--moe-layer-freq is {shortened(pattern)}; wanted 1, or ([0]*2+[1]*{max(n_layers - 2, 0)}), blocks without "
        "experts first"
    )


def _listed(pattern: str) -> object:
    """Evaluate a pattern: a whole number, or lists combined with + and *. Return None for anything else."""

    def value(node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=int(number)):
                return number
            case ast.List(elts=items):
                return [value(one) for one in items]
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return value(left) + value(right)
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                first, times = value(left), value(right)
                # A list times a huge number would fill memory.
                if not isinstance(times, int) or times > 10_000:
                    raise ValueError(pattern)
                return first * times
            case _:
                raise ValueError(pattern)

    try:
        return value(ast.parse(pattern.strip("\"'"), mode="eval").body)
    except (SyntaxError, ValueError, TypeError, RecursionError):
        return None


def _gated(d_model: int) -> int:
    """Return the width that Megatron-LM gives to a gated MLP by default."""
    return int(4 * d_model * 2 / 3 / 64) * 64
