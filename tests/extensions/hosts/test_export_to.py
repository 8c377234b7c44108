"""``dtfm-lab export --to``: ranks fall where the plan has them, and what a framework cannot express has a price."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
import yaml

import dtfm_lab as lab
from dtfm_lab.domain.job import MODELS
from dtfm_lab.domain.network import known_gpu
from dtfm_lab.domain.units import signed_share
from dtfm_lab.extensions.hosts.expressed import Expressed
from dtfm_lab.extensions.hosts.launchers import SCHEDULERS, TARGETS, Launched, accelerator_of, launched

N = 8
NETWORK = lab.Topology.from_matrices(np.full((N, N), 0.1), np.full((N, N), 100.0), gpu=["A100"] * N)
MEGATRON_BY_PIPELINE = "--use-tp-pp-dp-mapping"
ACCELERATE_KEYS = {
    *(
        "compute_environment",
        "distributed_type",
        "mixed_precision",
        "use_cpu",
        "debug",
        "num_processes",
        "machine_rank",
    ),
    *("num_machines", "gpu_ids", "main_process_ip", "main_process_port", "rdzv_backend", "same_network"),
    *("main_training_function", "enable_cpu_affinity", "fsdp_config", "parallelism_config", "deepspeed_config"),
}
"""Of ``ClusterConfig`` in accelerate 1.15.0, accelerate/commands/config/config_args.py, which refuses others."""


def from_flags(text):
    """What the lab's own reader makes of a launch, where that is installed."""
    return pytest.importorskip("dtfm_lab.extensions.systems.api").from_flags(text)


def a_plan(seed: int = 0, n_stages: int = 2, **fields: object) -> lab.Plan:
    """A random placement of llama-3-8b on eight devices."""
    how = {"schedule": "1f1b", "dtype": "bf16", "global_batch": 32, "microbatch": 1} | fields
    job = lab.load_job("llama-3-8b", n_stages=n_stages, n_replicas=N // n_stages, **how)
    return lab.evaluate(NETWORK, job, rank_map=np.random.default_rng(seed).permutation(N).tolist())


def placed(folder: Path) -> list[str]:
    """The device of each rank, as torchrun numbers the processes that launch.sh starts."""
    devices = {host["name"]: host["devices"] for host in yaml.safe_load((folder / "hosts.yaml").read_text())["hosts"]}
    agents, host = {}, ""
    for line in (folder / "launch.sh").read_text().splitlines():
        if found := re.match(r"  ([\w.-]+)\)  #", line):
            host = found[1]
        elif found := re.match(r"    start (\d+) (\d+) ([\d,]+)$", line):
            agents[int(found[1])] = [devices[host][int(gpu)] for gpu in found[3].split(",")]
            assert len(agents[int(found[1])]) == int(found[2])
    return [device for rank in range(len(agents)) for device in agents[rank]]


@pytest.mark.parametrize("per_host", [1, 2, 3, 8])
@pytest.mark.parametrize(("target", "n_stages"), [*((t, 2) for t in TARGETS if t != "accelerate"), ("accelerate", 1)])
def test_the_hosts_order_gives_the_placement_back_as_the_framework_numbers_its_ranks(
    shell, tmp_path, target, n_stages, per_host
):
    plan = a_plan(per_host, n_stages=n_stages)
    lab.save(plan, tmp_path / "plan.json")
    if per_host == 3 and target in ("kubernetes", "skypilot"):
        _, _, error = shell("export", "plan.json", "-o", "run", "--to", target, "--per-host", "3")
        assert "hosts use 2 and 3 GPUs; wanted the same number on each" in error
        return
    assert shell("export", "plan.json", "-o", "run", "--to", target, "--per-host", str(per_host))[0] == 0
    ranks = placed(tmp_path / "run")
    shape = (n_stages, N // n_stages)
    # Of torchtitan and DeepSpeed the pipeline's axis is the outermost; elsewhere here it is the innermost but tensors'.
    grid = np.reshape(ranks, shape) if target in ("torchtitan", "deepspeed") else np.reshape(ranks, shape[::-1]).T
    assert grid.tolist() == plan.stages
    assert subprocess.run(["bash", "-n", "run/launch.sh"], check=False).returncode == 0
    if target == "megatron":
        assert MEGATRON_BY_PIPELINE in (tmp_path / "run/megatron.args").read_text()


def test_degrees_multiply_to_the_ranks_and_batches_to_the_batch(shell, tmp_path):
    lab.save(a_plan(n_stages=2, sharding="zero-1"), tmp_path / "plan.json")
    for target in ("torchtitan", "megatron", "deepspeed"):
        assert shell("export", "plan.json", "-o", target, "--to", target)[0] == 0
    text = (tmp_path / "torchtitan/plan.py").read_text()
    compile(text, "plan.py", "exec")
    degrees = dict(re.findall(r"(\w+)_degree=(\d+)", text))
    assert np.prod([int(degree) for degree in degrees.values()]) == N
    assert "local_batch_size=8,\n        global_batch_size=32" in text  # four replicas
    flags = dict(re.findall(r"^--(\S+) ?(.*)$", (tmp_path / "megatron/megatron.args").read_text(), re.MULTILINE))
    assert N % (int(flags["pipeline-model-parallel-size"]) * int(flags["tensor-model-parallel-size"])) == 0
    assert (flags["num-layers"], flags["num-query-groups"], flags["ffn-hidden-size"]) == ("32", "8", "14336")
    config = json.loads((tmp_path / "deepspeed/ds_config.json").read_text())
    assert config["train_batch_size"] == 4 * config["gradient_accumulation_steps"]
    read = from_flags(json.dumps(config))  # the lab's own reader of what others have launched
    assert (read.of_a_replica, read.accumulation, read.job["global_batch"]) == (2, 8, 32)


def test_a_cut_is_kept_where_it_can_be_and_priced_as_the_simulator_does_where_not(shell, tmp_path):
    plan = a_plan(blocks_per_stage=(14, 18), gradient_dtype="fp32")
    lab.save(plan, tmp_path / "plan.json")
    for target in ("torchtitan", "megatron"):
        assert json.loads(shell("export", "plan.json", "-o", target, "--to", target, "--json")[1])["lost"] == []
    layout = f"--pipeline-model-parallel-layout E{'t' * 14}|{'t' * 18}L"
    assert layout in (tmp_path / "megatron/megatron.args").read_text()
    [lost] = json.loads(shell("export", "plan.json", "-o", "ds", "--to", "deepspeed", "--json")[1])["lost"]
    own_s, even_s = (lab.simulate(one).iteration_s for one in (plan, lab.with_job(plan, blocks_per_stage=None)))
    assert lost.endswith(
        f"an iteration takes {even_s:.4g} s instead of {own_s:.4g} ({signed_share(even_s / own_s - 1)})"
    )
    assert f"# Not as planned: {lost}" in (tmp_path / "ds/launch.sh").read_text()


def test_unequal_shares_compression_and_local_updates_are_each_said_with_the_price_of_all(shell, tmp_path):
    fields = {"microbatches_per_replica": (12, 8, 8, 4), "compression": "int8", "synchronise_every": 4}
    plan = a_plan(**fields)
    lab.save(plan, tmp_path / "plan.json")
    *each, together = json.loads(shell("export", "plan.json", "-o", "run", "--to", "megatron", "--json")[1])["lost"]
    assert [line.split(";")[0] for line in each] == [
        "replicas have 12 8 8 4 micro-batches",
        "messages are compressed",
        "replicas average every 4 iterations",
    ]
    plain = lab.with_job(plan, microbatches_per_replica=None, compression="none", synchronise_every=1)
    assert f"all together: an iteration takes {lab.simulate(plain).iteration_s:.4g} s" in together
    assert "12 8 8 4" in export_of_ones_own(shell, tmp_path)  # a script of one's own can have them all


def test_what_the_devices_lack_in_memory_is_said_of_the_job_that_the_framework_has(shell, tmp_path):
    for name, fields in (("over", {}), ("fits", {"n_stages": 8, "sharding": "none", "checkpointing": "block"})):
        plan = a_plan(**fields)
        lab.save(plan, tmp_path / f"{name}.json")
        told = json.loads(shell("export", f"{name}.json", "-o", name, "--to", "megatron", "--json")[1])
        held = lab.memory(plan)
        assert told["lost"] == []
        assert told["lacks"] == ("" if held.fits else held.sentence)
        assert held.fits == (name == "fits")
        said = f"# Out of memory: {told['lacks']}." in (tmp_path / name / "launch.sh").read_text()
        assert said == (name == "over")
    lab.save(a_plan(sharding="zero-3", microbatch=2), tmp_path / "less.json")
    said = " ".join(shell("export", "less.json", "-o", "less", "--to", "megatron")[1].split())
    held = lab.memory(a_plan(sharding="zero-1", microbatch=2))
    assert not held.fits
    assert f"out of memory: {held.sentence}" in said


@pytest.mark.parametrize(
    ("sharding", "known", "taken"),
    [
        ("zero-1", ("none", "zero-2", "zero-3"), "zero-2"),
        ("zero-2", ("none", "zero-1"), "zero-1"),
        ("none", ("zero-2", "zero-3"), "zero-2"),
        ("zero-3", ("none", "zero-3"), "zero-3"),
    ],
)
def test_a_sharding_that_a_framework_lacks_becomes_the_nearest_of_two_as_near_the_one_that_holds_less(
    sharding, known, taken
):
    expressed = Expressed(a_plan(sharding=sharding), "a framework")
    assert expressed.sharded(*known) == expressed.job.sharding == taken
    assert len(expressed.lost) == (taken != sharding)


def export_of_ones_own(shell, folder: Path) -> str:
    assert json.loads(shell("export", "plan.json", "-o", "own", "--to", "slurm", "--json")[1])["lost"] == []
    return (folder / "own/plan.env").read_text()


def test_schedulers_start_every_host_once_and_accelerate_knows_its_keys(shell, tmp_path):
    lab.save(a_plan(n_stages=1, sharding="zero-3"), tmp_path / "plan.json")
    wanted = [word for target in ("accelerate", *SCHEDULERS) for word in ("--to", target)]
    assert shell("export", "plan.json", "-o", "run", *wanted, "--per-host", "2")[0] == 0
    read = {name: (tmp_path / "run" / name).read_text() for name in ("task.yaml", "compose.yaml", "job.sbatch")}
    hosts = [host["name"] for host in yaml.safe_load((tmp_path / "run/hosts.yaml").read_text())["hosts"]]
    assert set(yaml.safe_load((tmp_path / "run/accelerate.yaml").read_text())) <= ACCELERATE_KEYS
    task, services = yaml.safe_load(read["task.yaml"]), yaml.safe_load(read["compose.yaml"])["services"]
    assert (task["num_nodes"], task["resources"]["accelerators"]) == (4, "A100-80GB:2")
    assert f"hosts=({' '.join(hosts)})" in task["run"]
    assert list(services) == hosts
    gpus = [each["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"] for each in services.values()]
    assert [gpu for own in gpus for gpu in own] == [str(gpu) for gpu in range(N)]
    assert f"#SBATCH --nodelist={','.join(hosts)}\n" in read["job.sbatch"]
    held, job = yaml.safe_load_all((tmp_path / "run/job.yaml").read_text())
    assert (job["spec"]["completionMode"], job["spec"]["completions"], job["spec"]["parallelism"]) == ("Indexed", 4, 4)
    assert held["data"]["launch.sh"] == (tmp_path / "run/launch.sh").read_text()


@pytest.mark.parametrize(
    ("plan", "arguments", "complaint"),
    [
        ({}, ("accelerate",), "accelerate has no pipeline, but the plan has 2 stages; wanted 1, or --to megatron"),
        ({"adapters": 8}, ("torchtitan",), "model llama-3-8b has adapters; wanted full training"),
        ({}, ("torchtitan", "--to", "megatron"), "are two frameworks; wanted one, and any scheduler"),
        ({}, ("slurm", "--iterations", "3"), "--iterations is only for run folders; wanted --to without it"),
        ({}, ("nothing",), "'nothing' is not one of 'torchtitan'"),
    ],
)
def test_what_cannot_be_written_is_refused_in_one_line(refuses, tmp_path, plan, arguments, complaint):
    lab.save(a_plan(**plan), tmp_path / "plan.json")
    refuses(complaint, "export", "plan.json", "-o", "run", "--to", *arguments)
    assert not (tmp_path / "run").exists()


def test_a_gpt_has_no_torchtitan_and_a_folder_of_something_else_stays(refuses, tmp_path):
    lab.save(lab.plan("lecture-hall", "tiny", steps=1), tmp_path / "plan.json")
    refuses("model tiny is of family gpt; wanted one of llama", "export", "plan.json", "-o", "run", "--to=torchtitan")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.tex").write_text("")
    elsewhere = ("-o", "mine", "--to", "megatron", "--force")
    refuses("mine: holds thesis.tex; wanted a new folder", "export", "plan.json", *elsewhere)


def test_adapters_are_left_to_a_script_and_said(shell, tmp_path):
    lab.save(a_plan(adapters=8), tmp_path / "plan.json")
    [lost] = json.loads(shell("export", "plan.json", "-o", "run", "--to", "deepspeed", "--json")[1])["lost"]
    assert lost.startswith("adapters are trained; deepspeed has no setting for them")


def in_groups(name: str, **fields: object) -> lab.Plan:
    """A plan of two stages and two replicas on four hosts of four GPUs, each host a device."""
    host = np.arange(16) // 4
    fast = host[:, None] == host[None, :]
    network = lab.Topology.from_matrices(
        np.where(fast, 0.001, 0.1), np.where(fast, 2000.0, 100.0), gpu="A100", hosts=[f"h{n}" for n in host]
    )
    how = {"n_stages": 2, "n_replicas": 2, "schedule": "1f1b", "microbatch": 4, "global_batch": 32} | fields
    return lab.evaluate(network, lab.load_job(name, **how), stages=[[0, 2], [1, 3]])


def test_context_and_expert_parallelism_are_told_where_a_framework_has_them(shell, tmp_path):
    lab.save(in_groups("llama-3-8b", context_parallel=4), tmp_path / "context.json")
    lab.save(in_groups("qwen3-30b-a3b", expert_parallel=2, tensor_parallel=2), tmp_path / "experts.json")
    for plan, target in (("context", "megatron"), ("experts", "megatron"), ("context", "torchtitan")):
        assert shell("export", f"{plan}.json", "-o", f"{plan}-{target}", "--to", target)[0] == 0
        script = (tmp_path / f"{plan}-{target}/launch.sh").read_text()
        assert sum(map(int, re.findall(r"    start \d+ (\d+) ", script))) == 16
    flags = {
        plan: dict(
            re.findall(r"^--(\S+) ?(.*)$", (tmp_path / f"{plan}-megatron/megatron.args").read_text(), re.MULTILINE)
        )
        for plan in ("context", "experts")
    }
    assert (flags["context"]["context-parallel-size"], flags["context"]["micro-batch-size"]) == ("4", "4")
    experts = flags["experts"]
    degrees = ("tensor-model-parallel-size", "expert-model-parallel-size", "context-parallel-size")
    assert [experts[name] for name in degrees] == ["2", "2", "1"]
    assert experts["micro-batch-size"] == "2"  # of a GPU, of whose experts another has half
    assert (experts["num-experts"], experts["moe-layer-freq"], experts["moe-router-topk"]) == ("128", "1", "8")
    assert "qk-layernorm" in experts
    titan = dict(re.findall(r"(\w+)_degree=(\d+)", (tmp_path / "context-torchtitan/plan.py").read_text()))
    assert np.prod([int(degree) for degree in titan.values()]) == 16


def megatrons(plan: lab.Plan) -> tuple[dict[str, str], Launched]:
    of = launched(plan, ["megatron"], port=29400)
    return dict(re.findall(r"^--(\S+) ?(.*)$", of.files["megatron.args"], re.MULTILINE)), of


def test_gradients_in_another_precision_are_told_or_priced():
    """torchtitan 0.3.0 has fp32 alone (TrainingConfig.mixed_precision_reduce); DeepSpeed takes a key."""
    [lost] = launched(plan := a_plan(), ["torchtitan"], port=29400).framework_launch.lost
    own_s, other_s = (lab.simulate(one).iteration_s for one in (plan, lab.with_job(plan, gradient_dtype="fp32")))
    assert lost.startswith("gradients are bf16; torchtitan keeps them in fp32: an iteration takes")
    assert f"{other_s:.4g} s instead of {own_s:.4g}" in lost
    for gradients in (None, "fp32"):
        plan = a_plan(n_stages=1, sharding="zero-3", gradient_dtype=gradients)
        of = launched(plan, ["deepspeed"], port=29400)
        assert from_flags(of.files["ds_config.json"]).strategy.gradient_dtype == gradients


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize("gradients", [None, "fp32"])
def test_megatron_sums_gradients_in_the_plans_precision(dtype, gradients):
    """With --bf16 alone it sums in fp32 (megatron/training/arguments.py), as the lab's reader of its flags knows."""
    plan = a_plan(dtype=dtype, gradient_dtype=gradients)
    flags, _ = megatrons(plan)
    assert ("grad-reduce-in-bf16" in flags) == (plan.job.gradients_in == "bf16")
    read = from_flags(" ".join(f"--{name} {value}" for name, value in flags.items()))
    assert (read.strategy._gradients_in(plan.job) or dtype) == plan.job.gradients_in


def test_what_megatron_needs_for_tensors_sequences_and_experts_that_are_shared():
    """Megatron-LM refuses the first two without this variable, on GPUs before Blackwell, and the third when it trains
    (megatron/core/transformer/moe/moe_layer.py)."""
    for how in ({"tensor_parallel": 4}, {"context_parallel": 4}):
        assert "CUDA_DEVICE_MAX_CONNECTIONS=1 torchrun" in megatrons(in_groups("llama-3-8b", **how))[1].launch()
    assert "MAX_CONNECTIONS" not in megatrons(a_plan())[1].launch()
    plan = in_groups("qwen3-30b-a3b", expert_parallel=2, tensor_parallel=2)
    flags, of = megatrons(plan)
    assert "sequence-parallel" in flags
    assert of.framework_launch.lost[0].startswith(
        "sequence_parallel is off; megatron cannot train experts with tensor parallelism"
    )
    flags, of = megatrons(lab.with_job(plan, sequence_parallel=True))
    assert ("sequence-parallel" in flags, of.framework_launch.lost) == (True, ())


@pytest.mark.parametrize("batch", [8, 6, 3])
def test_stages_interleave_and_alternate_where_the_framework_takes_so_many_micro_batches(batch):
    """Megatron-LM interleaves groups of as many as there are stages (core/pipeline_parallel/schedules.py); torch has
    1F1B for as many at least (torch/distributed/pipelining/schedules.py: Schedule1F1B)."""
    plan = a_plan(n_stages=4, schedule="interleaved-1f1b", global_batch=2 * batch, gradient_dtype="fp32")
    flags, of = megatrons(plan)
    whole = batch % 4 == 0
    assert ("num-virtual-stages-per-pipeline-rank" in flags, of.framework_launch.lost == ()) == (whole, whole)
    if not whole:
        assert (
            f"interleaved-1f1b of {batch} micro-batches on 4 stages; megatron has 1f1b: an iter"
            in of.framework_launch.lost[0]
        )
    titan = launched(lab.with_job(plan, schedule="1f1b"), ["torchtitan"], port=29400)
    assert ('"GPipe"' in titan.files["plan.py"], titan.framework_launch.lost != ()) == (batch < 4, batch < 4)


def test_a_slurm_job_finds_its_folder_wherever_it_is_submitted(shell, tmp_path):
    """Slurm runs a copy of the script where sbatch was called, and says whose copy it is."""
    lab.save(a_plan(), tmp_path / "plan.json")
    assert shell("export", "plan.json", "-o", "my run", "--to", "slurm")[0] == 0
    text, tools = (tmp_path / "my run/job.sbatch").read_text(), tmp_path / "tools"
    tools.mkdir()
    said = {"scontrol": f"echo JobId=1 JobName=a; echo '   Command={tmp_path}/my run/job.sbatch'", "srun": "pwd"}
    for name, line in said.items():
        (tools / name).write_text(f"#!/bin/sh\n{line}\n")
        (tools / name).chmod(0o755)
    path = {"PATH": f"{tools}:/usr/bin:/bin", "SLURM_JOB_ID": "1"}
    ran = subprocess.run(["bash", "-c", text], env=path, cwd=tools, capture_output=True, text=True, check=True)
    assert ran.stdout == f"{tmp_path}/my run\n"


@pytest.mark.parametrize(
    ("name", "fields", "target", "words"),
    [
        ("llama-3-8b", {"context_parallel": 4}, "deepspeed", "context_parallel is 4; wanted 1, or --to megatron"),
        ("qwen3-30b-a3b", {"expert_parallel": 4}, "deepspeed", "expert_parallel is 4; wanted 1, or --to megatron"),
        ("deepseek-v3", {"expert_parallel": 4}, "megatron", "of family moe with custom sizes"),
        ("qwen3-30b-a3b", {"context_parallel": 4}, "torchtitan", "is of family moe; wanted one of llama"),
    ],
)
def test_a_framework_that_is_told_of_none_refuses(refuses, tmp_path, name, fields, target, words):
    lab.save(in_groups(name, **fields), tmp_path / "plan.json")
    refuses(words, "export", "plan.json", "-o", "run", "--to", target)


def test_skypilots_reader_makes_the_same_gpu_of_its_name_for_it():
    """SkyPilot's A100 has 40 GB, the lab's 80."""
    spelled_out = pytest.importorskip("dtfm_lab.extensions.machines.skypilot").spelled_out
    for gpu in ("A100", "A100 40GB", "H100", "RTX 4090", "RTX A6000", "V100 32GB", "RTX 6000 Ada"):
        assert known_gpu(spelled_out(accelerator_of(gpu))) == gpu


def test_a_skypilot_task_asks_for_the_plans_one_kind_of_gpu(shell, tmp_path):
    job = lab.load_job("gpt2-small", n_stages=2, n_replicas=2, schedule="1f1b", global_batch=8, microbatch=1)
    for gpus, wanted in ((["A100"] * 4, ""), (["A100", "T4"] * 2, "are A100 and T4; wanted one kind")):
        network = lab.Topology.from_matrices(np.ones((4, 4)), np.ones((4, 4)), gpu=gpus)
        lab.save(lab.evaluate(network, job, rank_map=range(4)), "plan.json")
        code, _, error = shell("export", "plan.json", "-o", f"run{len(wanted)}", "--to", "skypilot", "--per-host", "2")
        assert (code != 0, wanted in error) == (bool(wanted), True)
    assert "accelerators: A100-80GB:2" in (tmp_path / "run0/task.yaml").read_text()


LATENT = ("deepseek", "kimi")
"""Models with latent attention, which Megatron-LM is not told of."""


@pytest.mark.parametrize("name", [name for name in MODELS if not name.startswith(LATENT)])
def test_megatrons_arguments_are_read_back_as_the_model_and_the_shape(shell, name):
    job = lab.load_job("tiny", model=MODELS[name], n_stages=2, n_replicas=2, global_batch=8, microbatch=1)
    lab.save(lab.evaluate(NETWORK.subset(range(4)), job, rank_map=range(4)), "plan.json")
    assert shell("export", "plan.json", "-o", "run", "--to", "megatron", "--per-host", "2")[0] == 0
    launch = from_flags(Path("run/megatron.args").read_text())
    assert launch.job["model"].layers == MODELS[name].layers
    assert (launch.of_a_replica, launch.job["microbatch"], launch.job["global_batch"]) == (2, 1, 8)
