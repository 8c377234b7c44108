"""Load jobs by name, with any field overridden, or from a versioned YAML or JSON file."""

import os
from dataclasses import fields
from pathlib import Path
from typing import Any

from pydantic import create_model

from dtfm_lab.domain.errors import JobError, UnknownName
from dtfm_lab.domain.job import JOBS, Job, JobChanges, ModelSpec, with_adapters
from dtfm_lab.domain.job.names import unknown_model
from dtfm_lab.domain.job.options import OPENED_BY_NULL
from dtfm_lab.domain.network import shortened
from dtfm_lab.domain.options import options_of, refuse_unknown
from dtfm_lab.domain.units import counted
from dtfm_lab.files.models import dtype_of_model, load_model, model_from_section, model_or_file, model_to_section
from dtfm_lab.files.reading import Section, located, parse, read_mapping, write_yaml
from dtfm_lab.files.topologies import topology_names

BYTE_FIELDS = {option.name: option.field for option in options_of(Job) if option.name != option.field}
"""Key of a job file -> the job field, if that has another name: the message sizes of the communication cost."""


class JobHead(Section):
    """Keys of a job file that are not job fields."""

    dtfm_job: int
    base: str | None = None
    """Preset that supplies the fields missing from the file."""
    model: str | dict[str, Any] | None = None
    """A preset's name, a path to a config.json relative to this file's folder, or the fields of a model."""


_FIELDS: dict[str, Any] = {o.name: (o.type | None, None) for o in options_of(JobChanges) if o.name != "model"}
JobFile = create_model("JobFile", __base__=JobHead, **_FIELDS)


def job_names() -> list[str]:
    return sorted(JOBS)


def load_job(name_or_path: str | os.PathLike[str], **overrides: Any) -> Job:
    """Return a preset by name or a job from a file, with any fields overridden as ``override`` does.

    Raises FileError, JobError or UnknownName.
    """
    if not isinstance(name_or_path, str | os.PathLike):
        raise JobError(f"job is {shortened(name_or_path)}; wanted a Job, a name or a path")
    path, name = Path(name_or_path), os.fspath(name_or_path)
    if name not in JOBS:  # perhaps a known name, spelled otherwise
        name = model_or_file(name_or_path, JOBS)
    if name in JOBS:
        job = JOBS[name]
    elif path.suffix in (".yaml", ".yml", ".json") or os.path.exists(os.fspath(name_or_path)):
        job = job_from_mapping(read_mapping(path), where=path.name, name=path.stem, folder=path.parent)
    else:
        network = f" ({name} is a network)" if name in topology_names() else ""
        raise UnknownName(f"{unknown_model('job', name, JOBS)}{network}")
    return override(job, **overrides)


def override(job: Job, **values: Any) -> Job:
    """Return the job with these fields replaced, checked as a whole.

    Besides job fields, these keywords are accepted:

    - ``model``: a ModelSpec, a preset's name, or a path to a Hugging Face config.json or its folder
    - ``seq_len``: another sequence length for the model
    - ``adapters``: freeze the weights and train adapters of this rank
    - ``gradient_bytes``, ``activation_bytes``: the message sizes of the communication cost

    Values given for another shape, batch or model (message sizes, ``blocks_per_stage`` and so on) are dropped if that
    changes, as ``Job.with_fields`` describes. A new ``model`` also sets the job's name, and the dtype in its
    config.json sets the job's dtype, unless you give ``name`` or ``dtype``.

    Raises UnknownName for an unknown field, JobError for impossible values, and what ``load_model`` raises. A job
    without a model raises JobError for another number of stages, unless ``gradient_bytes`` is given.
    """
    refuse_unknown(values, [option.name for option in options_of(JobChanges)], "job field")
    # Files have shorter names for these sizes.
    values = {BYTE_FIELDS.get(key, key): value for key, value in values.items()}
    model = _model(values.get("model", job.model), values.pop("seq_len", None), values.pop("adapters", None))
    # Message sizes are by stage, so another number of stages needs others.
    if model is None and values.get("n_stages", job.n_stages) != job.n_stages and "given_gradient_bytes" not in values:
        raise JobError(
            f"job {job.name} has no model, only the message sizes of {counted(job.n_stages, 'stage')}; wanted "
            f"gradient_bytes of {values['n_stages']} stages, too"
        )
    if model is not None and "model" in values:
        values = _of_model(values, model, job) | values
    return job.with_fields(**values | {"model": model})


def job_from_mapping(
    data: dict[str, Any], *, where: str = "job", name: str = "job", folder: str | os.PathLike[str] = ""
) -> Job:
    """Return the job that a file's mapping describes. Paths in it are relative to ``folder``."""
    file = parse(JobFile, data, where, version="dtfm_job")
    # An explicit null leaves a field to the planner; a missing one takes the base's.
    nulls = file.model_fields_set & set(OPENED_BY_NULL)
    written = {k: v for k, v in file.model_dump().items() if v is not None or k in nulls}
    given = {k: v for k, v in written.items() if k not in ("dtfm_job", "base", "model")}
    given.setdefault("name", name)
    if isinstance(file.model, dict):
        given["model"] = model_from_section(file.model, f"{where}: model")
    with located(where):
        if isinstance(file.model, str):
            given["model"] = load_model(file.model, folder=folder)
            if "dtype" not in given and (dtype := dtype_of_model(file.model, folder=folder)) is not None:
                given["dtype"] = dtype
        return load_job(file.base, **given) if file.base is not None else _job_without_base(given)


def save_job(job: Job, path: str | os.PathLike[str]) -> Path:
    """Write a job as YAML: its model by name if that is a preset, otherwise with all its layers."""
    data: dict[str, Any] = {"dtfm_job": 1}
    for field in fields(Job):
        value = getattr(job, field.name)
        if value is not None or field.name in OPENED_BY_NULL:
            key = next((k for k, v in BYTE_FIELDS.items() if v == field.name), field.name)
            data[key] = model_to_section(value) if isinstance(value, ModelSpec) else value
    return write_yaml(path, data)


def _of_model(given: dict[str, Any], model: ModelSpec, job: Job) -> dict[str, Any]:
    """Return the fields that a newly given model sets: the job's name, and the dtype stated in a config.json."""
    fields: dict[str, Any] = {}
    if job.model is None or model.name != job.model.name:
        fields["name"] = model.name
    if "dtype" not in given and isinstance(given["model"], str | os.PathLike):
        dtype = dtype_of_model(given["model"])
        fields |= {} if dtype is None else {"dtype": dtype}
    return fields


def _model(model: object, seq_len: int | None, adapters: int | None) -> ModelSpec | None:
    """Return the model that is given as a ModelSpec, a name or a path, with ``seq_len`` and ``adapters`` applied if
    given."""
    if isinstance(model, str | os.PathLike):
        model = load_model(model)
    if model is not None and not isinstance(model, ModelSpec):
        raise JobError(f"model is {shortened(model)}; wanted a ModelSpec, a preset's name or a path to a config.json")
    for what, value in (("seq_len", seq_len), ("adapters", adapters)):
        if model is None and value is not None:
            raise JobError(f"{what} is {shortened(value)}, but the job has no model; wanted one, or no {what}")
    if model is not None and seq_len is not None:
        model = model.with_seq_len(seq_len)
    return model if model is None or adapters is None else with_adapters(model, adapters)


def _job_without_base(given: dict[str, Any]) -> Job:
    if "model" not in given:
        needed = ("n_stages", "n_replicas", "gradient_bytes", "activation_bytes")
        shape: dict[str, Any] = {name: given.get(name) for name in needed}
        if missing := [k for k, v in shape.items() if v is None]:
            raise JobError(f"no {missing[0]!r}; wanted a base, a model, or the four of {', '.join(shape)}")
        job = Job.from_bytes(**shape, name=given["name"])
        return override(job, **{key: value for key, value in given.items() if key not in shape})
    if "global_batch" not in given:
        raise JobError("no 'global_batch'; wanted a base, or a model and global_batch")
    values = given | {"model": _model(given["model"], given.get("seq_len"), given.get("adapters"))}
    values = {key: value for key, value in values.items() if key not in ("seq_len", "adapters")}
    return Job(**{BYTE_FIELDS.get(key, key): value for key, value in values.items()})
