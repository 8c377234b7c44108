"""What is trained: a row of layers, each with its parameters, work and output size."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dtfm_lab.domain.errors import JobError

BACKWARD_PER_FORWARD = 2.0
"""A backward pass multiplies by the weights and by the inputs, a forward only by the weights."""


class LayerKind(StrEnum):
    EMBEDDING = "embedding"
    BLOCK = "block"
    HEAD = "head"


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One piece that is never cut: all its numbers are for one sequence."""

    kind: LayerKind
    parameters: int
    forward_flop: float
    output_elements: int
    """numbers that it hands to the next layer; what crosses a stage boundary set after it"""


@dataclass(frozen=True, kw_only=True, repr=False)
class ModelSpec:
    """A model as the planner and the simulator see it; the runtime builds the same in torch."""

    name: str
    layers: tuple[Layer, ...]
    d_model: int
    n_heads: int
    seq_len: int
    """tokens per sequence"""
    vocab_size: int
    tied: bool
    """the head multiplies by the embedding's own matrix"""

    def __post_init__(self) -> None:
        for what in ("d_model", "n_heads", "seq_len", "vocab_size"):
            if getattr(self, what) < 1:
                raise JobError(f"model {self.name}: {what} is {getattr(self, what)}; wanted 1 or more")
        if self.d_model % self.n_heads:
            raise JobError(f"model {self.name}: d_model {self.d_model} is not a multiple of {self.n_heads} heads")

    def __repr__(self) -> str:
        return f"<ModelSpec {self.name}: {self.n_blocks} blocks, {self.parameters:,} parameters>"

    @property
    def n_blocks(self) -> int:
        return sum(layer.kind is LayerKind.BLOCK for layer in self.layers)

    @property
    def parameters(self) -> int:
        return sum(layer.parameters for layer in self.layers)

    def cut(self, n_stages: int) -> tuple[int, ...]:
        """How many consecutive layers each stage holds, blocks shared out as evenly as they go.

        The embedding joins the first stage and the head the last; spare blocks go to the first
        stages. Raises JobError where a stage would hold no block.
        """
        if n_stages > self.n_blocks:
            raise JobError(
                f"model {self.name} has {self.n_blocks} blocks, too few for {n_stages} stages; "
                f"wanted at most {self.n_blocks} stages"
            )
        each, spare = divmod(self.n_blocks, n_stages)
        counts = [each + (stage < spare) for stage in range(n_stages)]
        counts[0] += self.layers[0].kind is LayerKind.EMBEDDING
        counts[-1] += self.layers[-1].kind is LayerKind.HEAD
        return tuple(counts)


def gpt(
    *,
    n_layers: int,
    d_model: int,
    n_heads: int,
    seq_len: int,
    vocab_size: int,
    tied: bool = True,
    name: str = "gpt",
) -> ModelSpec:
    """A GPT-2 shaped model: learned positions, pre-norm blocks with a 4x MLP, biases everywhere.

    Counts as in Radford et al. 2019; FLOP are two per multiply-add, the attention matrix counted
    whole (causal or not), as in Narayanan et al. 2021, equation 3.
    """
    d, t = d_model, seq_len
    block = Layer(
        kind=LayerKind.BLOCK,
        parameters=12 * d * d + 13 * d,
        forward_flop=24.0 * t * d * d + 4.0 * t * t * d,
        output_elements=t * d,
    )
    embedding = Layer(
        kind=LayerKind.EMBEDDING, parameters=(vocab_size + t) * d, forward_flop=0.0, output_elements=t * d
    )
    head = Layer(
        kind=LayerKind.HEAD,
        parameters=2 * d + (0 if tied else vocab_size * d),
        forward_flop=2.0 * t * d * vocab_size,
        output_elements=t * vocab_size,
    )
    return ModelSpec(
        name=name,
        layers=(embedding, *[block] * n_layers, head),
        d_model=d,
        n_heads=n_heads,
        seq_len=t,
        vocab_size=vocab_size,
        tied=tied,
    )
