"""A model as a sequence of layers, each with its parameters, FLOP and output size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dtfm_lab.domain.errors import JobError
from dtfm_lab.domain.network import as_number, shortened
from dtfm_lab.domain.options import plain, whole
from dtfm_lab.domain.registry import unknown
from dtfm_lab.domain.units import counted

if TYPE_CHECKING:
    import pandas as pd

BACKWARD_PER_FORWARD = 2.0
"""FLOP of a backward per FLOP of its forward. A forward multiplies by the weights only, a backward by the weights and
by the inputs. This is true if all weights are trained (see ``ModelSpec.backward``)."""

BYTES_PER_ELEMENT = {"fp16": 2, "bf16": 2, "fp32": 4, "fp64": 8}
MOST_ELEMENTS = 10**18
LONG_TOKENS = 8192
"""A note warns about sequences longer than this (longer than any preset's) if the user did not choose the length."""
OF_EACH_TOKEN = ("held_elements", "selective_elements", "moved_elements", "gated_elements", "kv_elements")
"""Fields of a layer that grow linearly with the sequence length."""


def even_shares(total: int, n_shares: int) -> tuple[int, ...]:
    """Divide ``total`` things, such as blocks or micro-batches, as evenly as possible. The first shares get the
    remainder."""
    each, spare = divmod(total, n_shares)
    return tuple(each + (share < spare) for share in range(n_shares))


class Backward(NamedTuple):
    """FLOP of a model's backward per FLOP of its forward: for the gradients of its inputs, and for its weights'
    gradients."""

    inputs: float
    weights: float

    @property
    def whole(self) -> float:
        return self.inputs + self.weights


class LayerKind(StrEnum):
    EMBEDDING = "embedding"
    BLOCK = "block"
    HEAD = "head"


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A part of a model that is never split among stages.

    FLOP and activation elements (single numbers of a tensor) are for one sequence. Raises JobError for a number that is
    missing or out of range.
    """

    kind: LayerKind
    parameters: int
    """Parameters that are trained."""
    forward_flop: float
    """FLOP of a forward, two per multiply-add. If the blocks of your own module were timed, the model's FLOP are
    divided among them by seconds."""
    output_elements: int
    """Elements passed to the next layer. They cross a stage boundary if one follows this layer."""
    held_elements: int = 0
    """Elements kept from forward to backward, including the layer's input. An element of a one-byte mask counts as
    half. ``families`` documents how the builders count."""
    attention_elements: float = 0.0
    """Additional elements kept by unfused attention: its score matrices, where an element of a mask counts as half. 0
    if unknown."""
    selective_elements: int = 0
    """Elements kept from forward to backward with selective checkpointing; 0 if unknown."""
    selective_flop: float = 0.0
    """FLOP of the matrix products that selective checkpointing recomputes."""
    moved_elements: int = 0
    """Elements that operators other than matrix products read and write in a forward: norms, activation functions,
    residuals, the loss. 0 if unknown."""
    frozen_elements: int = 0
    """Parameters that are held but not trained, as with adapters."""
    expert_elements: int = 0
    """Parameters of routed experts. Each token multiplies only a few of them."""
    gated_elements: int = 0
    """Elements in the gates of gated MLPs, over all experts that a token is sent to; 0 if unknown. For a llama it may
    be missing, because ``selective_elements`` implies it."""
    kv_elements: int = 0
    """Elements of keys and values, which ring attention sends from GPU to GPU; 0 if unknown."""

    def __post_init__(self) -> None:
        thing = f"layer of kind {self.kind}"
        counts = ("parameters", "output_elements", "held_elements", "selective_elements", "moved_elements")
        for what in (*counts, "frozen_elements", "expert_elements", "gated_elements", "kv_elements"):
            least = int(what == "output_elements")
            count = whole(thing, what, getattr(self, what), least=least, most=MOST_ELEMENTS)
            object.__setattr__(self, what, count)
        if self.expert_elements > self.parameters:
            raise JobError(
                f"{thing}: expert_elements is {self.expert_elements}; wanted at most its {self.parameters} parameters"
            )
        for what in ("forward_flop", "selective_flop", "attention_elements"):
            flop = as_number(getattr(self, what))
            if flop is None or not (math.isfinite(flop) and flop >= 0):
                raise JobError(f"{thing}: {what} is {shortened(getattr(self, what))}; wanted 0 or more")
            object.__setattr__(self, what, flop)


@dataclass(frozen=True, kw_only=True, repr=False)
class ModelSpec:
    """A model as the planner and the simulator see it.

    It has at most one embedding, first; blocks; and at most one head, last. Every layer but the head passes on seq_len
    x d_model elements (at most that many in a module of your own). Raises JobError for other layers or counts.
    """

    name: str
    layers: tuple[Layer, ...]
    d_model: int
    n_heads: int
    """Query heads. Keys and values may have fewer."""
    seq_len: int
    """Tokens per sequence."""
    vocab_size: int
    tied: bool
    """True if the head reuses the embedding's matrix. Its parameters then count once, in the embedding."""
    family: str = "gpt"
    """Name of the builder that made it. Real runs can only build ``gpt``."""
    head_dim: int = 0
    """Width of a head. 0 is replaced by d_model / n_heads."""
    n_experts: int = 0
    """Number of routed experts per block; 0 for a model without experts."""
    experts_per_token: int = 0
    """Number of experts that each token is sent to."""
    source: str = ""
    """Where a torch module of your own comes from (family ``module``): ``file.py:function``, or the file that holds it.
    """
    length_from: str = field(default="", compare=False)
    """Key of the config.json that set ``seq_len``; empty if someone chose the length."""
    part_of: str = field(default="", compare=False)
    """Type of the multimodal model from which only this language model is used; empty for a whole model."""

    def __post_init__(self) -> None:
        thing = f"model {plain('model', self.name)}"
        plain("model family", self.family)
        for what in (self.length_from, self.part_of):
            plain(f"{thing}: a key or type of its config.json", what)
        for what in ("d_model", "n_heads", "seq_len", "vocab_size"):
            object.__setattr__(self, what, whole(thing, what, getattr(self, what)))
        if self.head_dim == 0:
            head_dim, over = divmod(self.d_model, self.n_heads)
            if over:
                raise JobError(f"{thing}: d_model {self.d_model} is not a multiple of {counted(self.n_heads, 'head')}")
            object.__setattr__(self, "head_dim", head_dim)
        object.__setattr__(self, "head_dim", whole(thing, "head_dim", self.head_dim))
        object.__setattr__(self, "n_experts", whole(thing, "n_experts", self.n_experts, least=0))
        per_token = whole(thing, "experts_per_token", self.experts_per_token, least=0, most=self.n_experts)
        object.__setattr__(self, "experts_per_token", per_token)
        for index, layer in enumerate(self.layers):
            last = index == len(self.layers) - 1
            if (layer.kind is LayerKind.EMBEDDING and index) or (layer.kind is LayerKind.HEAD and not last):
                raise JobError(
                    f"{thing}: layer {index} of {len(self.layers)} is the {layer.kind}; "
                    f"wanted the embedding first, then blocks, the head last"
                )
            if layer.kind is LayerKind.HEAD or layer.output_elements == self.boundary_elements:
                continue
            # Only a model made from the user's own module may have a boundary narrower than the model's width.
            if not self.source or layer.output_elements > self.boundary_elements:
                most = "at most " if self.source else ""
                raise JobError(
                    f"{thing}: layer {index} has {layer.output_elements} output_elements; "
                    f"wanted {most}seq_len x d_model = {self.boundary_elements}"
                )

    def __repr__(self) -> str:
        of = f" of {self.parameters + self.frozen_elements:,}" if self.frozen_elements else ""
        return f"<ModelSpec {self.name}: {counted(self.n_blocks, 'block')}, {self.parameters:,}{of} parameters>"

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about values taken from a config.json that may surprise its reader."""
        found = []
        if self.part_of:
            found.append(f"the model is the language model of a {self.part_of}; its other parts are not planned")
        if self.length_from and self.seq_len > LONG_TOKENS:
            found.append(
                f"sequences have {self.seq_len:,} tokens, the {self.length_from} of the model's config.json; --seq-len "
                f"(seq_len) sets another length"
            )
        return tuple(found)

    @property
    def counted(self) -> str:
        """What a batch counts: tokens, or samples for a module of your own."""
        return "samples" if self.source else "tokens"

    @cached_property
    def n_blocks(self) -> int:
        return sum(layer.kind is LayerKind.BLOCK for layer in self.layers)

    @cached_property
    def gives_all(self) -> bool:
        """True if its blocks have every number that a job's choices may need.

        Only ``kv_elements`` is checked, because it was added last.
        """
        blocks = [layer for layer in self.layers if layer.kind is LayerKind.BLOCK]
        return not blocks or any(layer.kv_elements for layer in blocks)

    @cached_property
    def parameters(self) -> int:
        return sum(layer.parameters for layer in self.layers)

    @cached_property
    def forward_flop(self) -> float:
        """FLOP of a forward of one sequence."""
        return sum(layer.forward_flop for layer in self.layers)

    @cached_property
    def frozen_elements(self) -> int:
        """Parameters that are not trained."""
        return sum(layer.frozen_elements for layer in self.layers)

    @cached_property
    def backward(self) -> Backward:
        """FLOP of the backward per FLOP of the forward, averaged over the layers.

        A product with frozen weights costs one product in the backward instead of two, because those weights need no
        gradient. The products inside attention (scores, and scores x values) and those of adapters cost two as usual.
        """
        if not self.frozen_elements:
            return Backward(BACKWARD_PER_FORWARD / 2, BACKWARD_PER_FORWARD / 2)
        blocks = [layer for layer in self.layers if layer.kind is LayerKind.BLOCK]
        attention = sum(min(self.attention_flop, layer.forward_flop) for layer in blocks)
        adapters = sum(self.adapter_flop(layer) for layer in blocks)
        return Backward(1 + attention / self.forward_flop, adapters / self.forward_flop)

    def adapter_flop(self, layer: Layer) -> float:
        """Return the adapters' part of a layer's forward FLOP, for one sequence."""
        return 2.0 * self.seq_len * layer.parameters if layer.frozen_elements else 0.0

    @property
    def boundary_elements(self) -> int:
        """Elements of one sequence that cross the widest stage boundary forward. The gradient has as many."""
        return self.seq_len * self.d_model

    @property
    def attention_flop(self) -> float:
        """Forward FLOP of attention in one block for one sequence: queries x keys and scores x values, counted as if
        nothing were masked."""
        return float(4 * self.seq_len**2 * self.n_heads * self.head_dim)

    @property
    def n_positions(self) -> int:
        """Number of learned positions; 0 if positions are rotary."""
        embedding = sum(x.parameters + x.frozen_elements for x in self.layers[:1] if x.kind is LayerKind.EMBEDDING)
        return max(0, embedding // self.d_model - self.vocab_size)

    def with_seq_len(self, seq_len: int) -> ModelSpec:
        """Return the model with the same parameters on sequences of another length.

        Attention grows with the square of the length; other FLOP and held elements grow linearly. Raises JobError if
        the model has too few learned positions, or if a block's FLOP are smaller than its attention's. It is also
        raised for another length of your own module, whose data determine it.
        """
        length = whole(f"model {self.name}", "seq_len", seq_len)
        if self.source and length != self.seq_len:
            raise JobError(f"model {self.name}: seq_len is {length}; wanted none, its data say how long samples are")
        if 0 < self.n_positions < length:
            raise JobError(
                f"model {self.name}: seq_len is {length}; wanted at most {self.n_positions}, its learned positions"
            )
        if length == self.seq_len:
            return replace(self, length_from="") if self.length_from else self
        # Part of the FLOP grows with the length and part with its square, and here the parts are unknown.
        if any(layer.kind is LayerKind.BLOCK and layer.forward_flop < self.attention_flop for layer in self.layers):
            raise JobError(
                f"model {self.name}: a block has fewer FLOP than its attention, so they cannot be "
                f"computed for another seq_len; wanted seq_len {self.seq_len}"
            )
        attention_flop = float(4 * length**2 * self.n_heads * self.head_dim)

        # FLOP of attention grow with the square of the length, all others with the length.
        def resized(layer: Layer) -> Layer:
            before, after = (self.attention_flop, attention_flop) if layer.kind is LayerKind.BLOCK else (0.0, 0.0)
            return replace(
                layer,
                forward_flop=(layer.forward_flop - before) / self.seq_len * length + after,
                output_elements=layer.output_elements // self.seq_len * length,
                attention_elements=layer.attention_elements / self.seq_len**2 * length**2,
                selective_flop=layer.selective_flop / self.seq_len * length,
                **{what: getattr(layer, what) * length // self.seq_len for what in OF_EACH_TOKEN},
            )

        return replace(self, seq_len=length, length_from="", layers=tuple(resized(layer) for layer in self.layers))

    def cut(self, n_stages: int, blocks: Sequence[int] | None = None, by: str = "blocks") -> tuple[int, ...]:
        """Return the number of consecutive layers of each stage.

        ``blocks`` is the number of blocks of each stage; ``even_cut`` chooses it by default.

        The embedding joins the first stage and the head the last. With ``blocks``, an end stage may hold only the
        embedding or the head. Raises JobError if a stage would be empty, or if ``blocks`` do not add up to the model.
        """
        counts = list(self.even_cut(n_stages, by) if blocks is None else blocks)
        layers = list(counts)
        # Embedding and head go with the first and the last stage.
        if layers:
            layers[0] += self.layers[0].kind is LayerKind.EMBEDDING
            layers[-1] += self.layers[-1].kind is LayerKind.HEAD
        if (len(counts), sum(counts)) != (n_stages, self.n_blocks) or min(counts) < 0 or min(layers) < 1:
            raise JobError(
                f"model {self.name} has {counted(self.n_blocks, 'block')}, a cut of {shortened(counts)} has "
                f"{sum(counts)}; wanted one or more on each of {counted(n_stages, 'stage')}, {self.n_blocks} in all "
                f"(none only beside the embedding or the head)"
            )
        return tuple(layers)

    def even_cut(self, n_stages: int, by: str = "blocks") -> tuple[int, ...]:
        """Return the number of blocks of each of ``n_stages`` stages that hold equal parts of the model.

        ``by`` is one of ``CUTS_BY`` and says what is equal. Spare blocks or layers go to the first stages; for ``flop``
        see ``balanced``. Raises JobError if there are more stages than blocks.
        """
        if n_stages > self.n_blocks:
            raise JobError(
                f"model {self.name} has {counted(self.n_blocks, 'block')}, too few for {counted(n_stages, 'stage')}; "
                f"wanted at most {counted(self.n_blocks, 'stage')}"
            )
        if by == "flop":
            counts = list(balanced([layer.forward_flop for layer in self.layers], n_stages))
        else:
            counts = list(even_shares(len(self.layers) if by == "layers" else self.n_blocks, n_stages))
        if by != "blocks":
            counts[0] -= self.layers[0].kind is LayerKind.EMBEDDING
            counts[-1] -= self.layers[-1].kind is LayerKind.HEAD
        return tuple(counts)

    def to_frame(self, dtype: str = "fp16") -> pd.DataFrame:
        """Return one row per layer, for one sequence: kind, parameters, forward_flop, output_bytes, held_bytes,
        gradient_bytes.

        ``output_bytes`` cross the boundary if the layer ends a stage. ``held_bytes`` stay in memory until its backward.
        Raises UnknownName for an unknown dtype.
        """
        import pandas as pd  # takes a while to load

        if dtype not in BYTES_PER_ELEMENT:
            raise unknown("dtype", dtype, BYTES_PER_ELEMENT)
        each = BYTES_PER_ELEMENT[dtype]
        columns = {
            "kind": [str(layer.kind) for layer in self.layers],
            "parameters": [layer.parameters for layer in self.layers],
            "forward_flop": [layer.forward_flop for layer in self.layers],
            "output_bytes": [each * layer.output_elements for layer in self.layers],
            "held_bytes": [each * layer.held_elements for layer in self.layers],
            "gradient_bytes": [each * layer.parameters for layer in self.layers],
        }
        return pd.DataFrame(columns).rename_axis("layer")


def balanced(costs: Sequence[float], n_parts: int) -> tuple[int, ...]:
    """Divide consecutive costs into parts so that the most expensive part costs as little as possible.

    Returns the number of costs in each part; no part is empty. Among equally good divisions, it returns the one whose
    parts are most equal (least squares), and among those one with the larger parts first.
    """
    before = np.concatenate([[0.0], np.cumsum(np.asarray(costs) / max(max(costs), 1e-300))])
    part = before[None, :] - before[:, None]  # from each begin to each end
    part[np.tril_indices(len(before))] = np.inf
    most = part[0]
    for _ in range(n_parts - 1):
        most = np.maximum(most[:, None], part).min(axis=0)
    square = np.where(part <= most[-1] * (1 + 1e-9), part**2, np.inf)
    sums, begins = square[0], []
    for _ in range(n_parts - 1):
        whole = sums[:, None] + square
        sums = whole.min(axis=0)
        alike = whole <= sums * (1 + 1e-9)
        begins.append(len(before) - 1 - alike[::-1].argmax(axis=0))  # the last of equal ones: a small last part
    ends = [len(costs)]
    for begin in reversed(begins):
        ends.insert(0, int(begin[ends[0]]))
    return tuple(end - begin for begin, end in pairwise([0, *ends]))
