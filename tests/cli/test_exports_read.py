"""Exports read by the frameworks' own parsers, each where it is installed: ``make exports`` installs them all."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import yaml

import dtfm_lab as lab

N = 8
NETWORK = lab.Topology.from_matrices(np.full((N, N), 0.1), np.full((N, N), 100.0), gpu=["A100"] * N)
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
