"""Generates text with a trained model."""

from pathlib import Path

import torch
from torch import nn

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.files import override
from dtfm_lab.runtime.protocol.checkpoint_folders import describe
from dtfm_lab.runtime.worker.checkpoint_tensors import read_parameters
from dtfm_lab.runtime.worker.stages import build_stages

BYTE_VALUES = 256
EMPTY_PROMPT = b"\n"
"""The prompt that is used for an empty one."""


def load_model(folder: str | Path) -> tuple[nn.Module, Job]:
    """The whole model of a checkpoint, or of the newest one below a folder, and its job as a single stage."""
    checkpoint = describe(folder)
    job = override(checkpoint.job, n_stages=1, n_replicas=1)
    model = build_stages(job, 1, [0], seed=0)[0]  # what is drawn is overwritten
    read_parameters(checkpoint.folder, model)
    return model, job


def generate(
    model: nn.Module, seq_len: int, prompt: str, n_bytes: int, *, seed: int = 0, temperature: float = 0.8
) -> str:
    """Generate ``n_bytes`` after the prompt, each drawn from the model's distribution given the last ``seq_len``.

    Temperature 0 takes the most likely byte. Bytes that are not UTF-8 become U+FFFD.
    """
    generator = torch.Generator().manual_seed(seed)
    tokens = list(prompt.encode(errors="replace") or EMPTY_PROMPT)
    first = len(tokens)
    with torch.inference_mode():
        for _ in range(n_bytes):
            logits = model(torch.tensor([tokens[-seq_len:]]))[0, -1, :BYTE_VALUES].double()
            if not logits.isfinite().all():
                raise LabError("the model answers with what is no number: its training has diverged; wanted another")
            if temperature == 0:
                tokens.append(int(logits.argmax()))
                continue
            probabilities = torch.softmax((logits - logits.max()) / temperature, dim=0)
            tokens.append(int(torch.multinomial(probabilities, 1, generator=generator)))
    return bytes(tokens[first:]).decode(errors="replace")
