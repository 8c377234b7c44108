"""Write a plan for other training frameworks: arguments or configuration, and what the framework cannot express.

Each framework is a function of an ``Expressed`` plan that returns a ``FrameworkLaunch``. It replaces what the framework
lacks, so that the lab can report what that costs.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

import yaml

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.job.model.families import llama
from dtfm_lab.domain.units import counted
from dtfm_lab.extensions.hosts.expressed import BY_PIPELINE, BY_STAGE, TORCHRUN, ZERO, Expressed, FrameworkLaunch
from dtfm_lab.extensions.hosts.hosts import filled

ACCELERATE = (
    "accelerate launch --config_file accelerate.yaml --gradient_accumulation_steps {} \\\n    "
    '--num_machines="$NNODES" --machine_rank="$1" --num_processes="$WORLD" \\\n    '
    '--main_process_ip="$MASTER_ADDR" --main_process_port="$MASTER_PORT"'
)


def script(of: Expressed) -> FrameworkLaunch:
    """Return the launch of your own script with torchrun. It finds the whole plan in environment variables, so nothing
    is lost."""
    job = of.job
    arguments = {
        "N_STAGES": job.n_stages,
        "N_REPLICAS": job.n_replicas,
        "TENSOR_PARALLEL": of.tensor_parallel,
        "CONTEXT_PARALLEL": job.context_parallel,
        "EXPERT_PARALLEL": job.expert_parallel,
        "MICROBATCH": job.microbatch,
        "GLOBAL_BATCH": job.global_batch,
        "MICROBATCHES_PER_REPLICA": " ".join(map(str, job.microbatch_counts)),
        "BLOCKS_PER_STAGE": " ".join(map(str, of.blocks())),
        "SCHEDULE": job.schedule_name,
        "SHARDING": job.sharding,
        "CHECKPOINTING": job.checkpoints,
        "DTYPE": job.dtype,
    }
    lines = "".join(f'export {name}="{value}"\n' for name, value in arguments.items())
    return FrameworkLaunch(
        order=BY_PIPELINE, script='"${TRAIN:-train.py}"', job=job, lost=of.losses(), files={"plan.env": lines}
    )


def torchtitan(of: Expressed) -> FrameworkLaunch:
    """Return the launch with torchtitan 0.3.0: a Python module for its registry of configurations, ``--module plan
    --config plan``."""
    of.usual()
    of.inside("context_parallel")
    sizes = of.sizes("llama")
    if sizes["head_dim"] or any(sizes[what] for what in ("qkv_bias", "attention_out_bias", "mlp_bias", "qk_norm")):
        name = of.job.modelled().name
        raise of.refuse(f"model {name} has biases, custom head sizes or query norms; wanted a Llama without them")
    if sizes["tied"] and of.job.n_stages > 1:
        what = "embedding and head are tied; torchtitan only ties them without a pipeline"
        of.lose(what, model=llama(**sizes | {"tied": False}, name=of.job.modelled().name))
        sizes["tied"] = False
    schedule = of.schedules({"gpipe": "GPipe", "1f1b": "1F1B", "interleaved-1f1b": "Interleaved1F1B"})
    if schedule == "1F1B" and of.job.n_microbatches < of.job.n_stages:  # refused by torch's Schedule1F1B
        few = f"{counted(of.job.n_microbatches, 'micro-batch')} on {counted(of.job.n_stages, 'stage')}"
        of.lose(f"the schedule is 1f1b of {few}; torchtitan uses gpipe", schedule="gpipe", warmups=None)
        schedule = "GPipe"
    sharding = of.sharded("none", "zero-2", "zero-3")
    checkpointing = of.recomputed("none", "selective", "block")
    dtype = of.precise(bf16="bfloat16", fp32="float32")
    if of.job.gradients_in != "fp32":
        of.lose(f"gradients are {of.job.gradients_in}; torchtitan keeps them in fp32", gradient_dtype="fp32")
    job = of.job
    shards = 1 if sharding == "none" else job.n_replicas
    policy = {"none": "None", "selective": "SelectiveAC.Config()", "block": "FullAC.Config()"}[checkpointing]
    parts, first = [], 0
    for count in of.blocks():
        parts.append([f"layers.{block}" for block in range(first, first + count)])
        first += count
    # torchtitan wants every module in a stage by name, so the ends get the rest of the model.
    parts[0].insert(0, "tok_embeddings")
    parts[-1] += ["norm", "lm_head"]
    listed = "".join(f"            {json.dumps(part)},\n" for part in parts)
    text = filled(
        "torchtitan.txt",
        **sizes,
        **{"job": job, "shards": shards, "policy": policy, "schedule": schedule, "dtype": dtype},
        kv=sizes["n_kv_heads"],
        skip="_SKIP" if sizes["tied"] else "",
        head=sizes["d_model"] // sizes["n_heads"],
        replicated=job.n_replicas // shards,
        reshard="always" if sharding == "zero-3" else "never",
        tensor_parallel=of.tensor_parallel,
        # Without a pipeline there is nothing to cut.
        cut="None" if job.n_stages == 1 else f"[\n{listed}        ]",
        sequences=job.microbatch * (job.n_microbatches if job.n_stages > 1 else 1),
        pipelined=job.n_stages > 1,
    )
    run = "-m torchtitan.train --module plan --config plan"
    return FrameworkLaunch(order=BY_STAGE, script=run, job=job, lost=of.losses(), files={"plan.py": text})


def megatron(of: Expressed) -> FrameworkLaunch:
    """Return the launch with Megatron-LM: its arguments, with ranks mapped as in the plan."""
    of.usual()
    sizes = of.sizes("gpt", "llama", "moe")
    of.schedules({"1f1b": "", "interleaved-1f1b": ""}, in_groups=True)  # groups of n_stages micro-batches
    sharding = of.sharded("none", "zero-1")
    if of.job.modelled().family == "moe" and of.tensor_parallel > 1 and not of.job.sequence_parallel:
        what = "sequence_parallel is off; megatron cannot train experts with tensor parallelism without it"
        of.lose(what, sequence_parallel=True)
    dtype = of.precise(bf16="bf16", fp16="fp16", fp32="")
    checkpointing = of.recomputed("none", "block", "stage")
    job, blocks = of.job, of.blocks()
    model = job.modelled()
    stages = ["t" * count for count in blocks]
    cut = "|".join(["E" + stages[0], *stages[1:]]) + "L" if len(set(blocks)) > 1 else None
    virtual = len(blocks) // job.n_stages
    biased = bool(sizes.get("attention_out_bias") or sizes.get("mlp_bias"))
    gated: dict[str, Any] = {"swiglu": True, "group-query-attention": True, "num-query-groups": sizes.get("n_kv_heads")}
    gated |= {"normalization": "RMSNorm", "position-embedding-type": "rope", "disable-bias-linear": not biased}
    gated |= {"add-qkv-bias": bool(sizes.get("qkv_bias")) and not biased, "kv-channels": sizes.get("head_dim") or None}
    gated["qk-layernorm"] = sizes.get("qk_norm")
    every = 1 if checkpointing == "block" else max(blocks)
    given: dict[str, Any] = {
        "tensor-model-parallel-size": of.tensor_parallel,
        "pipeline-model-parallel-size": job.n_stages,
        "use-tp-pp-dp-mapping": True,
        "context-parallel-size": job.context_parallel,
        "micro-batch-size": job.microbatch // job.expert_parallel,
        "global-batch-size": job.global_batch,
        "num-layers": sizes["n_layers"],
        "hidden-size": sizes["d_model"],
        "ffn-hidden-size": sizes["d_ff"] or sizes["d_expert"],
        "num-attention-heads": sizes["n_heads"],
        "seq-length": sizes["seq_len"],
        "max-position-embeddings": sizes.get("n_positions") or sizes["seq_len"],
        "pipeline-model-parallel-layout": cut,
        "num-virtual-stages-per-pipeline-rank": virtual if virtual > 1 and not cut else None,
        **(_experts(job, sizes) if model.family == "moe" else {}),
        **(gated if model.family != "gpt" else {}),
        "untie-embeddings-and-output-weights": not sizes["tied"],
        **({dtype: True, "accumulate-allreduce-grads-in-fp32": job.gradients_in == "fp32"} if dtype else {}),
        "grad-reduce-in-bf16": dtype == "bf16" and job.gradients_in != "fp32",  # the default is fp32
        "use-distributed-optimizer": sharding == "zero-1",
        "overlap-grad-reduce": job.overlap,
        "sequence-parallel": job.sequence_parallel and of.tensor_parallel > 1,
        **({"recompute-granularity": "full", "recompute-method": "uniform"} if checkpointing != "none" else {}),
        "recompute-num-layers": every if checkpointing != "none" else None,
        **({"attention-dropout": 0.0, "hidden-dropout": 0.0} if model.family != "gpt" or not job.dropout else {}),
        **{"tokenizer-type": "NullTokenizer", "vocab-size": sizes["vocab_size"], "mock-data": True},
        **{"train-iters": 20, "lr": 1e-4, "log-interval": 1, "eval-iters": 0},
    }
    arguments = {name: value for name, value in given.items() if value is not None and value is not False}
    text = "".join(f"--{name}\n" if value is True else f"--{name} {value}\n" for name, value in arguments.items())
    run = "\"${MEGATRON:-Megatron-LM}/pretrain_gpt.py\" $(grep -v '^#' megatron.args)"
    files = {"megatron.args": text}
    # on GPUs before Blackwell, Megatron-LM requires this variable with tensor or context parallelism
    shared = of.tensor_parallel > 1 or job.context_parallel > 1
    starter = ("CUDA_DEVICE_MAX_CONNECTIONS=1 " if shared else "") + TORCHRUN
    return FrameworkLaunch(order=BY_PIPELINE, script=run, job=job, lost=of.losses(), files=files, starter=starter)


def _experts(job: Job, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Return Megatron-LM's arguments for experts, and for expert parallelism over data-parallel ranks."""
    dense = sizes["n_dense"]
    return {
        "expert-model-parallel-size": job.expert_parallel,
        "num-experts": sizes["n_experts"],
        "moe-router-topk": sizes["experts_per_token"],
        "moe-ffn-hidden-size": sizes["d_expert"],
        "moe-layer-freq": f"([0]*{dense}+[1]*{sizes['n_layers'] - dense})" if dense else 1,
        "moe-token-dispatcher-type": "alltoall",
        "moe-grouped-gemm": True,
        "moe-shared-expert-intermediate-size": sizes["d_shared"] or None,
    }


def deepspeed(of: Expressed) -> FrameworkLaunch:
    """Return the launch with DeepSpeed: a ds_config.json. Your script divides the model into stages with
    ``PipelineModule``, which divides layers evenly."""
    of.usual()
    of.inside()
    job = of.job
    if job.n_stages > 1:
        if of.tensor_parallel > 1:
            raise of.refuse(
                f"tensor parallelism of {job.tensor_parallel} with {counted(job.n_stages, 'stage')} needs support in "
                "the model; wanted 1, or --to megatron"
            )
        even = job.with_fields(blocks_per_stage=None, cut_by="blocks")
        if job.stage_layers != even.stage_layers:
            cut = " ".join(map(str, of.blocks()))
            what = f"stages have {cut} blocks; DeepSpeed's PipelineModule divides evenly"
            of.lose(what, blocks_per_stage=None, cut_by="blocks")
    of.schedules({"1f1b": ""})
    sharding = of.sharded(*(("none", "zero-1") if job.n_stages > 1 else ZERO))
    of.recomputed("none", "block", "stage")
    dtype = of.precise(bf16="bf16", fp16="fp16", fp32="")
    job = of.job
    config: dict[str, Any] = {
        "train_batch_size": job.global_batch,
        "train_micro_batch_size_per_gpu": job.microbatch,
        "gradient_accumulation_steps": job.n_microbatches,
        "zero_optimization": {"stage": ZERO[sharding]},
        **({dtype: {"enabled": True}} if dtype else {}),
        **({"communication_data_type": job.gradients_in} if job.gradients_in != job.dtype else {}),
        **({"pipeline": {"stages": job.n_stages}} if job.n_stages > 1 else {}),
        **({"tensor_parallel": {"autotp_size": of.tensor_parallel}} if of.tensor_parallel > 1 else {}),
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
        "steps_per_print": 1,
    }
    run = '"${TRAIN:-train.py}" --deepspeed --deepspeed_config ds_config.json'
    files = {"ds_config.json": json.dumps(config, indent=2) + "\n"}
    return FrameworkLaunch(order=BY_STAGE, script=run, job=job, lost=of.losses(), files=files)


def accelerate(of: Expressed) -> FrameworkLaunch:
    """Return the launch with accelerate: a configuration for DDP, or for FSDP2 with or without tensor parallelism.
    Raises LabError for several stages, because accelerate has no pipelines, and for context or expert parallelism."""
    if of.job.n_stages > 1:
        stages = counted(of.job.n_stages, "stage")
        raise of.refuse(f"accelerate has no pipeline, but the plan has {stages}; wanted 1, or --to megatron")
    of.usual()
    of.inside()
    tensor_parallel = of.tensor_parallel
    sharding = of.sharded(*(("zero-2", "zero-3") if tensor_parallel > 1 else ("none", "zero-2", "zero-3")))
    dtype = of.precise(bf16="bf16", fp16="fp16", fp32="no")
    checkpointing = of.recomputed("none", "block")
    job = of.job
    config: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "MULTI_GPU" if sharding == "none" else "FSDP",
        "mixed_precision": dtype,
        "num_processes": job.n_replicas * tensor_parallel,
        "rdzv_backend": "static",
        "same_network": True,
        "main_training_function": "main",
        "use_cpu": False,
    }
    if sharding != "none":
        config["fsdp_config"] = {
            "fsdp_version": 2,
            "fsdp_reshard_after_forward": sharding == "zero-3",
            "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "fsdp_activation_checkpointing": checkpointing == "block",
        }
        if tensor_parallel > 1:
            config["parallelism_config"] = {
                "parallelism_config_dp_replicate_size": 1,
                "parallelism_config_dp_shard_size": job.n_replicas,
                "parallelism_config_tp_size": tensor_parallel,
            }
    elif checkpointing == "block":
        of.lose("checkpointing is block; with DDP your model must enable it, as with gradient_checkpointing_enable()")
    return FrameworkLaunch(
        order=BY_PIPELINE,
        script='"${TRAIN:-train.py}"',
        job=job,
        lost=of.losses(),
        files={"accelerate.yaml": yaml.safe_dump(config, sort_keys=False)},
        starter=ACCELERATE.format(job.n_microbatches),
        equal=True,
    )


FRAMEWORKS: dict[str, Callable[[Expressed], FrameworkLaunch]] = {
    "torchtitan": torchtitan,
    "megatron": megatron,
    "deepspeed": deepspeed,
    "accelerate": accelerate,
}
