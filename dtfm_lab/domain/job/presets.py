"""Models and jobs by name.

``models.csv`` and ``models_with_experts.csv`` have one row per model. Its family names the function that builds it, and
an empty cell means that function's default. ``seq_len`` is the length it was trained on.
"""

import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dtfm_lab.domain.job.job import Job
from dtfm_lab.domain.job.model import ModelSpec, gpt, llama, moe
from dtfm_lab.domain.job.options import OPENED_BY_NULL
from dtfm_lab.domain.registry import Registry
from dtfm_lab.domain.units import GB, GiB

BUILDERS: dict[str, Callable[..., ModelSpec]] = {"gpt": gpt, "llama": llama, "moe": moe}
YES_OR_NO = {"yes": True, "no": False}


def _rows() -> Iterator[dict[str, str]]:
    for table in ("models.csv", "models_with_experts.csv"):
        with Path(__file__).with_name(table).open(encoding="utf-8", newline="") as file:
            yield from csv.DictReader(file)


def _model(row: dict[str, str]) -> ModelSpec:
    about = ("name", "family", "batch", "other_names", "source")
    sizes: dict[str, Any] = {}
    for column, cell in row.items():
        if cell and column not in about:
            sizes[column] = YES_OR_NO[cell] if cell in YES_OR_NO else int(cell)
    return BUILDERS[row["family"]](name=row["name"], **sizes)


_ROWS = tuple(_rows())
MODELS: dict[str, ModelSpec] = {row["name"]: _model(row) for row in _ROWS}
"""Models by name, each with the sequence length it was trained on. ``ModelSpec.with_seq_len`` changes that."""
NICKNAMES = {other: row["name"] for row in _ROWS for other in row["other_names"].split()}
"""Alternative names of known architectures."""
BATCHES = {row["name"]: int(row["batch"]) for row in _ROWS if row["batch"]}
"""Sequences per iteration of each model's job (512 if not listed, as in Radford et al. 2019)."""

TINY = MODELS["tiny"]
"""A model with 1.7 million parameters on bytes of text."""
SMALL = MODELS["small"]
"""A model with 6.5 million parameters on bytes of text."""
GPT3_XL = MODELS["gpt3-xl"]
"""1.3 billion parameters: the model of DT-FM's experiments."""

DTFM_GRADIENT_BYTES = 1.3 * 4 * 3 / 24 * GB
"""Bytes of a stage's gradient in DT-FM's public code: 1.3 billion parameters of 4 bytes, 3 of 24 layers per stage."""

DTFM_HOP_BYTES = 2024 * 2048 * 2 * (1.25e5 / 2048) / GiB * GB
"""Bytes of a replica's activations over one boundary in DT-FM's public code. That code has 2024 where 2048 is meant,
and uses a GiB figure as GB. Both are kept, because published costs depend on them."""

OPEN: dict[str, Any] = dict.fromkeys(OPENED_BY_NULL)
"""Keywords of a job that leaves everything to a planner: the fields that have to be set to None. The rest of
``LEFT_TO_PLANNERS`` is open by default."""


def _job(model: ModelSpec) -> Job:
    """Return the job to train a model. Everything that can be chosen when a run is launched is left to the planner."""
    return Job(name=model.name, model=model, global_batch=BATCHES.get(model.name, 512), dtype="bf16", **OPEN)


_JOBS = (
    Job(
        name="dtfm-gpt3-xl",
        model=GPT3_XL,
        n_stages=8,
        n_replicas=8,
        global_batch=512,
        microbatch=1,
        given_gradient_bytes=DTFM_GRADIENT_BYTES,
        given_hop_bytes=DTFM_HOP_BYTES,
    ),
    Job(name="gpt3-xl", model=GPT3_XL, global_batch=1024, **OPEN),
    Job(name="tiny", model=TINY, n_stages=4, n_replicas=2, global_batch=16, microbatch=2, dtype="fp32"),
    Job(name="small", model=SMALL, n_stages=4, n_replicas=2, global_batch=16, microbatch=2, dtype="fp32"),
)

JOBS: Registry[Job] = Registry(
    "job",
    group="dtfm_lab.jobs",
    entries={job.name: job for job in (*map(_job, MODELS.values()), *_JOBS)},
    fits=lambda entry: isinstance(entry, Job),
)
"""Jobs by name.

``dtfm-gpt3-xl`` is priced with the constants of DT-FM's public code, which fit its shape and batch. It is simulated as
GPT3-XL, and other shapes use the model's own sizes. ``gpt3-xl`` uses its own sizes throughout. ``tiny`` and ``small``
are for real runs on one machine. Every other model has a job of its name, with batches of 0.5 to 17 million tokens.
These jobs and ``gpt3-xl`` leave everything that a launch can choose to the planner.
"""
