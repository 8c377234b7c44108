"""Read Megatron-LM's flags, or the script that passes them, as its strategy."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.network import shortened
from dtfm_lab.extensions.systems.launches import deepspeed
from dtfm_lab.extensions.systems.launches.launch import Launch
from dtfm_lab.extensions.systems.launches.megatron_cut import blocks_of, interleaved_stages
from dtfm_lab.extensions.systems.launches.megatron_model import flag, model_of
from dtfm_lab.extensions.systems.launches.settings import (
    is_ignored,
    kinds_of,
    known_settings,
    note_of,
    read,
    refusal_of,
)
from dtfm_lab.extensions.systems.launches.shell import Script, read_script
from dtfm_lab.extensions.systems.modelled.deepspeed import DeepSpeedZero3
from dtfm_lab.extensions.systems.modelled.megatron import AS_SHIPPED, BY_GPU, BY_PRECISION, Megatron
from dtfm_lab.extensions.systems.strategy import Strategy

SHARED = ("tensor_model_parallel_size", "context_parallel_size", "expert_model_parallel_size")
LAUNCHERS = ("nnodes", "nproc-per-node")
"""Flags of the launcher that are read from the words before the script's name."""
CONFIGURED = re.compile(r"--(?:deepspeed|deepspeed[-_]config|job\.config[-_]file)[= ]+([^\s-]\S*)")
"""Matches the DeepSpeed or torchtitan file that a command names."""
SHELL = ("|", "&", ";", ">", "1>", "2>")
"""Words that begin like this are not part of the command, and end it."""
PROGRAM = re.compile(r"(?:^|[\s\"'])([^\s\"'=]{0,400}?([\w-]{1,100})\.py)(?=[\s\"']|$)")
"""Matches a Python program. Lengths are limited, so that a very long word without spaces stays quick to search."""
AGAIN = re.compile(r"\s(?:torchrun|python3?|nsys|deepspeed|srun|accelerate)\s")
"""Matches the launcher with which another command starts, after the first one."""
UNKNOWN_VALUE = re.compile(r"\$\{?(\w+)\}?")


def read_shell(text: str) -> Launch:
    """Return the launch of a shell script. Raises LabError if no command has flags, or a file that it needs is
    missing."""
    script = read_script(text, lambda name: is_ignored("megatron", _current(name)))
    if not script.command:
        runs = f"; it reads {', '.join(script.reads)}" if script.reads else ""
        raise LabError(f"no command of the script has flags{runs}; wanted one that has, or the file that they are in")
    configured_by = CONFIGURED.search(script.command)
    config = script.files.get(configured_by[1].strip("\"'")) if configured_by else None
    # The model is in DeepSpeed's file then, and not in flags.
    if configured_by and not re.search(r"--(num[-_]layers|tensor[-_]model|micro[-_]batch[-_]size)", script.command):
        if config is None:
            raise LabError(f"the script's launch is configured by {configured_by[1]}; wanted that file")
        return deepspeed.read_text(config)
    return read_words(script.command, script, config)


def read_words(text: str, script: Script | None = None, config: str | None = None) -> Launch:
    """Return the launch of a command, or of flags alone. ``config`` is the text of its DeepSpeed configuration, if any.
    Raises LabError if there are no known flags, or for a flag whose value is invalid or unknown."""
    ignored, notes = list[str](), list[str]()
    # A script may start several programs; the one that trains counts.
    program = next((one for one in PROGRAM.finditer(text) if "train" in one[2]), None) or PROGRAM.search(text)
    if program:
        _refuse_program(program[2])
    before = dict(_flags(text[: program.start()])) if program else {}
    # Flags after the next program belong to it.
    own = AGAIN.split(text[program.end() :], maxsplit=1)[0] if program else text
    flags = dict(_flags(own))
    beside = _deepspeed_stage(flags, config)
    given = _given(flags, {_current(name): one for name, one in before.items()}, ignored, notes, script)
    if not given and program and (left := UNKNOWN_VALUE.search(own)):
        raise LabError(
            f"the flags of {program[2]}.py are in {left[0]}, which the script does not set; wanted them, too"
        )
    if not given:
        raise LabError(
            f"flags are {shortened(text)}; wanted those of Megatron-LM, DeepSpeed's JSON, torchtitan's TOML or "
            "accelerate's YAML"
        )
    if script is not None and script.absent:
        notes.append(f"read as if not set: {', '.join(script.absent)}")
    if (
        script is not None
        and script.tasks is not None
        and not any(name in given for name in ("nnodes", "nproc_per_node"))
    ):
        given["nproc_per_node"] = script.tasks
    launch = launch_of(given, beside, notes)
    return Launch(**{**vars(launch), "ignored": tuple(dict.fromkeys(ignored)), "notes": tuple(dict.fromkeys(notes))})


def _current(flag: str) -> str:
    """Return the present name of a flag, which may be typed with a former name."""
    return str(known_settings()["megatron"]["renamed"].get(flag, flag))


def _refuse_program(name: str) -> None:
    for pattern, trains in known_settings()["megatron"]["programs"].items():
        if re.search(pattern, name, re.IGNORECASE):
            raise LabError(
                f"{name}.py trains {trains} which has no model here; wanted pretrain_gpt.py, or a GPT's flags"
            )


def _given(
    flags: Mapping[str, str | None],
    launcher: Mapping[str, str | None],
    ignored: list[str],
    notes: list[str],
    script: Script | None,
) -> dict[str, Any]:
    """Return the flags that affect the plan, after checking them. Add the names of the others to ``ignored`` or
    ``notes``."""
    named: dict[str, Any] = {}
    kinds = kinds_of("megatron")
    # The program's own flags come last and win.
    for typed, value in [*((name, launcher[name]) for name in LAUNCHERS if name in launcher), *flags.items()]:
        name = _current(typed)
        key = name.replace("-", "_")
        if name in LAUNCHERS and value is not None and not value.isdigit():
            if not value.startswith("$") and value not in ("gpu", "auto"):
                raise LabError(f"--{typed} is {value!r}; wanted a valid integer")
            notes.append(f"--{typed} is {value}, which the script does not tell: all devices are launched")
        elif name in ("checkpoint-activations", "recompute") and _is_on(value):
            named["recompute_granularity"] = "full"
            named.setdefault("recompute_method", "uniform")
        elif name in kinds:
            # A switch does not take an unknown variable as its value.
            alone = kinds[name] == "switch" and (value or "").startswith("$")
            named[key] = None if alone else value
            if typed == "num-key-value-heads":
                named["group_query_attention"] = None
        elif (why := refusal_of("megatron", name)) is not None:
            if _is_on(value) and value not in ("none", "0", "1"):
                raise LabError(f"--{typed}: {why}")
        elif (note := note_of("megatron", name)) is not None:
            if _is_on(value):
                notes.append(f"--{typed}: {note}")
        elif is_ignored("megatron", name):
            ignored.append(f"--{typed}")
        else:
            named[key] = value
    if named.get("recompute_method") in ("none", "None"):
        named.pop("recompute_method")
    try:
        return read("megatron", named, "flags of Megatron-LM", flag)
    except LabError as error:
        opened = next((one for one in map(str, named.values()) if UNKNOWN_VALUE.match(one)), "")
        if "$" not in str(error) or script is None or not opened:
            raise
        name = UNKNOWN_VALUE.match(opened)[1]  # type: ignore[index]  # the line above found a match
        why = script.why_open.get(name, "an argument of the script" if name.isdigit() else "not set in the script")
        raise LabError(f"{error}, and ${name} is {why}") from None


def _is_on(value: str | None) -> bool:
    return value is None or value.lower() not in ("false", "off", "no")


def _deepspeed_stage(flags: dict[str, str | None], config: str | None) -> int | None:
    """Return ZeRO's stage if the flags belong to Megatron-DeepSpeed; None if they belong to Megatron-LM. Raises
    LabError if the stage is only in a file that is not given."""
    stage = flags.get("zero-stage")
    file = flags.get("deepspeed-config")
    if "deepspeed" not in flags and file is None:
        return None
    if config is not None:
        launch = deepspeed.read_text(config)
        return int(getattr(launch.strategy, "stage", 0))
    if stage is not None and stage.isdigit():
        return int(stage)
    if file is None:
        return 0
    raise LabError(f"ZeRO's stage is set in {file}, which the script does not write; wanted --zero-stage as well")


def launch_of(given: Mapping[str, Any], zero: int | None = None, notes: Sequence[str] = ()) -> Launch:
    """Return the launch of the flags that affect the plan. ``zero`` is ZeRO's stage in Megatron-DeepSpeed; None without
    it. Raises LabError for flags that contradict each other or have no model."""
    if given.get("bf16") and given.get("fp16"):
        raise LabError("--bf16 and --fp16 are both given; wanted one of them")
    stages = given.get("pipeline_model_parallel_size", 1)
    tensor_parallel, context_parallel, expert_parallel = (given.get(name, 1) for name in SHARED)
    if given.get("num_experts") == 1:
        expert_parallel = 1
    job = _job_of(given, expert_parallel)
    blocks, interleaved = blocks_of(given, stages), interleaved_stages(given, stages)
    if blocks is not None and interleaved > 1:
        raise LabError("stages of unequally many blocks that interleave have no model here; wanted one or the other")
    _refuse_groups(given, expert_parallel, tensor_parallel)
    overlapped = given.get("overlap_p2p_communication", True) and not given.get("no_overlap_p2p_communication")
    dtype, attention = job.get("dtype"), _attention_of(given)
    sharding = "zero-1" if given.get("use_distributed_optimizer") else "none"
    if zero is not None:  # DeepSpeed's bf16 optimizer also splits its states at stage 0 (BF16_Optimizer)
        sharding = "zero-1" if zero == 1 or (zero == 0 and dtype == "bf16" and stages > 1) else "none"
    checkpointing = _checkpointing_of(given, stages * interleaved)
    strategy: Strategy
    if zero is not None and zero > 1:
        if stages > 1:
            raise LabError(f"ZeRO's stage is {zero} with {stages} pipeline stages; wanted 0 or 1")
        if context_parallel * expert_parallel > 1:
            raise LabError(f"ZeRO's stage is {zero} with context or expert parallelism; wanted 0 or 1")
        strategy = DeepSpeedZero3(
            stage=zero,
            tensor_parallel=tensor_parallel,
            checkpointing=checkpointing,
            microbatches="given" if "microbatch" in job else "tried",
            devices="all",
        )
    else:
        transport = "overlapped" if interleaved > 1 and overlapped else "batched" if zero is None else "blocking"
        how = AS_SHIPPED | {
            "order": "pp-dp" if given.get("use_tp_pp_dp_mapping") else "dp-pp",
            "overlap": given.get("overlap_grad_reduce", False),
            "sharding": sharding,
            "microbatches": "given" if "microbatch" in job else "tried",
        }
        strategy = Megatron(
            **how,
            tensor_parallel=tensor_parallel,
            context_parallel=context_parallel,
            expert_parallel=expert_parallel,
            n_stages=stages,
            blocks_per_stage=blocks,
            stages_per_device=interleaved,
            transport=transport,
            attention=attention,
            dropout=_drops_out(given, attention),
            sequence_parallel=given.get("sequence_parallel", False),
            checkpointing=checkpointing,
            gradient_dtype=_gradient_dtype(given),
        )
    launched = "nnodes" in given or "nproc_per_node" in given
    processes = given.get("nnodes", 1) * given.get("nproc_per_node", 1)
    if "nproc_per_node" not in given and any(note.startswith("--n") for note in notes):
        launched = False
    return Launch(
        strategy=strategy,
        job=job,
        n_devices=processes if launched else None,
        of_a_replica=stages * tensor_parallel * context_parallel * expert_parallel,
    )


def _job_of(given: Mapping[str, Any], expert_parallel: int) -> dict[str, Any]:
    job: dict[str, Any] = {"microbatch": given.get("micro_batch_size"), "global_batch": given.get("global_batch_size")}
    if job["microbatch"] is not None:  # the flag is per GPU; here it covers all GPUs that share experts
        job["microbatch"] *= expert_parallel
    precision = "bf16" if given.get("bf16") else "fp16" if given.get("fp16") else None
    if precision is None and "num_layers" in given:
        precision = "fp32"  # Megatron-LM's precision without either flag
    job |= {"dtype": precision}
    job["model"] = model_of(given)
    return {name: value for name, value in job.items() if value is not None}


def _refuse_groups(given: Mapping[str, Any], expert_parallel: int, tensor_parallel: int) -> None:
    """Raise LabError if the flags share experts among GPUs in a way that has no model here."""
    if expert_parallel == 1:
        return
    kind = given.get("moe_token_dispatcher_type", "alltoall")
    if kind == "allgather":
        raise LabError("--moe-token-dispatcher-type is 'allgather'; wanted alltoall, which has a model here")
    experts = given.get("expert_tensor_parallel_size", tensor_parallel)
    if experts != tensor_parallel:
        raise LabError(
            f"--expert-tensor-parallel-size is {experts} and --tensor-model-parallel-size {tensor_parallel}; wanted "
            "the same, as layers with another have no model here"
        )


def _attention_of(given: Mapping[str, Any]) -> str:
    """Return how attention is computed: ``unfused`` keeps its scores for the backward, ``fused`` does not, and
    ``by-gpu`` depends on the devices.

    If only the scores are recomputed, as much is kept as by a fused attention, so this counts as ``fused``.
    """
    backend = given.get("attention_backend", "local" if given.get("transformer_impl") == "local" else "auto")
    again = given.get("recompute_activations") or given.get("recompute_granularity") == "selective"
    if given.get("use_flash_attn") or again:
        return "fused"
    return "unfused" if backend in ("local", "unfused") else BY_GPU if backend == "auto" else "fused"


def _checkpointing_of(given: Mapping[str, Any], stages: int) -> str:
    granularity = given.get("recompute_granularity")
    each, method = given.get("recompute_num_layers", 1), given.get("recompute_method", "uniform")
    if granularity is None:
        if "recompute_method" in given or "recompute_num_layers" in given:
            raise LabError(
                "--recompute-method or --recompute-num-layers without --recompute-granularity; wanted it, too"
            )
        return "none"
    if granularity == "selective":
        modules = given.get("recompute_modules", "core_attn")
        if modules != "core_attn":
            raise LabError(f"--recompute-modules is {modules!r}; wanted core_attn, as others have no model here")
        return "none"
    # The largest stage, since a whole stage is meant.
    own = -(-given["num_layers"] // stages) if "num_layers" in given else None
    if method == "block":  # recomputes the first N blocks of each stage
        if own is None or each < own:
            of = "all blocks" if own is None else f"all {own} blocks"
            raise LabError(
                f"--recompute-method is 'block'; wanted uniform, or --recompute-num-layers of {of} of a stage, as some "
                f"alone, {each} here, have no model"
            )
        return "block"
    if each == 1:
        return "block"
    if own is not None and each >= own:
        return "stage"
    raise LabError(
        f"--recompute-num-layers is {each}; wanted 1{'' if own is None else f' or {own}, a whole stage'}, as others "
        "have no model here"
    )


def _gradient_dtype(given: Mapping[str, Any]) -> str:
    if given.get("bf16") and given.get("grad_reduce_in_bf16"):  # takes precedence over fp32
        return "bf16"
    return "fp32" if given.get("accumulate_allreduce_grads_in_fp32") else BY_PRECISION


def _drops_out(given: Mapping[str, Any], attention: str) -> bool:
    """True if blocks keep the masks of a hidden dropout above 0.

    Raises LabError if only one of hidden and attention dropout is 0 and attention is not fused.
    """
    inside, behind = given.get("attention_dropout", 0.1), given.get("hidden_dropout", 0.1)  # Megatron-LM's defaults
    if (inside > 0) != (behind > 0) and attention == "unfused":
        raise LabError(
            f"--attention-dropout is {inside:g} and --hidden-dropout {behind:g}; wanted both or neither 0 where "
            "attention is not fused"
        )
    return bool(behind > 0)


def _flags(text: str) -> Iterator[tuple[str, str | None]]:
    """Yield each flag and its value: the first word after it, or None if another flag follows at once. Underscores in a
    flag become dashes.

    Words before the first flag, and further words after a value, belong to the launcher and are skipped.
    """
    try:
        words = shlex.split(text.replace("\\\n", " "), comments=False)
    except ValueError:
        # Quotes are only there to keep words together, and flags have none with blanks.
        try:
            words = shlex.split(re.sub(r"[\"']", " ", text))  # the quote was opened before this part of the command
        except ValueError as error:
            raise LabError(f"flags: {error}; wanted quotes in pairs") from None
    # in an array, a flag and its value may share one pair of quotes
    words = [part for word in words for part in (word.split() if re.match(r"\s*--[\w-]+\s", word) else [word])]
    name, value = "", None
    for word in [*words, "--"]:
        ends = bool(name) and word.startswith(SHELL)  # the rest belongs to another command
        if word.startswith("--") or ends:
            if name:
                yield name, value
            if ends:
                return
            name, equals, given = word[2:].partition("=")
            name, value = name.replace("_", "-"), given if equals else None
        elif value is None and word != "\\":
            value = word
