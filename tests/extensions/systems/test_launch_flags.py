"""Flags that a rival was launched with are that system's one plan; what is not known is named in one line."""

import re

import pytest

import dtfm_lab as lab
from dtfm_lab.domain.job import llama, moe
from dtfm_lab.extensions.systems.api import from_flags, outcome_of

NETWORK, JOB = lab.load_topology("lecture-hall"), lab.load_job("tiny")
MEGATRON = """torchrun --nnodes 2 --nproc_per_node 4 pretrain_gpt.py \\
  --tensor-model-parallel-size 1 --pipeline-model-parallel-size 2 --micro-batch-size 2 --global-batch-size 32 \\
  --use-tp-pp-dp-mapping --overlap-grad-reduce --use-distributed-optimizer --recompute-granularity full --lr 1e-4"""
DEEPSPEED = '{"train_batch_size": 16, "train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 3}}'
TORCHTITAN = """
[training]
local_batch_size = 2
global_batch_size = 16
[activation_checkpoint]
mode = "none"
"""


def test_megatrons_flags_are_its_plan():
    launch = from_flags(MEGATRON)
    topology, job = launch.on(NETWORK, JOB)
    plan = outcome_of(launch.strategy, topology, job).plan
    assert (plan.job.n_stages, plan.job.n_replicas, plan.job.microbatch, plan.job.global_batch) == (2, 4, 2, 32)
    assert (plan.job.sharding, plan.job.overlap, plan.job.checkpoints) == ("zero-1", True, "block")
    assert plan.placement.devices.T.ravel().tolist() == list(range(8))
    without = from_flags(MEGATRON.replace("--use-tp-pp-dp-mapping", ""))
    assert outcome_of(without.strategy, topology, job).plan.placement.devices.ravel().tolist() == list(range(8))


def test_deepspeeds_configuration_is_its_plan():
    launch = from_flags(DEEPSPEED)
    job = outcome_of(launch.strategy, *launch.on(NETWORK, JOB)).job
    assert (job.sharding, job.microbatch, job.n_stages, job.n_replicas) == ("zero-3", 2, 1, 8)
    staged = from_flags('{"train_batch_size": 16, "pipeline": {"stages": 4}, "zero_optimization": {"stage": 1}}')
    job = outcome_of(staged.strategy, *staged.on(NETWORK, JOB)).job
    assert (job.n_stages, job.n_replicas, job.sharding) == (4, 2, "zero-1")


def test_torchtitans_configuration_is_its_plan():
    launch = from_flags(TORCHTITAN)
    job = outcome_of(launch.strategy, *launch.on(NETWORK, JOB)).job
    assert (job.sharding, job.microbatch, job.global_batch, job.checkpoints) == ("zero-3", 2, 16, "none")


SCRIPT = """#!/bin/bash
# --micro-batch-size 64 of a comment
export GPUS=4
NODES=${NNODES:-2}
MICRO=2; REPLICAS=$(($GPUS * NODES / 2))
if [ -z "$NODE_RANK" ]; then
    NODE_RANK=0
fi
WHERE=(
    --nproc_per_node $GPUS --nnodes ${NODES}  # of machines
    --node_rank $NODE_RANK
)
TRAINING="
    --micro-batch-size ${MICRO}
    --global-batch-size $(( (REPLICAS + 0) * MICRO * 4 ))
"
TRAINING+=" --recompute-granularity full"
if [ "$1" ]; then MORE=--lr; fi
python prepare.py --input "$1" $MORE 1
torchrun "${WHERE[@]}" pretrain_gpt.py $TRAINING \\
    --tensor-model-parallel-size 1 --pipeline-model-parallel-size 2 \\
    --use-tp-pp-dp-mapping --overlap-grad-reduce --use-distributed-optimizer --data-path $2 2>&1 | tee log.txt
"""


WIDTHS = {"n_layers": 4, "d_model": 96, "n_heads": 4, "seq_len": 64, "vocab_size": 1000, "tied": True}
SIZES = "--num-layers 4 --hidden-size 96 --num-attention-heads 4 --seq-length 64"
LLAMA = f"{SIZES} --vocab-size 1000 --swiglu --normalization RMSNorm --position-embedding-type rope"


def test_a_model_is_read_as_megatron_takes_its_flags():
    """Widths that no flag tells are Megatron-LM's own; flags within quotes, or without effect, are no hindrance."""
    read = from_flags(LLAMA).job["model"]
    assert read.layers == llama(**WIDTHS, d_ff=256, qkv_bias=True, attention_out_bias=True, mlp_bias=True).layers
    grouped = from_flags(f"{LLAMA} --disable-bias-linear --group-query-attention --num-query-groups 2 --kv-channels 32")
    assert grouped.job["model"].layers == llama(**WIDTHS, d_ff=256, n_kv_heads=2, head_dim=32).layers
    script = f"""#!/bin/bash
NODES=${{SLURM_NNODES:-"2"}}
HOW=("--nnodes $NODES" "--disable-bias-linear --rotary-base 10000")
if [ $1 ]; then LOGS+=(--wandb-project $1); fi
torchrun pretrain_gpt.py {LLAMA} ${{HOW[@]}} ${{LOGS[@]}} --num-experts 4 --moe-layer-freq ([0]*1+[1]*3)"""
    launch = from_flags(script.replace("([0]*1+[1]*3)", "'([0]*1+[1]*3)'"))
    mixture = moe(**WIDTHS, d_expert=256, n_experts=4, experts_per_token=2, n_dense=1, d_ff=256)
    assert (launch.job["model"].layers, launch.n_devices) == (mixture.layers, 2)


def test_a_script_gives_the_flags_that_its_command_would_have():
    """Those of MEGATRON, in the words of a shell."""
    assert from_flags(SCRIPT).on(NETWORK, JOB) == from_flags(MEGATRON).on(NETWORK, JOB)
    assert vars(from_flags(SCRIPT).strategy) == vars(from_flags(MEGATRON).strategy)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("--tensor-model-parallel-size 2 --hierarchical 2 --moe 1", "known here: --hierarchical, --moe"),
        ("--micro-batch-size $MBS", "--micro-batch-size is '$MBS'; wanted a valid integer"),
        ("hello", "flags are 'hello'; wanted those of Megatron-LM"),
        (
            '{"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}}',
            "zero_optimization.offload_param is {'device': 'cpu'}: offloading to the host's memory has no model here",
        ),
        ('{"zero_optimization": {"stage": 4}}', "zero_optimization.stage is 4; wanted 0, 1, 2 or 3"),
        ('{"a": ', "DeepSpeed configuration: line 1"),
        ("[parallelism]\npipeline_parallel_degree = 0", "parallelism.pipeline_parallel_degree is 0; wanted greater"),
        ("[parallelism]\nexpert_parallel_degree = 8", "expert_parallel_degree is 8: with FSDP it has no model here"),
        ('[model]\nconverters = ["float8"]', "model.converters is ['float8']: products in 8 bits have no model here"),
        ('[model]\nname = "flux"', "model.name is 'flux', which has no model here; wanted a language model"),
        ("[parallelism]\ndata_parallel_replicate_degree = 2", "degree is 2: shards over a part of the replicas (HSDP)"),
        (
            '[activation_checkpoint]\nselective_ac_option = "2"',
            "selective_ac_option is '2': to recompute one block in 2 has no model; wanted 'op', or mode full",
        ),
        ("[training]\nbatches = 2", "known here: training.batches"),
        (None, "flags are None; wanted text"),
        ("#!/bin/sh\necho hello", "no command of the script has flags; wanted one that has, or the file"),
        (
            "#!/bin/sh\ndeepspeed train.py --deepspeed --deepspeed_config ds.json",
            "configured by ds.json; wanted that file",
        ),
        (
            "#!/bin/sh\nrun --job.config_file ./a.toml",
            "the script's launch is configured by ./a.toml; wanted that file",
        ),
        (LLAMA.replace("--vocab-size 1000", ""), "lack --vocab-size, which its tokenizer would tell"),
        (LLAMA.replace("--seq-length 64", ""), "flags of a model lack --seq-length"),
        (f"{LLAMA} --moe-layer-freq 2 --num-experts 4 --disable-bias-linear", "--moe-layer-freq is '2'; wanted 1, or"),
        (f"{LLAMA} --num-experts 4", "--num-experts without --disable-bias-linear has no model here"),
        (f"{SIZES} --fp8-format hybrid", "--fp8-format: products in fp8 have no model here; wanted bf16"),
        (f"{SIZES} --use-megatron-fsdp", "--use-megatron-fsdp: Megatron-LM's FSDP has no model here"),
        ("torchrun pretrain_bert.py --num-layers 4", "pretrain_bert.py trains an encoder such as BERT"),
        ("torchrun pretrain_t5.py --num-layers 4", "pretrain_t5.py trains an encoder with a decoder such as T5"),
        ("torchrun pretrain_vision_classify.py --num-layers 4", "pretrain_vision_classify.py trains a model of images"),
        ("torchrun pretrain_mamba.py --num-layers 4", "pretrain_mamba.py trains blocks of Mamba"),
        ("distributed_type: XLA", "distributed_type is XLA; wanted NO, MULTI_GPU, FSDP, DEEPSPEED or MEGATRON_LM"),
        (
            "distributed_type: FSDP\nfsdp_config:\n  fsdp_offload_params: true",
            "fsdp_offload_params is true: offloading",
        ),
        ("distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: HYBRID_SHARD", "strategy is HYBRID_SHARD"),
        (
            "#!/bin/sh\nif [ $1 ]; then A+=(--log-interval 1 --bf16); fi\nrun --micro-batch-size 1 $A",
            "set under a condition",
        ),
        ("A=$1\nrun --micro-batch-size $A --bf16", "--micro-batch-size is '$1'; wanted a valid integer"),
        (
            "if [ $1 ]; then\n  MORE='--fp16'\nfi\nrun --bf16 $MORE",
            "$MORE of the script is set under a condition or in a loop; wanted its flags themselves",
        ),
        (
            "#!/bin/sh\nif [ $1 ]; then MORE=--fp16; fi\nrun --bf16 $MORE",
            "$MORE of the script is set under a condition",
        ),
        ("A=" + "x" * 9 + "\nA=$A$A" * 20 + "\nrun --bf16", "letters; wanted 100,000 at most"),
        (
            "for A in 1 2; do B=$A; done\nrun --micro-batch-size $B",
            "--micro-batch-size is '$B'; wanted a valid integer",
        ),
        ('{"fp16": true, "zero_optimization": {"stage": 3}}', "fp16 is True; wanted a valid dictionary"),
        (
            '{"pipeline": {"stages": 2}, "zero_optimization": null}',
            "zero_optimization is None; wanted a valid dictionary",
        ),
        ('{"bf16": {"enabled": "yes"}}', "bf16.enabled is 'yes'; wanted a valid boolean"),
        ('{"zero_optimization": {"stage": 3}, "optimizer": {"type": "OneBitAdam"}}', "sends compressed gradients"),
        ('{"bf16": {"enabled": true}, "fp16": {"enabled": true}}', "both enabled; wanted one of them"),
        ('[compile]\nenable = "false"', "compile.enable is 'false'; wanted a valid boolean"),
        ('[activation_checkpoint]\nmode = ["x"]', "mode is ['x']; wanted none, selective or full"),
        ('[parallelism]\nfsdp_reshard_after_forward = "sometimes"', "wanted default, always or never"),
        ("--bf16=maybe", "--bf16 is 'maybe'; wanted a valid boolean"),
        ("--hidden-dropout 2", "--hidden-dropout is '2'; wanted less than 1"),
        (
            "--hidden-dropout 0 --transformer-impl local",
            "--attention-dropout is 0.1 and --hidden-dropout 0; wanted both or neither 0",
        ),
        ("--optimizer sgd --bf16", "--optimizer is 'sgd'; wanted adam"),
        ("--bf16 --fp16", "--bf16 and --fp16 are both given"),
        ("--recompute-granularity full --recompute-method block", "--recompute-method is 'block'; wanted uniform"),
        ("--recompute-num-layers 1", "without --recompute-granularity"),
        ("--transformer-impl torch", "--transformer-impl is 'torch'; wanted local or transformer_engine"),
    ],
)
def test_what_is_not_known_is_named(text, says):
    with pytest.raises(lab.LabError, match=re.escape(says)):
        from_flags(text)


def test_more_processes_than_devices_are_refused():
    with pytest.raises(lab.LabError, match="the flags launch 64 processes; lecture-hall has 8 devices"):
        from_flags("--nnodes 8 --nproc-per-node 8 --micro-batch-size 1").on(NETWORK, JOB)


ZERO = '{"zero_optimization": {"stage": 3}, '
ON_8 = "--nnodes 2 --nproc-per-node 4 --global-batch-size 16 "


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (ON_8 + "--pipeline-model-parallel-size 3", "launch 8 processes; wanted a multiple of 3"),
        (ON_8 + "--micro-batch-size 4", "16 sequences on 8 replicas, micro-batches of 4 each; wanted a multiple of 32"),
        (ZERO + '"train_batch_size": 7}', "micro-batches of any size each; wanted a multiple of 8"),
        (
            ZERO + '"train_batch_size": 7, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4}',
            "7 sequences on 8 replicas, 4 micro-batches of 2 each; wanted 64",
        ),
    ],
)
def test_processes_that_a_launch_would_not_use_are_refused(text, says):
    with pytest.raises(lab.LabError, match=says):
        from_flags(text).on(NETWORK, JOB)


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("[training]\nlocal_batch_size = 4\nseq_len = 32", (4, 32, 32)),
        (ZERO + '"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 3}', (2, 48, 64)),
        (ZERO + '"train_batch_size": 64, "gradient_accumulation_steps": 2}', (4, 64, 64)),
    ],
)
def test_what_a_launch_leaves_open_follows_from_its_processes(text, sizes):
    launch = from_flags(text)
    job = outcome_of(launch.strategy, *launch.on(NETWORK, JOB)).job
    assert (job.microbatch, job.global_batch, job.model.seq_len) == sizes


def test_attention_is_that_of_the_flags():
    kept = [from_flags(f"--transformer-impl local {more}").strategy.attention for more in ("", "--use-flash-attn")]
    assert kept == ["unfused", "fused"]


@pytest.mark.parametrize("off", ["=false", " false", "=0", "=False"])
def test_a_switch_that_is_off_is_as_one_that_is_not_there(off):
    switches = ("bf16", "overlap-grad-reduce", "use-distributed-optimizer", "use-tp-pp-dp-mapping", "sequence-parallel")
    alone = "--micro-batch-size 2 --fp16"
    switched = " ".join(f"--{name}{off}" for name in switches)
    assert from_flags(f"{alone} {switched}") == from_flags(alone)
    on = " ".join(f"--{name}=true" for name in switches[1:])
    assert from_flags(f"{alone} {on}") == from_flags(f"{alone} {on.replace('=true', '')}") != from_flags(alone)
    assert from_flags(f"{alone} 2>&1 | tee --append log") == from_flags(alone)


def test_dropout_and_sequence_parallelism_are_those_of_the_flags():
    flags = "--attention-dropout 0.0 --hidden-dropout 0.0 --sequence-parallel --micro-batch-size 2"
    launch = from_flags(flags)
    job = outcome_of(launch.strategy, *launch.on(NETWORK, JOB)).job
    assert (job.dropout, job.sequence_parallel) == (False, True)
    assert from_flags("--micro-batch-size 2").strategy.dropout


def test_parallelism_within_hosts_is_that_of_the_flags():
    network, flags = (
        lab.load_topology("shared-nics"),
        "--nnodes 4 --nproc-per-node 8 --pipeline-model-parallel-size 2 ",
    )
    for text, name, expected in (
        ("--context-parallel-size 4 --micro-batch-size 1", "llama-2-7b", (4, 1, 1)),
        ("--expert-model-parallel-size 8 --micro-batch-size 2", "qwen3-30b-a3b", (1, 8, 16)),  # 2 on each of 8 GPUs
    ):
        launch = from_flags(
            flags + text + " --global-batch-size 64 --bf16 --use-distributed-optimizer --recompute-granularity full"
        )
        plan = outcome_of(launch.strategy, *launch.on(network, lab.load_job(name, global_batch=64))).plan
        assert (plan.job.context_parallel, plan.job.expert_parallel, plan.job.microbatch) == expected
        assert plan.job.n_tasklets * plan.job.group_gpus == 32
