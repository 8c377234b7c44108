"""Nouns as Python: an expression that makes an equal one."""

from __future__ import annotations

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
from dtfm_lab.domain.units import FloatArray
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
"""that a search may take again, to see whether its line would find the same plan"""


class Code(NamedTuple):
    """An expression, and the imports that it needs."""

    text: str
    imports: tuple[str, ...] = ()


def written(value: Any) -> str:
    """A plain value over as few lines as it needs."""
    return pprint.pformat(value, width=WIDTH, compact=True, sort_dicts=False, underscore_numbers=False)


def keywords(given: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in given.items())


def indent(text: str, by: int) -> str:
    """All lines but the first further in."""
    return text.replace("\n", "\n" + " " * by)


def topology_code(topology: Topology) -> Code:
    """By name where it is one of the lab's, unchanged; as people write networks where that is exact; else in full."""
    if topology.name in topology_names() and load_topology(topology.name).fingerprint == topology.fingerprint:
        return Code(f"lab.load_topology({topology.name!r})")
    mapping = topology_to_mapping(topology, short=True)
    try:
        if topology_from_mapping(mapping, where=topology.name).fingerprint == topology.fingerprint:
            return Code(f"topology_from_mapping(\n{written(mapping)}\n)", (_import("topology_from_mapping", "files"),))
    except LabError:  # as of numbers that people would not write
        pass
    return _exact(topology)


def _exact(topology: Topology) -> Code:
    """Every number as it is; values that are there often are written once."""
    devices = "".join(f"    lab.Device({keywords(_device(device))}),\n" for device in topology.devices)
    given = [f"name={topology.name!r}"] + ([f"description={topology.description!r}"] if topology.description else [])
    if topology.message_bytes is not None and topology.message_s is not None:
        given.append(f"message_bytes={topology.message_bytes.tolist()!r}")
        given.append(f"message_s={_matrix(topology.message_s)}")
    bandwidth = topology.bandwidth_bytes_per_s.copy()
    np.fill_diagonal(bandwidth, 0.0)  # not read
    matrices = f"    {_matrix(topology.latency_s)},\n    {_matrix(bandwidth)},\n"
    text = f"lab.Topology(\n    (\n{devices}    ),\n{matrices}    {', '.join(given)},\n)"
    return Code(text, ("import numpy as np",))


def _device(device: Device) -> dict[str, Any]:
    """The fields that are not as usual."""
    return {f.name: value for f in fields(Device) if (value := getattr(device, f.name)) != f.default}


def _matrix(values: FloatArray) -> str:
    """``np.array([0.0, 0.02])[[[0, 1], [1, 0]]]``; NaN is written as such."""
    known, at = np.unique(values, return_inverse=True)
    listed = ", ".join("np.nan" if np.isnan(value) else repr(float(value)) for value in known)
    rows = str(at.reshape(values.shape).tolist()).replace(", ", ",")
    return f"np.array([{listed}])[{rows}]"


def job_code(job: Job) -> Code:
    """A job of the lab's by its name and what differs; else field by field."""
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
    """What ``load_job`` takes to make the one of the other; a model that has no name is left out."""
    written_as = {field: key for key, field in BYTE_FIELDS.items()}
    given: dict[str, Any] = {}
    if job.model is not None and job.model != base.model:
        given = _named_model(job.model, base.model)
        base = load_job(base.name, **given)
    for field in fields(Job):
        value = getattr(job, field.name)
        if field.name != "model" and value != getattr(base, field.name):
            given[written_as.get(field.name, field.name)] = value
    return given


def _named_model(model: ModelSpec, base: ModelSpec | None) -> dict[str, Any]:
    """By name, by the length of its sequences, or both; nothing where that does not make it."""
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
    section = written(model_to_section(model))
    return Code(f"model_from_section(\n{section},\n'model')", (_import("model_from_section", "files.models"),))


def plan_code(plan: Plan, search_s: float = SEARCH_S) -> str:
    """The search, where it finds the same placement again within ``search_s`` seconds, else the placement."""
    if steps := _steps_again(plan, search_s):
        given = keywords({"planner": plan.planner, "seed": plan.seed, "steps": steps})
        return f"lab.plan(topology, job, {given})"
    stages = planning.evaluate(plan.topology, plan.job, stages=plan.stages)
    if np.array_equal(stages.placement.devices, plan.placement.devices):
        return f"lab.evaluate(topology, job, stages={written(plan.stages)})"
    return f"lab.evaluate(topology, job, rank_map={written(plan.rank_map)})"  # paired as no matching would


def _steps_again(plan: Plan, search_s: float) -> int | None:
    """After how many steps a search from nothing stands at this placement; None where it does not, or not in time."""
    if plan.planner not in planning.planners or plan.seed is None or search_s <= 0:
        return None
    wanted, until = plan.placement.devices, time.perf_counter() + search_s
    job, topology = plan.job, plan.topology
    try:
        for step in planning.search(topology, job, plan.planner, seed=plan.seed, steps=plan.generation + 1):
            late = time.perf_counter() > until
            if np.array_equal(step.devices, wanted):
                n = step.generation + 1
                again = planning.plan(topology, job, plan.planner, seed=plan.seed, steps=n)
                return n if np.array_equal(again.placement.devices, wanted) else None
            if late:
                return None
    except LabError:
        pass
    return None


def _import(what: str, room: str) -> str:
    return f"from dtfm_lab.{room} import {what}"
