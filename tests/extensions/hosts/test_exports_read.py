"""Exports read by the frameworks' own parsers, each where it is installed: ``make exports`` installs them all."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import yaml

import dtfm_lab as lab
from dtfm_lab.extensions.hosts.launchers import launched

N = 8
NETWORK = lab.Topology.from_matrices(np.full((N, N), 0.1), np.full((N, N), 100.0), gpu=["A100"] * N)
HOST = np.arange(16) // 4
FOUR_HOSTS = lab.Topology.from_matrices(
    np.where(HOST[:, None] == HOST, 0.001, 0.1),
    np.where(HOST[:, None] == HOST, 2000.0, 100.0),
    gpu="A100",
    hosts=[f"h{n}" for n in HOST],
)
STAGES = pytest.mark.parametrize("n_stages", [2, 1, 4])


def exported(shell, n_stages: int, *to: str) -> Path:
    """The folder of a plan of llama-3-8b, two hosts of four GPUs; with whole pipelines on a device, by ZeRO-3."""
    sharding = "zero-3" if n_stages == 1 else "none"
    job = lab.load_job("llama-3-8b", n_stages=n_stages, n_replicas=N // n_stages, schedule="1f1b", dtype="bf16")
    job = job.with_fields(global_batch=32, microbatch=1, sharding=sharding)
    plan = lab.evaluate(NETWORK, job, rank_map=np.random.default_rng(n_stages).permutation(N).tolist())
    lab.save(plan, "plan.json")
    chosen = [word for each in to for word in ("--to", each)]
    code, _, error = shell("export", "plan.json", "-o", "run", "--per-host", "4", *chosen)
    assert code == 0, error
    return Path("run")


@STAGES
def test_torchtitan_takes_the_configuration_and_its_model_has_the_parameters(shell, n_stages, monkeypatch):
    manager = pytest.importorskip("torchtitan.config.manager")
    folder = exported(shell, n_stages, "torchtitan")
    monkeypatch.syspath_prepend(folder.resolve())
    monkeypatch.delitem(__import__("sys").modules, "plan", raising=False)
    read = manager.ConfigManager().parse_args(["--module", "plan", "--config", "plan"])
    degrees = read.parallelism
    assert (degrees.pipeline_parallel_degree, read.training.global_batch_size) == (n_stages, 32)
    assert degrees.data_parallel_replicate_degree * degrees.data_parallel_shard_degree == N // n_stages
    torch = pytest.importorskip("torch")
    with torch.device("meta"):
        model = read.model_spec.model.build()
    assert sum(parameter.numel() for parameter in model.parameters()) == lab.load_job("llama-3-8b").model.parameters
    named = {name for part in degrees.module_fqns_per_model_part or [] for name in part}
    assert not named - {name for name, _ in model.named_modules()}


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        ("gpt3-xl", {"n_stages": 4, "schedule": "interleaved-1f1b", "global_batch": 32}),
        ("gpt3-xl", {"n_stages": 8, "schedule": "interleaved-1f1b", "global_batch": 18}),
        ("gpt3-xl", {"n_stages": 4, "blocks_per_stage": (5, 7, 7, 5), "gradient_dtype": "fp32"}),
        ("gpt3-xl", {"n_stages": 8, "schedule": "interleaved-1f1b", "checkpointing": "stage"}),
        ("gpt3-13b", {"n_stages": 2, "sharding": "zero-1", "checkpointing": "block", "overlap": True}),
        ("gpt3-13b", {"n_stages": 2, "tensor_parallel": 4, "sequence_parallel": True, "checkpointing": "stage"}),
        ("gpt3-13b", {"n_stages": 8, "dtype": "fp16"}),
        ("gpt3-13b", {"n_stages": 1, "dtype": "fp32", "sharding": "zero-3"}),
        ("llama-3-8b", {"n_stages": 2, "context_parallel": 4, "microbatch": 4}),
        ("llama-3-8b", {"n_stages": 2, "context_parallel": 2, "tensor_parallel": 2, "microbatch": 2}),
        ("llama-3-8b", {"n_stages": 2, "compression": "int8", "synchronise_every": 4, "schedule": "zb-h1"}),
        ("mixtral-8x7b", {"n_stages": 2, "expert_parallel": 4, "microbatch": 4}),
        ("mixtral-8x7b", {"n_stages": 2, "expert_parallel": 2, "tensor_parallel": 2, "microbatch": 2}),
        ("mixtral-8x7b", {"n_stages": 2, "expert_parallel": 2, "context_parallel": 2, "microbatch": 2}),
        ("qwen3-30b-a3b", {"n_stages": 4, "expert_parallel": 4, "microbatch": 4, "sharding": "zero-1"}),
        ("qwen2-0.5b", {"n_stages": 4}),
    ],
)
def test_megatron_takes_the_arguments_and_counts_the_parameters(model, fields, monkeypatch):
    """As its start does: flags and sizes are checked against each other and the number of processes, GPUs left out."""
    arguments = pytest.importorskip("megatron.training.arguments")
    config = pytest.importorskip("megatron.training.argument_utils")
    memory = pytest.importorskip("megatron.training.theoretical_memory_usage")
    fields = {"schedule": "1f1b", "dtype": "bf16", "global_batch": 64, "microbatch": 1} | fields
    group = math.prod(fields.get(f"{what}_parallel", 1) for what in ("tensor", "context", "expert"))
    replicas = len(FOUR_HOSTS) // group // fields["n_stages"]
    job = lab.load_job("gpt3-xl", model=model, n_replicas=replicas, **fields)
    plan = lab.evaluate(FOUR_HOSTS, job, rank_map=range(fields["n_stages"] * replicas))
    told = launched(plan, ["megatron"], port=29400)
    flags = [line for line in told.files["megatron.args"].splitlines() if not line.startswith("#")]
    monkeypatch.setattr("sys.argv", ["pretrain_gpt.py", *" ".join(flags).split()])
    monkeypatch.setenv("WORLD_SIZE", str(sum(agent.processes for agent in told.agents)))
    for name, value in re.findall(r"([A-Z_]+)=(\d+) ", told.framework_launch.starter):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda *_: (9, 0))
    monkeypatch.setattr(arguments, "get_device_arch_version", lambda: 9)
    read = arguments.parse_args()
    arguments.validate_args(read)
    has = told.framework_launch.job
    sharers = (has.tensor_parallel or 1) * has.context_parallel * has.n_stages
    assert (read.world_size, read.data_parallel_size) == (len(FOUR_HOSTS), len(FOUR_HOSTS) // sharers)
    assert read.global_batch_size == read.micro_batch_size * read.data_parallel_size * has.n_microbatches
    assert read.accumulate_allreduce_grads_in_fp32 == (has.gradients_in == "fp32" != has.dtype)
    read.apply_rope_fusion = False  # of Transformer Engine, which needs GPUs
    made = config.core_transformer_config_from_args(read)
    assert made.num_moe_experts is None or made.sequence_parallel or made.tensor_model_parallel_size == 1
    if read.virtual_pipeline_model_parallel_size is not None:
        assert has.n_microbatches % has.n_stages == 0  # forward_backward_pipelining_with_interleaving
    read.padded_vocab_size = read.vocab_size
    said: list[str] = []
    monkeypatch.setattr(memory, "print", said.append, raising=False)
    memory.compute_weight_and_optimizer_memory(read, verbose=True)
    [counted] = re.findall(r"Total number of parameters in billions: ([\d.]+)", " ".join(said))
    assert float(counted) == pytest.approx(has.modelled().parameters / 1e9, rel=0.01, abs=0.01)


@STAGES
def test_deepspeed_takes_the_configuration(shell, n_stages, monkeypatch):
    config = pytest.importorskip("deepspeed.runtime.config")
    folder = exported(shell, n_stages, "deepspeed")

    class Replicas:
        """Processes that hold other sequences, as DeepSpeed's mesh tells them."""

        def get_data_parallel_world_size(self) -> int:
            return N // n_stages

    monkeypatch.setattr(config.dist, "get_world_size", lambda *_: N)
    monkeypatch.setattr(config.dist, "get_rank", lambda *_: 0)
    read = config.DeepSpeedConfig(json.loads((folder / "ds_config.json").read_text()), mpu=Replicas())
    assert (read.train_batch_size, read.train_micro_batch_size_per_gpu) == (32, 1)
    assert read.gradient_accumulation_steps == 32 * n_stages // N
    assert read.zero_optimization_stage == (3 if n_stages == 1 else 0)


def test_accelerate_takes_the_configuration(shell):
    config = pytest.importorskip("accelerate.commands.config.config_args")
    folder = exported(shell, 1, "accelerate")
    read = config.ClusterConfig.from_yaml_file(folder / "accelerate.yaml")
    assert (str(read.distributed_type.value), read.num_processes, read.mixed_precision) == ("FSDP", N, "bf16")
    assert read.fsdp_config["fsdp_version"] == 2


@STAGES
def test_skypilot_takes_the_task(shell, n_stages):
    sky = pytest.importorskip("sky")
    task = sky.Task.from_yaml(str(exported(shell, n_stages, "skypilot") / "task.yaml"))
    (resources,) = task.resources
    assert (task.num_nodes, resources.accelerators) == (2, {"A100-80GB": 4})


@STAGES
def test_kubernetes_takes_the_job(shell, n_stages):
    validate = pytest.importorskip("kubernetes_validate")
    documents = list(yaml.safe_load_all((exported(shell, n_stages, "kubernetes") / "job.yaml").read_text()))
    for document in documents:
        validate.validate(document, "1.34", strict=True)
    pods = [document["spec"] for document in documents if document["kind"] == "Job"]
    assert math.prod((sum(spec["completions"] for spec in pods), 4)) == N
