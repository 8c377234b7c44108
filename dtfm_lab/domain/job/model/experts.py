"""Mixture-of-experts models: those shaped like Mixtral, Qwen3's and DeepSeek's.

For every token, a router picks ``experts_per_token`` of a block's ``n_experts`` gated MLPs and sums their outputs with
weights (Shazeer et al. 2017, "Outrageously Large Neural Networks"; Jiang et al. 2024, "Mixtral of Experts", section
2.1). So a block has the parameters of all its experts and the FLOP of a few. The model assumes that the router spreads
tokens evenly. If it does not, an iteration takes longer than predicted.

Attention is a llama's with grouped queries, or DeepSeek's with latent keys and values (DeepSeek-AI 2024, "DeepSeek-V2",
section 2.1). There, the query and the key of each head have ``nope_dim`` numbers computed from a latent of ``q_rank``
or ``kv_rank`` numbers, and ``rope_dim`` rotary ones. All heads share the rotary keys. In training, keys and values are
computed in full for every head.

Numbers that a block holds for its backward, per token, beyond the 4 d of its norms:

========= ================================================================================================
grouped   2 q + 2 kv; with normed queries and keys q + kv more
latent    queries and keys of nope + rope, values and attention's output, of all heads; 2 q_rank and
          2 kv_rank + rope: the latents and what their norms make of them
MLP       4 d_ff: gate, activated gate, other half, product; for every expert that a token is sent to,
          and for the shared experts
routing   2 d for each expert of a token: its input and its output; n_experts: the softmax
========= ================================================================================================

Selective checkpointing follows torchtitan's operator mode, as in ``families``. It keeps a block's input, the
attention's output and the output of every other matrix product, including the first. The products of the router and of
the (grouped) experts are not among them and are recomputed (``per_op_sac_force_recompute_mm_shapes_by_fqns`` and the
list of saved operators, in torchtitan 0.2's models/qwen3/infra/parallelize.py).
"""

from dataclasses import replace
from typing import Any, NamedTuple

from dtfm_lab.domain.errors import JobError
from dtfm_lab.domain.job.model.families import block_of, model_of, sizes_of
from dtfm_lab.domain.job.model.spec import Layer, LayerKind, ModelSpec
from dtfm_lab.domain.options import whole


class _Attention(NamedTuple):
    """What attention adds to a block: weights, vectors (biases, norms) and elements per token, as in ``block_of``.

    ``held`` elements are kept for the backward, ``moved`` ones are read or written in memory, and ``kv`` are the keys
    and values.
    """

    weights: int
    vectors: int
    held: int
    moved: int
    kv: int
    head_dim: int
    """Width of a head for counting FLOP: the average of the widths of a key and a value."""
    products: tuple[tuple[int, int], ...]
    """Rows and columns of its weight matrices, in the order in which a token passes them."""
    made: int
    """Elements per token of the attention's output, before its last matrix."""


def moe(
    *,
    n_layers: int,
    d_model: int,
    n_heads: int,
    d_expert: int,
    n_experts: int,
    experts_per_token: int,
    seq_len: int,
    vocab_size: int,
    n_dense: int = 0,
    d_ff: int | None = None,
    d_shared: int = 0,
    n_kv_heads: int | None = None,
    head_dim: int | None = None,
    qk_norm: bool = False,
    kv_rank: int | None = None,
    q_rank: int | None = None,
    nope_dim: int | None = None,
    rope_dim: int | None = None,
    value_dim: int | None = None,
    tied: bool = False,
    name: str = "moe",
) -> ModelSpec:
    """Return a model with experts, rotary positions, RMS norms and gated MLPs.

    Parameters
    ----------
    d_expert
        Width of each of a block's ``n_experts`` experts. Each token is sent to ``experts_per_token`` of them.
    n_dense, d_ff
        Number of blocks at the beginning that have one MLP, of width ``d_ff``, instead of experts.
    d_shared
        Total width of the experts that every token is sent to; 0 for none.
    n_kv_heads, head_dim, qk_norm
        As in ``llama``, with or without norms over each head's queries and keys.
    kv_rank, q_rank, nope_dim, rope_dim, value_dim
        DeepSeek's latent attention, used if ``kv_rank`` is given. Without ``q_rank`` queries have no latent.

    Raises JobError for sizes that are impossible or do not fit together.
    """
    thing = f"model {name}"
    d, t, vocab_size, n_heads = sizes_of(name, d_model=d_model, seq_len=seq_len, vocab_size=vocab_size, n_heads=n_heads)
    ff, n_experts = whole(thing, "d_expert", d_expert), whole(thing, "n_experts", n_experts)
    per_token = whole(thing, "experts_per_token", experts_per_token, most=n_experts)
    dense = whole(thing, "n_dense", n_dense, least=0, most=whole(thing, "n_layers", n_layers))
    shared = whole(thing, "d_shared", d_shared, least=0)
    if kv_rank is None:
        attention = _grouped(thing, d, n_heads, n_kv_heads, head_dim, qk_norm=qk_norm)
    else:
        attention = _latent(thing, d, n_heads, kv_rank, q_rank, (nope_dim, rope_dim, value_dim))
    gated = per_token * ff + shared
    routed = 3 * d * ff  # weights of an expert
    own = n_experts + 2 * d * per_token
    active = _block((d, n_heads, t), attention, gated, shared, routed=d * n_experts, held=own, moved=own + 2 * d)
    block = replace(
        active, parameters=active.parameters + (n_experts - per_token) * routed, expert_elements=n_experts * routed
    )
    first = [_block((d, n_heads, t), attention, one := whole(thing, "d_ff", d_ff), one)] * dense if dense else []
    built = model_of(
        name,
        "moe",
        n_layers,
        block,
        vocab_size,
        norm_vectors=1,
        d_model=d,
        n_heads=n_heads,
        head_dim=attention.head_dim,
        seq_len=t,
        vocab_size=vocab_size,
        tied=tied,
        n_experts=n_experts,
        experts_per_token=per_token,
    )
    return replace(built, layers=(built.layers[0], *first, *built.layers[1 + dense :]))


def moe_sizes(model: ModelSpec) -> dict[str, Any]:
    """Return the arguments of ``moe`` that build this model, recovered from its layers.

    The result is right only for grouped-query attention.
    """
    blocks = [layer for layer in model.layers if layer.kind is LayerKind.BLOCK]
    first, last, d, t = blocks[0], blocks[-1], model.d_model, model.seq_len
    n_dense = sum(not layer.expert_elements for layer in blocks)
    ff = round(expert_width(model, last))
    shared = last.gated_elements // t - model.experts_per_token * ff
    q, kv = model.n_heads * model.head_dim, last.kv_elements // (2 * t)
    norms = last.parameters - last.expert_elements - 2 * d * (q + kv) - 3 * d * shared - d * model.n_experts
    return {
        "n_layers": len(blocks),
        "d_model": d,
        "n_heads": model.n_heads,
        "seq_len": t,
        "vocab_size": model.vocab_size,
        "d_expert": ff,
        "n_experts": model.n_experts,
        "experts_per_token": model.experts_per_token,
        "n_dense": n_dense,
        "d_ff": first.gated_elements // t if n_dense else None,
        "d_shared": shared,
        "n_kv_heads": kv // model.head_dim,
        "head_dim": None if q == d else model.head_dim,
        "qk_norm": norms > 2 * d,
        "tied": model.tied,
    }


def expert_width(model: ModelSpec, layer: Layer) -> float:
    """Return the width of each expert of a block. An expert has three matrices."""
    return layer.expert_elements / (3 * model.n_experts * model.d_model)


def _block(
    shape: tuple[int, int, int],
    attention: _Attention,
    gated: int,
    common: int,
    *,
    routed: int = 0,
    held: int = 0,
    moved: int = 0,
) -> Layer:
    """Return a block. ``shape`` is its width, number of heads and sequence length.

    Each token passes gated MLPs of total width ``gated``. Of that width, ``common`` is the same for all tokens, and the
    rest belongs to experts chosen by a router with ``routed`` weights. ``held`` and ``moved`` are further elements per
    token (see ``block_of``).
    """
    d, n_heads, t = shape
    mlp = ((d, common), (d, common), (common, d)) if common else ()
    products = (*attention.products, *mlp)
    made = block_of(
        (d, n_heads, attention.head_dim, t),
        weights=attention.weights + 3 * d * gated + routed,
        vectors=attention.vectors + 2 * d,
        held=4 * d + attention.held + 4 * gated + held,
        half_scores=2,
        selective=d + attention.made + sum(columns for _, columns in products[::2]),
        selective_weights=sum(n * m for n, m in products[1::2]) + routed + 3 * d * (gated - common),
        moved=10 * d + attention.moved + 5 * gated + moved,
        kv=attention.kv,
    )
    return replace(made, gated_elements=t * gated)


def _grouped(
    thing: str, d: int, n_heads: int, n_kv_heads: int | None, head_dim: int | None, *, qk_norm: bool
) -> _Attention:
    n_kv = n_heads if n_kv_heads is None else whole(thing, "n_kv_heads", n_kv_heads)
    for what, found, of in (("n_kv_heads", n_kv, n_heads), ("n_heads", n_heads, d if head_dim is None else n_heads)):
        if of % found:
            raise JobError(f"{thing}: {what} is {found}; wanted a divisor of {of}")
    own = d // n_heads if head_dim is None else whole(thing, "head_dim", head_dim)
    q, kv = own * n_heads, own * n_kv
    return _Attention(
        weights=2 * d * (q + kv),
        vectors=2 * own * qk_norm,
        held=(2 + qk_norm) * (q + kv),
        moved=(2 + 2 * qk_norm) * (q + kv),
        kv=2 * kv,
        head_dim=own,
        products=((d, q), (d, kv), (d, kv), (q, d)),
        made=q,
    )


def _latent(
    thing: str, d: int, n_heads: int, kv_rank: int, q_rank: int | None, sizes: tuple[int | None, int | None, int | None]
) -> _Attention:
    names = ("nope_dim", "rope_dim", "value_dim")
    nope, rope, value = (whole(thing, name, size) for name, size in zip(names, sizes, strict=True))
    kv_rank, q_rank = whole(thing, "kv_rank", kv_rank), 0 if q_rank is None else whole(thing, "q_rank", q_rank)
    key = nope + rope
    if (key + value) % 2:
        raise JobError(f"{thing}: keys of {key} and values of {value} numbers; wanted an even sum")
    queries = q_rank * (d + n_heads * key) if q_rank else d * n_heads * key
    first = ((d, q_rank), (q_rank, n_heads * key)) if q_rank else ((d, n_heads * key),)
    return _Attention(
        weights=queries + d * (kv_rank + rope) + kv_rank * n_heads * (nope + value) + n_heads * value * d,
        vectors=q_rank + kv_rank,
        held=2 * n_heads * (key + value) + 2 * q_rank + 2 * kv_rank + rope,
        moved=2 * n_heads * key + 2 * (n_heads + 1) * rope + 2 * (q_rank + kv_rank),
        kv=n_heads * (key + value),
        head_dim=(key + value) // 2,
        products=(*first, (d, kv_rank + rope), (kv_rank, n_heads * (nope + value)), (n_heads * value, d)),
        made=n_heads * value,
    )
