"""Nouns as Python expressions: evaluating one gives an equal noun."""

import pprint
import time
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np

from dtfm_lab import planning
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job, ModelSpec
from dtfm_lab.domain.network import Device, Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.files import (
    job_names,
    load_job,
    load_model,
    load_topology,
    model_names,
    topology_from_mapping,
    topology_names,
    topology_to_mapping,
)
from dtfm_lab.files.jobs import BYTE_FIELDS
from dtfm_lab.files.models import model_to_section

WIDTH = 110
SEARCH_S = 2.0
"""Seconds that repeating a search may take, to see whether it finds the same plan again."""


class Code(NamedTuple):
    """An expression with the import lines that it needs."""

    text: str
    imports: tuple[str, ...] = ()


def literal(value: Any) -> str:
    """Return a plain value as Python, over as few lines as possible."""
    return pprint.pformat(value, width=WIDTH, compact=True, sort_dicts=False, underscore_numbers=False)


def keywords(given: Mapping[str, Any]) -> str:
    """Return ``a=1, b='x'``."""
    return ", ".join(f"{name}={value!r}" for name, value in given.items())


def indent(text: str, by: int) -> str:
    """Return the text with all lines but the first indented."""
    return text.replace("\n", "\n" + " " * by)


def topology_code(topology: Topology) -> Code:
    """Return a shipped topology by name, another as a mapping where that is exact, and else in full."""
    if topology.name in topology_names() and load_topology(topology.name).fingerprint == topology.fingerprint:
        return Code(f"lab.load_topology({topology.name!r})")
    mapping = topology_to_mapping(topology, short=True)
    try:
        if topology_from_mapping(mapping, where=topology.name).fingerprint == topology.fingerprint:
            return Code(f"topology_from_mapping(\n{literal(mapping)}\n)", (_import("topology_from_mapping", "files"),))
    except LabError:  # a mapping rounds some numbers
        pass
    return _exact(topology)


def _exact(topology: Topology) -> Code:
    """Return the topology with every number exact; a value that occurs often is written once."""
    devices = "".join(f"    lab.Device({keywords(_device(device))}),\n" for device in topology.devices)
    given = [f"name={topology.name!r}"] + ([f"description={topology.description!r}"] if topology.description else [])
    if topology.message_bytes is not None and topology.message_s is not None:
        given.append(f"message_bytes={topology.message_bytes.tolist()!r}")
        given.append(f"message_s={_matrix(topology.message_s)}")
    bandwidth = topology.bandwidth_bytes_per_s.copy()
    np.fill_diagonal(bandwidth, 0.0)  # the diagonal is not read
    matrices = f"    {_matrix(topology.latency_s)},\n    {_matrix(bandwidth)},\n"
    text = f"lab.Topology(\n    (\n{devices}    ),\n{matrices}    {', '.join(given)},\n)"
    return Code(text, ("import numpy as np",))


def _device(device: Device) -> dict[str, Any]:
    """Return the fields that differ from their defaults."""
    return {f.name: value for f in fields(Device) if (value := getattr(device, f.name)) != f.default}


def _matrix(values: FloatArray) -> str:
    """Return ``np.array([0.0, 0.02])[[[0, 1], [1, 0]]]``; NaN is ``np.nan``."""
    known, at = np.unique(values, return_inverse=True)
    listed = ", ".join("np.nan" if np.isnan(value) else repr(float(value)) for value in known)
    rows = str(at.reshape(values.shape).tolist()).replace(", ", ",")
    return f"np.array([{listed}])[{rows}]"


def job_code(job: Job) -> Code:
    """Return a shipped job by its name and what differs from it, any other field by field."""
    if job.name in job_names():
        differing = _differing(job, load_job(job.name))
        try:
            if load_job(job.name, **differing) == job:
                return Code(f"lab.load_job({', '.join(filter(None, [repr(job.name), keywords(differing)]))})")
        except LabError:
            pass
    model = Code("None") if job.model is None else _model_code(job.model)
    given = {f.name: value for f in fields(Job) if f.name != "model" and (value := getattr(job, f.name)) != f.default}
    return Code(f"lab.Job(model={model.text}, {keywords(given)})", model.imports)


def _differing(job: Job, base: Job) -> dict[str, Any]:
    """Return the keywords of ``load_job`` that turn ``base`` into the job; a model without a name is left out."""
    key_of = {field: key for key, field in BYTE_FIELDS.items()}
    given: dict[str, Any] = {}
    if job.model is not None and job.model != base.model:
        given = _named_model(job.model, base.model)
        base = load_job(base.name, **given)
    for field in fields(Job):
        value = getattr(job, field.name)
        if field.name != "model" and value != getattr(base, field.name):
            given[key_of.get(field.name, field.name)] = value
    return given


def _named_model(model: ModelSpec, base: ModelSpec | None) -> dict[str, Any]:
    """Return keywords that name the model and its sequence length; empty where no named model equals it."""
    for name in [None, *model_names()]:
        of_name = base if name is None else load_model(name)
        if of_name is None:
            continue
        if of_name == model:
            return {"model": name}
        if model.seq_len != of_name.seq_len and of_name.with_seq_len(model.seq_len) == model:
            return ({} if name is None else {"model": name}) | {"seq_len": model.seq_len}
    return {}


def _model_code(model: ModelSpec) -> Code:
    named = _named_model(model, None)
    if named:
        name = named.pop("model")
        arguments = ", ".join(filter(None, [repr(name), keywords(named)]))
        return Code(f"load_model({arguments})", (_import("load_model", "files"),))
    section = literal(model_to_section(model))
    return Code(f"model_from_section(\n{section},\n'model')", (_import("model_from_section", "files.models"),))


def plan_code(plan: Plan, search_s: float = SEARCH_S, job: Job | None = None) -> str:
    """Return the search where it finds the same plan again within ``search_s`` seconds, else the placement.

    ``job`` is what ``job`` stands for in the code: the plan's own where not given, or one that leaves to the planner
    what the plan's names.
    """
    job = plan.job if job is None else job
    if steps := steps_again(plan, job, search_s):
        given = {"objective": plan.objective, "planner": plan.planner, "seed": plan.seed, "steps": steps}
        if plan.queueing != "pairs":
            given["queueing"] = plan.queueing
        return f"lab.plan(topology, job, {keywords(given)})"
    return placement_code(plan)


def placement_code(plan: Plan) -> str:
    """Return the plan as its placement, for ``job`` with all that the plan's has."""
    stages = planning.evaluate(plan.topology, plan.job, stages=plan.stages)
    if np.array_equal(stages.placement.devices, plan.placement.devices):
        return f"lab.evaluate(topology, job, stages={literal(plan.stages)})"
    return f"lab.evaluate(topology, job, rank_map={literal(plan.rank_map)})"  # not the planner's pairing


def steps_again(plan: Plan, job: Job, search_s: float) -> int | None:
    """Return after how many steps a search for a job finds this plan; None where it does not, or not in time."""
    if plan.planner not in planning.planners or plan.seed is None or search_s <= 0:
        return None
    deadline = time.perf_counter() + search_s
    given: dict[str, Any] = {"planner": plan.planner, "objective": plan.objective, "seed": plan.seed}
    if plan.objective != "communication":
        given["queueing"] = plan.queueing
    try:
        for step in planning.search(plan.topology, job, **given, steps=plan.generation + 1):
            is_late = time.perf_counter() > deadline
            if _is_found(plan, step.devices, step.job):
                n = step.generation + 1
                again = planning.plan(plan.topology, job, **given, steps=n)
                return n if _is_found(plan, again.placement.devices, again.job) else None
            if is_late:
                return None
    except LabError:
        pass
    return None


def _is_found(plan: Plan, devices: IntArray, job: Job) -> bool:
    return np.array_equal(devices, plan.placement.devices) and job == plan.job


def _import(name: str, module: str) -> str:
    return f"from dtfm_lab.{module} import {name}"
