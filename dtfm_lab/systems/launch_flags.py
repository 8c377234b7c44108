"""What a user typed to launch a rival, as that system's strategy: Megatron-LM's flags or the script that gives them, a
DeepSpeed configuration in JSON, or torchtitan's in TOML.

Strict: a flag that is not known here is named, so that nobody compares with another plan than the one that was meant.
"""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology, shortened
from dtfm_lab.domain.units import counted
from dtfm_lab.systems.launch_model import MODEL_FLAGS, Count, Switch, flag, model_of
from dtfm_lab.systems.launch_script import command_of, is_script
from dtfm_lab.systems.modelled.data_parallel import FSDP
from dtfm_lab.systems.modelled.deepspeed import DeepSpeedPipeline, DeepSpeedZero3
from dtfm_lab.systems.modelled.megatron import AS_SHIPPED, BY_PRECISION, Megatron
from dtfm_lab.systems.strategy import Strategy

Open = Annotated[Count | None, BeforeValidator(lambda given: None if given == -1 else given)]
"""A count, or -1 where it follows from others."""
Share = Annotated[float, Field(ge=0, lt=1)]


def _keys(types: Mapping[str, Any], *ignored: str, strict: bool = True) -> type[BaseModel]:
    """Keys that may be given, each with what its value may be; of those that are ignored any."""
    fields = {name: (kind, None) for name, kind in {**types, **dict.fromkeys(ignored, Any)}.items()}
    return create_model("Keys", __config__=ConfigDict(extra="forbid", strict=strict), **fields)  # type: ignore[call-overload,no-any-return]


MEGATRON = _keys(
    {
        **MODEL_FLAGS,
        **dict.fromkeys(("nnodes", "nproc_per_node", "tensor_model_parallel_size", "micro_batch_size"), Count),
        **dict.fromkeys(("pipeline_model_parallel_size", "global_batch_size"), Count),
        **dict.fromkeys(("context_parallel_size", "expert_model_parallel_size"), Count),
        **dict.fromkeys(("num_layers_per_virtual_pipeline_stage", "num_virtual_stages_per_pipeline_rank"), Count),
        **dict.fromkeys(("use_tp_pp_dp_mapping", "overlap_grad_reduce", "use_distributed_optimizer"), Switch),
        **dict.fromkeys(("bf16", "fp16", "accumulate_allreduce_grads_in_fp32", "sequence_parallel"), Switch),
        "grad_reduce_in_bf16": Switch,
        **dict.fromkeys(("no_overlap_p2p_communication", "overlap_p2p_communication", "use_flash_attn"), Switch),
        **dict.fromkeys(("attention_dropout", "hidden_dropout"), Share),
        "transformer_impl": Literal["local", "transformer_engine"],
        "attention_backend": Literal["auto", "flash", "fused", "unfused", "local"],
        # of each of these one value has a model
        "recompute_granularity": Literal["full"],
        "recompute_method": Literal["uniform"],
        "recompute_num_layers": Literal["1"],
        "optimizer": Literal["adam"],
        "moe_token_dispatcher_type": Literal["alltoall"],
    },
    strict=False,
)
"""Flags of Megatron-LM that are known."""
WITHOUT_EFFECT = (
    *("lr", "min-lr", "lr-decay-style", "lr-warmup-fraction", "lr-warmup-iters", "lr-warmup-samples", "weight-decay"),
    *("clip-grad", "adam-beta1", "adam-beta2", "init-method-std", "train-iters", "train-samples", "seed", "split"),
    *("data-path", "vocab-file", "merge-file", "tokenizer-type", "tokenizer-model", "save", "load", "save-interval"),
    *("log-interval", "eval-interval", "eval-iters", "tensorboard-dir", "master-addr"),
    *("master-port", "node-rank", "distributed-backend", "use-mcore-models", "log-throughput", "lr-decay-iters"),
    *("lr-decay-samples", "rampup-batch-size", "tensorboard-queue-size", "wandb-project", "wandb-exp-name"),
    *("mock-data", "num-workers", "rotary-base", "rotary-percent", "norm-epsilon", "attention-softmax-in-fp32"),
    *("moe-grouped-gemm", "moe-permute-fusion", "moe-router-load-balancing-type", "moe-aux-loss-coeff"),
    *("ckpt-format", "async-save", "no-load-optim", "no-load-rng", "exit-duration-in-mins", "manual-gc"),
    *("no-position-embedding", "no-masked-softmax-fusion", "apply-layernorm-1p", "calculate-per-token-loss"),
    *("data-cache-path", "no-create-attention-mask-in-dataloader", "no-mmap-bin-files", "tiktoken-pattern"),
    *("distributed-timeout-minutes", "profile", "profile-step-start", "profile-step-end", "decoupled-lr"),
    *("decoupled-min-lr", "empty-unused-memory-level", "adam-eps", "timing-log-level"),
)
"""Flags that change no second of an iteration with the whole batch; whatever value follows them."""
CONFIGURED = re.compile(r"--(?:deepspeed|deepspeed[-_]config|job\.config[-_]file)[= ]+([^\s-]\S*)")
"""The file of DeepSpeed or torchtitan that a command names."""
SHELL = ("|", "&", ";", ">", "1>", "2>")
"""What ends a command's own words."""
PRECISION = _keys(
    {"enabled": bool},
    *("auto_cast", "loss_scale", "initial_scale_power", "loss_scale_window", "hysteresis"),
    *("consecutive_hysteresis", "min_loss_scale"),
)
COUNTS = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
DEEPSPEED = _keys(
    {
        **dict.fromkeys(COUNTS, Count),
        "zero_optimization": _keys({"stage": Literal[0, 1, 2, 3]}, "overlap_comm", "contiguous_gradients"),
        "pipeline": _keys({"stages": Count}),
        "communication_data_type": Literal["fp16", "bf16", "fp32"],
        **dict.fromkeys(("fp16", "bf16"), PRECISION),
    },
    *("optimizer", "scheduler", "gradient_clipping", "steps_per_print", "wall_clock_breakdown"),
)
"""Keys of a DeepSpeed configuration that are known."""
ONE = (
    *("data_parallel_replicate_degree", "tensor_parallel_degree", "pipeline_parallel_degree"),
    *("context_parallel_degree", "expert_parallel_degree"),
)
"""Degrees of torchtitan that are 1: FSDP alone has a model here."""
RESHARDS = Literal["default", "always", "never"]
SIZES = {"local_batch_size": Count, "global_batch_size": Open, "seq_len": Count}
PARALLELISM = {"data_parallel_shard_degree": Open, "fsdp_reshard_after_forward": RESHARDS}
TORCHTITAN = _keys(
    {
        "training": _keys(SIZES, "steps", "dataset", "max_norm"),
        "parallelism": _keys({**dict.fromkeys(ONE, Literal[1]), **PARALLELISM}),
        "activation_checkpoint": _keys({"mode": Literal["none", "selective", "full"]}),
        "compile": _keys({"enable": bool}),
    },
    *("job", "profiling", "metrics", "model", "optimizer", "lr_scheduler", "checkpoint", "validation"),
)
"""Sections of a torchtitan configuration that are known, with their keys."""


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A system as it was launched, and what its flags say of the job and of the devices."""

    strategy: Strategy
    job: Mapping[str, Any]
    """Fields of the job that the flags give."""
    n_devices: int | None = None
    """Devices that it was launched on, the first of the network; all where not given."""
    of_a_replica: int = 1
    """Devices of a replica: stages times those that a layer, a sequence or experts are shared among."""
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
            raise LabError(
                f"the flags launch {counted(n, 'process')}; {topology.name} has {counted(len(topology), 'device')}"
            )
        if n % self.of_a_replica:
            raise LabError(
                f"the flags launch {counted(n, 'process')}{', all devices' if self.n_devices is None else ''}; wanted "
                f"a multiple of {self.of_a_replica}, its stages times the parallelism within hosts"
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
                f"the batch is {counted(batch, 'sequence')} on {counted(replicas, 'replica')}{words}; wanted "
                f"{'' if exact else 'a multiple of '}{each}"
            )
        if self.accumulation is not None:
            fields["microbatch"] = batch // times
        return fields


def from_flags(text: str) -> Launch:
    """The launch that a text describes: flags of Megatron-LM, after ``torchrun`` and the script's name or not, or in a
    shell script; a DeepSpeed configuration, from ``{`` on; or a torchtitan configuration, from a ``[section]`` on.

    Raises LabError that names the flags that are not known, and values that are none.
    """
    if not isinstance(text, str):
        raise LabError(f"flags are {shortened(text)}; wanted text")
    words = text.strip()
    if is_script(words):
        if not (command := command_of(words, WITHOUT_EFFECT)):
            raise LabError("no command of the script has flags; wanted one that has, or the file that they are in")
        if told_by := CONFIGURED.search(command):
            raise LabError(f"the script's launch is told by {told_by[1]}; wanted that file")
        return _megatron(command)
    if words.startswith("{"):
        return _deepspeed(words)
    if words.startswith("[") or "\n[" in words:
        return _torchtitan(words)
    return _megatron(words)


def _megatron(text: str) -> Launch:
    flags = {name: value for name, value in _flags(text) if name not in WITHOUT_EFFECT}
    named = {name.replace("-", "_"): value for name, value in flags.items()}
    given = _read(MEGATRON, named, "flags of Megatron-LM", as_flags=True)
    if not given:
        raise LabError(
            f"flags are {shortened(text)}; wanted those of Megatron-LM, DeepSpeed's JSON or torchtitan's TOML"
        )
    if ("recompute_method" in given or "recompute_num_layers" in given) and "recompute_granularity" not in given:
        raise LabError("--recompute-method or --recompute-num-layers without --recompute-granularity; wanted it, too")
    if given.get("bf16") and given.get("fp16"):
        raise LabError("--bf16 and --fp16 are both given; wanted one of them")
    job, stages = _job_of(given), given.get("pipeline_model_parallel_size", 1)
    tensor_parallel, interleaved = given.get("tensor_model_parallel_size", 1), _interleaved(given, stages)
    context_parallel = given.get("context_parallel_size", 1)
    expert_parallel = given.get("expert_model_parallel_size", 1)
    overlapped = given.get("overlap_p2p_communication", True) and not given.get("no_overlap_p2p_communication")
    backend = given.get("attention_backend", "local" if given.get("transformer_impl") == "local" else "auto")
    unfused = backend in ("local", "unfused") and not given.get("use_flash_attn")
    how = AS_SHIPPED | {
        "order": "pp-dp" if given.get("use_tp_pp_dp_mapping") else "dp-pp",
        "overlap": given.get("overlap_grad_reduce", False),
        "sharding": "zero-1" if given.get("use_distributed_optimizer") else "none",
        "microbatches": "given" if "microbatch" in job else "tried",
    }
    strategy = Megatron(
        **how,
        tensor_parallel=tensor_parallel,
        context_parallel=context_parallel,
        expert_parallel=expert_parallel,
        n_stages=stages,
        stages_per_device=interleaved,
        transport="overlapped" if interleaved > 1 and overlapped else "batched",
        attention="unfused" if unfused else "fused",
        dropout=_drops_out(given),
        sequence_parallel=given.get("sequence_parallel", False),
        checkpointing="block" if "recompute_granularity" in given else "none",
        gradient_dtype=_gradient_dtype(given),
    )
    launched = "nnodes" in given or "nproc_per_node" in given
    processes = given.get("nnodes", 1) * given.get("nproc_per_node", 1)
    return Launch(
        strategy=strategy,
        job=job,
        n_devices=processes if launched else None,
        of_a_replica=stages * tensor_parallel * context_parallel * expert_parallel,
    )


def _job_of(given: Mapping[str, Any]) -> dict[str, Any]:
    job: dict[str, Any] = {"microbatch": given.get("micro_batch_size"), "global_batch": given.get("global_batch_size")}
    if job["microbatch"] is not None:  # of one GPU, not of all that share experts
        job["microbatch"] *= given.get("expert_model_parallel_size", 1)
    job |= {"dtype": "bf16" if given.get("bf16") else "fp16" if given.get("fp16") else None}
    job["model"] = model_of(given)
    return {name: value for name, value in job.items() if value is not None}


def _gradient_dtype(given: Mapping[str, Any]) -> str:
    if given.get("bf16") and given.get("grad_reduce_in_bf16"):  # wins over the other
        return "bf16"
    return "fp32" if given.get("accumulate_allreduce_grads_in_fp32") else BY_PRECISION


def _drops_out(given: Mapping[str, Any]) -> bool:
    """Whether blocks keep masks; a job drops out in attention and behind it, or nowhere."""
    attention, hidden = given.get("attention_dropout", 0.1), given.get("hidden_dropout", 0.1)  # as Megatron-LM has them
    if (attention > 0) != (hidden > 0):
        raise LabError(
            f"--attention-dropout is {attention:g} and --hidden-dropout {hidden:g}; wanted both or neither 0"
        )
    return bool(attention > 0)


def _interleaved(given: Mapping[str, Any], stages: int) -> int:
    """Stages of each device."""
    if (several := given.get("num_virtual_stages_per_pipeline_rank")) is not None:
        return int(several)
    if (layers := given.get("num_layers_per_virtual_pipeline_stage")) is None:
        return 1
    if "num_layers" not in given or given["num_layers"] % (stages * layers):
        raise LabError(
            f"--num-layers-per-virtual-pipeline-stage is {layers}; wanted it with --num-layers, a multiple of "
            f"{stages * layers}"
        )
    return int(given["num_layers"] // (stages * layers))


def _deepspeed(text: str) -> Launch:
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        raise LabError(f"DeepSpeed configuration: line {error.lineno}: {error.msg}; wanted JSON") from None
    given = _read(DEEPSPEED, config, "keys of a DeepSpeed configuration")
    names = {"train_micro_batch_size_per_gpu": "microbatch", "train_batch_size": "global_batch"}
    job: dict[str, Any] = {field: value for name, value in given.items() if (field := names.get(name))}
    accumulation = given.get("gradient_accumulation_steps")
    if accumulation is not None and not job:
        raise LabError("gradient_accumulation_steps alone; wanted train_batch_size or the micro-batch beside it")
    if accumulation is None and "microbatch" in job and "global_batch" not in job:
        accumulation = 1  # as DeepSpeed has it
    half = [name for name in ("fp16", "bf16") if given.get(name, {}).get("enabled")]
    if len(half) > 1:
        raise LabError("fp16 and bf16 are both enabled; wanted one of them")
    job |= {"dtype": half[0]} if half else {}
    sized = "microbatch" in job or accumulation is not None
    how: dict[str, Any] = {"microbatches": "given" if sized else "tried", "devices": "all"}
    stage = given.get("zero_optimization", {}).get("stage", 0)
    if pipeline := given.get("pipeline"):
        if "communication_data_type" in given:
            raise LabError("communication_data_type beside a pipeline has no model here; wanted the text without it")
        if stage > 1:
            raise LabError(f"zero_optimization.stage is {stage} beside a pipeline; wanted 0 or 1")
        stages = pipeline["stages"]
        piped = DeepSpeedPipeline(n_stages=stages, sharding="zero-1" if stage else "none", **how)
        return Launch(strategy=piped, job=job, of_a_replica=stages, accumulation=accumulation)
    if stage == 0:
        raise LabError("a DeepSpeed configuration without ZeRO or a pipeline is data parallelism; wanted system ddp")
    strategy = DeepSpeedZero3(stage=stage, gradient_dtype=given.get("communication_data_type"), **how)
    return Launch(strategy=strategy, job=job, accumulation=accumulation)


def _torchtitan(text: str) -> Launch:
    try:
        config = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise LabError(f"torchtitan configuration: {error}; wanted TOML") from None
    given = _read(TORCHTITAN, config, "keys of a torchtitan configuration")
    training, parallel = given.get("training", {}), given.get("parallelism", {})
    mode = given.get("activation_checkpoint", {}).get("mode", "selective")
    sizes = {"microbatch": training.get("local_batch_size"), "global_batch": training.get("global_batch_size")}
    job = {name: size for name, size in sizes.items() if size is not None}
    strategy = FSDP(
        checkpointing="block" if mode == "full" else mode,
        reshard=parallel.get("fsdp_reshard_after_forward") != "never",
        compiled=given.get("compile", {}).get("enable", False),
        microbatches="given" if "microbatch" in job else "tried",
        devices="all",
    )
    return Launch(
        strategy=strategy,
        seq_len=training.get("seq_len"),
        job=job,
        n_devices=parallel.get("data_parallel_shard_degree"),
        accumulation=1 if "microbatch" in job and "global_batch" not in job else None,
    )


def _flags(text: str) -> Iterator[tuple[str, str | None]]:
    """Names of flags, dashes for underscores, and the first word up to the next; words before the first, and behind a
    flag's value, are a launcher's."""
    try:
        words = shlex.split(text.replace("\\\n", " "))
    except ValueError as error:
        raise LabError(f"flags: {error}; wanted quotes in pairs") from None
    # in an array a flag may stand beside its value within quotes
    words = [part for word in words for part in (word.split() if re.match(r"--[\w-]+\s", word) else [word])]
    name, value = "", None
    for word in [*words, "--"]:
        ends = bool(name) and word.startswith(SHELL)  # what follows is of another command
        if word.startswith("--") or ends:
            if name:
                yield name, value
            if ends:
                return
            name, equals, given = word[2:].partition("=")
            name, value = name.replace("_", "-"), given if equals else None
        elif value is None:
            value = word


def _read(keys: type[BaseModel], data: Any, what: str, *, as_flags: bool = False) -> dict[str, Any]:
    """The values that are given, checked. Raises LabError that names all that is not known, or else the first value
    that is none."""
    try:
        return keys.model_validate(data).model_dump(exclude_unset=True)
    except ValidationError as error:
        found = error.errors(include_url=False)
    names = [".".join(map(str, one["loc"])) for one in found]
    if as_flags:
        names = [flag(name) for name in names]
    if unknown := [name for name, one in zip(names, found, strict=True) if one["type"] == "extra_forbidden"]:
        names = " ".join(unknown).split()  # a script's may have several lines
        raise LabError(f"{what} that are not known here: {', '.join(names)}; wanted the text without them")
    wanted = found[0]["msg"].removeprefix("Input should be ").replace("'", "").replace(" or instance of Keys", "")
    raise LabError(f"{names[0]} is {shortened(found[0]['input'])}; wanted {wanted[0].lower()}{wanted[1:]}")
