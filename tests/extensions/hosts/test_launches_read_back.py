"""What the lab writes for a training framework is read back as the plan that it was written of."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dtfm_lab as lab
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job, gpt, llama, moe
from dtfm_lab.domain.network import Device, Topology
from dtfm_lab.extensions.hosts.expressed import Expressed
from dtfm_lab.extensions.hosts.frameworks import FRAMEWORKS

systems = pytest.importorskip("dtfm_lab.extensions.systems.api", reason="reads launches")

HOSTS = tuple(Device(name=f"d{i}", peak_flop_per_s=1e12, memory_bytes=80 * 2**30, host=f"h{i // 4}") for i in range(8))
NETWORK = Topology(HOSTS, np.zeros((8, 8)), np.full((8, 8), 1e9), name="two-hosts")
SIZES = {"d_model": 64, "n_heads": 8, "seq_len": 32, "vocab_size": 512}
MODELS = {
    "llama": llama(n_layers=8, d_ff=192, n_kv_heads=4, **SIZES),
    "gpt": gpt(n_layers=8, **SIZES),
    "moe": moe(n_layers=8, d_expert=64, n_experts=4, experts_per_token=2, **SIZES),
}
FILES = {
    "megatron": "megatron.args",
    "deepspeed": "ds_config.json",
    "torchtitan": "plan.py",
    "accelerate": "accelerate.yaml",
}
COMPARED = ("n_stages", "n_replicas", "tensor_parallel", "global_batch", "sharding", "dtype", "gradients_in")


@st.composite
def exported(draw):
    """A framework, the job that it was told, and its file's text."""
    framework = draw(st.sampled_from(sorted(FILES)))
    model = MODELS[draw(st.sampled_from(sorted(MODELS)))]
    shared, n_stages = draw(st.sampled_from([1, 2])), draw(st.sampled_from([1, 1, 2, 4]))
    fields = {
        "sharding": draw(st.sampled_from(["none", "zero-1", "zero-2", "zero-3"])),
        "checkpointing": draw(st.sampled_from(["none", "selective", "block", "stage"])),
        "dtype": draw(st.sampled_from(["bf16", "fp16", "fp32"])),
        "tensor_parallel": shared,
        "overlap": draw(st.booleans()),
        "schedule": draw(st.sampled_from(["1f1b", "gpipe", "interleaved-1f1b"])),
        "blocks_per_stage": draw(st.sampled_from([None, (1, 3, 3, 1)])) if n_stages == 4 else None,
    }
    try:
        job = Job(
            model=model,
            n_stages=n_stages,
            n_replicas=8 // n_stages // shared,
            global_batch=32,
            microbatch=draw(st.sampled_from([1, 2])),
            synchronisation="ring",
            **fields,
        )
        grouped = NETWORK.grouped(shared)
        stages = np.arange(len(grouped)).reshape(n_stages, -1).tolist()
        plan = lab.evaluate(grouped, job, stages=stages)
        told = FRAMEWORKS[framework](Expressed(plan, framework))
    except LabError:  # what the schedule or the framework does not allow
        return None
    return framework, told.job, told.files[FILES[framework]]


@settings(max_examples=25, deadline=None)
@given(exported())
def test_what_is_exported_is_read_back(one):
    if one is None:
        return
    framework, job, text = one
    launch = systems.from_flags(text)
    work = Job(model=job.model, global_batch=job.global_batch, dtype=job.dtype)
    read = systems.outcome_of(launch.strategy, *launch.on(NETWORK, work)).plan.job
    for field in COMPARED:
        if framework == "accelerate" and field == "gradients_in":
            continue  # it exchanges them in the precision of numbers, whatever the plan says
        if field == "sharding" and job.n_replicas == 1:
            continue  # a single replica has no other to split states with: its file is that of all kinds
        assert getattr(read, field) == getattr(job, field), (field, text)
    assert read.modelled().parameters == job.modelled().parameters
    if framework != "accelerate":  # which is not told the micro-batch
        assert read.microbatch == job.microbatch
    if framework in ("megatron", "torchtitan"):
        assert read.stage_layers == job.stage_layers
        alone = job.n_stages * job.stages_per_device == job.modelled().n_blocks  # a stage of one block is that block
        same = {"stage": "block"} if alone else {}
        assert same.get(read.checkpoints, read.checkpoints) == same.get(job.checkpoints, job.checkpoints)
    if framework == "accelerate" and job.sharding != "none":
        assert read.checkpoints == job.checkpoints
