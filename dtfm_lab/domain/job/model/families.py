"""The two families of most published language models, with exact parameter counts.

Each multiply-add of the matrix products counts as two FLOP. The attention matrix is counted whole (causal, in a sliding
window or not), as in Narayanan et al. 2021, equation 3. Norms, activations and rotary positions count as no FLOP.

A layer keeps for its backward the tensors that its operators need again, as counted by Korthikanti et al. 2022
("Reducing Activation Recomputation in Large Transformer Models", section 4). The attention matrix is not among them,
because a fused attention computes it again. So a block whose MLP is four widths wide keeps 34 bytes per token and width
in half precision. Per token, with d the width of the model, q and kv the widths of all query heads and of all key
heads, and d_ff the width of the MLP:

========= ==================================================== =====================================
          gpt                                                  llama
========= ==================================================== =====================================
block     4 d: input and output of both norms                  4 d: the same
          4 d: queries, keys, values, attention's output       2 q + 2 kv: the same
          2 d_ff: the MLP between its matrices, before         4 d_ff: gate, activated gate, other
          and after its activation                             half and their product
          d: two dropout masks of half a number each
head      2 d: input and output of its norm; 2 vocab_size: the logits and their softmax, in half
          precision the 4 bytes of section 4.3
embedding 1: the token
========= ==================================================== =====================================

An unfused attention keeps its matrices, too. For each head and pair of tokens, it keeps one number of the softmax. A
gpt also keeps a dropout mask, which counts as half a number, and the result of the dropout. In half precision these are
Korthikanti's 5 a s^2 bytes. A llama has no dropout.

Selective checkpointing selects operators as torchtitan does ("op" in its distributed/activation_checkpoint.py). It
keeps the block's input, the attention's output, and the output of every other matrix product, beginning with the first.
Everything else is computed again. A llama has the products query, key, value, out, gate, other and down. It computes
key, out and other again. A gpt has query-key-value, out, in and down. It computes out again, but not down, because no
backward needs the output of down.

========= ========================= ==========================================
          gpt                       llama
========= ========================= ==========================================
kept      d + 3 d + d + d_ff        d + q + kv + q + d_ff + d
products  out: 2 d^2 FLOP           key, out, other: 2 (d kv + d q + d d_ff)
========= ========================= ==========================================

If a job counts memory traffic, it counts the numbers that an operator reads and writes. All steps of an operator are
one kernel, as in Megatron-LM and apex:

========= ==================================================== =====================================
          gpt                                                  llama
========= ==================================================== =====================================
block     4 d: both norms; 2 d_ff: the activation function;    4 d; 5 d_ff: activation function and
          7 d: dropout with the sum into the residual, twice   product; 6 d: residual sums;
                                                               2 q + 2 kv: rotation
head      2 d: its norm; 7 vocab_size: logits to fp32 (3) and their softmax (4)
embedding 2 d: rows of the table, and the sum
========= ==================================================== =====================================
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dtfm_lab.domain.errors import JobError
from dtfm_lab.domain.job.model.spec import Layer, LayerKind, ModelSpec
from dtfm_lab.domain.options import plain, whole
from dtfm_lab.domain.units import counted

MOST_LAYERS = 10_000


def estimated_held(kind: LayerKind, output_elements: int) -> int:
    """Estimate the held elements of a layer from its output alone, for one sequence.

    A block counts as a gpt block with an MLP four widths wide, a head as its logits and their softmax, an embedding as
    0.
    """
    return {LayerKind.EMBEDDING: 0, LayerKind.BLOCK: 17, LayerKind.HEAD: 2}[kind] * output_elements


def gpt(
    *,
    n_layers: int,
    d_model: int,
    n_heads: int,
    seq_len: int,
    vocab_size: int,
    tied: bool = True,
    d_ff: int | None = None,
    n_positions: int | None = None,
    name: str = "gpt",
) -> ModelSpec:
    """Return a GPT-2 shaped model (Radford et al. 2019): learned positions, pre-norm blocks, biases everywhere.

    ``d_ff`` is the width of the MLP (default 4 x d_model). ``n_positions`` is the number of learned positions (default
    seq_len).
    """
    d, n_heads, t, vocab_size = sizes_of(name, d_model=d_model, n_heads=n_heads, seq_len=seq_len, vocab_size=vocab_size)
    ff = 4 * d if d_ff is None else whole(f"model {name}", "d_ff", d_ff)
    positions = t if n_positions is None else whole(f"model {name}", "n_positions", n_positions)
    if positions < t:
        raise JobError(f"model {name}: seq_len is {t}; wanted at most {positions}, its learned positions")
    block = block_of(
        (d, n_heads, 0, t),
        # Four projections of attention, and the two matrices of the MLP.
        weights=4 * d * d + 2 * d * ff,
        # Biases of all six matrices, and two norms with weight and bias.
        vectors=(5 * d + ff) + 4 * d,
        held=9 * d + 2 * ff,
        half_scores=5,
        selective=5 * d + ff,
        selective_weights=d * d,
        moved=11 * d + 2 * ff,
        kv=2 * d,
    )
    sizes = {"d_model": d, "n_heads": n_heads, "seq_len": t, "vocab_size": vocab_size, "tied": tied}
    return model_of(name, "gpt", n_layers, block, vocab_size + positions, norm_vectors=2, **sizes)


def llama(
    *,
    n_layers: int,
    d_model: int,
    n_heads: int,
    d_ff: int,
    seq_len: int,
    vocab_size: int,
    n_kv_heads: int | None = None,
    head_dim: int | None = None,
    tied: bool = False,
    qkv_bias: bool = False,
    attention_out_bias: bool = False,
    mlp_bias: bool = False,
    qk_norm: bool = False,
    name: str = "llama",
) -> ModelSpec:
    """Return a Llama shaped model (Touvron et al. 2023): rotary positions, RMS norms, gated MLP, grouped queries.

    Mistral 7B (Jiang et al. 2023), Qwen2 (Yang et al. 2024; ``qkv_bias``) and the dense Qwen3 (Yang et al. 2025;
    ``qk_norm``, a norm of each head's queries and keys) have this shape.

    Parameters
    ----------
    d_ff
        Width of the MLP. Its three matrices are each d_model x d_ff.
    n_kv_heads
        Number of key and value heads, which divides ``n_heads`` (default ``n_heads``).
    head_dim
        Width of a head (default d_model / n_heads).
    """
    d, t, vocab_size = sizes_of(name, d_model=d_model, seq_len=seq_len, vocab_size=vocab_size)
    thing = f"model {name}"
    ff, n_heads = whole(thing, "d_ff", d_ff), whole(thing, "n_heads", n_heads)
    n_kv = n_heads if n_kv_heads is None else whole(thing, "n_kv_heads", n_kv_heads)
    if n_heads % n_kv:
        raise JobError(f"{thing}: n_kv_heads is {n_kv}; wanted a divisor of its {counted(n_heads, 'head')}")
    own_dim = 0 if head_dim is None else whole(thing, "head_dim", head_dim)
    per_head = own_dim or d // n_heads
    q, kv = per_head * n_heads, per_head * n_kv
    biases = qkv_bias * (q + 2 * kv) + attention_out_bias * d + mlp_bias * (2 * ff + d)
    block = block_of(
        (d, n_heads, own_dim, t),
        # As a GPT, but a gated MLP has three matrices, and fewer keys and values.
        weights=2 * d * q + 2 * d * kv + 3 * d * ff,
        vectors=biases + 2 * d + 2 * per_head * qk_norm,
        held=4 * d + (2 + qk_norm) * (q + kv) + 4 * ff,
        half_scores=2,
        selective=2 * d + 2 * q + kv + ff,
        selective_weights=d * kv + d * q + d * ff,
        moved=10 * d + (2 + 2 * qk_norm) * (q + kv) + 5 * ff,
        kv=2 * kv,
    )
    sizes = {"d_model": d, "n_heads": n_heads, "seq_len": t, "vocab_size": vocab_size, "tied": tied}
    return model_of(name, "llama", n_layers, block, vocab_size, norm_vectors=1, head_dim=own_dim, **sizes)


def sizes_of(name: str, **sizes: int) -> tuple[int, ...]:
    thing = f"model {plain('model', name)}"
    return tuple(whole(thing, what, size) for what, size in sizes.items())


def block_of(
    shape: tuple[int, int, int, int],
    *,
    weights: int,
    vectors: int,
    held: int,
    half_scores: int,
    selective: int,
    selective_weights: int,
    moved: int,
    kv: int,
) -> Layer:
    """Return a block. ``shape`` is its width, number of heads, width of a head (0: width / heads) and sequence length.

    ``weights`` counts the parameters in matrices that every token is multiplied by, ``vectors`` the others (biases,
    norms). ``held``, ``selective``, ``moved`` and ``kv`` are elements per token: kept for the backward, kept with
    selective checkpointing, read or written in memory, and in keys and values. ``selective_weights`` counts the weights
    whose products selective checkpointing computes again. ``half_scores`` is twice the number of elements that unfused
    attention keeps per pair of tokens and head, because a dropout mask counts half.
    """
    d, n_heads, head_dim, t = shape
    return Layer(
        kind=LayerKind.BLOCK,
        parameters=weights + vectors,
        # Two FLOP per weight and token, and as many for scores and for their product with the values.
        forward_flop=float(2 * t * weights + 4 * t * t * (n_heads * head_dim or d)),
        output_elements=t * d,
        held_elements=t * held,
        attention_elements=half_scores / 2 * n_heads * t * t,
        selective_elements=t * selective,
        selective_flop=float(2 * t * selective_weights),
        moved_elements=t * moved,
        kv_elements=t * kv,
    )


def model_of(
    name: str, family: str, n_layers: int, block: Layer, table_rows: int, norm_vectors: int, **sizes: Any
) -> ModelSpec:
    """Return a model of equal blocks between an embedding and a head, with a norm of ``norm_vectors`` vectors before
    the head."""
    d, t, vocab_size = sizes["d_model"], sizes["seq_len"], sizes["vocab_size"]
    n_blocks = whole(f"model {name}", "n_layers", n_layers, most=MOST_LAYERS)
    embedding = Layer(
        kind=LayerKind.EMBEDDING,
        parameters=table_rows * d,
        forward_flop=0.0,
        output_elements=t * d,
        held_elements=t,
        moved_elements=2 * t * d,
    )
    head = Layer(
        kind=LayerKind.HEAD,
        parameters=norm_vectors * d + (0 if sizes["tied"] else vocab_size * d),
        forward_flop=float(2 * t * d * vocab_size),
        output_elements=t * vocab_size,
        held_elements=t * (2 * d + 2 * vocab_size),
        moved_elements=t * (2 * d + 7 * vocab_size),
    )
    return ModelSpec(name=name, family=family, layers=(embedding, *[block] * n_blocks, head), **sizes)


NUMBERS_OF_CHOICES = (
    *("attention_elements", "selective_elements", "selective_flop", "moved_elements", "frozen_elements"),
    *("expert_elements", "gated_elements", "kv_elements"),
)
"""Fields of a layer that only some job choices need. Model files of earlier versions lack them."""


def completed(model: ModelSpec) -> ModelSpec:
    """Return the model with the numbers that its layers lack.

    They come from its family's builder, if that reproduces all other numbers exactly. Otherwise the model is returned
    unchanged.
    """
    if model.gives_all:
        return model
    try:
        build, sizes = family_sizes(model, next(layer for layer in model.layers if layer.kind is LayerKind.BLOCK))
        built = build(**sizes, name=model.name)
    except JobError:
        return model
    # Only numbers that no layer gives are filled in; all others have to match.
    lacking = [name for name in NUMBERS_OF_CHOICES if not any(getattr(layer, name) for layer in model.layers)]
    without: dict[str, Any] = dict.fromkeys(lacking, 0)
    known = tuple(replace(layer, **without) for layer in built.layers)
    return replace(model, layers=built.layers) if known == model.layers else model


def family_sizes(model: ModelSpec, block: Layer) -> tuple[Callable[..., ModelSpec], dict[str, Any]]:
    """Return the builder of the model's family, and the arguments with which it builds a model of such blocks.

    Raises JobError for a family other than gpt and llama.
    """
    d, t = model.d_model, model.seq_len
    sizes: dict[str, Any] = {"n_layers": model.n_blocks, "d_model": d, "n_heads": model.n_heads, "seq_len": t}
    sizes |= {"vocab_size": model.vocab_size, "tied": model.tied}
    held = block.held_elements // t
    if model.family == "gpt":
        return gpt, sizes | {"d_ff": (held - 9 * d) // 2, "n_positions": model.n_positions}
    if model.family != "llama":
        raise JobError(f"model {model.name}: no builder of family {model.family}")
    q = model.n_heads * model.head_dim
    weights = round((block.forward_flop - model.attention_flop) / (2 * t))  # 2 d q + 2 d kv + 3 d d_ff
    vectors = block.parameters - weights - 2 * d
    qk_norm = vectors == 2 * model.head_dim
    normed = qk_norm * (q + block.kv_elements // (2 * t))
    rest = held - normed - 4 * d - 2 * q  # 2 kv + 4 d_ff
    d_ff = 2 * q + rest - weights // d
    kv = (rest - 4 * d_ff) // 2
    biases = 0 if qk_norm else vectors
    return llama, sizes | {
        "d_ff": d_ff,
        "n_kv_heads": kv // model.head_dim,
        "head_dim": model.head_dim if q != d else None,
        "qkv_bias": biases % (2 * d_ff + d) in (q + 2 * kv, q + 2 * kv + d),
        "attention_out_bias": biases % (2 * d_ff + d) == q + 2 * kv + d,
        "mlp_bias": biases >= 2 * d_ff + d,
        "qk_norm": qk_norm,
    }


def with_adapters(model: ModelSpec, rank: int) -> ModelSpec:
    """Return the model with frozen weights and an adapter of this rank next to every matrix product of its blocks.

    An adapter of a matrix from n to m numbers has rank x (n + m) parameters (Hu et al. 2021, "LoRA", section 4.1; on
    all matrices as in Dettmers et al. 2023, "QLoRA", section 4). Embedding and head are frozen too. A tied head counts
    as a copy of the embedding, even if one device holds both. The ``rank`` numbers per token between the two halves of
    an adapter do not count as held. Raises JobError for a model that is not a gpt or llama with equal blocks, or one
    that already has adapters.
    """
    thing = f"model {model.name}"
    rank = whole(thing, "adapters", rank)
    if model.frozen_elements:
        raise JobError(f"{thing} has adapters already; wanted the model without any")
    shapes = _matrices(model)
    adapters = rank * sum(n + m for n, m in shapes)

    def frozen(layer: Layer) -> Layer:
        own = adapters if layer.kind is LayerKind.BLOCK else 0
        # A tied head shares the embedding's matrix, which is frozen as well.
        tied = model.vocab_size * model.d_model if model.tied and layer.kind is LayerKind.HEAD else 0
        return replace(
            layer,
            parameters=own,
            frozen_elements=layer.parameters + tied,
            forward_flop=layer.forward_flop + 2.0 * model.seq_len * own,
        )

    return replace(model, tied=False, layers=tuple(frozen(layer) for layer in model.layers))


def _matrices(model: ModelSpec) -> list[tuple[int, int]]:
    """Return the rows and columns of a block's matrices. Raises JobError if the family does not define them."""
    blocks = [layer for layer in model.layers if layer.kind is LayerKind.BLOCK]
    known = model.family in ("gpt", "llama") and blocks and all(one == blocks[0] for one in blocks)
    sizes = family_sizes(model, blocks[0])[1] if known else {}
    d, q, ff = model.d_model, model.n_heads * model.head_dim, int(sizes.get("d_ff", 0))
    if not known or ff < 1:
        raise JobError(f"model {model.name} is of no shape that is known; wanted a gpt or llama, or no adapters")
    if model.family == "gpt":
        return [(d, 3 * q), (q, d), (d, ff), (ff, d)]
    kv = sizes["n_kv_heads"] * model.head_dim
    return [(d, q), (d, kv), (d, kv), (q, d), (d, ff), (d, ff), (ff, d)]
