"""Models of a family whose layers lack the numbers that some choices of a job need, as in files of earlier versions."""

from __future__ import annotations

from collections.abc import Callable
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
    built = rebuilt(model)
    return model if built is None else replace(model, layers=built.layers)


def rebuilt(model: ModelSpec, **changed: Any) -> ModelSpec | None:
    """The model as its family's builder makes it, with arguments of the builder changed, such as ``seq_len``.

    None where no builder makes a model with these very layers. Raises JobError where the changed one cannot be.
    """
    blocks = [layer for layer in model.layers if layer.kind is LayerKind.BLOCK]
    try:
        found = None if not blocks else _family_sizes(model, blocks[0])
        same = None if found is None else found[0](**found[1])
    except JobError:
        return None
    if found is None or same is None:
        return None
    without = [tuple(replace(layer, **NONE) for layer in one.layers) for one in (same, model)]
    if without[0] != without[1]:
        return None
    build, sizes = found
    return build(**sizes | {"name": model.name} | changed) if changed else same


def _family_sizes(model: ModelSpec, block: Layer) -> tuple[Callable[..., ModelSpec], dict[str, Any]] | None:
    """The builder of the model's family, and the arguments that the block's numbers imply."""
    d, t = model.d_model, model.seq_len
    sizes: dict[str, Any] = {"n_layers": model.n_blocks, "d_model": d, "n_heads": model.n_heads, "seq_len": t}
    sizes |= {"vocab_size": model.vocab_size, "tied": model.tied}
    held = block.held_elements // t
    if model.family == "gpt":
        return gpt, sizes | {"d_ff": (held - 9 * d) // 2, "n_positions": model.n_positions}
    if model.family != "llama":
        return None
    q = model.n_heads * model.head_dim
    weights = round((block.forward_flop - model.attention_flop) / (2 * t))  # 2 d q + 2 d kv + 3 d d_ff
    rest = held - 4 * d - 2 * q  # 2 kv + 4 d_ff
    d_ff = 2 * q + rest - weights // d
    kv = (rest - 4 * d_ff) // 2
    biases = block.parameters - weights - 2 * d
    return llama, sizes | {
        "d_ff": d_ff,
        "n_kv_heads": kv // model.head_dim,
        "head_dim": model.head_dim if q != d else None,
        "qkv_bias": biases % (2 * d_ff + d) in (q + 2 * kv, q + 2 * kv + d),
        "attention_out_bias": biases % (2 * d_ff + d) == q + 2 * kv + d,
        "mlp_bias": biases >= 2 * d_ff + d,
    }
