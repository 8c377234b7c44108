"""What a user typed to launch a rival, as that system's strategy: Megatron-LM's flags, a DeepSpeed configuration in
JSON, or torchtitan's in TOML.

Strict: a flag that is not known here is named, so that nobody compares with another plan than the one that was meant.
"""

from __future__ import annotations

import json
import shlex
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job, gpt
from dtfm_lab.domain.network import Topology, shortened
from dtfm_lab.systems.modelled.deepspeed_pipeline import DeepSpeedPipeline
from dtfm_lab.systems.modelled.deepspeed_zero_3 import DeepSpeedZero3
from dtfm_lab.systems.modelled.fsdp import FSDP
from dtfm_lab.systems.modelled.megatron import AS_SHIPPED, BY_PRECISION, Megatron
from dtfm_lab.systems.strategy import Strategy

WITHOUT_EFFECT = (
    *("lr", "min-lr", "lr-decay-style", "lr-warmup-fraction", "lr-warmup-iters", "lr-warmup-samples", "weight-decay"),
    *("clip-grad", "adam-beta1", "adam-beta2", "init-method-std", "train-iters", "train-samples", "seed", "split"),
    *("data-path", "vocab-file", "merge-file", "tokenizer-type", "tokenizer-model", "save", "load", "save-interval"),
    *("log-interval", "eval-interval", "eval-iters", "tensorboard-dir", "max-position-embeddings", "master-addr"),
    *("master-port", "node-rank", "distributed-backend", "use-mcore-models", "log-throughput"),
)
"""Flags that change no second of an iteration here; whatever value follows them."""
MODEL = {"num-layers": "n_layers", "hidden-size": "d_model", "num-attention-heads": "n_heads", "seq-length": "seq_len"}
ATTENTIONS = {"local": "unfused", "transformer_engine": "fused"}
"""What a --transformer-impl keeps of attention; --use-flash-attn fuses that of either."""
MODES = {"none": "none", "selective": "selective", "full": "block"}
RESHARDS = {"default": True, "always": True, "never": False}
SWITCHED = {True: True, False: False}
DROPOUTS = ("attention-dropout", "hidden-dropout")
ONLY = {
    "recompute-granularity": "full",
    "recompute-method": "uniform",
    "recompute-num-layers": 1,
    "optimizer": "adam",
}
"""Flags of which one value has a model."""
SHELL = ("|", "&", ";", ">", "1>", "2>")
"""What ends a command's own words."""
SWITCH_WORDS = {"true": True, "1": True, "false": False, "0": False}
DEEPSPEED = {
    "": (
        *("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "optimizer"),
        *("scheduler", "gradient_clipping", "steps_per_print", "wall_clock_breakdown"),
    ),
    "zero_optimization": ("stage", "overlap_comm", "contiguous_gradients"),
    "pipeline": ("stages",),
    "fp16": (
        *("enabled", "auto_cast", "loss_scale", "initial_scale_power", "loss_scale_window", "hysteresis"),
        *("consecutive_hysteresis", "min_loss_scale"),
    ),
    "bf16": ("enabled",),
}
"""Keys of a DeepSpeed configuration that are known, by section; those of no section are under the empty name."""
ONE = (
    *("data_parallel_replicate_degree", "tensor_parallel_degree", "pipeline_parallel_degree"),
    *("context_parallel_degree", "expert_parallel_degree"),
)
TORCHTITAN = {
    "": ("job", "profiling", "metrics", "model", "optimizer", "lr_scheduler", "checkpoint", "validation"),
    "training": ("local_batch_size", "global_batch_size", "seq_len", "steps", "dataset", "max_norm"),
    "parallelism": (*ONE, "data_parallel_shard_degree", "fsdp_reshard_after_forward"),
    "activation_checkpoint": ("mode",),
    "compile": ("enable",),
}
"""Known sections of a torchtitan configuration, with their keys; those that are not read are under the empty name."""


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A system as it was launched, and what its flags say of the job and of the devices."""

    strategy: Strategy
    job: Mapping[str, Any]
    """Fields of the job that the flags give."""
    n_devices: int | None = None
    """Devices that it was launched on, the first of the network; all where not given."""
    of_a_replica: int = 1
    """Devices of a replica: stages times tensor parallelism."""
    seq_len: int | None = None
    """Tokens of a sequence, where not the job's."""
    accumulation: int | None = None
    """Micro-batches of a replica in an iteration. Where known, one of batch and micro-batch follows from the other."""

    def on(self, topology: Topology, job: Job) -> tuple[Topology, Job]:
        """The network and the job as launched.

        Raises LabError where there are fewer devices, or the launch would use fewer processes than it has: replicas do
        not divide them, or the batch is not one for so many replicas.
        """
        n = len(topology) if self.n_devices is None else self.n_devices
        if n > len(topology):
            raise LabError(f"the flags launch {n} processes; {topology.name} has {len(topology)} devices")
        if n % self.of_a_replica:
            raise LabError(
                f"the flags launch {n} processes{', all devices' if self.n_devices is None else ''}; wanted a multiple "
                f"of {self.of_a_replica}, its stages times tensor parallelism"
            )
        fields = self._batch(n // self.of_a_replica, job.global_batch)
        if self.seq_len is not None:
            fields["model"] = job.modelled().with_seq_len(self.seq_len)
        return (topology if n == len(topology) else topology.subset(range(n))), job.with_fields(**fields)

    def _batch(self, replicas: int, otherwise: int) -> dict[str, Any]:
        """Fields of the job, batch and micro-batch as these replicas have them; its batch ``otherwise``."""
        fields, times = dict(self.job), replicas * (self.accumulation or 1)
        exact = self.accumulation is not None and "microbatch" in fields
        each = times * fields.get("microbatch", 1)
        batch = fields.setdefault("global_batch", each) if exact else fields.get("global_batch", otherwise)
        if batch % each or (exact and batch != each):
            several = "" if self.accumulation is None else f"{self.accumulation} "
            words = f", {several}micro-batches of {fields.get('microbatch', 'any size')} each"
            raise LabError(
                f"the batch is {batch} sequences on {replicas} replicas{words}; wanted "
                f"{'' if exact else 'a multiple of '}{each}"
            )
        if self.accumulation is not None:
            fields["microbatch"] = batch // times
        return fields


def from_flags(text: str) -> Launch:
    """The launch that a text describes: flags of Megatron-LM, after ``torchrun`` and the script's name or not; a
    DeepSpeed configuration, from ``{`` on; or a torchtitan configuration, from a ``[section]`` on.

    Raises LabError that names the flags that are not known, and values that are none.
    """
    if not isinstance(text, str):
        raise LabError(f"flags are {shortened(text)}; wanted text")
    words = text.strip()
    if words.startswith("{"):
        return _deepspeed(words)
    if words.startswith("[") or "\n[" in words:
        return _torchtitan(words)
    return _megatron(words)


def _megatron(text: str) -> Launch:
    given, unknown = dict[str, Any](), []
    for name, words in _flags(text):
        if name in FLAGS:
            given[name] = FLAGS[name](f"--{name}", words)
        elif name not in WITHOUT_EFFECT:
            unknown.append(f"--{name}")
    _refuse("flags of Megatron-LM", unknown)
    if not given:
        raise LabError(
            f"flags are {shortened(text)}; wanted those of Megatron-LM, DeepSpeed's JSON or torchtitan's TOML"
        )
    for name, modelled in ONLY.items():
        if (found := given.get(name, modelled)) != modelled:
            raise LabError(f"--{name} is {shortened(found)}; wanted {modelled}: no other has a model here")
    for name in ("recompute-method", "recompute-num-layers"):
        if name in given and "recompute-granularity" not in given:
            raise LabError(f"--{name} without --recompute-granularity; wanted both")
    if given.get("bf16") and given.get("fp16"):
        raise LabError("--bf16 and --fp16 are both given; wanted one of them")
    job, stages = _job_of(given), given.get("pipeline-model-parallel-size", 1)
    tensor_parallel, interleaved = given.get("tensor-model-parallel-size", 1), _interleaved(given, stages)
    overlapped = given.get("overlap-p2p-communication", True) and not given.get("no-overlap-p2p-communication")
    attention = _one_of("--transformer-impl", given.get("transformer-impl", "transformer_engine"), ATTENTIONS)
    how = AS_SHIPPED | {
        "order": "pp-dp" if given.get("use-tp-pp-dp-mapping") else "dp-pp",
        "overlap": given.get("overlap-grad-reduce", False),
        "sharding": "zero-1" if given.get("use-distributed-optimizer") else "none",
        "microbatches": "given" if "microbatch" in job else "tried",
    }
    strategy = Megatron(
        **how,
        tensor_parallel=tensor_parallel,
        n_stages=stages,
        stages_per_device=interleaved,
        transport="overlapped" if interleaved > 1 and overlapped else "batched",
        attention="fused" if given.get("use-flash-attn") else attention,
        dropout=_drops_out(given),
        sequence_parallel=given.get("sequence-parallel", False),
        checkpointing="block" if "recompute-granularity" in given else "none",
        gradient_dtype="fp32" if given.get("accumulate-allreduce-grads-in-fp32") else BY_PRECISION,
    )
    launched = "nnodes" in given or "nproc-per-node" in given
    processes = given.get("nnodes", 1) * given.get("nproc-per-node", 1)
    return Launch(
        strategy=strategy,
        job=job,
        n_devices=processes if launched else None,
        of_a_replica=stages * tensor_parallel,
    )


def _job_of(given: Mapping[str, Any]) -> dict[str, Any]:
    job = {"microbatch": given.get("micro-batch-size"), "global_batch": given.get("global-batch-size")}
    job |= {"dtype": next((name for name in ("bf16", "fp16") if given.get(name)), None)}
    if sizes := {field: given[name] for name, field in MODEL.items() if name in given}:
        if missing := [f"--{name}" for name in MODEL if name not in given]:
            raise LabError(f"flags of a model lack {', '.join(missing)}; wanted all of them, or none and --job")
        job["model"] = gpt(name="flags", vocab_size=50257, **sizes)
    return {name: value for name, value in job.items() if value is not None}


def _drops_out(given: Mapping[str, Any]) -> bool:
    """Whether blocks keep masks; a job drops out in attention and behind it, or nowhere."""
    dropouts = [given.get(name, 0.1) for name in DROPOUTS]  # as Megatron-LM has them
    if len({share > 0 for share in dropouts}) > 1:
        raise LabError(
            f"--attention-dropout is {dropouts[0]:g} and --hidden-dropout {dropouts[1]:g}; wanted both or neither 0"
        )
    return bool(dropouts[0] > 0)


def _interleaved(given: Mapping[str, Any], stages: int) -> int:
    """Stages of each device."""
    if (several := given.get("num-virtual-stages-per-pipeline-rank")) is not None:
        return int(several)
    if (layers := given.get("num-layers-per-virtual-pipeline-stage")) is None:
        return 1
    if "num-layers" not in given or given["num-layers"] % (stages * layers):
        raise LabError(
            f"--num-layers-per-virtual-pipeline-stage is {layers}; wanted it with --num-layers, a multiple of "
            f"{stages * layers}"
        )
    return int(given["num-layers"] // (stages * layers))


def _deepspeed(text: str) -> Launch:
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        raise LabError(f"DeepSpeed configuration: line {error.lineno}: {error.msg}; wanted JSON") from None
    sections = {name: _section(config, name) for name in DEEPSPEED if name}
    _refuse("keys of a DeepSpeed configuration", _unknown_keys(config, DEEPSPEED))
    zero, pipeline = sections["zero_optimization"], sections["pipeline"]
    names = {"train_micro_batch_size_per_gpu": "microbatch", "train_batch_size": "global_batch"}
    job: dict[str, Any] = {field: _count(name, config[name]) for name, field in names.items() if name in config}
    accumulation = None
    if "gradient_accumulation_steps" in config:
        accumulation = _count("gradient_accumulation_steps", config["gradient_accumulation_steps"])
        if not job:
            raise LabError("gradient_accumulation_steps alone; wanted train_batch_size or the micro-batch beside it")
    elif "microbatch" in job and "global_batch" not in job:
        accumulation = 1  # as DeepSpeed has it
    for dtype in ("fp16", "bf16"):
        if _one_of(f"{dtype}.enabled", sections[dtype].get("enabled", False), SWITCHED):
            if "dtype" in job:
                raise LabError("fp16 and bf16 are both enabled; wanted one of them")
            job["dtype"] = dtype
    sized = "microbatch" in job or accumulation is not None
    how: dict[str, Any] = {"microbatches": "given" if sized else "tried", "devices": "all"}
    stage = zero.get("stage", 0)
    if type(stage) is not int or stage not in (0, 1, 2, 3):
        raise LabError(f"zero_optimization.stage is {shortened(stage)}; wanted 0, 1, 2 or 3")
    if pipeline:
        if stage > 1:
            raise LabError(f"zero_optimization.stage is {stage} beside a pipeline; wanted 0 or 1")
        stages = _count("pipeline.stages", pipeline.get("stages"))
        piped = DeepSpeedPipeline(n_stages=stages, sharding=("none", "zero-1")[stage], **how)
        return Launch(strategy=piped, job=job, of_a_replica=stages, accumulation=accumulation)
    if stage == 0:
        raise LabError("a DeepSpeed configuration without ZeRO or a pipeline is data parallelism; wanted system ddp")
    return Launch(strategy=DeepSpeedZero3(stage=stage, **how), job=job, accumulation=accumulation)


def _torchtitan(text: str) -> Launch:
    try:
        config = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise LabError(f"torchtitan configuration: {error}; wanted TOML") from None
    sections = {name: _section(config, name) for name in TORCHTITAN if name}
    _refuse("keys of a torchtitan configuration", _unknown_keys(config, TORCHTITAN))
    training, parallel = sections["training"], sections["parallelism"]
    for key in ONE:
        if parallel.get(key, 1) != 1:
            raise LabError(f"parallelism.{key} is {shortened(parallel[key])}; wanted 1: FSDP alone has a model here")
    names = {"local_batch_size": "microbatch", "global_batch_size": "global_batch", "seq_len": "seq_len"}
    default = {"global_batch_size": -1}  # local_batch_size of each device
    job = {
        field: _count(f"training.{name}", training[name])
        for name, field in names.items()
        if name in training and training[name] != default.get(name)
    }
    strategy = FSDP(
        checkpointing=_one_of(
            "activation_checkpoint.mode", sections["activation_checkpoint"].get("mode", "selective"), MODES
        ),
        reshard=_one_of(
            "parallelism.fsdp_reshard_after_forward", parallel.get("fsdp_reshard_after_forward", "default"), RESHARDS
        ),
        compiled=_one_of("compile.enable", sections["compile"].get("enable", False), SWITCHED),
        microbatches="given" if "microbatch" in job else "tried",
        devices="all",
    )
    shards = parallel.get("data_parallel_shard_degree", -1)
    return Launch(
        strategy=strategy,
        seq_len=job.pop("seq_len", None),
        job=job,
        n_devices=None if shards == -1 else _count("parallelism.data_parallel_shard_degree", shards),
        accumulation=1 if "microbatch" in job and "global_batch" not in job else None,
    )


def _flags(text: str) -> Iterator[tuple[str, str]]:
    """Names of flags, dashes for underscores, and the words up to the next; words before the first are a launcher's."""
    try:
        words = shlex.split(text.replace("\\\n", " "))
    except ValueError as error:
        raise LabError(f"flags: {error}; wanted quotes in pairs") from None
    found: list[tuple[str, list[str]]] = []
    for word in words:
        if found and word.startswith(SHELL):
            break  # what follows is of another command
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            found.append((name.replace("_", "-"), [value] if equals else []))
        elif found:
            found[-1][1].append(word)
    return ((name, " ".join(values)) for name, values in found)


def _unknown_keys(config: Mapping[str, Any], known: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Keys of a configuration, and of its sections, that are not among the known ones."""
    return [key for key in config if key not in known and key not in known[""]] + [
        f"{section}.{key}"
        for section in known
        if section
        for key in _section(config, section)
        if key not in known[section]
    ]


def _section(config: Mapping[str, Any], key: str) -> dict[str, Any]:
    """What a configuration has under a key, none where it has no such key."""
    found = config.get(key, {})
    if not isinstance(found, dict):
        raise LabError(f"{key} is {shortened(found)}; wanted a section with keys of its own")
    return found


def _one_of(what: str, value: object, choices: Mapping[Any, Any]) -> Any:
    """What a value of the same type stands for among the choices."""
    for choice, meant in choices.items():
        if type(value) is type(choice) and value == choice:
            return meant
    wanted = [str(choice).lower() for choice in choices]
    raise LabError(f"{what} is {shortened(value)}; wanted {', '.join(wanted[:-1])} or {wanted[-1]}")


def _count(what: str, value: object) -> int:
    words = str(value).split()  # a flag's value, and perhaps the script's name behind the last one of the launcher
    first = words[0] if words else ""
    if isinstance(value, bool) or not first.isdecimal() or len(first) > 18 or int(first) < 1:
        raise LabError(f"{what} is {shortened(value)}; wanted a whole number, 1 or more")
    return int(first)


def _switch(what: str, words: str) -> bool:
    """Whether a flag that needs no value is on."""
    return bool(_one_of(what, words.split()[0].lower(), SWITCH_WORDS)) if words else True


def _share(what: str, words: str) -> float:
    try:
        share = float(words.split()[0]) if words else -1.0
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise LabError(f"{what} is {shortened(words)}; wanted a number from 0 to below 1")
    return share


def _word(_what: str, words: str) -> str:
    return words


FLAGS: dict[str, Callable[[str, str], Any]] = {
    **dict.fromkeys(("tensor-model-parallel-size", "pipeline-model-parallel-size", "micro-batch-size"), _count),
    **dict.fromkeys(("global-batch-size", "nnodes", "nproc-per-node", *MODEL, "recompute-num-layers"), _count),
    **dict.fromkeys(("num-layers-per-virtual-pipeline-stage", "num-virtual-stages-per-pipeline-rank"), _count),
    **dict.fromkeys(("use-tp-pp-dp-mapping", "overlap-grad-reduce", "use-distributed-optimizer", "bf16"), _switch),
    **dict.fromkeys(("fp16", "use-flash-attn", "sequence-parallel", "accumulate-allreduce-grads-in-fp32"), _switch),
    **dict.fromkeys(("no-overlap-p2p-communication", "overlap-p2p-communication"), _switch),
    **dict.fromkeys(DROPOUTS, _share),
    **dict.fromkeys(("recompute-granularity", "recompute-method", "transformer-impl", "optimizer"), _word),
}
"""Flags of Megatron-LM that are known, each with what reads the words behind it."""


def _refuse(what: str, unknown: list[str]) -> None:
    if unknown:
        raise LabError(f"{what} that are not known here: {', '.join(unknown)}; wanted the text without them")
