"""A GPT trained in numpy, every derivative written out: what runs must equal, though no line of theirs is used here.

Only the initial parameters are the product's, as numbers. What is documented is computed anew: batches from the text,
pre-norm blocks with causal attention, the mean cross-entropy, AdamW with its usual constants, a learning rate that
rises over five steps, and replicas that average each step's gradients, or each H-th step's parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import erf, pi, sqrt
from pathlib import Path

import numpy as np
import torch

import dtfm_lab

Numbers = dict[str, np.ndarray]
TEXT = Path(dtfm_lab.__file__).parent / "runtime" / "text.txt"
NORM_EPSILON = 1e-5
each_erf = np.vectorize(erf, otypes=[np.float64])


@dataclass(frozen=True)
class Text:
    """Bytes to train on: all but the last tenth, and but one sequence at least."""

    seq_len: int
    path: Path = TEXT

    def batch(self, seed: int, step: int, n_sequences: int) -> np.ndarray:
        """Return (n_sequences, seq_len + 1) tokens, at starts that torch draws from the seed and the step."""
        text = np.frombuffer(self.path.read_bytes(), np.uint8).astype(np.int64)
        training = text[: len(text) - max(len(text) // 10, self.seq_len + 1)]
        generator = torch.Generator().manual_seed(1_000_003 * seed + step)
        starts = torch.randint(0, len(training) - self.seq_len, (n_sequences,), generator=generator).tolist()
        return np.stack([training[start : start + self.seq_len + 1] for start in starts])


def normalised(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the norm's output, the normalised input, and the reciprocal of its deviation."""
    off = x - x.mean(-1, keepdims=True)
    reciprocal = 1 / np.sqrt((off**2).mean(-1, keepdims=True) + NORM_EPSILON)
    return off * reciprocal * weight + bias, off * reciprocal, reciprocal


class Gpt:
    """Loss and gradients of one model, which ``parameters`` describes by the product's names."""

    def __init__(self, n_heads: int, n_blocks: int, *, tied: bool) -> None:
        self.n_heads, self.n_blocks, self.tied = n_heads, n_blocks, tied

    def loss_and_gradients(self, p: Mapping[str, np.ndarray], tokens: np.ndarray) -> tuple[float, Numbers]:
        """Return the mean loss in nats of all but the first token, and its derivative by every parameter."""
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        last, g = self.n_blocks + 1, {}
        x = p["0.token.weight"][inputs] + p["0.position"][: inputs.shape[1]]
        kept = []
        for block in range(1, last):
            x, saved = self._block(p, f"{block}.", x)
            kept.append(saved)
        h, hat, reciprocal = normalised(x, p[f"{last}.norm.weight"], p[f"{last}.norm.bias"])
        head = p["0.token.weight"] if self.tied else p[f"{last}.logits.weight"]
        logits = h @ head.T
        logits = logits - logits.max(-1, keepdims=True)
        log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        there = (*np.indices(targets.shape), targets)
        loss = -log_p[there].mean()

        d_logits = np.exp(log_p)
        d_logits[there] -= 1
        d_logits /= targets.size
        d_head = np.einsum("bsv,bsd->vd", d_logits, h)
        d_x = self._norm_backward(p, g, f"{last}.norm", d_logits @ head, hat, reciprocal)
        for block in range(last - 1, 0, -1):
            d_x = self._block_backward(p, g, f"{block}.", d_x, kept.pop())
        g["0.position"] = np.zeros_like(p["0.position"])
        g["0.position"][: inputs.shape[1]] = d_x.sum(0)
        g["0.token.weight"] = np.zeros_like(p["0.token.weight"])
        np.add.at(g["0.token.weight"], inputs, d_x)
        if self.tied:
            g["0.token.weight"] += d_head
        else:
            g[f"{last}.logits.weight"] = d_head
        return float(loss), g

    def _block(self, p: Mapping[str, np.ndarray], at: str, x: np.ndarray) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
        batch, seq, d = x.shape
        a, a_hat, a_reciprocal = normalised(x, p[at + "attention_norm.weight"], p[at + "attention_norm.bias"])
        qkv = a @ p[at + "query_key_value.weight"].T + p[at + "query_key_value.bias"]
        q, k, v = (
            part.reshape(batch, seq, self.n_heads, -1).transpose(0, 2, 1, 3) for part in np.split(qkv, 3, axis=-1)
        )
        scores = q @ k.swapaxes(-1, -2) / sqrt(d // self.n_heads)
        scores = np.where(np.tril(np.ones((seq, seq), dtype=bool)), scores, -np.inf)  # nobody looks ahead
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        attended = (weights @ v).transpose(0, 2, 1, 3).reshape(batch, seq, d)
        x = x + attended @ p[at + "attention_out.weight"].T + p[at + "attention_out.bias"]
        m, m_hat, m_reciprocal = normalised(x, p[at + "mlp_norm.weight"], p[at + "mlp_norm.bias"])
        u = m @ p[at + "mlp_in.weight"].T + p[at + "mlp_in.bias"]
        below = (1 + each_erf(u / sqrt(2))) / 2  # the normal distribution's function
        x = x + (u * below) @ p[at + "mlp_out.weight"].T + p[at + "mlp_out.bias"]
        return x, (a, a_hat, a_reciprocal, q, k, v, weights, attended, m, m_hat, m_reciprocal, u, below)

    def _block_backward(
        self, p: Mapping[str, np.ndarray], g: Numbers, at: str, d_x: np.ndarray, saved: tuple[np.ndarray, ...]
    ) -> np.ndarray:
        a, a_hat, a_reciprocal, q, k, v, weights, attended, m, m_hat, m_reciprocal, u, below = saved
        batch, seq, d = d_x.shape
        d_u = self._linear_backward(p, g, at + "mlp_out", d_x, u * below)
        d_u = d_u * (below + u * np.exp(-(u**2) / 2) / sqrt(2 * pi))
        d_m = self._linear_backward(p, g, at + "mlp_in", d_u, m)
        d_x = d_x + self._norm_backward(p, g, at + "mlp_norm", d_m, m_hat, m_reciprocal)
        d_attended = self._linear_backward(p, g, at + "attention_out", d_x, attended)
        d_attended = d_attended.reshape(batch, seq, self.n_heads, -1).transpose(0, 2, 1, 3)
        d_weights = d_attended @ v.swapaxes(-1, -2)
        d_scores = weights * (d_weights - (d_weights * weights).sum(-1, keepdims=True)) / sqrt(d // self.n_heads)
        parts = d_scores @ k, d_scores.swapaxes(-1, -2) @ q, weights.swapaxes(-1, -2) @ d_attended
        d_qkv = np.concatenate([part.transpose(0, 2, 1, 3).reshape(batch, seq, d) for part in parts], axis=-1)
        d_a = self._linear_backward(p, g, at + "query_key_value", d_qkv, a)
        return d_x + self._norm_backward(p, g, at + "attention_norm", d_a, a_hat, a_reciprocal)

    @staticmethod
    def _linear_backward(
        p: Mapping[str, np.ndarray], g: Numbers, name: str, d_out: np.ndarray, before: np.ndarray
    ) -> np.ndarray:
        g[name + ".weight"] = np.einsum("bso,bsi->oi", d_out, before)
        g[name + ".bias"] = d_out.sum((0, 1))
        return d_out @ p[name + ".weight"]

    @staticmethod
    def _norm_backward(
        p: Mapping[str, np.ndarray], g: Numbers, name: str, d_out: np.ndarray, hat: np.ndarray, reciprocal: np.ndarray
    ) -> np.ndarray:
        g[name + ".weight"], g[name + ".bias"] = (d_out * hat).sum((0, 1)), d_out.sum((0, 1))
        d_hat = d_out * p[name + ".weight"]
        across = d_hat - d_hat.mean(-1, keepdims=True) - hat * (d_hat * hat).mean(-1, keepdims=True)
        return reciprocal * across


class AdamW:
    """Loshchilov and Hutter (2019), with torch's usual constants."""

    def __init__(self) -> None:
        self.first: Numbers = {}
        self.second: Numbers = {}
        self.t = 0

    def step(self, p: Numbers, g: Numbers, rate: float) -> None:
        self.t += 1
        for name, gradient in g.items():
            self.first[name] = 0.9 * self.first.get(name, 0.0) + 0.1 * gradient
            self.second[name] = 0.999 * self.second.get(name, 0.0) + 0.001 * gradient**2
            mean, square = self.first[name] / (1 - 0.9**self.t), self.second[name] / (1 - 0.999**self.t)
            p[name] = p[name] - rate * 0.01 * p[name] - rate * mean / (np.sqrt(square) + 1e-8)


def train_by_reference(
    model: Gpt,
    parameters: Mapping[str, np.ndarray],
    text: Text,
    sizes: Sequence[int],
    steps: int,
    *,
    learning_rate: float,
    seed: int = 0,
    every: int = 1,
) -> tuple[list[float], list[Numbers]]:
    """Return the losses, and each replica's parameters; ``sizes`` are the replicas' sequences of every batch.

    With ``every`` of 1 each step uses the gradient of the whole batch; else replicas step alone and their parameters
    are averaged after each ``every``-th step, each by its share of the batch.
    """
    names = [name for name in parameters if not (model.tied and name.endswith("logits.weight"))]
    replicas = [{name: parameters[name].astype(np.float64) for name in names} for _ in sizes]
    optimizers, losses = [AdamW() for _ in sizes], []
    shares = np.array(sizes) / sum(sizes)
    for step in range(steps):
        rate = learning_rate * min(1.0, 0.2 * (step + 1))
        parts = np.split(text.batch(seed, step, sum(sizes)), np.cumsum(sizes)[:-1])
        found = [model.loss_and_gradients(p, part) for p, part in zip(replicas, parts, strict=True)]
        losses.append(float(sum(share * loss for share, (loss, _) in zip(shares, found, strict=True))))
        gradients = [g for _, g in found]
        if every == 1:
            mean = {name: sum(w * g[name] for w, g in zip(shares, gradients, strict=True)) for name in gradients[0]}
            gradients = [mean] * len(sizes)
        for p, g, optimizer in zip(replicas, gradients, optimizers, strict=True):
            optimizer.step(p, g, rate)
        if every > 1 and (step + 1) % every == 0:
            mean = {name: sum(w * p[name] for w, p in zip(shares, replicas, strict=True)) for name in names}
            replicas = [dict(mean) for _ in sizes]
    return losses, replicas
