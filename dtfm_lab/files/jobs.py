"""Jobs by name, with any field overridden, or from a versioned YAML or JSON file."""

from __future__ import annotations

import os
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field

from dtfm_lab.domain.errors import FileError, JobError, LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.model import ModelSpec, gpt
from dtfm_lab.domain.presets import JOBS
from dtfm_lab.domain.registry import unknown
from dtfm_lab.files.reading import Section, parse, read_mapping, require_version, write_text

MODELS: dict[str, ModelSpec] = {job.model.name: job.model for job in JOBS.values() if job.model}
BYTE_FIELDS = {"gradient_bytes": "given_gradient_bytes", "activation_bytes": "given_hop_bytes"}


class GptSection(Section):
    name: str = "gpt"
    n_layers: int = Field(ge=1, le=10_000)
    d_model: int = Field(ge=1, le=10**7)
    n_heads: int = Field(ge=1, le=10**7)
    seq_len: int = Field(ge=1, le=10**9)
    vocab_size: int = Field(ge=1, le=10**9)
    tied: bool = True


class JobFile(Section):
    dtfm_job: int
    name: str | None = None
    base: str | None = None
    """a preset whose fields hold where this file is silent"""
    model: str | dict[str, Any] | None = None
    """a preset's model by name, or the fields of a GptSection"""
    n_stages: int | None = None
    n_replicas: int | None = None
    global_batch: int | None = None
    microbatch: int | None = None
    dtype: str | None = None
    schedule: str | None = None
    synchronisation: str | None = None
    compression: str | None = None
    gradient_bytes: float | None = None
    activation_bytes: float | None = None


def job_names() -> list[str]:
    return sorted(JOBS)


def load_job(name_or_path: str | os.PathLike[str], **overrides: Any) -> Job:
    """A preset by name or a job from a file, any field overridden.

    ``gradient_bytes`` and ``activation_bytes`` set the message sizes of the communication cost;
    ``model`` may be a ModelSpec or a preset's name. Raises FileError, JobError or UnknownName.
    """
    path = Path(name_or_path)
    if os.fspath(name_or_path) in JOBS:
        job = JOBS[os.fspath(name_or_path)]
    elif path.suffix in (".yaml", ".yml", ".json") or path.exists():
        job = job_from_mapping(read_mapping(path), where=path.name, name=path.stem)
    else:
        raise unknown("job", os.fspath(name_or_path), JOBS)
    return override(job, **overrides)


def override(job: Job, **values: Any) -> Job:
    """The job with these fields instead; the whole is checked anew."""
    known = {f.name for f in fields(Job)} - set(BYTE_FIELDS.values()) | set(BYTE_FIELDS)
    for key in values:
        if key not in known:
            raise unknown("job field", key, known)
    if "model" in values:
        values["model"] = _model(values["model"])
    return replace(job, **{BYTE_FIELDS.get(key, key): value for key, value in values.items()})


def job_from_mapping(data: dict[str, Any], *, where: str = "job", name: str = "job") -> Job:
    """A job from what a file holds."""
    require_version(data, "dtfm_job", where)
    file = parse(JobFile, data, where)
    given = {k: v for k, v in file.model_dump().items() if v is not None and k not in ("dtfm_job", "base", "model")}
    if isinstance(file.model, str):
        given["model"] = file.model
    elif file.model is not None:
        given["model"] = gpt(**parse(GptSection, file.model, f"{where}: model").model_dump())
    given.setdefault("name", name)
    try:
        if file.base is not None:
            return load_job(file.base, **given)
        return _from_scratch(given)
    except LabError as error:
        raise type(error)(f"{where}: {error}") from None


def save_job(job: Job, path: str | os.PathLike[str]) -> Path:
    """Write a job whose model is a known preset, or which holds message sizes only, as YAML."""
    data: dict[str, Any] = {"dtfm_job": 1}
    for field in fields(Job):
        value = getattr(job, field.name)
        key = next((k for k, v in BYTE_FIELDS.items() if v == field.name), field.name)
        if key == "model" and value is not None:
            if MODELS.get(value.name) != value:
                raise FileError(f"{path}: model {value.name} is no preset; wanted one of {', '.join(sorted(MODELS))}")
            value = value.name
        if value is not None:
            data[key] = value
    return write_text(path, yaml.safe_dump(data, sort_keys=False))


def _model(model: ModelSpec | str | None) -> ModelSpec | None:
    if model is None or isinstance(model, ModelSpec):
        return model
    if model not in MODELS:
        raise unknown("model", model, MODELS)
    return MODELS[model]


def _from_scratch(given: dict[str, Any]) -> Job:
    if "model" not in given:
        shape = {k: given.get(k) for k in ("n_stages", "n_replicas", "gradient_bytes", "activation_bytes")}
        if missing := [k for k, v in shape.items() if v is None]:
            raise JobError(f"no {missing[0]!r}; wanted a base, a model, or the four of {', '.join(shape)}")
        job = Job.from_bytes(**shape, name=given["name"])
        return override(job, **{key: value for key, value in given.items() if key not in shape})
    if missing := [k for k in ("n_stages", "n_replicas", "global_batch", "microbatch") if k not in given]:
        raise JobError(f"no {missing[0]!r}; wanted a base, or all of n_stages, n_replicas, global_batch, microbatch")
    values = given | {"model": _model(given["model"])}
    return Job(**{BYTE_FIELDS.get(key, key): value for key, value in values.items()})
