"""Training batches (byte tokens of a text, or rows of your own data), which the workers divide among themselves, and
generated text."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import nn

from dtfm_lab.domain.errors import FileError, LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.files import override
from dtfm_lab.runtime.protocol.checkpoint_folders import describe
from dtfm_lab.runtime.protocol.corpus import Corpus
from dtfm_lab.runtime.worker.autograd_stage import Batch
from dtfm_lab.runtime.worker.own_module import build, leaves
from dtfm_lab.runtime.worker.stages import DTYPES, build_stages


class TextBatches:
    """Training batches, sampled from the training text by seed and step, and one fixed batch of the held-out text."""

    def __init__(self, text: Corpus | str | None, seq_len: int, global_batch: int, seed: int) -> None:
        """``text``: an open corpus, or the path of a file. None for the text that comes with the lab."""
        self.corpus = text if isinstance(text, Corpus) else Corpus.of(text, seq_len)
        self._global_batch, self._seed = global_batch, seed

    def batch(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (inputs, targets) for all replicas, each (global_batch, seq_len)."""
        starts = _sampled(len(self.corpus.training) - self.corpus.seq_len, self._global_batch, self._seed, step)
        return _pair(self.corpus.windows(self.corpus.training, starts.numpy()))

    def share(self, step: int, replica: int, counts: Sequence[int]) -> Batch:
        """Return one replica's micro-batches of ``batch``. ``counts``: number of micro-batches of each replica."""
        return _cut(self.batch(step), replica, counts)

    def held_out_batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (inputs, targets) of sequences spread over the held-out text, each (global_batch, seq_len)."""
        return _pair(self.corpus.windows(self.corpus.held_out, self.corpus.held_out_starts(self._global_batch)))

    def held_out(self, replica: int, counts: Sequence[int]) -> Batch:
        """Return one replica's micro-batches of ``held_out_batch``, divided as in ``share``."""
        return _cut(self.held_out_batch(), replica, counts)

    @cached_property
    def unigram_entropy(self) -> float:
        """Entropy of the held-out batch's targets in nats per byte; see ``Corpus.unigram_entropy``."""
        return self.corpus.unigram_entropy(self._global_batch)


class OwnBatches:
    """Batches of rows of your own data, sampled by seed and step. Of ten rows or more, the last tenth is held out."""

    unigram_entropy = None

    def __init__(self, job: Job, seed: int) -> None:
        self._dtype = DTYPES[job.dtype]
        self._own = build(job.modelled().source, seed, self._dtype)._replace(module=nn.Identity())
        self._global_batch, self._seed = job.global_batch, seed
        self._n_training = self._own.n_samples - self._own.n_samples // 10

    def share(self, step: int, replica: int, counts: Sequence[int]) -> Batch:
        """Return one replica's micro-batches of a step. ``counts``: number of micro-batches of each replica."""
        return self._rows(_sampled(self._n_training, self._global_batch, self._seed, step), replica, counts)

    def held_out(self, replica: int, counts: Sequence[int]) -> Batch:
        """Return one replica's micro-batches of the held-out rows, or of all rows if none is held out. If there are too
        few rows, they repeat."""
        first = self._n_training % self._own.n_samples
        rows = first + torch.arange(self._global_batch) % (self._own.n_samples - first)
        return self._rows(rows, replica, counts)

    def _rows(self, rows: torch.Tensor, replica: int, counts: Sequence[int]) -> Batch:
        return [
            tuple(leaves(self._own.batch(part.tolist()), self._dtype)) for (part,) in _cut((rows,), replica, counts)
        ]


def batches_of(job: Job, corpus: Corpus, seed: int) -> TextBatches | OwnBatches:
    """Return batches of the text, or of the data of your own module."""
    if job.modelled().source:
        return OwnBatches(job, seed)
    return TextBatches(corpus, job.modelled().seq_len, job.global_batch, seed)


def _pair(windows: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    tokens = torch.from_numpy(windows).long()
    return tokens[:, :-1], tokens[:, 1:]


def _sampled(n: int, global_batch: int, seed: int, step: int) -> torch.Tensor:
    """Return the indices, out of n, of the samples in the batch of a step."""
    # a prime factor keeps the seeds of neighbouring runs and steps apart
    return torch.randint(0, n, (global_batch,), generator=torch.Generator().manual_seed(seed * 1_000_003 + step))


def _cut(batch: Sequence[torch.Tensor], replica: int, counts: Sequence[int]) -> Batch:
    """Return one replica's micro-batches. Replicas take theirs one after another, in the order of the batch."""
    before, own = sum(counts[:replica]), counts[replica]
    return list(zip(*(part.chunk(sum(counts))[before : before + own] for part in batch), strict=True))


BYTE_VALUES = 256
EMPTY_PROMPT = b"\n"
"""The prompt that replaces an empty one."""


def load_model(folder: str | Path) -> tuple[nn.Module, Job]:
    """Return the whole model of a checkpoint, or of the newest one below a folder, and its job with one stage and
    replica."""
    from dtfm_lab.runtime.client.run_checks import why_not_built
    from dtfm_lab.runtime.worker.checkpoint_tensors import read_parameters  # safetensors is loaded where it is used

    checkpoint = describe(folder)
    model_spec, held_bytes = checkpoint.model, sum(checkpoint.files.values())
    if why := why_not_built(model_spec):
        raise FileError(f"checkpoint {checkpoint.folder}: {why}")
    least = model_spec.parameters * DTYPES[checkpoint.job.dtype].itemsize
    if held_bytes < least:  # checked first, because a damaged size could make the model fill all memory
        raise FileError(
            f"checkpoint {checkpoint.folder}: its files have {held_bytes} bytes; wanted {least} or more for model "
            f"{model_spec.name}"
        )
    job = override(checkpoint.job, n_stages=1, n_replicas=1)
    model = build_stages(job, 1, [0], seed=0)[0]  # the random parameters are overwritten
    read_parameters(checkpoint.folder, model)
    return model, job


def generate(
    model: nn.Module, seq_len: int, prompt: str, n_bytes: int, *, seed: int = 0, temperature: float = 0.8
) -> str:
    """Generate ``n_bytes`` after the prompt, each sampled from the model's distribution given the last ``seq_len``
    bytes.

    Temperature 0 takes the most likely byte. Bytes that are not UTF-8 become U+FFFD. Raises LabError if the model's
    logits are not finite.
    """
    generator = torch.Generator().manual_seed(seed)
    tokens = list(prompt.encode(errors="replace") or EMPTY_PROMPT)
    first = len(tokens)
    with torch.inference_mode():
        for _ in range(n_bytes):
            logits = model(torch.tensor([tokens[-seq_len:]]))[0, -1, :BYTE_VALUES].double()
            if not logits.isfinite().all():
                raise LabError("the model's answer is not a number: its training has diverged; wanted another")
            if temperature == 0:
                tokens.append(int(logits.argmax()))
                continue
            # less the largest logit, so that the exponential does not overflow
            probabilities = torch.softmax((logits - logits.max()) / temperature, dim=0)
            tokens.append(int(torch.multinomial(probabilities, 1, generator=generator)))
    return bytes(tokens[first:]).decode(errors="replace")
