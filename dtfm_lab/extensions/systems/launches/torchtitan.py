"""Read a torchtitan configuration as the strategy FSDP: TOML as of 2024 and 2025, or Python as of 2026."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.network import shortened
from dtfm_lab.extensions.systems.launches.launch import Launch
from dtfm_lab.extensions.systems.launches.settings import (
    is_ignored,
    kinds_of,
    known_settings,
    note_of,
    read,
    refusal_of,
)
from dtfm_lab.extensions.systems.modelled.data_parallel import FSDP

FLOAT8 = re.compile(r"float8|mx|fp8|nvfp4", re.IGNORECASE)
FLOAT8_KEYS: tuple[str, ...] = (
    "float8.enable_float8_linear",
    "training.enable_fp8_linear",
    "training.enable_float8_linear",
)
FLOAT8_KEYS += ("training.fp8_linear",)
SCHEDULES = {"gpipe": "gpipe", "1f1b": "1f1b", "interleaved1f1b": "interleaved-1f1b"}
OTHER_MODELS = re.compile(r"flux|vlm|_vl\b|vision|siglip|dit\b|vit\b|wan\b|mae|clip|mamba|rwkv|lfm", re.IGNORECASE)
PYTHON = re.compile(r"(?m)^\s*(from torchtitan|import torchtitan)\b")
CALLS = {"TrainingConfig": "training", "ParallelismConfig": "parallelism", "CompileConfig": "compile"}
POLICIES = {"FullAC": "full", "SelectiveAC": "selective", "None": "none"}


def is_toml(text: str) -> bool:
    """True if a text starts with a section, or with a key and has a section later."""
    return bool(re.match(r"\[\w", text)) or bool(
        re.match(r"[\w.]+\s*=", text) and re.search(r"(?m)^\s*\[[\w.]+\]", text)
    )


def is_python(text: str) -> bool:
    """True if a text is a Python configuration, as in torchtitan 0.3."""
    return bool(PYTHON.search(text) and re.search(r"\b(ParallelismConfig|TrainingConfig)\(", text))


def read_toml(text: str) -> Launch:
    """Return the launch of a TOML text. Raises LabError if it is invalid."""
    try:
        config = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise LabError(f"torchtitan configuration: {error}; wanted TOML") from None
    return _launch(config)


def read_python(text: str) -> Launch:
    """Return the launch of a Python configuration. It is only parsed, and never run. Raises LabError if it is invalid.

    The literal arguments of ``TrainingConfig``, ``ParallelismConfig`` and ``CompileConfig`` are read, and so is the
    policy of activation checkpointing.
    """
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise LabError(f"torchtitan configuration: line {error.lineno}: {error.msg}; wanted Python, or TOML") from None
    found: dict[str, list[dict[str, Any]]] = {}
    policies = list[dict[str, Any]]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (section := CALLS.get(_last_name(node.func))):
            found.setdefault(section, []).append({one.arg: _value(one.value) for one in node.keywords if one.arg})
        target, value = "", None
        if isinstance(node, ast.keyword):
            target, value = node.arg or "", node.value
        elif isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = _last_name(node.targets[0]), node.value
        if target in ("activation_checkpoint", "ac_config", "activation_checkpointing") and value is not None:
            words = ast.unparse(value)
            policies += [{"mode": mode} for name, mode in POLICIES.items() if name in words][:1]
    if policies:
        found["activation_checkpoint"] = policies
    config = dict[str, Any]()
    for section, given in found.items():
        # Which one is meant would be a guess.
        if any(one != given[0] for one in given):
            raise LabError(f"the file has {len(given)} configurations of {section} that differ; wanted one of them")
        config[section] = {name: value for name, value in given[0].items() if value is not _Computed}
    return _launch(config)


class _Computed:
    """Stands for a value that Python would compute. It is unknown, because the configuration is not run."""


def _value(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return _Computed


def _last_name(node: ast.expr) -> str:
    """Return the last part of a dotted name: ``Config`` of ``trainer.Config``."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _launch(config: Mapping[str, Any]) -> Launch:
    ignored, notes = list[str](), list[str]()
    given = read("torchtitan", _sorted(config, ignored, notes), "keys of a torchtitan configuration")
    training, parallel = given.get("training", {}), given.get("parallelism", {})
    if training.get("dtype") == "bfloat16":
        raise LabError("training.dtype is 'bfloat16': states in bf16 alone have no model here; wanted float32")
    replicas, shards = parallel.get("data_parallel_replicate_degree", 1), parallel.get("data_parallel_shard_degree")
    if replicas > 1 and shards != 1:
        raise LabError(
            f"parallelism.data_parallel_replicate_degree is {replicas}: shards over a part of the replicas (HSDP) have "
            "no model here; wanted 1, or data_parallel_shard_degree 1"
        )
    for name in ("context_parallel_degree", "expert_parallel_degree"):
        if (degree := parallel.get(name, 1)) > 1 and (shards != 1 or name != "context_parallel_degree"):
            raise LabError(f"parallelism.{name} is {degree}: with FSDP it has no model here; wanted 1")
    context = parallel.get("context_parallel_degree", 1)
    stages, shared = parallel.get("pipeline_parallel_degree", 1), parallel.get("tensor_parallel_degree", 1)
    pipeline = _pipeline(parallel, stages, training.get("local_batch_size"))
    microbatch = pipeline.pop("microbatch")
    compiled = given.get("compile", {})
    strategy = FSDP(
        checkpointing=_checkpointing(given.get("activation_checkpoint", {})),
        reshard=_reshards(parallel, stages),
        sharded=shards != 1 or (replicas == 1 and context == 1),
        tensor_parallel=shared,
        context_parallel=context,
        compiled=compiled.get("enable", False) and "model" in compiled.get("components", ["model"]),
        microbatches="given" if microbatch is not None else "tried",
        devices="all",
        **pipeline,
    )
    sizes = {"microbatch": microbatch, "global_batch": training.get("global_batch_size")}
    sizes["dtype"] = "fp32" if training.get("mixed_precision_param") == "float32" else "bf16"  # torchtitan's default
    # Without a global batch, the local one and the micro-batch determine how often gradients accumulate.
    local = training.get("local_batch_size")
    accumulation = None
    if local is not None and sizes["global_batch"] is None:
        accumulation = local // microbatch
    each = replicas * (shards or 1)
    return Launch(
        strategy=strategy,
        seq_len=training.get("seq_len"),
        job={name: size for name, size in sizes.items() if size is not None},
        n_devices=None if shards is None else each * stages * shared * context,
        of_a_replica=stages * shared * context,
        accumulation=accumulation,
        ignored=tuple(_by_section(ignored, given)),
        notes=tuple(dict.fromkeys(notes)),
    )


def _by_section(ignored: list[str], given: Mapping[str, Any]) -> list[str]:
    """Return the ignored keys. If all keys of a section are ignored, return the section's name instead."""
    return list(dict.fromkeys(name if (of := name.partition(".")[0]) in given else f"[{of}]" for name in ignored))


def _reshards(parallel: Mapping[str, Any], stages: int) -> bool:
    """True if parameters are dropped after the forward. By default they are, but not with pipelines."""
    policy = parallel.get("fsdp_reshard_after_forward", "default")
    return bool(policy == "always" or (policy == "default" and stages == 1))


def _checkpointing(given: Mapping[str, Any]) -> str:
    mode, option = given.get("mode", "selective"), str(given.get("selective_ac_option", "op"))
    if mode != "selective" or option == "op":
        return "block" if mode == "full" else str(mode)
    if option == "1":  # every block
        return "block"
    raise LabError(
        f"activation_checkpoint.selective_ac_option is {option!r}: to recompute one block in {option} has no model; "
        "wanted 'op', or mode full"
        if option.isdigit()
        else f"activation_checkpoint.selective_ac_option is {option!r}; wanted 'op' or a number"
    )


def _pipeline(parallel: Mapping[str, Any], stages: int, local: int | None) -> dict[str, Any]:
    """Return the strategy's fields that say how a pipeline is cut, and its micro-batch size. Raises LabError for a
    pipeline that has no model here."""
    if stages == 1:
        return {"microbatch": local}
    named = str(parallel.get("pipeline_parallel_schedule", "1F1B"))
    schedule = SCHEDULES.get(named.lower().replace("_", ""))
    if schedule is None:
        raise LabError(f"parallelism.pipeline_parallel_schedule is {named!r}; wanted {', '.join(SCHEDULES)}")
    microbatch = parallel.get("pipeline_parallel_microbatch_size", 1)
    if (count := parallel.get("pipeline_parallel_microbatches")) is not None and local is not None:
        microbatch = local // count if not local % count else 0
    if local is not None and (not microbatch or local % microbatch):
        raise LabError(
            f"training.local_batch_size is {local}, and a micro-batch has {microbatch or 'a part'} of it; wanted less"
        )
    cut = _cut(parallel)
    if cut is None:
        return {"microbatch": microbatch, "n_stages": stages, "schedule": schedule}
    if schedule == "interleaved-1f1b":
        if len(set(cut)) > 1 or len(cut) % stages:
            raise LabError("stages of unequally many blocks that interleave have no model here; wanted equal ones")
        several = len(cut) // stages
        return {"microbatch": microbatch, "n_stages": stages, "schedule": schedule, "stages_per_device": several}
    if len(cut) != stages:
        raise LabError(f"the model is cut into {len(cut)} parts for {stages} stages; wanted one for each")
    return {"microbatch": microbatch, "n_stages": stages, "schedule": schedule, "blocks_per_stage": cut}


def _cut(parallel: Mapping[str, Any]) -> tuple[int, ...] | None:
    """Return the number of blocks in each part of the model; None if the configuration does not say, so that the parts
    are as even as possible. Raises LabError for a part without blocks, and for split points that leave the rest
    open."""
    if (parts := parallel.get("module_fqns_per_model_part")) is not None:
        # Embedding and head are not blocks.
        counts = tuple(sum(name.startswith("layers.") for name in part) for part in parts)
        if not counts or min(counts) < 1:
            raise LabError("module_fqns_per_model_part has a part without blocks; wanted one or more in each")
        return counts
    if points := parallel.get("pipeline_parallel_split_points"):
        raise LabError(
            f"pipeline_parallel_split_points is {shortened(points)}, after which the rest of the model is open; wanted "
            "module_fqns_per_model_part, or equal stages"
        )
    return None


def _sorted(config: Mapping[str, Any], ignored: list[str], notes: list[str]) -> dict[str, Any]:
    """Return the settings that affect the plan, under their present names in torchtitan. Add the names of the others to
    ``ignored`` or ``notes``.

    Raises LabError for a setting that has no model.
    """
    kept: dict[str, Any] = {}
    kinds, renamed = kinds_of("torchtitan"), known_settings()["torchtitan"]["renamed"]
    name = str(config.get("model", {}).get("name", "")) if isinstance(config.get("model"), Mapping) else ""
    if OTHER_MODELS.search(name):
        raise LabError(f"model.name is {name!r}, which has no model here; wanted a language model, such as llama3")
    for written, value in _flat(config):
        # Keys have moved between versions, and files of all of them are read.
        path = renamed.get(written, written)
        section, _, key = path.partition(".")
        if section in ("training", "experimental") and f"parallelism.{key}" in kinds:
            path, section = f"parallelism.{key}", "parallelism"
        if _lower_precision(path, value):
            raise LabError(f"{written} is {shortened(value)}: products in 8 bits have no model here; wanted bf16")
        if path in FLOAT8_KEYS:
            ignored.append(written)
            continue
        if path == "optimizer.early_step_in_backward" and value:
            raise LabError(f"{written} is true: optimizer steps during the backward have no model here; wanted false")
        if path == "parallelism.data_parallel_type":
            if value not in ("fsdp", "hsdp"):
                raise LabError(f"{written} is {shortened(value)}; wanted fsdp")
        elif path in kinds:
            kept.setdefault(section, {})[key] = _usual(path, value)
        elif (why := refusal_of("torchtitan", path)) is not None:
            if value not in (False, None, 0, "", [], {}) and not (path.endswith("enable") and not value):
                raise LabError(f"{written} is {shortened(value)}: {why}")
        elif (note := note_of("torchtitan", path)) is not None:
            if value not in (False, None, "float32"):
                notes.append(f"{written}: {note}")
        elif is_ignored("torchtitan", path):
            ignored.append(written)
        else:
            kept.setdefault(section, {})[key or section] = value
    return kept


def _usual(path: str, value: Any) -> Any:
    """Return a value from a configuration of any version, as the present torchtitan writes it."""
    if path == "parallelism.fsdp_reshard_after_forward" and isinstance(value, bool):
        return "always" if value else "never"
    if path == "activation_checkpoint.mode" and value in ("", "op"):
        return "none" if value == "" else "selective"
    if path == "parallelism.pipeline_parallel_split_points" and not value:
        return []
    if path == "compile.components" and isinstance(value, str):
        return value.split(",")
    return value


def _lower_precision(path: str, value: Any) -> bool:
    if path == "model.converters":
        listed = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else []
        return any(FLOAT8.search(str(one)) for one in listed)
    return path in FLOAT8_KEYS and bool(value)


def _flat(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for section, keys_of in config.items():
        if isinstance(keys_of, Mapping):
            yield from ((f"{section}.{key}", value) for key, value in keys_of.items())
        else:
            yield str(section), keys_of
