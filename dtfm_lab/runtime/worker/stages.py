"""A GPT cut into stages, in torch. Initial parameters depend on the seed and the layer, never on where the model is
cut."""

import math
from collections.abc import Iterable, Mapping
from typing import cast

import torch
import torch.nn.functional as F
from torch import nn

from dtfm_lab.domain.job import Job, LayerKind, ModelSpec
from dtfm_lab.runtime.worker.exported_module import StageOfModule, stages_of

DTYPES = {"fp32": torch.float32, "fp64": torch.float64}
WEIGHT_STD = 0.02
"""Standard deviation of initial weights in GPT-2 (Radford et al. 2019). For the weights in ``RESIDUAL`` it is divided
by the square root of the number of additions to the residual stream."""
RESIDUAL = ("attention_out.weight", "mlp_out.weight")
"""Weights whose outputs are added to the residual stream."""
TOKEN_STD = 0.3
"""Standard deviation of an embedding that is not tied. With GPT-2's value, the first norm magnifies every step fifty
times. The loss of the model ``small`` then stays at the text's unigram entropy for forty iterations. With this value it
is below after ten."""


class Embedding(nn.Module):
    """Tokens and learned positions. (batch, seq) -> (batch, seq, d_model)."""

    def __init__(self, model: ModelSpec) -> None:
        super().__init__()
        self.token = nn.Embedding(model.vocab_size, model.d_model)
        self.position = nn.Parameter(torch.empty(model.seq_len, model.d_model))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        embedded: torch.Tensor = self.token(tokens)
        return embedded + self.position[: tokens.shape[1]]


class TransformerBlock(nn.Module):
    """Pre-norm causal attention and a 4x MLP, each added to its input."""

    def __init__(self, model: ModelSpec) -> None:
        super().__init__()
        d = model.d_model
        self.n_heads = model.n_heads
        self.attention_norm = nn.LayerNorm(d)
        self.query_key_value = nn.Linear(d, 3 * d)
        self.attention_out = nn.Linear(d, d)
        self.mlp_norm = nn.LayerNorm(d)
        self.mlp_in = nn.Linear(d, 4 * d)
        self.mlp_out = nn.Linear(4 * d, d)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, seq, d = x.shape
        qkv = self.query_key_value(self.attention_norm(x)).view(batch, seq, 3, self.n_heads, d // self.n_heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.attention_out(attended.transpose(1, 2).reshape(batch, seq, d))
        added: torch.Tensor = self.mlp_out(F.gelu(self.mlp_in(self.mlp_norm(x))))
        return x + added


class Head(nn.Module):
    """A norm and the logits over the vocabulary. (batch, seq, d_model) -> (batch, seq, vocab_size)."""

    def __init__(self, model: ModelSpec) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(model.d_model)
        self.logits = nn.Linear(model.d_model, model.vocab_size, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.logits(self.norm(x))
        return logits


LAYERS = {LayerKind.EMBEDDING: Embedding, LayerKind.BLOCK: TransformerBlock, LayerKind.HEAD: Head}


def build_stages(job: Job, n_stages: int, held: Iterable[int], seed: int) -> dict[int, nn.Module]:
    """Return the modules of the stages ``held`` by one device, of a model cut into ``n_stages``.

    Children are named by their index in the whole model. A tied head starts as a copy of the embedding. In a pipeline
    of one device it shares the embedding itself.
    """
    if job.modelled().source:
        return dict(stages_of(job, n_stages, held, seed, DTYPES[job.dtype]))
    stages = job.layers_of(n_stages)
    modules: dict[int, nn.Sequential] = {}
    for stage in held:
        first = sum(len(layers) for layers in stages[:stage])
        modules[stage] = nn.Sequential()
        # named by the index in the whole model, so that a checkpoint fits any cut
        for index, layer in enumerate(stages[stage], start=first):
            modules[stage].add_module(str(index), _build_layer(job, layer.kind, index, seed))
    if job.modelled().tied and n_stages - 1 in modules:
        head = cast(Head, modules[n_stages - 1][-1]).logits
        if job.ties_stages:
            with torch.no_grad():
                head.weight.copy_(cast(Embedding, _build_layer(job, LayerKind.EMBEDDING, 0, seed)).token.weight)
        else:
            head.weight = cast(Embedding, modules[0][0]).token.weight
    return dict(modules)


def tied_weight(modules: Mapping[int, nn.Module], n_stages: int) -> nn.Parameter | None:
    """Return a device's copy of the embedding that the first and last stage share. None on devices with neither."""
    ends = [modules[stage] for stage in (0, n_stages - 1) if stage in modules]
    if not ends:
        return None
    if isinstance(ends[0], StageOfModule):
        return ends[0].tied
    layers = cast(nn.Sequential, ends[0])
    layer: nn.Module = cast(Embedding, layers[0]).token if 0 in modules else cast(Head, layers[-1]).logits
    return cast(nn.Parameter, layer.weight)


def next_token_loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the mean cross-entropy in nats per token."""
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def _build_layer(job: Job, kind: LayerKind, index: int, seed: int) -> nn.Module:
    layer = LAYERS[kind](job.modelled()).to(DTYPES[job.dtype])
    # a prime factor keeps the seeds of neighbouring runs and layers apart
    _initialise(layer, job.modelled(), torch.Generator().manual_seed(seed * 100_003 + index))
    return layer


def _initialise(layer: nn.Module, model: ModelSpec, generator: torch.Generator) -> None:
    """Set normal weights, zero biases and unit norms from ``generator``. torch's global generator is not used.

    Weights are sampled in float64 and rounded, so that runs in float32 and float64 start with the same weights.
    """
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
            elif "norm" in name:
                parameter.fill_(1.0)
            else:
                sampled = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
                parameter.copy_(sampled * _std(name, model))


def _std(name: str, model: ModelSpec) -> float:
    if name == "token.weight" and not model.tied:
        return TOKEN_STD
    return WEIGHT_STD / math.sqrt(2 * model.n_blocks) if name in RESIDUAL else WEIGHT_STD
