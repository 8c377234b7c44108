"""Read accelerate's YAML configuration as the strategy that it starts: DDP, FSDP, DeepSpeed or Megatron-LM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.network import shortened
from dtfm_lab.extensions.systems.launches import deepspeed, megatron
from dtfm_lab.extensions.systems.launches.launch import Launch
from dtfm_lab.extensions.systems.launches.settings import is_ignored, known_settings
from dtfm_lab.extensions.systems.modelled.data_parallel import DDP, FSDP
from dtfm_lab.extensions.systems.strategy import TRIED

KINDS = "NO, MULTI_GPU, FSDP, DEEPSPEED or MEGATRON_LM"
PRECISIONS = {"bf16": "bf16", "fp16": "fp16", "no": "fp32"}
SHARDINGS = {"FULL_SHARD": True, "1": True, "SHARD_GRAD_OP": False, "2": False}
"""Names and numbers of FSDP's sharding strategies. True if parameters are dropped after the forward."""
ON = ("true", "yes", "1", "on")
"""Words of a configuration that turn a setting on, in lower case."""
OFF = ("false", "no", "0", "off", "none", "")
"""Words that turn a setting off."""


def read_text(text: str) -> Launch:
    """Return the launch of a configuration's text. Raises LabError for settings that cannot be read or have no
    model."""
    try:
        config = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise LabError(f"accelerate configuration: {str(error).splitlines()[0]}; wanted YAML") from None
    if not isinstance(config, Mapping):
        raise LabError(f"accelerate configuration is {shortened(config)}; wanted keys, such as distributed_type")
    known = known_settings()["accelerate"]["read"].split()
    if unknown := [str(name) for name in config if name not in known and not is_ignored("accelerate", str(name))]:
        raise LabError(
            f"keys of accelerate that are not known here: {', '.join(unknown)}; wanted the text without them"
        )
    ignored = [str(name) for name in config if is_ignored("accelerate", str(name))]
    kind = str(config.get("distributed_type", "NO")).upper().removeprefix("DISTRIBUTEDTYPE.")
    precision = str(config.get("mixed_precision", "no")).lower()
    precision = "no" if precision in OFF else precision
    if precision not in PRECISIONS:
        raise LabError(f"mixed_precision is {precision}; wanted bf16, fp16 or no, as others have no model here")
    job: dict[str, Any] = {"dtype": PRECISIONS[precision]}
    n = config.get("num_processes")
    if n is not None and (isinstance(n, bool) or not isinstance(n, int) or n < 1):
        raise LabError(f"num_processes is {shortened(n)}; wanted a number of processes")
    parallel = _stripped(config.get("parallelism_config"), "parallelism_config_")
    shared = _degrees(parallel)
    said: dict[str, Any] = {"n_devices": n, "ignored": tuple(ignored)}
    if kind in ("NO", "MULTI_GPU"):
        return Launch(strategy=DDP(devices="all"), job=job, **said)
    if kind == "FSDP":
        return _fsdp(config, job, shared, said)
    if kind == "DEEPSPEED":
        return _deepspeed(config, job, said)
    if kind == "MEGATRON_LM":
        return _megatron(config, job, said)
    raise LabError(f"distributed_type is {kind}; wanted {KINDS}")


def _fsdp(config: Mapping[str, Any], job: dict[str, Any], shared: int, said: dict[str, Any]) -> Launch:
    given = _stripped(config.get("fsdp_config"), "fsdp_")
    if _is_on(given.get("offload_params")):
        raise LabError("fsdp_offload_params is true: offloading to the host's memory has no model here; wanted false")
    reshards, how = given.get("reshard_after_forward"), str(given.get("sharding_strategy", "FULL_SHARD")).upper()
    if str(reshards).upper() in (
        *SHARDINGS,
        "NO_SHARD",
        "HYBRID_SHARD",
        "HYBRID_SHARD_ZERO2",
    ):  # FSDP1's strategies under a new key
        how, reshards = str(reshards).upper(), None
    if how in ("NO_SHARD", "3"):
        return Launch(strategy=DDP(devices="all"), job=job, **said)
    if how not in SHARDINGS:
        raise LabError(
            f"fsdp_sharding_strategy is {how}: shards over a part of the replicas (HSDP) have no model here; wanted "
            "FULL_SHARD or SHARD_GRAD_OP"
        )
    checkpoints = given.get("activation_checkpointing")
    backend = _stripped(config.get("dynamo_config"), "dynamo_").get("backend", config.get("dynamo_backend", "NO"))
    strategy = FSDP(
        # FSDP2's own key counts before FSDP1's strategy.
        reshard=SHARDINGS[how] if reshards is None else _is_on(reshards),
        checkpointing=TRIED if checkpoints is None else "block" if _is_on(checkpoints) else "none",
        gradient_dtype=None if job["dtype"] == "fp32" else job["dtype"],
        compiled=str(backend).lower() not in OFF,
        tensor_parallel=shared,
        devices="all",
    )
    notes = () if checkpoints is not None else ("recomputation is the model's own code, so it is tried",)
    return Launch(strategy=strategy, job=job, of_a_replica=shared, notes=notes, **said)


def _deepspeed(config: Mapping[str, Any], job: dict[str, Any], said: dict[str, Any]) -> Launch:
    given = config.get("deepspeed_config") or {}
    if not isinstance(given, Mapping):
        raise LabError(f"deepspeed_config is {shortened(given)}; wanted keys, such as zero_stage")
    if file := given.get("deepspeed_config_file"):
        raise LabError(f"the launch is configured by {file}; wanted that file")
    for part in ("optimizer", "param"):
        if str(given.get(f"offload_{part}_device", "none")).lower() != "none":
            raise LabError(
                f"offload_{part}_device is {given[f'offload_{part}_device']}: offloading to the host's memory has no "
                "model here; wanted none"
            )
    launch = deepspeed.read_config({"zero_optimization": {"stage": given.get("zero_stage", 2)}})
    return Launch(strategy=launch.strategy, job=job, **said)


def _megatron(config: Mapping[str, Any], job: dict[str, Any], said: dict[str, Any]) -> Launch:
    given = _stripped(config.get("megatron_lm_config"), "megatron_lm_")
    tensor_parallel = _count(given, "tp_degree")
    flags = {
        "tensor_model_parallel_size": tensor_parallel,
        "pipeline_model_parallel_size": _count(given, "pp_degree"),
        "sequence_parallel": _is_on(given.get("sequence_parallelism")) and tensor_parallel > 1,
        "use_distributed_optimizer": _is_on(given.get("use_distributed_optimizer")),
        "recompute_activations": _is_on(given.get("recompute_activations")),
    }
    launch = megatron.launch_of(flags)
    return Launch(strategy=launch.strategy, job=job, of_a_replica=launch.of_a_replica, **said)


def _degrees(parallel: Mapping[str, Any]) -> int:
    """Return how many GPUs share each layer. Raises LabError for parallelism that has no model with FSDP."""
    if (replicas := _count(parallel, "dp_replicate_size")) > 1:
        raise LabError(
            f"parallelism_config_dp_replicate_size is {replicas}: shards over a part of the replicas (HSDP) have no "
            "model here; wanted 1"
        )
    for name in ("cp_size", "sp_size", "ep_size"):
        if (degree := _count(parallel, name)) > 1:
            raise LabError(f"parallelism_config_{name} is {degree}: with FSDP it has no model here; wanted 1")
    return _count(parallel, "tp_size")


def _count(given: Mapping[str, Any], name: str) -> int:
    try:
        count = int(given.get(name, 1))
    except (TypeError, ValueError):
        raise LabError(f"{name} is {shortened(given[name])}; wanted a count") from None
    return max(count, 1)


def _stripped(section: Any, prefix: str) -> dict[str, Any]:
    """Return a section's values, by their names without this prefix. Empty without a section. Raises LabError for one
    that is not a mapping."""
    if section is None:
        return {}
    if not isinstance(section, Mapping):
        raise LabError(f"{prefix}config is {shortened(section)}; wanted keys")
    return {str(name).removeprefix(prefix): value for name, value in section.items()}


def _is_on(value: Any) -> bool:
    return str(value).lower() in ON
