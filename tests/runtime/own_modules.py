"""Torch modules as people bring them: functions that make (module, data) or (module, data, loss)."""

import os
import subprocess
import sys

import torch
import torch.nn.functional as F
from torch import nn


def rows(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def tokens(*shape: int) -> torch.Tensor:
    return torch.randint(0, 32, shape, generator=torch.Generator().manual_seed(1))


class Perceptron(nn.Module):
    """A row of layers; the loss is beside it."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(5))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = self.dropout(torch.tanh(layer(x)))
        return x


def perceptron():
    x = rows(32, 8)
    return Perceptron(), (x, x.roll(1, dims=1)), nn.functional.mse_loss


class Wavy(nn.Linear):
    """Computes long, with few products."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = super().forward(x)
        for _ in range(200):
            x = x.sin()
        return x


def lopsided():
    x = rows(32, 8)
    return nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), Wavy(8, 8)), (x, x), nn.functional.mse_loss


def drops_out():
    x = rows(32, 8)
    return Perceptron(dropout=0.1), (x, x), nn.functional.mse_loss


class Recurrent(nn.Module):
    """A row of tokens through a recurrent layer without dropout, which torch counts among what may draw."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.layer = nn.Embedding(32, 8), nn.GRU(8, 8, batch_first=True)
        self.head = nn.Linear(8, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(self.embedding(x))[0]).flatten(0, 1)


def recurrent():
    x = tokens(32, 6)
    return Recurrent(), (x, x), lambda made, wanted: F.cross_entropy(made, wanted.flatten())


class Block(nn.Module):
    """Attention with rotary positions and a mixture of two experts."""

    def __init__(self, d: int = 16) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(d), nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.router, self.experts = nn.Linear(d, 2), nn.ModuleList(nn.Linear(d, d) for _ in range(2))

    def forward(self, x: torch.Tensor, turn: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
        q, k = q * turn.cos() + q.flip(-1) * turn.sin(), k * turn.cos() + k.flip(-1) * turn.sin()
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, attn_mask=mask))
        share = self.router(x).softmax(-1)
        return x + sum(share[..., i : i + 1] * expert(x) for i, expert in enumerate(self.experts))


class Language(nn.Module):
    """Returns its loss, and ties its head to its embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.blocks = nn.Embedding(32, 16), nn.ModuleList(Block() for _ in range(4))
        self.head = nn.Linear(16, 32, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        n = input_ids.shape[1]
        turn = torch.arange(n)[:, None] / 10 ** torch.linspace(0, 2, 16)
        mask = torch.ones(n, n, dtype=torch.bool).tril()
        x = self.embedding(input_ids)
        for block in self.blocks:
            x = block(x, turn, mask)
        return F.cross_entropy(self.head(x).flatten(0, 1), labels.flatten())


def language():
    ids = tokens(40, 12)
    return Language(), {"input_ids": ids[:, :-1], "labels": ids[:, 1:]}


class UNet(nn.Module):
    """Skips that ride along over every cut, with batch norms that keep statistics in place."""

    def __init__(self, c: int = 4) -> None:
        super().__init__()

        def conv(a: int, b: int) -> nn.Module:
            return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(inplace=True))

        self.down, self.lower, self.bottom = conv(1, c), conv(c, 2 * c), conv(2 * c, 4 * c)
        self.upper, self.up, self.out = conv(6 * c, 2 * c), conv(3 * c, c), nn.Conv2d(c, 1, 1)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        a = self.down(x)
        b = self.lower(F.max_pool2d(a, 2))
        z = self.bottom(F.max_pool2d(b, 2))
        z = self.upper(torch.cat([F.interpolate(z, scale_factor=2.0), b], 1))
        z = self.up(torch.cat([F.interpolate(z, scale_factor=2.0), a], 1))
        return F.mse_loss(self.out(z), y)


class Pictures(torch.utils.data.Dataset):
    """A dataset of rows, as data loaders take it."""

    def __init__(self) -> None:
        self.x = rows(24, 1, 8, 8)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"x": self.x[index], "y": self.x[index].flip(-1)}


def unet():
    return UNet(), Pictures()


class Lonely(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * self.weight).mean()


def lonely():
    return Lonely(), (rows(8, 8),)


def no_loss():
    return Perceptron(), (rows(8, 8),)


def alone():
    return Perceptron()


def breaks():
    raise RuntimeError("the disk\nis full")


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layers[0](x)
        return (self.layers[1](x) if x.sum() > 0 else x).mean()


def branches():
    return Branches(), (rows(8, 8),)


class Shared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))
        self.layers[2].weight = self.layers[1].weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x.mean()


def frozen():
    module = Perceptron()
    module.layers[0].weight.requires_grad = False
    return module, (rows(8, 8),) * 2, nn.functional.mse_loss


def shared():
    return Shared(), (rows(8, 8),)


def ends():
    print('{"boundary": 4, "tied": 0, "layers": []}')
    os._exit(0)


def exits():
    raise SystemExit("enough\nof this")


def crashes():
    print("nothing left", file=sys.stderr)
    os.abort()


def forges():
    with open(sys.argv[2], "w") as file:
        file.write('{"boundary": 4, "tied": 0, "layers": [{"parameters": -5, "forward_flop": 1, "held_elements": 1}]}')
    os._exit(0)


def lists():
    with open(sys.argv[2], "w") as file:
        file.write("[1, 2]")
    os._exit(0)


def leaves_a_process():
    """A process that holds the pipes of this one for longer than a test waits."""
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    raise ValueError("the disk is full")
