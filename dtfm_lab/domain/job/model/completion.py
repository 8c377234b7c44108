"""Models of a family whose layers lack the numbers that some choices of a job need, as in files of earlier versions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dtfm_lab.domain.errors import JobError
from dtfm_lab.domain.job.model.families import gpt, llama
from dtfm_lab.domain.job.model.spec import Layer, LayerKind, ModelSpec

NUMBERS_OF_CHOICES = ("attention_elements", "selective_elements", "selective_flop", "moved_elements")
"""Fields of a layer that only some choices of a job need; left out of files where 0."""
NONE: dict[str, Any] = dict.fromkeys(NUMBERS_OF_CHOICES, 0)


def completed(model: ModelSpec) -> ModelSpec:
    """The model with those numbers, where no layer has one and all are exactly what the model's family builds."""
    blocks = [layer for layer in model.layers if layer.kind is LayerKind.BLOCK]
    if not blocks or any(getattr(layer, name) for layer in model.layers for name in NUMBERS_OF_CHOICES):
        return model
    try:
        built = _rebuilt(model, blocks[0])
    except JobError:
        return model
    if built is None or tuple(replace(layer, **NONE) for layer in built.layers) != model.layers:
        return model
    return replace(model, layers=built.layers)


def _rebuilt(model: ModelSpec, block: Layer) -> ModelSpec | None:
    """A model of the family with the width of the MLP, and the keys' heads, that the block's numbers imply."""
    d, t = model.d_model, model.seq_len
    sizes: dict[str, Any] = {"n_layers": model.n_blocks, "d_model": d, "n_heads": model.n_heads, "seq_len": t}
    sizes |= {"vocab_size": model.vocab_size, "tied": model.tied}
    held = block.held_elements // t
    if model.family == "gpt":
        return gpt(**sizes, d_ff=(held - 9 * d) // 2, n_positions=model.n_positions)
    if model.family != "llama":
        return None
    q = model.n_heads * model.head_dim
    weights = round((block.forward_flop - model.attention_flop) / (2 * t))  # 2 d q + 2 d kv + 3 d d_ff
    rest = held - 4 * d - 2 * q  # 2 kv + 4 d_ff
    d_ff = 2 * q + rest - weights // d
    kv = (rest - 4 * d_ff) // 2
    biases = block.parameters - weights - 2 * d
    return llama(
        **sizes,
        d_ff=d_ff,
        n_kv_heads=kv // model.head_dim,
        head_dim=model.head_dim if q != d else None,
        qkv_bias=biases % (2 * d_ff + d) in (q + 2 * kv, q + 2 * kv + d),
        attention_out_bias=biases % (2 * d_ff + d) == q + 2 * kv + d,
        mlp_bias=biases >= 2 * d_ff + d,
    )
