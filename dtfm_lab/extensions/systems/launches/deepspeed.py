"""Read DeepSpeed's JSON configuration as a strategy: ZeRO over one group of devices, or a pipeline."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.network import shortened
from dtfm_lab.extensions.systems.launches.launch import Launch
from dtfm_lab.extensions.systems.launches.settings import is_ignored, note_of, read, refusal_of
from dtfm_lab.extensions.systems.modelled.deepspeed import DeepSpeedPipeline, DeepSpeedZero3

AUTO = "auto"
WHAT = "keys of a DeepSpeed configuration"
COUNTS = {
    "train_batch_size": "global_batch",
    "train_micro_batch_size_per_gpu": "microbatch",
    "gradient_accumulation_steps": None,
}
"""Keys of the configuration that give sizes, and the field of the job that each sets. None for the accumulation, which
the launch keeps."""
OFF: tuple[Any, ...] = (None, False, 0, "none", "None", {}, [])
ADAMS = {"adam", "adamw", "fusedadam", "deepspeedcpuadam", "lamb", "fusedlamb", "deepspeedcpuadamw", "torchadam"}
"""Names of optimizers with Adam's states: two numbers per parameter."""


def read_text(text: str) -> Launch:
    """Return the launch of a configuration's text. Comments and trailing commas are allowed, because DeepSpeed reads
    Hjson. Raises LabError if it is invalid."""
    bare = re.sub(r"(?m)^\s*(//|#).*$|(?<=[\s,{\[])(//|#)[^\"\n]*$", "", text)
    bare = re.sub(r",(\s*[}\]])", r"\1", bare)
    try:
        config = json.loads(bare)
    except json.JSONDecodeError as error:
        raise LabError(f"DeepSpeed configuration: line {error.lineno}: {error.msg}; wanted JSON") from None
    return read_config(config)


def read_config(config: Any) -> Launch:
    """Return the launch of a configuration that is already parsed. Raises LabError for settings that contradict each
    other or have no model."""
    if not isinstance(config, Mapping):
        raise LabError(f"DeepSpeed configuration is {shortened(config)}; wanted an object in braces")
    ignored, notes, asked = list[str](), list[str](), list[str]()
    kept = _sorted(config, ignored, notes)
    # A value that the trainer fills in is known only there.
    asked += [name for name in COUNTS if kept.get(name) == AUTO]
    given = read("deepspeed", {name: one for name, one in kept.items() if name not in asked}, WHAT)
    job: dict[str, Any] = {field: given[name] for name, field in COUNTS.items() if field and name in given}
    accumulation = given.get("gradient_accumulation_steps")
    if accumulation is not None and not job and not asked:
        raise LabError("gradient_accumulation_steps alone; wanted train_batch_size or the micro-batch as well")
    if accumulation is None and "microbatch" in job and "global_batch" not in job and not asked:
        accumulation = 1  # DeepSpeed's default
    if asked and "global_batch" not in job:
        asks = f"{asked[0]} is {AUTO!r}, which the program that trains fills in (Hugging Face's Trainer)"
    else:
        asks = ""
    half = [name for name in ("fp16", "bf16") if given.get(name, {}).get("enabled") is True]
    if len(half) > 1:
        raise LabError("fp16 and bf16 are both enabled; wanted one of them")
    job |= {"dtype": half[0]} if half else {}
    # Two of the three numbers determine the third, and one alone leaves it open.
    sized = "microbatch" in job or (accumulation is not None and "global_batch" in job)
    if "train_micro_batch_size_per_gpu" in asked:
        notes.append(
            "train_micro_batch_size_per_gpu is 'auto': the fastest that fits is taken, or the job's microbatch"
        )
    how: dict[str, Any] = {"microbatches": "given" if sized else "tried", "devices": "all"}
    said: dict[str, Any] = {"job": job, "accumulation": accumulation if sized else None, "asks": asks}
    said |= {"ignored": tuple(ignored), "notes": tuple(notes)}
    stage = given.get("zero_optimization", {}).get("stage", 0)
    shared = given.get("tensor_parallel", {}).get("autotp_size", 1)
    if (stages := given.get("pipeline", {}).get("stages", 1)) > 1:
        if stage > 1:
            raise LabError(f"zero_optimization.stage is {stage} with a pipeline; wanted 0 or 1")
        if shared > 1:
            raise LabError(f"tensor_parallel.autotp_size is {shared} with a pipeline; wanted 1")
        how["gradient_dtype"] = given.get("communication_data_type")
        piped = DeepSpeedPipeline(n_stages=stages, sharding="zero-1" if stage else "none", **how)
        return Launch(strategy=piped, of_a_replica=stages, **said)
    strategy = DeepSpeedZero3(
        stage=stage, tensor_parallel=shared, gradient_dtype=given.get("communication_data_type"), **how
    )
    return Launch(strategy=strategy, of_a_replica=shared, **said)


def _sorted(config: Mapping[str, Any], ignored: list[str], notes: list[str]) -> dict[str, Any]:
    """Return the settings that affect the plan. Add the names of the others to ``ignored`` or ``notes``.

    Raises LabError for a setting that has no model.
    """
    kept: dict[str, Any] = {}
    if isinstance(config.get("zero_optimization"), bool):  # as in DeepSpeed of 2020
        config = {**config, "zero_optimization": {"stage": int(config["zero_optimization"])}}
    for path, value in _flat(config):
        if path in ("fp16.enabled", "bf16.enabled") and value == AUTO:
            continue  # the job's precision
        if path == "communication_data_type":
            if value in OFF:
                continue
            value = str(value).replace("bfp16", "bf16")
        if path == "optimizer.type" and str(value).lower() not in (*ADAMS, AUTO):
            why = refusal_of("deepspeed", f"{path}.{value}") or "has no model here; wanted one with the states of Adam"
            raise LabError(f"{path} is {value}, which {why}")
        if (reason := refusal_of("deepspeed", path)) is not None:
            if value not in OFF and not _is_off(value):
                raise LabError(f"{path} is {shortened(value)}: {reason}")
            continue
        if (note := note_of("deepspeed", path)) is not None:
            if value not in OFF:
                notes.append(f"{path}: {note}")
        elif is_ignored("deepspeed", path):
            ignored.append(path)
        else:
            where = kept
            *sections, last = path.split(".")
            for section in sections:
                where = where.setdefault(section, {})
            where[last] = value
    return kept


SECTIONS = ("zero_optimization", "pipeline", "tensor_parallel", "fp16", "bf16", "optimizer", "data_types")
"""Sections whose keys are read one by one. Any other section is ignored as a whole, or refused if it is on."""


def _flat(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in config.items():
        if name in SECTIONS and isinstance(value, Mapping):
            if not value and name in ("zero_optimization", "fp16", "bf16"):
                yield name, {}
            yield from ((f"{name}.{key}", one) for key, one in value.items())
        elif name in SECTIONS or name in COUNTS or not str(name).startswith("_"):
            yield str(name), value


def _is_off(value: Any) -> bool:
    """True if a section switches nothing on: it is not enabled, or offloads to no device."""
    if not isinstance(value, Mapping):
        return False
    if "enabled" in value:
        return value["enabled"] in (False, "false", None)
    if "device" in value:
        return value["device"] in OFF
    return all(one in OFF or _is_off(one) for one in value.values())
