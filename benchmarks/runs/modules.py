"""Seven torch modules, each as one stage and in two shapes by real workers: losses and seconds.

Losses are in fp64 and are laid over those of the same workers with the whole module on one device, which the tests hold
to torch's own training loop. Seconds are those of the virtual clock, where messages take what the link model says, and
are predicted from what each run's workers measured of themselves before the first iteration
(``lab.simulate(plan, like=measured)``): the error tells whether order, messages and computing are understood, not how
fast this machine is. Four modules are made by Hugging Face's transformers: ``pip install transformers``.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import click
import numpy as np
import torch
import torch.nn.functional as F
from cuts import Bottleneck
from machine import machine_line
from torch import nn

import dtfm_lab as lab

SHAPES = ((2, 2), (3, 1))
"""Stages and replicas."""
BATCH, MICROBATCH, ITERATIONS, ROWS, VOCABULARY, LENGTH = 16, 2, 7, 80, 512, 64
TEXT = {"vocab_size": VOCABULARY, "use_cache": False}
WIDE = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 4} | TEXT


def tokens() -> dict[str, torch.Tensor]:
    ids = torch.randint(0, VOCABULARY, (ROWS, LENGTH), generator=torch.Generator().manual_seed(1))
    return {"input_ids": ids, "labels": ids}


def pictures(size: int) -> torch.Tensor:
    return torch.randn(ROWS, 3, size, size, generator=torch.Generator().manual_seed(1))


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    still = {"resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}
    return GPT2LMHeadModel(GPT2Config(n_layer=4, n_embd=256, n_head=4, **still, **TEXT)), tokens()


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(intermediate_size=512, **WIDE)), tokens()


def t5():
    from transformers import T5Config, T5ForConditionalGeneration

    sizes = {"d_model": 128, "d_kv": 32, "d_ff": 512, "num_layers": 3, "num_heads": 4, "dropout_rate": 0.0}
    return T5ForConditionalGeneration(T5Config(decoder_start_token_id=0, **sizes, **TEXT)), tokens()


def experts():
    """Every expert computes every token, with its share of it: routing by values is what torch.export refuses."""

    class Block(nn.Module):
        def __init__(self, d: int = 192) -> None:
            super().__init__()
            self.norm, self.router, self.attention = nn.LayerNorm(d), nn.Linear(d, 4), nn.Linear(d, 3 * d)
            self.experts = nn.ModuleList(
                nn.Sequential(nn.Linear(d, 2 * d), nn.SiLU(), nn.Linear(2 * d, d)) for _ in range(4)
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = self.attention(self.norm(x)).chunk(3, dim=-1)
            x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True)
            share = self.router(x).softmax(-1)
            return x + sum(share[..., i : i + 1] * expert(x) for i, expert in enumerate(self.experts))

    class Mixture(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.head = nn.Embedding(VOCABULARY, 192), nn.Linear(192, VOCABULARY)
            self.blocks = nn.ModuleList(Block() for _ in range(4))

        def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            x = self.embedding(input_ids)
            for block in self.blocks:
                x = block(x)
            return F.cross_entropy(self.head(x).flatten(0, 1), labels.flatten())

    return Mixture(), tokens()


def resnet():
    """One block of each width and two of the third, of the blocks of a ResNet-152."""
    widths = ((64, 64, 1), (256, 128, 2), (512, 256, 2), (1024, 256, 1))
    begin = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2))
    end = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1024, 10))
    labels = torch.randint(0, 10, (ROWS,), generator=torch.Generator().manual_seed(1))
    return nn.Sequential(begin, *(Bottleneck(*each) for each in widths), *end), (pictures(32), labels), F.cross_entropy


def unet():
    """Skips cross every cut."""

    def conv(a: int, b: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(inplace=True))

    class UNet(nn.Module):
        def __init__(self, c: int = 16) -> None:
            super().__init__()
            self.down, self.lower, self.bottom = conv(3, c), conv(c, 2 * c), conv(2 * c, 4 * c)
            self.upper, self.up, self.out = conv(6 * c, 2 * c), conv(3 * c, c), nn.Conv2d(c, 3, 1)

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            a = self.down(x)
            b = self.lower(F.max_pool2d(a, 2))
            z = self.bottom(F.max_pool2d(b, 2))
            z = self.upper(torch.cat([F.interpolate(z, scale_factor=2.0), b], 1))
            return F.mse_loss(self.out(self.up(torch.cat([F.interpolate(z, scale_factor=2.0), a], 1))), y)

    x = pictures(32)
    return UNet(), {"x": x, "y": x.flip(-1)}


class Rows(torch.utils.data.Dataset):
    """What a data loader takes."""

    def __init__(self) -> None:
        self.x = torch.randn(ROWS, 512, generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.x[index], self.x[index].roll(1)


def perceptron():
    """A loss and a dataset of its own."""
    layers = [each for _ in range(5) for each in (nn.Linear(512, 512), nn.Tanh())]
    return nn.Sequential(*layers), Rows(), lambda made, wanted: ((made - wanted) ** 4).mean()


MODULES = (gpt2, llama, t5, experts, resnet, unet, perceptron)
OF_TRANSFORMERS = (gpt2, llama, t5)


def trained(job: lab.Job, n_stages: int, n_replicas: int, gbps: float) -> tuple[lab.Plan, lab.Trace]:
    network = lab.Topology.from_matrices(np.full((4, 4), 2.0), np.full((4, 4), gbps), gpu="A100")
    job = job.with_fields(n_stages=n_stages, n_replicas=n_replicas, microbatch=MICROBATCH, schedule="1f1b")
    stages = np.arange(n_stages * n_replicas).reshape(n_stages, n_replicas).tolist()
    plan = lab.evaluate(network, job, stages=stages)
    return plan, lab.start(plan, iterations=ITERATIONS, seed=0, clock="virtual").wait()


@click.command(help=__doc__)
@click.option("--only", default="", help="Modules whose name contains this.")
@click.option(
    "--gbps", default=1.0, show_default=True, help="Of each link: with less, messages are most of an iteration."
)
def main(only: str, gbps: float) -> None:
    print(f"{machine_line()}; links of {gbps:g} Gbit/s and 2 ms")
    print(f"{'module':12}{'shape':>7}{'loss off by':>13}{'measured':>12}{'predicted':>12}{'error':>9}{'computed':>10}")
    errors = []
    for made in MODULES:
        name = made.__name__
        if only not in name:
            continue
        if made in OF_TRANSFORMERS and find_spec("transformers") is None:
            print(f"{name:12} left out: transformers is not installed")
            continue
        job = lab.load_job(module=f"{Path(__file__).resolve()}:{name}", global_batch=BATCH, dtype="fp64")
        whole = np.array(trained(job, 1, 1, gbps)[1].context.losses)
        for shape in SHAPES:
            plan, measured = trained(job, *shape, gbps)
            predicted = lab.simulate(plan, like=measured)
            off = np.abs(np.array(measured.context.losses) / whole - 1).max()
            errors.append(predicted.iteration_s / measured.iteration_s - 1)
            path = predicted.critical_path()
            seconds = path["end_s"] - path["start_s"]
            computed = seconds[path["what"] == "compute"].sum() / seconds.sum()
            print(
                f"{name:12}{shape[0]:>3} x {shape[1]}{off:13.0e}{measured.iteration_s:10.3f} s"
                f"{predicted.iteration_s:10.3f} s{errors[-1]:+9.1%}{computed:10.0%}",
                flush=True,
            )
    print(f"errors: median {np.median(np.abs(errors)):.1%}, worst {max(errors, key=abs):+.1%}")
    print(machine_line())


if __name__ == "__main__":
    main()
