"""Launches as users have them: settings that change no plan, conditions of scripts, models between a GPT and a Llama,
what a GPU lacks, and why a launch has no plan."""

import re

import pytest

import dtfm_lab as lab
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import gpt, llama, moe
from dtfm_lab.domain.network import Topology
from dtfm_lab.extensions.systems.api import from_flags, outcome_of
from dtfm_lab.extensions.systems.modelled.data_parallel import FSDP

SIZES = "--num-layers 4 --hidden-size 96 --num-attention-heads 4 --seq-length 64 --vocab-size 1000"
WIDTHS = {"n_layers": 4, "d_model": 96, "n_heads": 4, "seq_len": 64, "vocab_size": 1000, "tied": True}


def launched(script: str) -> str:
    """The label of what a script launches."""
    return from_flags(f"#!/bin/bash\n{script}").strategy.label


def test_settings_without_effect_are_left_out_and_listed_once():
    launch = from_flags(f"torchrun pretrain_gpt.py {SIZES} --lr 1 --wandb-project x --rampup-batch-size 1 1 1 --bf16")
    assert launch.remarks == ["ignored: --lr, --wandb-project, --rampup-batch-size"]
    config = from_flags(
        '[job]\ndescription = "x"\n[training]\nlocal_batch_size = 1\nsteps = 9\n[compile]\ncomponents = ["loss"]\n'
        "enable = true\n[float8]\nenable_fsdp_float8_all_gather = false"
    )
    assert config.remarks == ["ignored: [job], training.steps, [float8]"]
    assert not config.strategy.compiled  # the loss alone is
    noted = from_flags("--overlap-param-gather --use-distributed-optimizer")
    assert "--overlap-param-gather: parameters are gathered before the next forward" in noted.remarks[0]


def test_what_hugging_face_fills_in_is_asked_for():
    config = """{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_clipping": "auto",
      "bf16": {"enabled": "auto"}, // the trainer's
      "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto", "sub_group_size": 1e9,},}"""
    launch = from_flags(config)
    assert launch.asks.startswith("train_batch_size is 'auto'")
    assert launch.strategy.stage == 3
    assert launch.keeping_microbatch().strategy.microbatches == "given"
    network, job = launch.on(lab.load_topology("lecture-hall"), lab.load_job("tiny", global_batch=32))
    assert outcome_of(launch.strategy, network, job).job.global_batch == 32


@pytest.mark.parametrize(
    ("before", "arguments", "like"),
    [
        ('T=bf16\nif [[ "$T" == "fp8" ]]; then A+=(--fp8-format hybrid); fi', "${A[@]}", ""),
        ("T=2\nif [ $T -gt 1 ]; then A=--sequence-parallel; else A=--bf16; fi", "$A", "--sequence-parallel"),
        (
            "case ${SIZE:-7B} in\n  7B) TP=2 ;;\n  *) TP=4 ;;\nesac",
            "--tensor-model-parallel-size $TP",
            "--tensor-model-parallel-size 2",
        ),
        ("[ -z $VP ] && A=--overlap-grad-reduce", "$A", "--overlap-grad-reduce"),
        ('A=(--overlap-grad-reduce)\nB+=("${A[@]}")', "${B[@]}", "--overlap-grad-reduce"),
        ("TP=$(( (1 + 3) / 2 ))", "--tensor-model-parallel-size ${TP}", "--tensor-model-parallel-size 2"),
        (
            "TP=1\nwhile [[ $# -gt 0 ]]; do case $1 in --tp) TP=$2; shift ;; esac; done",
            "--tensor-model-parallel-size $TP",
            "",
        ),
        (': "${TP:=2}"', "--tensor-model-parallel-size $TP", "--tensor-model-parallel-size 2"),
        ("if [ -f x ]; then A+=(--wandb-project x); fi", "${A[@]}", ""),
        ("A=( # --bf16 \\\n  --overlap-grad-reduce # later\n)", "${A[@]}", "--overlap-grad-reduce"),
    ],
)
def test_conditions_whose_outcome_is_known_are_followed(before, arguments, like):
    run = f"torchrun pretrain_gpt.py {SIZES} --micro-batch-size 1"
    assert launched(f"{before}\n{run} {arguments}") == launched(f"{run} {like}")


def test_functions_and_commands_within_quotes_are_read():
    plain = launched(f"torchrun pretrain_gpt.py {SIZES} --micro-batch-size 2")
    assert launched(f"go() {{\n torchrun pretrain_gpt.py {SIZES} --micro-batch-size $1\n}}\ngo 2") == plain
    assert (
        launched(f'CMD="torchrun pretrain_gpt.py {SIZES} --micro-batch-size 2"\nsrun -l bash -c "$CMD" | tee log')
        == plain
    )
    assert launched(f'O=" \\\n {SIZES} \\\n"\necho $O\neval torchrun pretrain_gpt.py $O --micro-batch-size 2') == plain


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (
            "if grep -q x y; then A=--fp16; else A=--bf16; fi\nrun $A --lr 1",
            "its outcome is not known here: grep -q x y",
        ),
        ("torchrun pretrain_gpt.py --micro-batch-size $1", "'$1'; wanted a valid integer"),
        ("torchrun pretrain_gpt.py --micro-batch-size $1", "$1 is an argument of the script"),
        ("torchrun pretrain_gpt.py --micro-batch-size $MBS", "$MBS is not set in the script"),
        ("source config.sh\nrun_it", "no command of the script has flags; it reads config.sh"),
        ("torchrun pretrain_gpt.py $PARAMS", "the flags of pretrain_gpt.py are in $PARAMS"),
        ("deepspeed pretrain_gpt.py --num-layers 2 --deepspeed --deepspeed_config ds.json", "set in ds.json"),
    ],
)
def test_what_a_script_leaves_open_is_named(script, says):
    with pytest.raises(lab.LabError, match=re.escape(says)):
        from_flags(f"#!/bin/bash\n{script}")


def test_a_configuration_that_the_script_writes_is_read():
    script = """#!/bin/bash
STAGE=1
cat <<EOT > ds.json
{"train_batch_size": 8, "zero_optimization": {"stage": $STAGE}, "bf16": {"enabled": true}}
EOT
"""
    alone = from_flags(f"{script}deepspeed train.py --deepspeed --deepspeed_config ds.json")
    assert (alone.strategy.stage, alone.job) == (1, {"global_batch": 8, "dtype": "bf16"})
    with_flags = from_flags(f"{script}deepspeed pretrain_gpt.py {SIZES} --deepspeed --deepspeed_config ds.json --bf16")
    assert with_flags.strategy.sharding == "zero-1"


def test_processes_are_those_of_slurm_where_it_starts_them():
    script = f"#!/bin/bash\n#SBATCH -p x --nodes=2 --ntasks-per-node=4\nsrun python pretrain_gpt.py {SIZES}"
    assert from_flags(script).n_devices == 8
    started = script.replace("python", "torchrun --nnodes $SLURM_NNODES --nproc_per_node 2")
    assert from_flags(started).n_devices == 4


def test_models_between_a_gpt_and_a_llama_have_their_own_parameters():
    """Norms with biases, rotary positions without a table, grouped queries, latent attention."""
    base = llama(**WIDTHS, d_ff=256, n_kv_heads=2)
    gated = f"{SIZES} --swiglu --disable-bias-linear --group-query-attention --num-query-groups 2"
    layered = from_flags(f"{gated} --position-embedding-type rope").job["model"]
    assert layered.parameters - base.parameters == (2 * 4 + 1) * 96
    learned = from_flags(f"{gated} --normalization RMSNorm --max-position-embeddings 80").job["model"]
    assert learned.parameters - base.parameters == 80 * 96
    assert learned.n_positions == 80
    plain = gpt(**WIDTHS)
    rotary = from_flags(f"{SIZES} --position-embedding-type rope").job["model"]
    assert plain.parameters - rotary.parameters == 64 * 96
    assert rotary.layers[-1] == plain.layers[-1]
    unbiased = from_flags(f"{SIZES} --disable-bias-linear").job["model"]
    assert plain.parameters - unbiased.parameters == 4 * (3 * 96 + 96 + 4 * 96 + 96)
    latent = f"{SIZES} --swiglu --normalization RMSNorm --position-embedding-type rope --disable-bias-linear "
    latent += "--num-experts 4 --moe-layer-freq ([0]+[1]*3) --multi-latent-attention --kv-lora-rank 16 "
    latent += "--qk-head-dim 8 --qk-pos-emb-head-dim 8 --v-head-dim 16"
    sizes = {"kv_rank": 16, "nope_dim": 8, "rope_dim": 8, "value_dim": 16}
    expected = moe(**WIDTHS, **sizes, d_expert=256, n_experts=4, experts_per_token=2, n_dense=1, d_ff=256)
    assert from_flags(latent).job["model"].layers == expected.layers


@pytest.mark.parametrize(
    ("more", "blocks"),
    [
        ("--pipeline-model-parallel-layout Et|tt|L", None),
        ("--pipeline-model-parallel-layout Et|ttt|ttL", (1, 3, 2)),
        ("--pipeline-model-parallel-layout Et|t*3,|(t)*2L", (1, 3, 2)),
        ("--decoder-first-pipeline-num-layers 1 --decoder-last-pipeline-num-layers 2", (1, 3, 2)),
        ("", None),
    ],
)
def test_blocks_of_each_stage_are_those_of_the_flags(more, blocks):
    flags = f"{SIZES.replace('layers 4', 'layers 6')} --pipeline-model-parallel-size 3 {more}"
    if "|L" in more:
        with pytest.raises(lab.LabError, match="has 3 stages of 3 blocks; wanted 3 of 6 blocks"):
            from_flags(flags)
    else:
        assert from_flags(flags).strategy.blocks_per_stage == blocks


@pytest.mark.parametrize(("gpu", "attention"), [("V100 32GB", "unfused"), ("T4", "unfused"), ("A100", "fused")])
def test_megatron_keeps_the_scores_where_a_gpu_has_no_flash_attention(gpu, attention):
    device = {"peak_flop_per_s": lab.Device(name="x", gpu=gpu).peak_flop_per_s, "memory_bytes": 2**36}
    network = Topology((lab.Device(name="a", gpu=gpu, **device),), [[0.0]], [[1e9]], name="one")
    launch = from_flags(f"{SIZES} --micro-batch-size 1 --global-batch-size 4 --fp16")
    assert outcome_of(launch.strategy, *launch.on(network, lab.load_job("tiny"))).job.attention == attention
    said = from_flags(f"{SIZES} --use-flash-attn --micro-batch-size 1 --fp16")
    assert said.strategy.attention == "fused"


def test_a_compiled_checkpoint_does_not_repeat_a_blocks_last_product():
    from dtfm_lab.domain.job.sizes import repeated_flop

    model = llama(**WIDTHS, d_ff=256, n_kv_heads=2)
    job = lab.Job(model=model, global_batch=8, checkpointing="block")
    block = model.layers[1]
    less = repeated_flop(job, block) - repeated_flop(job.with_fields(early_stop=True), block)
    assert less == pytest.approx(2 * 64 * 96 * 256)
    network, work = lab.load_topology("lecture-hall"), lab.load_job("tiny", global_batch=16)
    kept = {one: outcome_of(FSDP(compiled=one, checkpointing="block"), network, work).job for one in (True, False)}
    assert (kept[True].early_stop, kept[False].early_stop) == (True, False)


def test_experts_keep_every_other_product_of_what_all_tokens_pass():
    from dtfm_lab.domain.job.sizes import kept_elements, repeated_flop

    model = moe(**WIDTHS, d_expert=32, n_experts=8, experts_per_token=2, n_kv_heads=2, d_shared=64)
    job = lab.Job(model=model, global_batch=8, checkpointing="selective")
    q, kv, block = 96, 48, model.layers[1]
    assert kept_elements(job, block) == 64 * (96 + 2 * q + kv + 64 + 96)
    again = 96 * kv + q * 96 + 96 * 64 + 96 * 8 + 3 * 96 * 32 * 2
    assert repeated_flop(job, block) == pytest.approx(2 * 64 * again)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (
            "--num-virtual-stages-per-pipeline-rank 2 --pipeline-model-parallel-size 2 --global-batch-size 4",
            "in groups of 2",
        ),
        ("--nproc-per-node 5 --pipeline-model-parallel-size 5 --global-batch-size 8", "5 stages do not divide"),
        ("--tensor-model-parallel-size 8 --global-batch-size 8", "tensor_parallel 8 take 8 GPUs of a host"),
    ],
)
def test_why_a_launch_has_no_plan_is_said(flags, says):
    launch = from_flags(f"{flags} --micro-batch-size 1")
    network, job = launch.on(lab.load_topology("lecture-hall"), lab.load_job("tiny"))
    assert says in outcome_of(launch.strategy, network, job).reason


def test_accelerates_configuration_is_its_plan():
    text = """compute_environment: LOCAL_MACHINE
distributed_type: FSDP
mixed_precision: bf16
num_processes: 4
fsdp_config: {fsdp_sharding_strategy: SHARD_GRAD_OP, fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP}
"""
    launch = from_flags(text)
    assert (launch.n_devices, launch.job["dtype"], launch.strategy.reshard) == (4, "bf16", False)
    zero = from_flags("distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config: {zero_stage: 3}")
    assert (zero.strategy.stage, zero.n_devices) == (3, 2)
    whole = from_flags("compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_processes: 2")
    assert whole.strategy.name == "ddp"


def test_torchtitans_older_layout_is_the_newer_one():
    older = from_flags(
        "[training]\nbatch_size = 2\nseq_len = 32\ncompile = true\ndata_parallel_degree = 4\n"
        "tensor_parallel_degree = 2\n[experimental]\npipeline_parallel_degree = 1\n[activation_checkpoint]\n"
        "mode = 'selective'\nselective_ac_option = 'op'\n[float8]\nenable_float8_linear = false"
    )
    newer = from_flags(
        "[training]\nlocal_batch_size = 2\nseq_len = 32\n[compile]\nenable = true\n[parallelism]\n"
        "data_parallel_shard_degree = 4\ntensor_parallel_degree = 2\npipeline_parallel_degree = 1\n"
        '[activation_checkpoint]\nmode = "selective"'
    )
    assert older == newer
    assert older.n_devices == 8


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"train_batch_size": ' + "[" * 100_000, "100,0"),
        ('{"train_batch_size": ' + "[" * 9_000 + "]" * 9_000 + "}", "nested too deeply"),
        ('{"train_batch_size": ' + "9" * 5_000 + "}", "cannot be read: "),
        ("distributed_type: FSDP\nnum_processes: 2024-13-40\n", "cannot be read: "),
        ("python " + "a" * 90_000, "wanted"),
        ("--num-layers 2 " * 10_000, "wanted 100,000 or less"),
    ],
    ids=["too long", "nested", "digits", "a date that is none", "one long word", "a long command"],
)
def test_a_text_that_nobody_wrote_is_refused_in_one_line(text, says):
    with pytest.raises(LabError, match=says):
        from_flags(text)
